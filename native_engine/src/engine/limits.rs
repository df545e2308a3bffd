//! How many jobs of a queue may be claimed now: so many at a time, and so many in a time.
//!
//! What runs is counted, up to the limit, in the index of leases. The rate is one time for
//! each queue that has one: when its next delivery is due, were they evenly spread.

use rusqlite::{Connection, OptionalExtension};

use super::records::Limits;

/// What may be claimed.
pub(super) struct Allowance {
    /// So many jobs.
    pub(super) jobs: usize,
    /// Where the rate allows none: when it does, in boot time.
    pub(super) not_before: Option<i64>,
}

/// What the limits of a queue allow at this boot time.
pub(super) fn allowance(
    db: &Connection,
    queue: i64,
    limits: Limits,
    boot: i64,
) -> rusqlite::Result<Allowance> {
    let mut jobs = i64::MAX;
    if let Some(most) = limits.max_running {
        let running: i64 = db
            .prepare_cached(
                "SELECT count(*) FROM (SELECT 1 FROM messages INDEXED BY m_taken
                 WHERE queue = ?1 AND state = 3 LIMIT ?2)",
            )?
            .query_row((queue, most), |row| row.get(0))?;
        jobs = most - running;
    }
    let mut not_before = None;
    if limits.interval > 0 {
        let ahead = (limits.burst - 1) * limits.interval;
        let next = next_start(db, queue, boot)?;
        let by_rate =
            if next - ahead > boot { 0 } else { (boot + ahead - next) / limits.interval + 1 };
        if by_rate == 0 && jobs > 0 {
            not_before = Some(next - ahead);
        }
        jobs = jobs.min(by_rate);
    }
    Ok(Allowance { jobs: usize::try_from(jobs).unwrap_or(0), not_before })
}

/// Takes note that so many jobs were delivered.
pub(super) fn note(
    db: &Connection,
    queue: i64,
    limits: Limits,
    boot: i64,
    delivered: usize,
) -> rusqlite::Result<()> {
    if limits.interval == 0 || delivered == 0 {
        return Ok(());
    }
    let taken = i64::try_from(delivered).unwrap_or(i64::MAX);
    let next = next_start(db, queue, boot)?.saturating_add(limits.interval.saturating_mul(taken));
    db.prepare_cached("INSERT OR REPLACE INTO rates VALUES (?1, ?2)")?.execute((queue, next))?;
    Ok(())
}

fn next_start(db: &Connection, queue: i64, boot: i64) -> rusqlite::Result<i64> {
    let next: Option<i64> = db
        .prepare_cached("SELECT next FROM rates WHERE queue = ?1")?
        .query_row([queue], |row| row.get(0))
        .optional()?;
    Ok(next.unwrap_or(boot).max(boot))
}
