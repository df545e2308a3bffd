//! Moving a job to another queue of the store.

use super::failures;
use super::groups;
use super::records::State;
use super::scan::find_id;
use super::settle::Delivered;
use super::unique;
use super::views::Record;
use super::writer::Write;

/// Moves a waiting job or a dead letter to another queue, where it waits as long as it has.
///
/// False where the other queue has a job of its `job_id`, or one that holds its unique key.
pub(super) fn transfer(
    write: &mut Write,
    queue: i64,
    record: &Record,
    target: &str,
) -> rusqlite::Result<bool> {
    let target = write.queue(target)?;
    if let Some(job_id) = &record.job_id
        && find_id(write.db(), target, job_id)?.is_some()
    {
        return Ok(false);
    }
    let Some(job) = Delivered::load(write.db(), record.id)? else { return Ok(false) };
    if let Some(key) = &record.unique_key {
        if !job.holds_key(write.now) {
            job.let_go(write)?;
        } else if unique::holder(write, target, key)?.is_some() {
            return Ok(false);
        }
    }
    let (state, own, at) = (job.state, job.since, job.lease_end());
    let place = |state: State, since: i64, at: i64| (state as i64, since, at);
    let (state, since, at) = match (&job.group, State::from_number(state)) {
        (_, Some(State::Failed)) | (None, _) => (state, own, at),
        (Some(group), state) => {
            // A lead has its own time or its due time in `at`, a blocked job as groups.rs has it.
            let (own, due) = match state {
                Some(State::Ready) => (at, 0),
                Some(State::Delayed) => (0, at),
                _ => (own, at),
            };
            let leads = groups::leads_when_retried(write, target, group, record.id)?;
            match (leads, due > write.now) {
                (false, _) => place(State::Blocked, own, due),
                (true, true) => place(State::Delayed, 0, due),
                (true, false) => place(State::Ready, own.max(due), own.max(due)),
            }
        }
    };
    failures::leave(write, record.id)?;
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET queue = ?2, state = ?3, since = ?4, at = ?5 WHERE id = ?1",
        )?
        .execute((record.id, target, state, since, at))?;
    failures::enter(write, record.id)?;
    if matches!(State::from_number(job.state), Some(State::Ready | State::Delayed))
        && let Some(group) = &job.group
    {
        groups::promote_next(write, queue, group, job.since)?;
    }
    write.ring = true;
    Ok(true)
}
