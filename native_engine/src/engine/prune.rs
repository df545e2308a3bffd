//! Removing acked and discarded jobs past their retention, in small steps.

use super::error::Result;
use super::purge::{remove, remove_found};
use super::records::Cursor;
use super::selection::Finished;
use super::store::{Patience, Store, lock};

/// Jobs that one transaction looks at.
const STEP: usize = 250;

impl Store {
    /// Removes up to `limit` acked or discarded jobs whose retention is over; returns how many.
    ///
    /// `retention` is the queue's, None to keep for ever; a job's own goes before it.
    pub fn prune(
        &self,
        queue: &str,
        retention: Option<i64>,
        limit: usize,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let mut total = 0;
        self.roll_up(queue, patience)?;
        while total < limit {
            let done = self.prune_own(queue, STEP.min(limit - total), patience)?;
            total += done;
            if done < STEP {
                break;
            }
        }
        if let Some(retention) = retention {
            total += self.prune_others(queue, retention, limit - total, patience)?;
            let before = self.now().saturating_sub(retention);
            let rest = Some(limit - total);
            total += self.purge(queue, before, &[Finished::Discarded], rest, patience)?;
        }
        Ok(total)
    }

    fn prune_own(&self, queue: &str, limit: usize, patience: &dyn Patience) -> Result<usize> {
        self.write(patience, |write| {
            let Some(queue) = write.known_queue(queue)? else { return Ok(0) };
            let sql = "SELECT id FROM messages INDEXED BY m_kept
                 WHERE queue = ?1 AND state = 4 AND retention IS NOT NULL
                   AND at + retention <= ?2 ORDER BY at + retention LIMIT ?3";
            remove_found(write, sql, (queue, write.now, limit))
        })
    }

    /// Removes what has no retention of its own; jobs with one are passed over once, not each time.
    fn prune_others(
        &self,
        name: &str,
        retention: i64,
        limit: usize,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let before = self.now().saturating_sub(retention);
        let start = lock(&self.pruned).get(name).copied().filter(|(at, _)| *at <= before);
        let mut after: Cursor = start.unwrap_or((i64::MIN, 0));
        let mut total = 0;
        while total < limit {
            let step = STEP.min(limit - total);
            let (looked, done, last) = self.write(patience, |write| {
                let Some(queue) = write.known_queue(name)? else { return Ok((0, 0, after)) };
                let rows = write
                    .db()
                    .prepare_cached(
                        "SELECT id, at, retention IS NULL FROM messages INDEXED BY m_taken
                         WHERE queue = ?1 AND state = 4 AND (at, id) > (?2, ?3) AND at <= ?4
                         ORDER BY at, id LIMIT ?5",
                    )?
                    .query_map((queue, after.0, after.1, before, step), |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })?
                    .collect::<rusqlite::Result<Vec<(i64, i64, bool)>>>()?;
                let mut done = 0;
                for (id, _, plain) in &rows {
                    if *plain {
                        remove(write, *id)?;
                        done += 1;
                    }
                }
                Ok((rows.len(), done, rows.last().map_or(after, |(id, at, _)| (*at, *id))))
            })?;
            total += done;
            after = last;
            if looked < step {
                break;
            }
        }
        lock(&self.pruned).insert(name.to_owned(), after);
        Ok(total)
    }
}
