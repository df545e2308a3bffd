//! Jobs that are put at most once, whatever became of them since.

use super::error::Result;
use super::records::{Put, State};
use super::store::{Patience, Store};
use super::writer::{Write, queue_id};

/// Notes that a job was put; whether it was before.
pub(super) fn note(write: &Write, queue: i64, job_id: &str) -> rusqlite::Result<bool> {
    let new = write
        .db()
        .prepare_cached("INSERT OR IGNORE INTO once VALUES (?1, ?2, ?3)")?
        .execute((queue, job_id, write.now))?;
    Ok(new == 0)
}

/// What is said of a job that was put before and is gone.
pub(super) fn gone(job_id: &str) -> Put {
    Put { id: 0, created: false, state: State::Acked, met: Some(job_id.to_owned()) }
}

impl Store {
    /// Some ids of jobs that were put once at `before` or earlier.
    pub fn once_ids(
        &self,
        queue: &str,
        before: i64,
        limit: usize,
        patience: &dyn Patience,
    ) -> Result<Vec<String>> {
        self.read(patience, |db| {
            let Some(queue) = queue_id(db, queue)? else { return Ok(Vec::new()) };
            db.prepare_cached("SELECT job_id FROM once WHERE queue = ?1 AND at <= ?2 LIMIT ?3")?
                .query_map((queue, before, limit), |row| row.get(0))?
                .collect()
        })
    }

    /// Forgets that jobs were put once.
    pub fn forget_once(&self, queue: &str, ids: &[String], patience: &dyn Patience) -> Result<()> {
        self.write(patience, |write| {
            let Some(queue) = write.known_queue(queue)? else { return Ok(()) };
            for id in ids {
                write
                    .db()
                    .prepare_cached("DELETE FROM once WHERE queue = ?1 AND job_id = ?2")?
                    .execute((queue, id))?;
            }
            Ok(())
        })
    }
}
