//! What workers share: their reports, commands to them, and duties that one of them has.

use super::error::Result;
use super::records::Cursor;
use super::schema::unusable;
use super::settle::{LAPSES, held_by, lapse_one, load_held_by};
use super::store::{Patience, Store};
use super::writer::queue_id;

/// How long the report of a worker that is gone is kept.
const KEPT: i64 = 86_400_000_000;

/// A worker's last report.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Its name.
    pub name: String,
    /// When it reported, in wall time.
    pub seen_at: i64,
    /// Whether its process lives; None where that can't be known.
    pub alive: Option<bool>,
    /// What it is asked to do.
    pub command: Option<String>,
    /// What it said of itself, opaque to the engine.
    pub record: Vec<u8>,
}

impl Store {
    /// Stores a worker's report and holds a lock that dies with this process.
    ///
    /// `done` is the command that its state fulfils. Returns the command that it has yet to
    /// carry out.
    pub fn report_worker(
        &self,
        name: &str,
        record: &[u8],
        done: &str,
        patience: &dyn Patience,
    ) -> Result<Option<String>> {
        let (command, refused) = self.write(patience, |write| {
            let slot = match self.liveness.own(name) {
                Some(slot) => slot,
                None => match self.free_slot(write.db(), name)? {
                    Ok(slot) => slot,
                    Err(error) => return Ok((None, Some(error))),
                },
            };
            let db = write.db();
            db.prepare_cached("DELETE FROM workers WHERE seen < ?1")?
                .execute([write.now - KEPT])?;
            db.prepare_cached(
                "INSERT INTO workers(name, slot, seen, record) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT(name) DO UPDATE SET slot = excluded.slot, seen = excluded.seen,
                   record = excluded.record, command = nullif(command, ?5)",
            )?
            .execute((name, slot, write.now, record, done))?;
            let command = db
                .prepare_cached("SELECT command FROM workers WHERE name = ?1")?
                .query_row([name], |row| row.get(0))?;
            Ok((command, None))
        })?;
        match refused {
            Some(error) => Err(unusable(&self.workers_path(), "locked", &error)),
            None => Ok(command),
        }
    }

    /// A byte of the lock file that no other worker has, held from now on.
    fn free_slot(
        &self,
        db: &rusqlite::Connection,
        name: &str,
    ) -> rusqlite::Result<std::io::Result<i64>> {
        let taken = db
            .prepare_cached("SELECT slot FROM workers WHERE name <> ?1")?
            .query_map([name], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        for slot in 0.. {
            // The bytes of dead workers too stay theirs while their reports are kept.
            if taken.contains(&slot) {
                continue;
            }
            match self.liveness.take(name, slot) {
                Ok(true) => return Ok(Ok(slot)),
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(0))
    }

    /// The last report of every worker, by name.
    pub fn workers(&self, patience: &dyn Patience) -> Result<Vec<WorkerReport>> {
        self.read(patience, |db| {
            db.prepare_cached(
                "SELECT name, seen, slot, command, record FROM workers ORDER BY name",
            )?
            .query_map([], |row| {
                Ok(WorkerReport {
                    name: row.get(0)?,
                    seen_at: row.get(1)?,
                    alive: self.liveness.is_held(row.get(2)?),
                    command: row.get(3)?,
                    record: row.get(4)?,
                })
            })?
            .collect()
        })
    }

    /// Asks a worker to do something; false where there is none of this name.
    pub fn command_worker(
        &self,
        name: &str,
        command: &str,
        patience: &dyn Patience,
    ) -> Result<bool> {
        self.write(patience, |write| {
            let found = write
                .db()
                .prepare_cached("UPDATE workers SET command = ?2 WHERE name = ?1")?
                .execute((name, command))?;
            Ok(found > 0)
        })
    }

    /// Removes a worker's report and gives its lock back; false where there is none.
    pub fn forget_worker(&self, name: &str, patience: &dyn Patience) -> Result<bool> {
        let known = self.write(patience, |write| {
            let found = write
                .db()
                .prepare_cached("DELETE FROM workers WHERE name = ?1")?
                .execute([name])?;
            Ok(found > 0)
        })?;
        self.liveness.leave(name);
        Ok(known)
    }

    /// Lets the leases of workers lapse whose death is seen; returns how many.
    pub fn reclaim_from_dead(
        &self,
        queue: &str,
        max_retries: i64,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let mut total = 0;
        for worker in self.workers(patience)? {
            if worker.alive == Some(false) {
                total += self.take_back(queue, &worker.name, max_retries, patience)?;
            }
        }
        Ok(total)
    }

    /// Lets every lease of one worker lapse; returns how many.
    pub fn take_back(
        &self,
        queue: &str,
        worker: &str,
        max_retries: i64,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let mut total = 0;
        let mut after: Cursor = (i64::MIN, 0);
        loop {
            // Found first: mostly there is nothing, and looking locks nothing.
            let held = self.read(patience, |db| match queue_id(db, queue)? {
                Some(queue) => held_by(db, queue, worker, after, LAPSES),
                None => Ok(Vec::new()),
            })?;
            let Some(last) = held.last() else { return Ok(total) };
            after = *last;
            total += self.write(patience, |write| {
                let mut done = 0;
                for (_, id) in &held {
                    let Some(job) = load_held_by(write.db(), *id, worker)? else { continue };
                    let message = format!(
                        "Delivery {} to {worker} was never settled: its worker died, for its process is gone.",
                        job.attempts
                    );
                    lapse_one(write, &job, max_retries, message)?;
                    done += 1;
                }
                Ok(done)
            })?;
        }
    }

    /// Gives a duty to one of all who ask, for `micros`; false to the others.
    pub fn duty(
        &self,
        name: &str,
        micros: i64,
        worker: &str,
        patience: &dyn Patience,
    ) -> Result<bool> {
        let boot = self.clock.boot();
        let taken = self.read(patience, |db| {
            db.prepare_cached("SELECT 1 FROM duties WHERE name = ?1 AND until > ?2")?
                .exists((name, boot))
        })?;
        if taken {
            return Ok(false);
        }
        self.transact(patience, |write| {
            let given = write
                .db()
                .prepare_cached(
                    "INSERT INTO duties VALUES (?1, ?2, ?3)
                     ON CONFLICT(name) DO UPDATE SET until = excluded.until,
                       worker = excluded.worker WHERE until <= ?4",
                )?
                .execute((name, write.boot.saturating_add(micros), worker, write.boot))?;
            Ok(given > 0)
        })
    }
}
