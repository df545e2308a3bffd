//! Taking jobs: promote what is due, let lapsed leases go, then pick the head of the index.

use rusqlite::Connection;

use super::error::Result;
use super::limits::{allowance, note};
use super::records::{Claim, Delivery, Source, Verb};
use super::settle::{Delivered, LAPSES, bury, lapse};
use super::store::{Patience, Store};
use super::writer::Write;

/// Jobs that one transaction finds to be expired, or to have had their deliveries.
const BURIALS: usize = 64;
/// Due jobs that one claim promotes.
const PROMOTIONS: usize = 64;

/// When there may be something to claim.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    /// Now.
    pub(super) ready: bool,
    /// At this wall time.
    pub(super) due: Option<i64>,
    /// At this boot time.
    pub(super) lapse: Option<i64>,
}

/// What one transaction claimed.
#[derive(Default)]
pub(super) struct Claimed {
    pub(super) jobs: Vec<Delivery>,
    /// Where taking turns goes on.
    pub(super) turn: usize,
    burials: usize,
}

impl Claimed {
    /// Whether so many jobs were buried that others may lie behind them.
    pub(super) fn is_cut_short(&self) -> bool {
        self.burials >= BURIALS
    }
}

/// Claims up to `claim.want` jobs; `turn` is where taking turns goes on.
pub(super) fn claim(write: &mut Write, claim: &Claim, turn: usize) -> rusqlite::Result<Claimed> {
    let mut claimed = Claimed { turn, ..Claimed::default() };
    let mut open = Vec::new();
    for (index, source) in claim.sources.iter().enumerate() {
        if let Some(queue) = make_ready(write, source)? {
            open.push((index, queue));
        }
    }
    if !claim.round_robin || open.len() < 2 {
        for (index, queue) in open {
            let want = claim.want - claimed.jobs.len();
            take(write, claim, index, queue, want, &mut claimed)?;
        }
        return Ok(claimed);
    }
    let mut next = open.iter().position(|(index, _)| *index >= turn).unwrap_or(0);
    while !open.is_empty() && claimed.jobs.len() < claim.want {
        next %= open.len();
        let (index, queue) = open[next];
        if take(write, claim, index, queue, 1, &mut claimed)? == 0 {
            open.remove(next);
        } else {
            claimed.turn = index + 1;
            next += 1;
        }
    }
    Ok(claimed)
}

/// Promotes what is due and lets lapsed leases go; None where nothing may be claimed.
fn make_ready(write: &mut Write, source: &Source) -> rusqlite::Result<Option<i64>> {
    let Some(queue) = write.known_queue(&source.queue)? else { return Ok(None) };
    // One statement, for the common case that there is nothing to do.
    let (paused, due, lapsed): (bool, bool, bool) = write
        .db()
        .prepare_cached(
            "SELECT paused,
               coalesce((SELECT at FROM messages INDEXED BY m_due
                 WHERE queue = ?1 AND state = 1 ORDER BY at LIMIT 1) <= ?2, 0),
               coalesce((SELECT at FROM messages INDEXED BY m_taken
                 WHERE queue = ?1 AND state = 3 ORDER BY at LIMIT 1) <= ?3, 0)
             FROM queues WHERE id = ?1",
        )?
        .query_row((queue, write.now, write.boot), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    if paused {
        return Ok(None);
    }
    if due {
        promote(write, queue)?;
    }
    if lapsed {
        lapse(write, queue, source.max_retries, LAPSES)?;
    }
    Ok(Some(queue))
}

/// Makes due jobs ready, the longest due first.
fn promote(write: &mut Write, queue: i64) -> rusqlite::Result<()> {
    let due = write
        .db()
        .prepare_cached(
            "SELECT id FROM messages INDEXED BY m_due
             WHERE queue = ?1 AND state = 1 AND at <= ?2 ORDER BY at, id LIMIT ?3",
        )?
        .query_map((queue, write.now, PROMOTIONS), |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    for id in due {
        write
            .db()
            .prepare_cached("UPDATE messages SET state = 0, since = max(since, at) WHERE id = ?1")?
            .execute([id])?;
        failpoint!("claim.promoted");
    }
    Ok(())
}

/// Takes up to `want` ready jobs of one queue; returns how many.
fn take(
    write: &mut Write,
    claim: &Claim,
    index: usize,
    queue: i64,
    want: usize,
    claimed: &mut Claimed,
) -> rusqlite::Result<usize> {
    let source = &claim.sources[index];
    let want = match source.limits {
        Some(limits) => want.min(allowance(write.db(), queue, limits, write.boot)?.jobs),
        None => want,
    };
    let mut taken = 0;
    while taken < want && !claimed.is_cut_short() {
        let picked = pick(write.db(), queue, claim.min_priority, want - taken, index)?;
        if picked.is_empty() {
            break;
        }
        for mut job in picked {
            if let Some(reason) = reason_to_bury(&job, source, write.now) {
                if claimed.is_cut_short() {
                    break;
                }
                if let Some(job) = Delivered::load(write.db(), job.id)? {
                    bury(write, &job, Verb::Lapse, reason, None)?;
                }
                claimed.burials += 1;
                continue;
            }
            hand_out(write, &mut job, source, claim.worker)?;
            claimed.jobs.push(job);
            taken += 1;
        }
    }
    if let Some(limits) = source.limits {
        note(write.db(), queue, limits, write.boot, taken)?;
    }
    Ok(taken)
}

/// Why a ready job must not be delivered any more.
fn reason_to_bury(job: &Delivery, source: &Source, now: i64) -> Option<&'static str> {
    // The limit may have been lowered since the job was last given back.
    if job.attempts > job.max_retries.unwrap_or(source.max_retries) {
        return Some("exhausted");
    }
    let late = job.attempts == 0 && job.expires_at.is_some_and(|at| at <= now);
    late.then_some("expired")
}

fn pick(
    db: &Connection,
    queue: i64,
    min_priority: i64,
    limit: usize,
    source: usize,
) -> rusqlite::Result<Vec<Delivery>> {
    db.prepare_cached(
        "SELECT id, job_id, attempts, max_retries, prio, grp, task, created, headers, payload,
           expires, unique_key, retention
         FROM messages INDEXED BY m_ready
         WHERE queue = ?1 AND state = 0 AND prio >= ?2 ORDER BY prio DESC, since, id LIMIT ?3",
    )?
    .query_map((queue, min_priority, limit), |row| {
        Ok(Delivery {
            id: row.get(0)?,
            job_id: row.get(1)?,
            source,
            attempts: row.get(2)?,
            max_retries: row.get(3)?,
            priority: row.get(4)?,
            group: row.get(5)?,
            task: row.get(6)?,
            created_at: row.get(7)?,
            headers: row.get(8)?,
            payload: row.get(9)?,
            expires_at: row.get(10)?,
            unique_key: row.get(11)?,
            retention: row.get(12)?,
            receipt: 0,
            lease_expires_at: 0,
        })
    })?
    .collect()
}

fn hand_out(
    write: &mut Write,
    job: &mut Delivery,
    source: &Source,
    worker: &str,
) -> rusqlite::Result<()> {
    job.receipt = next_receipt(&mut write.writer.random);
    job.attempts += 1;
    job.lease_expires_at = write.now.saturating_add(source.lease);
    // A group's turn is noted in its job's `since`; a plain job keeps its place.
    let turn = if job.group.is_some() { Some(write.stamp()?) } else { None };
    write
        .db()
        .prepare_cached(
            "UPDATE messages SET state = 3, at = ?2, attempts = ?3, prev_receipt = receipt,
               prev_verb = verb, receipt = ?4, verb = NULL, started = ?5, worker = ?6,
               since = coalesce(?7, since) WHERE id = ?1",
        )?
        .execute((
            job.id,
            write.boot.saturating_add(source.lease),
            job.attempts,
            job.receipt,
            write.now,
            worker,
            turn,
        ))?;
    failpoint!("claim.handed_out");
    Ok(())
}

/// The next number of a splitmix64 sequence (Steele, Lea, Flood 2014), positive.
fn next_receipt(state: &mut u64) -> i64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    i64::try_from((z ^ (z >> 31)) >> 1).unwrap_or(i64::MAX)
}

impl Store {
    /// Looks, without locking anything, whether and when there is something to claim.
    pub(super) fn outlook(&self, claim: &Claim, patience: &dyn Patience) -> Result<Outlook> {
        self.read(patience, |db| {
            let mut outlook = Outlook::default();
            for source in claim.sources {
                let known = db
                    .prepare_cached("SELECT id FROM queues WHERE name = ?1 AND paused = 0")?
                    .query_map([&source.queue], |row| row.get(0))?
                    .next()
                    .transpose()?;
                if let Some(queue) = known {
                    look(db, queue, claim.min_priority, source, self.clock.boot(), &mut outlook)?;
                }
            }
            let (now, boot) = (self.clock.wall(), self.clock.boot());
            outlook.ready |= outlook.due.is_some_and(|at| at <= now)
                || outlook.lapse.is_some_and(|at| at <= boot);
            Ok(outlook)
        })
    }
}

fn look(
    db: &Connection,
    queue: i64,
    floor: i64,
    source: &Source,
    boot: i64,
    outlook: &mut Outlook,
) -> rusqlite::Result<()> {
    let mut ready = db
        .prepare_cached(
            "SELECT 1 FROM messages INDEXED BY m_ready
             WHERE queue = ?1 AND state = 0 AND prio >= ?2 LIMIT 1",
        )?
        .exists((queue, floor))?;
    let mut allowed_at = None;
    if ready && let Some(limits) = source.limits {
        let allowance = allowance(db, queue, limits, boot)?;
        ready = allowance.jobs > 0;
        allowed_at = allowance.not_before;
    }
    outlook.ready |= ready;
    let first = |sql: &str| -> rusqlite::Result<Option<i64>> {
        db.prepare_cached(sql)?.query_map([queue], |row| row.get(0))?.next().transpose()
    };
    let due = first(
        "SELECT at FROM messages INDEXED BY m_due WHERE queue = ?1 AND state = 1 ORDER BY at LIMIT 1",
    )?;
    let lapse = first(
        "SELECT at FROM messages INDEXED BY m_taken WHERE queue = ?1 AND state = 3 ORDER BY at LIMIT 1",
    )?;
    let earlier = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).min();
    outlook.due = earlier(outlook.due, due);
    outlook.lapse = earlier(earlier(outlook.lapse, lapse), allowed_at);
    Ok(())
}
