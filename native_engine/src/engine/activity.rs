//! What a queue did, by the minute: for charts, at no cost to the jobs.
//!
//! A failure is counted when it happens. Acked jobs are counted afterwards, from their rows:
//! by whoever looks, a closed minute at a time, and before they are purged. `rolled` of a queue
//! is the finish time from which on they aren't counted yet.

use rusqlite::{Connection, OptionalExtension};

use super::error::Result;
use super::store::{Patience, Store};
use super::views::Activity;
use super::writer::{Write, queue_id};

const MINUTE: i64 = 60_000_000;
/// Minutes that are kept.
const KEPT: i64 = 5 * 7 * 24 * 60;
/// Rows that one transaction counts.
const LOOK: usize = 20_000;
/// A minute is closed when no job of a slow commit can still finish in it.
const MARGIN: i64 = 5_000_000;

/// Counts a failure.
pub(super) fn note_failure(write: &Write, queue: i64) -> rusqlite::Result<()> {
    write
        .db()
        .prepare_cached(
            "INSERT INTO activity(queue, minute, failed) VALUES (?1, ?2, 1)
             ON CONFLICT(queue, minute) DO UPDATE SET failed = failed + 1",
        )?
        .execute((queue, write.now / MINUTE))?;
    Ok(())
}

/// Counts some of the jobs that were acked before `until`; whether more are left.
fn roll_some(write: &Write, queue: i64, until: i64) -> rusqlite::Result<bool> {
    let db = write.db();
    let rolled = rolled(db, queue)?;
    if rolled >= until {
        return Ok(false);
    }
    let bound: Option<i64> = db
        .prepare_cached(
            "SELECT at FROM messages INDEXED BY m_taken
             WHERE queue = ?1 AND state = 4 AND at >= ?2 AND at < ?3 ORDER BY at LIMIT 1 OFFSET ?4",
        )?
        .query_row((queue, rolled, until, LOOK), |row| row.get(0))
        .optional()?;
    let end = bound.map_or(until, |at| at.max(rolled + 1));
    db.prepare_cached(
        "INSERT INTO activity(queue, minute, acked)
         SELECT ?1, at / ?4, count(*) FROM messages INDEXED BY m_taken
         WHERE queue = ?1 AND state = 4 AND at >= ?2 AND at < ?3 GROUP BY 2
         ON CONFLICT(queue, minute) DO UPDATE SET acked = acked + excluded.acked",
    )?
    .execute((queue, rolled, end, MINUTE))?;
    db.prepare_cached("UPDATE queues SET rolled = ?2 WHERE id = ?1")?.execute((queue, end))?;
    db.prepare_cached("DELETE FROM activity WHERE queue = ?1 AND minute < ?2")?
        .execute((queue, write.now / MINUTE - KEPT))?;
    Ok(bound.is_some())
}

fn rolled(db: &Connection, queue: i64) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT rolled FROM queues WHERE id = ?1")?
        .query_row([queue], |row| row.get(0))
}

impl Store {
    /// Counts what was acked so far, so that the rows may go.
    pub(super) fn roll_up(&self, queue: &str, patience: &dyn Patience) -> Result<()> {
        while self.write(patience, |write| match write.known_queue(queue)? {
            Some(queue) => roll_some(write, queue, write.now + 1),
            None => Ok(false),
        })? {}
        Ok(())
    }

    /// What a queue did from `since` to `until`, in steps; all three are multiples of a minute.
    pub fn activity(
        &self,
        queue: &str,
        since: i64,
        until: i64,
        step: i64,
        patience: &dyn Patience,
    ) -> Result<Vec<Activity>> {
        let closed = (self.clock.wall() - MARGIN) / MINUTE * MINUTE;
        let behind = self.read(patience, |db| match queue_id(db, queue)? {
            Some(queue) => db
                .prepare_cached(
                    "SELECT 1 FROM messages INDEXED BY m_taken
                     WHERE queue = ?1 AND state = 4 AND at >= ?2 AND at < ?3",
                )?
                .exists((queue, rolled(db, queue)?, closed)),
            None => Ok(false),
        })?;
        if behind {
            while self.write(patience, |write| match write.known_queue(queue)? {
                Some(queue) => roll_some(write, queue, closed),
                None => Ok(false),
            })? {}
        }
        self.read(patience, |db| {
            let mut steps: Vec<_> = (0..(until - since) / step)
                .map(|n| since + n * step)
                .map(|at| Activity { at, acked: 0, failed: 0 })
                .collect();
            if let Some(queue) = queue_id(db, queue)? {
                fill(db, queue, since, until, step, &mut steps)?;
            }
            Ok(steps)
        })
    }
}

fn fill(
    db: &Connection,
    queue: i64,
    since: i64,
    until: i64,
    step: i64,
    steps: &mut [Activity],
) -> rusqlite::Result<()> {
    let mut counted = db.prepare_cached(
        "SELECT minute, acked, failed FROM activity WHERE queue = ?1 AND minute >= ?2 AND minute < ?3
         UNION ALL SELECT at / ?4, count(*), 0 FROM messages INDEXED BY m_taken
         WHERE queue = ?1 AND state = 4 AND at >= ?5 AND at < ?6 GROUP BY 1",
    )?;
    let from = since.max(rolled(db, queue)?);
    let mut rows = counted.query((queue, since / MINUTE, until / MINUTE, MINUTE, from, until))?;
    while let Some(row) = rows.next()? {
        let minute: i64 = row.get(0)?;
        let index = usize::try_from((minute * MINUTE - since) / step).unwrap_or(usize::MAX);
        if let Some(found) = steps.get_mut(index) {
            found.acked += row.get::<_, i64>(1)?;
            found.failed += row.get::<_, i64>(2)?;
        }
    }
    Ok(())
}
