//! Groups: one job of a group at a time, in the order of their ids.
//!
//! The live job with the lowest id leads and is alone claimable; the rest is
//! blocked. A lead's `since` is its own time (put, due, nack) or its group's last
//! claim, whichever is later; the claim time lives on in the `since` of each lead
//! and is handed to the next.

use rusqlite::{Connection, OptionalExtension};

use super::records::State;
use super::writer::Write;

/// Whether a group has a lead, so that a new job of it is blocked.
pub(super) fn has_lead(db: &Connection, queue: i64, group: &str) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM messages INDEXED BY m_head
         WHERE queue = ?1 AND grp = ?2 AND grp IS NOT NULL AND state IN (0, 1, 3)",
    )?
    .exists((queue, group))
}

/// Makes the lowest blocked job of a group its lead, once the lead before it is gone.
///
/// `carried` is the `since` of the lead before: when the group was last claimed, or earlier.
pub(super) fn promote_next(
    write: &mut Write,
    queue: i64,
    group: &str,
    carried: i64,
) -> rusqlite::Result<()> {
    let next: Option<(i64, i64, i64)> = write
        .db()
        .prepare_cached(
            "SELECT id, at, since FROM messages INDEXED BY m_blocked
             WHERE queue = ?1 AND state = 2 AND grp = ?2 ORDER BY id LIMIT 1",
        )?
        .query_row((queue, group), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    // A blocked row has its due time in `at`, 0 for none, and its own time in `since`.
    let Some((id, due, own)) = next else { return Ok(()) };
    let (state, since, at) = if due > write.now {
        (State::Delayed, carried, due)
    } else {
        (State::Ready, carried.max(own).max(due), own.max(due))
    };
    write
        .db()
        .prepare_cached("UPDATE messages SET state = ?2, since = ?3, at = ?4 WHERE id = ?1")?
        .execute((id, state as i64, since, at))?;
    failpoint!("groups.promoted");
    write.ring = true;
    Ok(())
}

/// Puts a retried job back into its group; true if it leads now and is to become ready.
///
/// The lowest id leads: an unclaimed younger lead steps back, a claimed one is left to end.
pub(super) fn leads_when_retried(
    write: &mut Write,
    queue: i64,
    group: &str,
    id: i64,
) -> rusqlite::Result<bool> {
    let lead: Option<(i64, i64)> = write
        .db()
        .prepare_cached(
            "SELECT id, state FROM messages INDEXED BY m_head
             WHERE queue = ?1 AND grp = ?2 AND grp IS NOT NULL AND state IN (0, 1, 3)",
        )?
        .query_row((queue, group), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((lead, state)) = lead else { return Ok(true) };
    if lead < id || state == State::Processing as i64 {
        return Ok(false);
    }
    step_back(write, lead)?;
    Ok(true)
}

/// Whether a job with a lower id waits behind this lead: one that was retried meanwhile.
pub(super) fn has_elder(
    db: &Connection,
    queue: i64,
    group: &str,
    id: i64,
) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM messages INDEXED BY m_blocked
         WHERE queue = ?1 AND state = 2 AND grp = ?2 AND id < ?3",
    )?
    .exists((queue, group, id))
}

/// Makes an unclaimed lead one of the blocked: its own time moves to `since`, a due time stays.
pub(super) fn step_back(write: &Write, id: i64) -> rusqlite::Result<()> {
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = 2, since = iif(state = 0, at, 0),
               at = iif(state = 0, 0, at) WHERE id = ?1",
        )?
        .execute([id])?;
    failpoint!("groups.stepped_back");
    Ok(())
}
