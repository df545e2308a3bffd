//! Schedules: when which job is due next. What it says is the caller's.

use super::error::Result;
use super::put::put_all;
use super::records::{Message, Put};
use super::store::{Patience, Store};

/// A schedule as it is stored.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// The queue that its jobs go to.
    pub queue: String,
    /// When its next job is due, in wall time.
    pub next_at: i64,
    /// Nothing is put while it is paused.
    pub paused: bool,
    /// When its last job was due.
    pub last_at: Option<i64>,
    /// The id of its last job.
    pub last_id: Option<String>,
    /// When it was last saved.
    pub seen_at: i64,
    /// What its times depend on, opaque to the engine.
    pub timing: String,
    /// Everything else, opaque to the engine.
    pub record: Vec<u8>,
}

impl Store {
    /// Every schedule, by name.
    pub fn schedules(&self, patience: &dyn Patience) -> Result<Vec<Schedule>> {
        self.read(patience, |db| {
            db.prepare_cached(
                "SELECT name, queue, next, paused, last, last_id, seen, timing, record
                 FROM schedules ORDER BY name",
            )?
            .query_map([], |row| {
                Ok(Schedule {
                    name: row.get(0)?,
                    queue: row.get(1)?,
                    next_at: row.get(2)?,
                    paused: row.get(3)?,
                    last_at: row.get(4)?,
                    last_id: row.get(5)?,
                    seen_at: row.get(6)?,
                    timing: row.get(7)?,
                    record: row.get(8)?,
                })
            })?
            .collect()
        })
    }

    /// Stores what a schedule says; its next time changes only with its timing.
    pub fn save_schedule(
        &self,
        name: &str,
        queue: &str,
        next: i64,
        timing: &str,
        record: &[u8],
        patience: &dyn Patience,
    ) -> Result<()> {
        self.write(patience, |write| {
            write
                .db()
                .prepare_cached(
                    "INSERT INTO schedules(name, queue, next, seen, timing, record)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT(name) DO UPDATE SET queue = excluded.queue, seen = excluded.seen,
                       next = iif(timing = excluded.timing, next, excluded.next),
                       timing = excluded.timing, record = excluded.record",
                )?
                .execute((name, queue, next, write.now, timing, record))?;
            Ok(())
        })
    }

    /// Moves a schedule from the time `due` to `next` and puts its job, together or not at all.
    ///
    /// Returns None where it isn't at `due` any more, or paused; without a message the time
    /// alone moves, and what is returned is empty.
    pub fn fire_schedule(
        &self,
        name: &str,
        due: i64,
        next: i64,
        queue: &str,
        message: Option<&Message>,
        patience: &dyn Patience,
    ) -> Result<Option<Vec<Put>>> {
        self.write(patience, |write| {
            let moved = write
                .db()
                .prepare_cached(
                    "UPDATE schedules SET next = ?3 WHERE name = ?1 AND next = ?2 AND paused = 0",
                )?
                .execute((name, due, next))?;
            let Some(message) = message.filter(|_| moved > 0) else {
                return Ok((moved > 0).then(Vec::new));
            };
            let puts = put_all(write, queue, std::slice::from_ref(message))?;
            let id = match message.job_id {
                Some(id) => id.to_owned(),
                None => puts.first().map(|put| put.id.to_string()).unwrap_or_default(),
            };
            write
                .db()
                .prepare_cached("UPDATE schedules SET last = ?2, last_id = ?3 WHERE name = ?1")?
                .execute((name, due, id))?;
            Ok(Some(puts))
        })
    }

    /// Pauses or resumes a schedule, at another next time where given; false if it isn't there.
    pub fn pause_schedule(
        &self,
        name: &str,
        paused: bool,
        next: Option<i64>,
        patience: &dyn Patience,
    ) -> Result<bool> {
        self.write(patience, |write| {
            let found = write
                .db()
                .prepare_cached(
                    "UPDATE schedules SET paused = ?2, next = coalesce(?3, next) WHERE name = ?1",
                )?
                .execute((name, paused, next))?;
            Ok(found > 0)
        })
    }

    /// Removes a schedule; false if it isn't there.
    pub fn forget_schedule(&self, name: &str, patience: &dyn Patience) -> Result<bool> {
        self.write(patience, |write| {
            let found = write
                .db()
                .prepare_cached("DELETE FROM schedules WHERE name = ?1")?
                .execute([name])?;
            Ok(found > 0)
        })
    }
}
