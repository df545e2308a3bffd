//! Dead letters by what went wrong: counted when a job fails and when it leaves.
//!
//! A group is an error class, its place and a task in one queue. A dead letter that was
//! cancelled or discarded belongs to none: nothing went wrong with it.

use rusqlite::{Connection, OptionalExtension};

use super::error::Result;
use super::records::Cursor;
use super::store::{Patience, Store};
use super::views::FailureGroup;
use super::writer::{Write, queue_id};

/// Failures are counted in slots of five minutes.
const SLOT: i64 = 300_000_000;
const HOUR: i64 = 12;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// Points of a group's series over a week: one for six hours.
pub(super) const POINTS: usize = 28;
const PER_POINT: i64 = WEEK / 28;

/// Adds a dead letter to the group of its error.
pub(super) fn enter(write: &Write, id: i64) -> rusqlite::Result<()> {
    let db = write.db();
    let group: Option<(i64, i64)> = db
        .prepare_cached(
            "INSERT INTO failures(queue, err_class, place, task, total, first_at, last_at)
             SELECT queue, coalesce(err_class, ''), coalesce(err_place, ''), coalesce(task, ''),
               1, at, at FROM messages
             WHERE id = ?1 AND state = 5 AND reason NOT IN ('cancelled', 'discarded')
             ON CONFLICT(queue, err_class, place, task) DO UPDATE SET total = total + 1,
               first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
             RETURNING id, (SELECT at FROM messages WHERE id = ?1)",
        )?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((group, at)) = group else { return Ok(()) };
    db.prepare_cached("UPDATE messages SET failure = ?2 WHERE id = ?1")?.execute((id, group))?;
    db.prepare_cached(
        "INSERT INTO failure_counts VALUES (?1, ?2, 1)
         ON CONFLICT(failure, slot) DO UPDATE SET n = n + 1",
    )?
    .execute((group, at / SLOT))?;
    db.prepare_cached("DELETE FROM failure_counts WHERE failure = ?1 AND slot < ?2")?
        .execute((group, write.now / SLOT - WEEK - DAY))?;
    Ok(())
}

/// Takes a dead letter out of its group, before its time or its row changes.
pub(super) fn leave(write: &Write, id: i64) -> rusqlite::Result<()> {
    let db = write.db();
    let found: Option<(i64, i64)> = db
        .prepare_cached("SELECT failure, at FROM messages WHERE id = ?1 AND failure IS NOT NULL")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((group, at)) = found else { return Ok(()) };
    db.prepare_cached("UPDATE messages SET failure = NULL WHERE id = ?1")?.execute([id])?;
    let left: i64 = db
        .prepare_cached("UPDATE failures SET total = total - 1 WHERE id = ?1 RETURNING total")?
        .query_row([group], |row| row.get(0))?;
    if left > 0 {
        db.prepare_cached("UPDATE failure_counts SET n = n - 1 WHERE failure = ?1 AND slot = ?2")?
            .execute((group, at / SLOT))?;
    } else {
        db.prepare_cached("DELETE FROM failure_counts WHERE failure = ?1")?.execute([group])?;
        db.prepare_cached("DELETE FROM failures WHERE id = ?1")?.execute([group])?;
    }
    Ok(())
}

impl Store {
    /// Groups of dead letters of a queue, the one seen last first, from behind `after`.
    pub fn failures(
        &self,
        queue: &str,
        limit: usize,
        after: Option<Cursor>,
        patience: &dyn Patience,
    ) -> Result<Vec<FailureGroup>> {
        let now = self.clock.wall() / SLOT;
        self.read(patience, |db| {
            let Some(queue) = queue_id(db, queue)? else { return Ok(Vec::new()) };
            let mut groups = read_groups(db, queue, limit, after)?;
            for group in &mut groups {
                count(db, group, now)?;
            }
            Ok(groups)
        })
    }
}

fn read_groups(
    db: &Connection,
    queue: i64,
    limit: usize,
    after: Option<Cursor>,
) -> rusqlite::Result<Vec<FailureGroup>> {
    let (at, id) = after.unwrap_or((i64::MAX, i64::MAX));
    db.prepare_cached(
        "SELECT id, err_class, place, task, total, first_at, last_at FROM failures
         WHERE queue = ?1 AND (last_at, id) < (?2, ?3) ORDER BY last_at DESC, id DESC LIMIT ?4",
    )?
    .query_map((queue, at, id, limit), |row| {
        Ok(FailureGroup {
            id: row.get(0)?,
            error_class: row.get(1)?,
            place: row.get(2)?,
            task: row.get(3)?,
            total: row.get(4)?,
            first_at: row.get(5)?,
            last_at: row.get(6)?,
            hour: 0,
            day: 0,
            week: 0,
            series: vec![0; POINTS],
        })
    })?
    .collect()
}

/// Adds the counts of the last hour, day and week, each rounded up to whole slots.
fn count(db: &Connection, group: &mut FailureGroup, now: i64) -> rusqlite::Result<()> {
    let mut statement =
        db.prepare_cached("SELECT slot, n FROM failure_counts WHERE failure = ?1 AND slot >= ?2")?;
    let mut rows = statement.query((group.id, now - WEEK))?;
    while let Some(row) = rows.next()? {
        let (slot, n): (i64, i64) = (row.get(0)?, row.get(1)?);
        group.week += n;
        group.day += if slot >= now - DAY { n } else { 0 };
        group.hour += if slot >= now - HOUR { n } else { 0 };
        let point = (slot - (now - WEEK + 1)).div_euclid(PER_POINT);
        let point = usize::try_from(point).unwrap_or(0).min(POINTS - 1);
        group.series[point] += n;
    }
    Ok(())
}
