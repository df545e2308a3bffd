//! Removing finished jobs, with what hangs on them.

use rusqlite::Params;

use super::apply::BATCH;
use super::error::Result;
use super::failures;
use super::selection::Finished;
use super::store::{Patience, Store};
use super::writer::Write;

impl Store {
    /// Removes jobs of these kinds that finished at `before` or earlier; returns how many.
    pub fn purge(
        &self,
        queue: &str,
        before: i64,
        kinds: &[Finished],
        limit: Option<usize>,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let mut total = 0;
        let limit = limit.unwrap_or(usize::MAX);
        if kinds.contains(&Finished::Acked) {
            self.roll_up(queue, patience)?;
        }
        for kind in kinds {
            let sql = match kind {
                Finished::Acked => {
                    "SELECT id FROM messages INDEXED BY m_taken
                     WHERE queue = ?1 AND state = 4 AND at <= ?2 ORDER BY at LIMIT ?3"
                }
                Finished::Failed => {
                    "SELECT id FROM messages INDEXED BY m_failed
                     WHERE queue = ?1 AND state = 5 AND at <= ?2 ORDER BY at LIMIT ?3"
                }
                Finished::Discarded => {
                    "SELECT id FROM messages INDEXED BY m_discarded
                     WHERE queue = ?1 AND reason = 'discarded' AND at <= ?2 ORDER BY at LIMIT ?3"
                }
            };
            loop {
                let batch = BATCH.min(limit - total);
                let done = self.write(patience, |write| {
                    let Some(queue) = write.known_queue(queue)? else { return Ok(0) };
                    remove_found(write, sql, (queue, before, batch))
                })?;
                total += done;
                if done < BATCH || total == limit {
                    break;
                }
            }
        }
        Ok(total)
    }
}

/// Removes the finished jobs whose ids a query finds; returns how many.
pub(super) fn remove_found(
    write: &mut Write,
    sql: &str,
    params: impl Params,
) -> rusqlite::Result<usize> {
    let ids = write
        .db()
        .prepare_cached(sql)?
        .query_map(params, |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    for id in &ids {
        remove(write, *id)?;
    }
    Ok(ids.len())
}

/// Removes a finished job; its id is remembered where it was the last, and never given again.
pub(super) fn remove(write: &mut Write, id: i64) -> rusqlite::Result<()> {
    if id == write.last_id()? {
        write
            .db()
            .prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE key = 1")?
            .execute([id])?;
    }
    failures::leave(write, id)?;
    write.db().prepare_cached("DELETE FROM history WHERE message = ?1")?.execute([id])?;
    failpoint!("purge.history_gone");
    write.db().prepare_cached("DELETE FROM messages WHERE id = ?1")?.execute([id])?;
    failpoint!("purge.removed");
    Ok(())
}
