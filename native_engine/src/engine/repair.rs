//! Changing jobs from outside: retry, cancel, discard, purge, reclaim, pause.

use rusqlite::Params;

use super::error::Result;
use super::failures;
use super::groups;
use super::records::{Action, Applied, Cursor, Filter, Finished, Record, State, Verb};
use super::scan::{find_id, load, record, record_matches, walk};
use super::settle::{Delivered, LAPSES, bury, lapse};
use super::store::{Patience, Store};
use super::unique;
use super::writer::Write;

/// Jobs that one transaction changes; the lock is free in between.
const BATCH: usize = 500;
/// Rows that one transaction looks at.
const LOOK: usize = 5_000;

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

    /// Does `action` to every job that matches and was in its state at `as_of`.
    ///
    /// Runs in many short transactions.
    pub fn apply(
        &self,
        queue: &str,
        action: &Action,
        filter: &Filter,
        as_of: i64,
        limit: usize,
        patience: &dyn Patience,
    ) -> Result<Applied> {
        let act = Act { action, state: filter.state, now: self.clock.wall(), as_of };
        let filter = &act.bounded(filter);
        if *action == Action::Purge {
            self.roll_up(queue, patience)?;
        }
        let mut total = Applied::default();
        if let Some(ids) = &filter.ids {
            let reach = ids.len().min(limit);
            for chunk in ids[..reach].chunks(BATCH) {
                self.apply_to_ids(queue, &act, filter, chunk, &mut total, patience)?;
            }
            total.more = reach < ids.len();
            return Ok(total);
        }
        let mut after: Option<Cursor> = None;
        while total.done < limit {
            let batch = BATCH.min(limit - total.done);
            let (done, next) = self.write(patience, |write| {
                let Some(queue) = write.known_queue(queue)? else { return Ok((0, None)) };
                let times = self.times();
                let found = walk(write.db(), queue, filter, after, (batch, LOOK), |row| {
                    record(row, times)
                })?;
                let mut done = 0;
                for record in &found.items {
                    done += usize::from(act.carry_out(write, queue, record)?);
                }
                Ok((done, found.next))
            })?;
            total.done += done;
            after = next;
            total.more = after.is_some();
            if !total.more {
                break;
            }
        }
        Ok(total)
    }

    fn apply_to_ids(
        &self,
        queue: &str,
        act: &Act,
        filter: &Filter,
        ids: &[String],
        total: &mut Applied,
        patience: &dyn Patience,
    ) -> Result<()> {
        let part = self.write(patience, |write| {
            let mut part = Applied::default();
            let queue = write.known_queue(queue)?;
            let times = self.times();
            for id in ids {
                let id = match queue {
                    Some(queue) => find_id(write.db(), queue, id)?,
                    None => None,
                };
                let record = match id {
                    Some(id) => load(write.db(), id, times)?,
                    None => None,
                };
                match (queue, record) {
                    (Some(queue), Some(record)) => {
                        let done = record_matches(&record, filter)
                            && act.carry_out(write, queue, &record)?;
                        part.done += usize::from(done);
                        part.changed += usize::from(!done);
                    }
                    _ => part.not_found += 1,
                }
            }
            Ok(part)
        })?;
        total.done += part.done;
        total.changed += part.changed;
        total.not_found += part.not_found;
        Ok(())
    }

    /// Removes jobs of these kinds that finished at `before` or earlier; returns how many.
    pub fn purge(
        &self,
        queue: &str,
        before: i64,
        kinds: &[Finished],
        limit: Option<usize>,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let mut total = 0;
        let limit = limit.unwrap_or(usize::MAX);
        if kinds.contains(&Finished::Acked) {
            self.roll_up(queue, patience)?;
        }
        for kind in kinds {
            let sql = match kind {
                Finished::Acked => {
                    "SELECT id FROM messages INDEXED BY m_taken
                     WHERE queue = ?1 AND state = 4 AND at <= ?2 ORDER BY at LIMIT ?3"
                }
                Finished::Failed => {
                    "SELECT id FROM messages INDEXED BY m_failed
                     WHERE queue = ?1 AND state = 5 AND at <= ?2 ORDER BY at LIMIT ?3"
                }
                Finished::Discarded => {
                    "SELECT id FROM messages INDEXED BY m_discarded
                     WHERE queue = ?1 AND reason = 'discarded' AND at <= ?2 ORDER BY at LIMIT ?3"
                }
            };
            loop {
                let batch = BATCH.min(limit - total);
                let done = self.write(patience, |write| {
                    let Some(queue) = write.known_queue(queue)? else { return Ok(0) };
                    remove_found(write, sql, (queue, before, batch))
                })?;
                total += done;
                if done < BATCH || total == limit {
                    break;
                }
            }
        }
        Ok(total)
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

/// An action on many jobs, and when it began.
struct Act<'a> {
    action: &'a Action,
    state: State,
    now: i64,
    as_of: i64,
}

impl Act<'_> {
    /// The filter without what came into its state after `as_of`, as far as its order tells.
    fn bounded(&self, filter: &Filter) -> Filter {
        let mut filter = filter.clone();
        if self.state != State::Delayed {
            filter.until = Some(filter.until.unwrap_or(i64::MAX).min(self.as_of));
        }
        filter
    }

    /// Does it to one job; false where that was not to be done (any more).
    fn carry_out(&self, write: &mut Write, queue: i64, record: &Record) -> rusqlite::Result<bool> {
        if !self.was_there(write, record)? {
            return Ok(false);
        }
        match self.action {
            Action::Retry => retry(write, queue, record)?,
            Action::RunNow => return run_now(write, record),
            Action::Delay(delay) => {
                return postpone(write, record, self.now.saturating_add(*delay));
            }
            Action::Move(target) => return transfer(write, queue, record, target),
            Action::Cancel if record.state == State::Processing => ask_to_stop(write, record.id)?,
            Action::Cancel => take_away(write, record.id, "cancelled")?,
            Action::Discard => return discard(write, record),
            Action::Purge => remove(write, record.id)?,
        }
        Ok(true)
    }

    /// Whether the job was in its state at `as_of`, where the order of the state doesn't tell.
    fn was_there(&self, write: &Write, record: &Record) -> rusqlite::Result<bool> {
        match self.state {
            State::Processing => Ok(record.started_at.is_none_or(|at| at <= self.as_of)),
            State::Delayed => Ok(record.created_at <= self.as_of
                && !write
                    .db()
                    .prepare_cached("SELECT 1 FROM history WHERE message = ?1 AND ended > ?2")?
                    .exists((record.id, self.as_of))?),
            _ => Ok(true),
        }
    }
}

/// Lets a delayed job be claimed at once; false where it is promoted already.
fn run_now(write: &mut Write, record: &Record) -> rusqlite::Result<bool> {
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
fn postpone(write: &Write, record: &Record, due: i64) -> rusqlite::Result<bool> {
    let done = write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = 1, since = iif(grp IS NULL, 0, since), at = ?2
             WHERE id = ?1 AND (state = 0 OR (state = 1 AND at <> ?2))",
        )?
        .execute((record.id, due))?;
    Ok(done == 1)
}

fn ask_to_stop(write: &Write, id: i64) -> rusqlite::Result<()> {
    write.db().prepare_cached("UPDATE messages SET cancel = 1 WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// Makes a waiting job, or another dead letter, a discarded one; false where it is that already.
fn discard(write: &mut Write, record: &Record) -> rusqlite::Result<bool> {
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

/// Moves a waiting job or a dead letter to another queue, where it waits as long as it has.
///
/// False where the other queue has a job of its `job_id`, or one that holds its unique key.
fn transfer(
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
    if let Some(key) = &record.unique_key
        && job.holds_key()
        && unique::holder(write, target, key)?.is_some()
    {
        return Ok(false);
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

/// A failed job is ready again, or leads or waits in its group, and starts counting anew.
fn retry(write: &mut Write, queue: i64, record: &Record) -> rusqlite::Result<()> {
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

/// Makes a job that nobody works on a dead letter.
fn take_away(write: &mut Write, id: i64, reason: &str) -> rusqlite::Result<()> {
    match Delivered::load(write.db(), id)? {
        Some(job) => bury(write, &job, Verb::Fail, reason, None),
        None => Ok(()),
    }
}

/// Removes the finished jobs whose ids a query finds; returns how many.
pub(super) fn remove_found(
    write: &mut Write,
    sql: &str,
    params: impl Params,
) -> rusqlite::Result<usize> {
    let ids = write
        .db()
        .prepare_cached(sql)?
        .query_map(params, |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    for id in &ids {
        remove(write, *id)?;
    }
    Ok(ids.len())
}

/// Removes a finished job; its id is remembered where it was the last, and never given again.
pub(super) fn remove(write: &mut Write, id: i64) -> rusqlite::Result<()> {
    if id == write.last_id()? {
        write
            .db()
            .prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE key = 1")?
            .execute([id])?;
    }
    failures::leave(write, id)?;
    write.db().prepare_cached("DELETE FROM history WHERE message = ?1")?.execute([id])?;
    failpoint!("repair.history_gone");
    write.db().prepare_cached("DELETE FROM messages WHERE id = ?1")?.execute([id])?;
    failpoint!("repair.removed");
    Ok(())
}
