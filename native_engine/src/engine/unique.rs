//! Unique keys: while a queue has a live job of a key, it takes no other of that key.
//!
//! The key holds while `unique_until` is not NULL: as long as the job is live, and after
//! that until the time it says.

use rusqlite::{Connection, OptionalExtension};

use super::records::State;
use super::writer::Write;

/// The job that holds a key.
pub(super) struct Holder {
    pub(super) id: i64,
    pub(super) state: i64,
    pub(super) at: i64,
    job_id: Option<String>,
    until: i64,
}

impl Holder {
    /// The id by which callers know the job.
    pub(super) fn public_id(self) -> String {
        self.job_id.unwrap_or_else(|| self.id.to_string())
    }

    fn is_over(&self, now: i64) -> bool {
        self.until <= now && [State::Acked as i64, State::Failed as i64].contains(&self.state)
    }
}

/// The job that holds `key`; one that has finished, and whose time is over, lets it go.
pub(super) fn holder(write: &Write, queue: i64, key: &str) -> rusqlite::Result<Option<Holder>> {
    let found = write
        .db()
        .prepare_cached(
            "SELECT id, state, at, job_id, unique_until FROM messages INDEXED BY m_unique
             WHERE queue = ?1 AND unique_key = ?2 AND unique_until IS NOT NULL",
        )?
        .query_row((queue, key), |row| {
            Ok(Holder {
                id: row.get(0)?,
                state: row.get(1)?,
                at: row.get(2)?,
                job_id: row.get(3)?,
                until: row.get(4)?,
            })
        })
        .optional()?;
    match found {
        Some(holder) if holder.is_over(write.now) => {
            set_until(write.db(), holder.id, None)?;
            Ok(None)
        }
        found => Ok(found),
    }
}

/// A job that held a key until `until` has finished: it lets go, unless its time runs on.
pub(super) fn let_go(write: &Write, id: i64, until: i64) -> rusqlite::Result<()> {
    if until <= write.now { set_until(write.db(), id, None) } else { Ok(()) }
}

/// A finished job lives again: it holds its key again, unless another does by now.
pub(super) fn take_back(write: &Write, queue: i64, id: i64, key: &str) -> rusqlite::Result<()> {
    match holder(write, queue, key)? {
        Some(_) => Ok(()),
        None => set_until(write.db(), id, Some(0)),
    }
}

fn set_until(db: &Connection, id: i64, until: Option<i64>) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE messages SET unique_until = ?2 WHERE id = ?1")?
        .execute((id, until))?;
    Ok(())
}
