//! Changing jobs from outside: retry, cancel, discard, purge, reclaim, pause.

use super::error::Result;
use super::groups;
use super::records::{Action, Applied, Cursor, Filter, Record, State, Verb};
use super::scan::{find_id, load, record, record_matches, walk};
use super::settle::{Delivered, LAPSES, bury, lapse};
use super::store::{Patience, Store};
use super::writer::Write;

/// Jobs that one transaction changes; the lock is free in between.
const BATCH: usize = 500;
/// Rows that one transaction looks at.
const LOOK: usize = 5_000;

impl Store {
    /// Moves a dead letter back; None where there is no such job, false where it isn't failed.
    pub fn retry_failed(
        &self,
        queue: &str,
        id: &str,
        patience: &dyn Patience,
    ) -> Result<Option<bool>> {
        self.change(queue, id, patience, |write, record, queue| {
            if record.state != State::Failed {
                return Ok(false);
            }
            retry(write, queue, record)?;
            Ok(true)
        })
    }

    /// Makes a waiting job a dead letter, or asks a running one to stop; as `retry_failed`.
    pub fn cancel(&self, queue: &str, id: &str, patience: &dyn Patience) -> Result<Option<bool>> {
        self.change(queue, id, patience, |write, record, _| match record.state {
            State::Acked | State::Failed => Ok(false),
            State::Processing => {
                write
                    .db()
                    .prepare_cached("UPDATE messages SET cancel = 1 WHERE id = ?1")?
                    .execute([record.id])?;
                Ok(true)
            }
            State::Ready | State::Delayed | State::Blocked => {
                take_away(write, record.id, "cancelled")?;
                Ok(true)
            }
        })
    }

    /// Does `action` to every job that matches, in many short transactions.
    pub fn apply(
        &self,
        queue: &str,
        action: Action,
        filter: &Filter,
        limit: usize,
        patience: &dyn Patience,
    ) -> Result<Applied> {
        let mut total = Applied::default();
        if let Some(ids) = &filter.ids {
            let reach = ids.len().min(limit);
            for chunk in ids[..reach].chunks(BATCH) {
                self.apply_to_ids(queue, action, filter, chunk, &mut total, patience)?;
            }
            total.more = reach < ids.len();
            return Ok(total);
        }
        let mut after: Option<Cursor> = None;
        while total.done < limit {
            let batch = BATCH.min(limit - total.done);
            let (done, next) = self.write(patience, |write| {
                let Some(queue) = write.known_queue(queue)? else { return Ok((0, None)) };
                let times = self.times();
                let found = walk(write.db(), queue, filter, after, (batch, LOOK), |row| {
                    record(row, times)
                })?;
                for record in &found.items {
                    act(write, queue, action, record)?;
                }
                Ok((found.items.len(), found.next))
            })?;
            total.done += done;
            after = next;
            total.more = after.is_some();
            if !total.more {
                break;
            }
        }
        Ok(total)
    }

    fn apply_to_ids(
        &self,
        queue: &str,
        action: Action,
        filter: &Filter,
        ids: &[String],
        total: &mut Applied,
        patience: &dyn Patience,
    ) -> Result<()> {
        let part = self.write(patience, |write| {
            let mut part = Applied::default();
            let queue = write.known_queue(queue)?;
            let times = self.times();
            for id in ids {
                let id = match queue {
                    Some(queue) => find_id(write.db(), queue, id)?,
                    None => None,
                };
                let record = match id {
                    Some(id) => load(write.db(), id, times)?,
                    None => None,
                };
                match (queue, record) {
                    (Some(queue), Some(record)) if record_matches(&record, filter) => {
                        act(write, queue, action, &record)?;
                        part.done += 1;
                    }
                    (_, Some(_)) => part.changed += 1,
                    _ => part.not_found += 1,
                }
            }
            Ok(part)
        })?;
        total.done += part.done;
        total.changed += part.changed;
        total.not_found += part.not_found;
        Ok(())
    }

    /// Removes jobs that finished at `before` or earlier; returns how many.
    pub fn purge(
        &self,
        queue: &str,
        before: i64,
        include_failed: bool,
        limit: Option<usize>,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let mut total = 0;
        let limit = limit.unwrap_or(usize::MAX);
        for sql in [
            "SELECT id FROM messages INDEXED BY m_taken
             WHERE queue = ?1 AND state = 4 AND at <= ?2 ORDER BY at LIMIT ?3",
            "SELECT id FROM messages INDEXED BY m_failed
             WHERE queue = ?1 AND state = 5 AND at <= ?2 ORDER BY at LIMIT ?3",
        ]
        .into_iter()
        .take(if include_failed { 2 } else { 1 })
        {
            loop {
                let batch = BATCH.min(limit - total);
                let done = self.write(patience, |write| {
                    let Some(queue) = write.known_queue(queue)? else { return Ok(0) };
                    let ids = write
                        .db()
                        .prepare_cached(sql)?
                        .query_map((queue, before, batch), |row| row.get(0))?
                        .collect::<rusqlite::Result<Vec<i64>>>()?;
                    for id in &ids {
                        remove(write, *id)?;
                    }
                    Ok(ids.len())
                })?;
                total += done;
                if done < BATCH || total == limit {
                    break;
                }
            }
        }
        Ok(total)
    }

    /// Gives back every job whose lease ran out; returns how many.
    pub fn reclaim(&self, queue: &str, max_retries: i64, patience: &dyn Patience) -> Result<usize> {
        let mut total = 0;
        loop {
            let done = self.write(patience, |write| match write.known_queue(queue)? {
                Some(queue) => lapse(write, queue, max_retries, LAPSES),
                None => Ok(0),
            })?;
            total += done;
            if done < LAPSES {
                return Ok(total);
            }
        }
    }

    /// Stops or resumes delivery, in every process.
    pub fn set_paused(&self, queue: &str, paused: bool, patience: &dyn Patience) -> Result<()> {
        self.write(patience, |write| {
            let queue = write.queue(queue)?;
            write.ring = !paused;
            write
                .db()
                .prepare_cached("UPDATE queues SET paused = ?2 WHERE id = ?1")?
                .execute((queue, paused))?;
            Ok(())
        })
    }

    fn change(
        &self,
        queue: &str,
        id: &str,
        patience: &dyn Patience,
        work: impl Fn(&mut Write, &Record, i64) -> rusqlite::Result<bool>,
    ) -> Result<Option<bool>> {
        self.write(patience, |write| {
            let Some(queue) = write.known_queue(queue)? else { return Ok(None) };
            let Some(id) = find_id(write.db(), queue, id)? else { return Ok(None) };
            match load(write.db(), id, self.times())? {
                Some(record) => work(write, &record, queue).map(Some),
                None => Ok(None),
            }
        })
    }
}

fn act(write: &mut Write, queue: i64, action: Action, record: &Record) -> rusqlite::Result<()> {
    match action {
        Action::Retry => retry(write, queue, record),
        Action::Discard => take_away(write, record.id, "discarded"),
        Action::Purge => remove(write, record.id),
    }
}

/// A failed job is ready again, or leads or waits in its group, and starts counting anew.
fn retry(write: &mut Write, queue: i64, record: &Record) -> rusqlite::Result<()> {
    let leads = match &record.group {
        Some(group) => groups::leads_when_retried(write, queue, group, record.id)?,
        None => true,
    };
    let stamp = write.stamp()?;
    let (state, at) = if leads { (State::Ready, stamp) } else { (State::Blocked, 0) };
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = ?2, since = ?3, at = ?4, attempts = 0, cancel = 0,
               reason = NULL WHERE id = ?1",
        )?
        .execute((record.id, state as i64, stamp, at))?;
    failpoint!("repair.retried");
    write.ring = true;
    Ok(())
}

/// Makes a job that nobody works on a dead letter.
fn take_away(write: &mut Write, id: i64, reason: &str) -> rusqlite::Result<()> {
    match Delivered::load(write.db(), id)? {
        Some(job) => bury(write, &job, Verb::Fail, reason, None),
        None => Ok(()),
    }
}

/// Removes a finished job; its id is remembered where it was the last, and never given again.
fn remove(write: &mut Write, id: i64) -> rusqlite::Result<()> {
    if id == write.last_id()? {
        write
            .db()
            .prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE key = 1")?
            .execute([id])?;
    }
    write.db().prepare_cached("DELETE FROM history WHERE message = ?1")?.execute([id])?;
    failpoint!("repair.history_gone");
    write.db().prepare_cached("DELETE FROM messages WHERE id = ?1")?.execute([id])?;
    failpoint!("repair.removed");
    Ok(())
}
