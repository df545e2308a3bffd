//! Changing a job from outside: retry, cancel, edit, delay, discard; and reclaim and pause.

use super::error::Result;
use super::failures;
use super::groups;
use super::records::{State, Verb};
use super::scan::{find_id, load};
use super::settle::{Delivered, LAPSES, bury, lapse};
use super::store::{Patience, Store};
use super::unique;
use super::views::Record;
use super::writer::Write;

impl Store {
    /// Moves a dead letter back; None where there is no such job, false where it isn't failed.
    pub fn retry_failed(
        &self,
        queue: &str,
        id: &str,
        patience: &dyn Patience,
    ) -> Result<Option<bool>> {
        self.change(queue, id, patience, |write, record, queue| {
            if record.state != State::Failed {
                return Ok(false);
            }
            retry(write, queue, record)?;
            Ok(true)
        })
    }

    /// Makes a waiting job a dead letter, or asks a running one to stop; as `retry_failed`.
    pub fn cancel(&self, queue: &str, id: &str, patience: &dyn Patience) -> Result<Option<bool>> {
        self.change(queue, id, patience, |write, record, _| match record.state {
            State::Acked | State::Failed => Ok(false),
            State::Processing => {
                ask_to_stop(write, record.id)?;
                Ok(true)
            }
            State::Ready | State::Delayed | State::Blocked => {
                take_away(write, record.id, "cancelled")?;
                Ok(true)
            }
        })
    }

    /// Gives a waiting or failed job another payload; as `retry_failed`. The first one is kept.
    pub fn edit(
        &self,
        queue: &str,
        id: &str,
        payload: &[u8],
        patience: &dyn Patience,
    ) -> Result<Option<bool>> {
        self.change(queue, id, patience, |write, record, _| {
            if matches!(record.state, State::Processing | State::Acked) {
                return Ok(false);
            }
            write
                .db()
                .prepare_cached(
                    "UPDATE messages SET original = coalesce(original, payload), payload = ?2
                     WHERE id = ?1",
                )?
                .execute((record.id, payload))?;
            Ok(true)
        })
    }

    /// Gives back every job whose lease ran out; returns how many.
    pub fn reclaim(&self, queue: &str, max_retries: i64, patience: &dyn Patience) -> Result<usize> {
        let mut total = 0;
        loop {
            let done = self.write(patience, |write| match write.known_queue(queue)? {
                Some(queue) => lapse(write, queue, max_retries, LAPSES),
                None => Ok(0),
            })?;
            total += done;
            if done < LAPSES {
                return Ok(total);
            }
        }
    }

    /// Stops or resumes delivery, in every process.
    pub fn set_paused(&self, queue: &str, paused: bool, patience: &dyn Patience) -> Result<()> {
        self.write(patience, |write| {
            let queue = write.queue(queue)?;
            write.ring = !paused;
            write
                .db()
                .prepare_cached("UPDATE queues SET paused = ?2 WHERE id = ?1")?
                .execute((queue, paused))?;
            Ok(())
        })
    }

    fn change(
        &self,
        queue: &str,
        id: &str,
        patience: &dyn Patience,
        work: impl Fn(&mut Write, &Record, i64) -> rusqlite::Result<bool>,
    ) -> Result<Option<bool>> {
        self.write(patience, |write| {
            let Some(queue) = write.known_queue(queue)? else { return Ok(None) };
            let Some(id) = find_id(write.db(), queue, id)? else { return Ok(None) };
            match load(write.db(), id, self.times())? {
                Some(record) => work(write, &record, queue).map(Some),
                None => Ok(None),
            }
        })
    }
}

/// A failed job is ready again, or leads or waits in its group, and starts counting anew.
pub(super) fn retry(write: &mut Write, queue: i64, record: &Record) -> rusqlite::Result<()> {
    let leads = match &record.group {
        Some(group) => groups::leads_when_retried(write, queue, group, record.id)?,
        None => true,
    };
    failures::leave(write, record.id)?;
    let stamp = write.stamp()?;
    let (state, at) = if leads { (State::Ready, stamp) } else { (State::Blocked, 0) };
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = ?2, since = ?3, at = ?4, attempts = 0, cancel = 0,
               reason = NULL, expires = NULL WHERE id = ?1",
        )?
        .execute((record.id, state as i64, stamp, at))?;
    if let Some(key) = &record.unique_key {
        unique::take_back(write, queue, record.id, key)?;
    }
    failpoint!("repair.retried");
    write.ring = true;
    Ok(())
}

/// Lets a delayed job be claimed at once; false where it is promoted already.
pub(super) fn run_now(write: &mut Write, record: &Record) -> rusqlite::Result<bool> {
    let stamp = write.stamp()?;
    let done = write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = 0, since = max(since, ?2), at = ?2
             WHERE id = ?1 AND state = 1",
        )?
        .execute((record.id, stamp))?;
    write.ring = true;
    Ok(done == 1)
}

/// Makes a ready or delayed job due at that time; false where it is due then already.
///
/// So a walk in the order of the due times that meets it again passes it by.
pub(super) fn postpone(write: &Write, record: &Record, due: i64) -> rusqlite::Result<bool> {
    let done = write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = 1, since = iif(grp IS NULL, 0, since), at = ?2
             WHERE id = ?1 AND (state = 0 OR (state = 1 AND at <> ?2))",
        )?
        .execute((record.id, due))?;
    Ok(done == 1)
}

pub(super) fn ask_to_stop(write: &Write, id: i64) -> rusqlite::Result<()> {
    write.db().prepare_cached("UPDATE messages SET cancel = 1 WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// Makes a waiting job, or another dead letter, a discarded one; false where it is that already.
pub(super) fn discard(write: &mut Write, record: &Record) -> rusqlite::Result<bool> {
    if record.state != State::Failed {
        take_away(write, record.id, "discarded")?;
        return Ok(true);
    }
    failures::leave(write, record.id)?;
    let done = write
        .db()
        .prepare_cached(
            "UPDATE messages SET reason = 'discarded', at = ?2
             WHERE id = ?1 AND reason IS NOT 'discarded'",
        )?
        .execute((record.id, write.now))?;
    Ok(done == 1)
}

/// Makes a job that nobody works on a dead letter.
pub(super) fn take_away(write: &mut Write, id: i64, reason: &str) -> rusqlite::Result<()> {
    match Delivered::load(write.db(), id)? {
        Some(job) => bury(write, &job, Verb::Fail, reason, None),
        None => Ok(()),
    }
}
