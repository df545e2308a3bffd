//! Ending deliveries: ack, nack, fail, release, and the lapse of a lease.

use rusqlite::{Connection, OptionalExtension, Row};

use super::activity;
use super::error::LeaseLoss;
use super::failures;
use super::groups;
use super::records::{Cursor, Failure, Settled, Settlement, State, Verb};
use super::unique;
use super::writer::Write;

/// Ended attempts that are kept of a job; the oldest go first.
const HISTORY: i64 = 25;
/// Leases that one transaction lets lapse.
pub(super) const LAPSES: usize = 64;

/// What the end of a delivery depends on.
pub(super) struct Delivered {
    pub(super) id: i64,
    pub(super) queue: i64,
    pub(super) state: i64,
    pub(super) since: i64,
    pub(super) group: Option<String>,
    at: i64,
    pub(super) attempts: i64,
    receipt: Option<i64>,
    verb: Option<i64>,
    prev_receipt: Option<i64>,
    prev_verb: Option<i64>,
    max_retries: Option<i64>,
    cancel: bool,
    started: Option<i64>,
    worker: Option<String>,
    /// Until when it holds its unique key at least; None: it holds none.
    unique_until: Option<i64>,
}

macro_rules! select_delivered {
    ($where:literal) => {
        concat!(
            "SELECT id, queue, state, since, grp, at, attempts, receipt, verb, prev_receipt,
             prev_verb, max_retries, cancel, started, worker, unique_until FROM messages ",
            $where
        )
    };
}

impl Delivered {
    fn from_row(row: &Row) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            queue: row.get(1)?,
            state: row.get(2)?,
            since: row.get(3)?,
            group: row.get(4)?,
            at: row.get(5)?,
            attempts: row.get(6)?,
            receipt: row.get(7)?,
            verb: row.get(8)?,
            prev_receipt: row.get(9)?,
            prev_verb: row.get(10)?,
            max_retries: row.get(11)?,
            cancel: row.get(12)?,
            started: row.get(13)?,
            worker: row.get(14)?,
            unique_until: row.get(15)?,
        })
    }

    pub(super) fn load(db: &Connection, id: i64) -> rusqlite::Result<Option<Self>> {
        db.prepare_cached(select_delivered!("WHERE id = ?1"))?
            .query_row([id], Self::from_row)
            .optional()
    }

    /// The job, if it is in the queue of this name.
    fn load_of(write: &mut Write, queue: &str, id: i64) -> rusqlite::Result<Option<Self>> {
        let Some(queue) = write.known_queue(queue)? else { return Ok(None) };
        Ok(Self::load(write.db(), id)?.filter(|job| job.queue == queue))
    }

    /// The job whose live receipt this is, or why there is none.
    pub(super) fn load_live(
        write: &mut Write,
        queue: &str,
        id: i64,
        receipt: i64,
    ) -> rusqlite::Result<Result<Self, LeaseLoss>> {
        let Some(job) = Self::load_of(write, queue, id)? else {
            return Ok(Err(LeaseLoss::Unknown));
        };
        Ok(job.loss(receipt, write.boot).map_or(Ok(job), Err))
    }

    fn is_processing(&self) -> bool {
        self.state == State::Processing as i64
    }

    /// Whether this very verb ended this delivery: its caller sends it again.
    fn was_ended_by(&self, receipt: i64, verb: Verb) -> bool {
        (self.receipt == Some(receipt) && self.verb == Some(verb as i64))
            || (self.prev_receipt == Some(receipt) && self.prev_verb == Some(verb as i64))
    }

    /// Why `receipt` isn't the live one of this job; None if it is.
    fn loss(&self, receipt: i64, boot: i64) -> Option<LeaseLoss> {
        let ended_by = if self.receipt == Some(receipt) {
            if self.is_processing() {
                return (self.at <= boot).then_some(LeaseLoss::Expired);
            }
            self.verb
        } else if self.prev_receipt == Some(receipt) {
            self.prev_verb
        } else {
            return Some(LeaseLoss::Unknown);
        };
        let lapsed = ended_by == Some(Verb::Lapse as i64);
        Some(if lapsed { LeaseLoss::Expired } else { LeaseLoss::Settled })
    }

    pub(super) fn cancel_requested(&self) -> bool {
        self.cancel
    }

    pub(super) fn lease_end(&self) -> i64 {
        self.at
    }

    /// Whether it holds its unique key: once it is finished, while the time of the key runs.
    pub(super) fn holds_key(&self, now: i64) -> bool {
        let finished = [State::Acked as i64, State::Failed as i64].contains(&self.state);
        self.unique_until.is_some_and(|until| until > now || !finished)
    }

    /// It is finished: others may have its unique key.
    pub(super) fn let_go(&self, write: &Write) -> rusqlite::Result<()> {
        self.unique_until.map_or(Ok(()), |until| unique::let_go(write, self.id, until))
    }
}

/// Carries out settlements in order; a lost lease is a result and changes nothing.
pub(super) fn settle_all(
    write: &mut Write,
    settlements: &[Settlement],
) -> rusqlite::Result<Settled> {
    settlements.iter().map(|settlement| settle(write, settlement)).collect()
}

fn settle(write: &mut Write, settlement: &Settlement) -> rusqlite::Result<Option<LeaseLoss>> {
    write.promise = true; // "already settled" writes nothing and is promised all the same
    let job = Delivered::load_of(write, &settlement.queue, settlement.id)?;
    let Some(job) = job else { return Ok(Some(LeaseLoss::Unknown)) };
    if job.was_ended_by(settlement.receipt, settlement.verb) {
        return Ok(None);
    }
    if let Some(loss) = job.loss(settlement.receipt, write.boot) {
        return Ok(Some(loss));
    }
    let error = settlement.error.as_ref();
    match settlement.verb {
        Verb::Ack => ack(write, &job, settlement.result.as_deref())?,
        Verb::Fail => {
            remember(write, &job, Verb::Fail, error)?;
            bury(write, &job, Verb::Fail, &settlement.reason, error)?;
        }
        verb => give_back(write, &job, verb, settlement.delay, settlement.max_retries, error)?,
    }
    Ok(None)
}

fn ack(write: &mut Write, job: &Delivered, result: Option<&[u8]>) -> rusqlite::Result<()> {
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = 4, at = ?2, verb = 1, result = ?3, err_class = NULL,
               err_message = NULL, err_place = NULL WHERE id = ?1",
        )?
        .execute((job.id, write.now, result))?;
    failpoint!("settle.acked");
    job.let_go(write)?;
    leave_group(write, job)
}

/// Lets the next of a group lead, once this job is finished.
fn leave_group(write: &mut Write, job: &Delivered) -> rusqlite::Result<()> {
    match &job.group {
        Some(group) => groups::promote_next(write, job.queue, group, job.since),
        None => Ok(()),
    }
}

/// Back to the queue by nack, release or lapse, or to the dead letters where it has had its turns.
fn give_back(
    write: &mut Write,
    job: &Delivered,
    verb: Verb,
    delay: i64,
    max_retries: i64,
    error: Option<&Failure>,
) -> rusqlite::Result<()> {
    if verb != Verb::Release {
        remember(write, job, verb, error)?;
    }
    if job.cancel {
        return bury(write, job, verb, "cancelled", error);
    }
    if verb != Verb::Release && job.attempts > job.max_retries.unwrap_or(max_retries) {
        return bury(write, job, verb, "exhausted", error);
    }
    let (state, since, at) = if verb == Verb::Release {
        (State::Ready, job.since, job.since)
    } else if delay > 0 {
        // A group's turn is remembered; a plain job's place will be its due time.
        let carried = if job.group.is_some() { job.since } else { 0 };
        (State::Delayed, carried, write.now.saturating_add(delay))
    } else {
        let stamp = write.stamp()?;
        (State::Ready, stamp.max(job.since), stamp)
    };
    let attempts = if verb == Verb::Release { job.attempts - 1 } else { job.attempts };
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = ?2, since = ?3, at = ?4, verb = ?5, attempts = ?6
             WHERE id = ?1",
        )?
        .execute((job.id, state as i64, since, at, verb as i64, attempts))?;
    failpoint!("settle.given_back");
    if let Some(error) = error {
        note_error(write, job.id, error)?;
    }
    if let Some(group) = &job.group
        && groups::has_elder(write.db(), job.queue, group, job.id)?
    {
        groups::step_back(write, job.id)?;
        groups::promote_next(write, job.queue, group, job.since)?;
    }
    write.ring = true;
    Ok(())
}

/// Makes a job a dead letter, by a verb or, where nobody works on it, from outside.
pub(super) fn bury(
    write: &mut Write,
    job: &Delivered,
    verb: Verb,
    reason: &str,
    error: Option<&Failure>,
) -> rusqlite::Result<()> {
    // From outside, the verb that ended the last delivery stands.
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = 5, at = ?2, verb = iif(state = 3, ?3, verb), reason = ?4,
               attempts = attempts - ?5 WHERE id = ?1",
        )?
        .execute((job.id, write.now, verb as i64, reason, verb == Verb::Release))?;
    failpoint!("settle.buried");
    if let Some(error) = error {
        note_error(write, job.id, error)?;
    }
    if !matches!(reason, "cancelled" | "discarded") {
        failures::enter(write, job.id)?;
        activity::note_failure(write, job.queue)?;
    }
    job.let_go(write)?;
    // Blocked and unclaimed leads too can be buried; only a lead has a group to leave.
    if job.state == State::Blocked as i64 { Ok(()) } else { leave_group(write, job) }
}

fn note_error(write: &Write, id: i64, error: &Failure) -> rusqlite::Result<()> {
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET err_class = ?2, err_message = ?3, err_place = ?4 WHERE id = ?1",
        )?
        .execute((id, &error.class, &error.message, &error.place))?;
    Ok(())
}

/// Adds an ended attempt to the job's history.
fn remember(
    write: &Write,
    job: &Delivered,
    verb: Verb,
    error: Option<&Failure>,
) -> rusqlite::Result<()> {
    let db = write.db();
    let n: i64 = db
        .prepare_cached("SELECT coalesce(max(n), 0) + 1 FROM history WHERE message = ?1")?
        .query_row([job.id], |row| row.get(0))?;
    db.prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?
        .execute((
            job.id,
            n,
            job.attempts,
            job.worker.as_deref().unwrap_or(""),
            job.started.unwrap_or(0),
            write.now,
            verb.outcome(),
            error.map(|error| &error.class),
            error.map(|error| &error.message),
            error.map(|error| &error.place),
            error.map(|error| &error.traceback),
        ))?;
    failpoint!("settle.remembered");
    if n > HISTORY {
        db.prepare_cached("DELETE FROM history WHERE message = ?1 AND n <= ?2")?
            .execute((job.id, n - HISTORY))?;
    }
    Ok(())
}

/// Gives back jobs whose lease ran out, the longest ago first; returns how many.
pub(super) fn lapse(
    write: &mut Write,
    queue: i64,
    max_retries: i64,
    limit: usize,
) -> rusqlite::Result<usize> {
    let lapsed = write
        .db()
        .prepare_cached(select_delivered!(
            "INDEXED BY m_taken WHERE queue = ?1 AND state = 3 AND at <= ?2
             ORDER BY at, id LIMIT ?3"
        ))?
        .query_map((queue, write.boot, limit), Delivered::from_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for job in &lapsed {
        let worker = job.worker.as_deref().filter(|name| !name.is_empty()).unwrap_or("a worker");
        let message = format!(
            "Delivery {} to {worker} was never settled: its lease ran out, so the worker died or stalled.",
            job.attempts
        );
        lapse_one(write, job, max_retries, message)?;
    }
    Ok(lapsed.len())
}

/// Ends a delivery whose worker will not settle it; `message` says why.
pub(super) fn lapse_one(
    write: &mut Write,
    job: &Delivered,
    max_retries: i64,
    message: String,
) -> rusqlite::Result<()> {
    let error = Failure { message, ..Failure::default() };
    give_back(write, job, Verb::Lapse, 0, max_retries, Some(&error))
}

/// Jobs of a queue that are in the hands of one worker, from `after` on: when their leases end,
/// and which they are.
pub(super) fn held_by(
    db: &Connection,
    queue: i64,
    worker: &str,
    after: Cursor,
    limit: usize,
) -> rusqlite::Result<Vec<Cursor>> {
    db.prepare_cached(
        "SELECT at, id FROM messages INDEXED BY m_taken
         WHERE queue = ?1 AND state = 3 AND (at, id) > (?2, ?3) AND worker = ?4
         ORDER BY at, id LIMIT ?5",
    )?
    .query_map((queue, after.0, after.1, worker, limit), |row| Ok((row.get(0)?, row.get(1)?)))?
    .collect()
}

/// A job that is in the hands of this worker; None where it isn't any more.
pub(super) fn load_held_by(
    db: &Connection,
    id: i64,
    worker: &str,
) -> rusqlite::Result<Option<Delivered>> {
    db.prepare_cached(select_delivered!("WHERE id = ?1 AND state = 3 AND worker = ?2"))?
        .query_row((id, worker), Delivered::from_row)
        .optional()
}
