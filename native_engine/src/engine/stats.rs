//! The counts of a queue, of one moment.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::error::Result;
use super::records::State;
use super::scan::Times;
use super::store::{Patience, Store};
use super::tally::{Counts, Tally};
use super::views::Stats;
use super::wal_index;
use super::writer::queue_id;

/// Looks at the shared counts, each with a snapshot of its own, before jobs are counted.
const LOOKS: u32 = 50;
/// How long the write lock is waited for to note what was counted.
const NOTE: Duration = Duration::from_millis(50);

enum Look {
    Done(Stats),
    /// Counted row by row: what the base is, were it noted.
    Counted(Stats, Option<Base>),
    /// The snapshot is of another commit than the counts.
    Missed,
}

struct Base {
    queue: i64,
    epoch: u64,
    counts: Counts,
}

impl Store {
    /// The counts of a queue, of one moment.
    pub fn stats(&self, queue: &str, patience: &dyn Patience) -> Result<Stats> {
        let times = self.times();
        let tally = self.path.as_ref().map(|_| self.shared.tally());
        for look in 0..LOOKS {
            let found = self.read(patience, |db| look_at(db, queue, times, tally, false))?;
            match found {
                Look::Done(stats) => return Ok(stats),
                Look::Counted(stats, base) => {
                    self.recounts.fetch_add(1, Ordering::Relaxed);
                    self.note(base.as_ref());
                    return Ok(stats);
                }
                Look::Missed => {}
            }
            // Most likely a commit came between; but it may be that nobody tells any more.
            if look == LOOKS / 2 {
                self.note(None);
            }
            std::thread::sleep(Duration::from_micros(u64::from(look) * 10));
        }
        match self.read(patience, |db| look_at(db, queue, times, tally, true))? {
            Look::Done(stats) | Look::Counted(stats, _) => {
                self.recounts.fetch_add(1, Ordering::Relaxed);
                Ok(stats)
            }
            Look::Missed => Ok(Stats::default()),
        }
    }

    /// How often `stats` had to count jobs row by row.
    pub fn recounts(&self) -> u64 {
        self.recounts.load(Ordering::Relaxed)
    }

    /// Notes a base under the write lock, where that is free soon; else the next one counts again.
    fn note(&self, base: Option<&Base>) {
        let until = Until(Instant::now() + NOTE);
        let _ = self.transact(&until, |_| {
            if let Some(base) = base {
                self.shared.tally().set_base(base.queue, base.epoch, base.counts);
            }
            Ok(())
        });
    }
}

struct Until(Instant);

impl Patience for Until {
    fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }
}

fn look_at(
    db: &Connection,
    queue: &str,
    times: Times,
    tally: Option<&Tally>,
    scan: bool,
) -> rusqlite::Result<Look> {
    let before = tally.and_then(Tally::commit);
    let Some(queue) = queue_id(db, queue)? else { return Ok(Look::Done(Stats::default())) };
    let Some(tally) = tally.filter(|tally| !scan && tally.has_room_for(queue)) else {
        return Ok(Look::Counted(stats(db, queue, times, count_all(db, queue)?)?, None));
    };
    // The snapshot began with the look for the queue. Commits follow one another, so if the
    // file was at this commit before and still is, so is the snapshot.
    let Some(known) = tally.known(queue).filter(|known| {
        before == Some(known.commit) && wal_index::latest(db) == Some(known.commit)
    }) else {
        return Ok(Look::Missed);
    };
    if let Some(counts) = known.counts() {
        return Ok(Look::Done(stats(db, queue, times, counts)?));
    }
    let counts = count_all(db, queue)?;
    let base = std::array::from_fn(|state| counts[state] - known.moved[state]);
    let base = Base { queue, epoch: known.epoch, counts: base };
    Ok(Look::Counted(stats(db, queue, times, counts)?, Some(base)))
}

/// Counts the jobs of a queue, row by row.
pub(super) fn count_all(db: &Connection, queue: i64) -> rusqlite::Result<Counts> {
    let count = |sql: &str| -> rusqlite::Result<i64> {
        db.prepare_cached(sql)?.query_row([queue], |row| row.get(0))
    };
    Ok([
        count("SELECT count(*) FROM messages INDEXED BY m_ready WHERE queue = ?1 AND state = 0")?,
        count("SELECT count(*) FROM messages INDEXED BY m_due WHERE queue = ?1 AND state = 1")?,
        count("SELECT count(*) FROM messages INDEXED BY m_blocked WHERE queue = ?1 AND state = 2")?,
        count("SELECT count(*) FROM messages INDEXED BY m_taken WHERE queue = ?1 AND state = 3")?,
        count("SELECT count(*) FROM messages INDEXED BY m_taken WHERE queue = ?1 AND state = 4")?,
        count("SELECT count(*) FROM messages INDEXED BY m_failed WHERE queue = ?1 AND state = 5")?,
    ])
}

/// What users see: the counts, and what of them has passed its time by now.
fn stats(db: &Connection, queue: i64, times: Times, counts: Counts) -> rusqlite::Result<Stats> {
    let count_to = |sql: &str, at: i64| -> rusqlite::Result<i64> {
        db.prepare_cached(sql)?.query_row((queue, at), |row| row.get(0))
    };
    let of = |state: State| counts[state as usize];
    let due = count_to(
        "SELECT count(*) FROM messages INDEXED BY m_due
         WHERE queue = ?1 AND state = 1 AND at <= ?2",
        times.now,
    )?;
    Ok(Stats {
        ready: of(State::Ready) + of(State::Delayed) + of(State::Blocked),
        delayed: of(State::Delayed) - due,
        blocked: of(State::Blocked),
        processing: of(State::Processing),
        expired: count_to(
            "SELECT count(*) FROM messages INDEXED BY m_taken
             WHERE queue = ?1 AND state = 3 AND at <= ?2",
            times.boot,
        )?,
        acked: of(State::Acked),
        failed: of(State::Failed),
        paused: db
            .prepare_cached("SELECT paused FROM queues WHERE id = ?1")?
            .query_row([queue], |row| row.get(0))?,
        oldest_ready_at: oldest_ready(db, queue, times.now)?,
    })
}

/// The longest wait among claimable jobs: the head of each priority, and the first due.
fn oldest_ready(db: &Connection, queue: i64, now: i64) -> rusqlite::Result<Option<i64>> {
    let mut oldest = None;
    let mut below = i64::MAX;
    let mut heads = db.prepare_cached(
        "SELECT prio, since FROM messages INDEXED BY m_ready
         WHERE queue = ?1 AND state = 0 AND prio < ?2 ORDER BY prio DESC, since LIMIT 1",
    )?;
    while let Some(head) = heads
        .query_map((queue, below), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?
        .next()
        .transpose()?
    {
        below = head.0;
        oldest = Some(oldest.unwrap_or(i64::MAX).min(head.1));
    }
    let due = db
        .prepare_cached(
            "SELECT at FROM messages INDEXED BY m_due
             WHERE queue = ?1 AND state = 1 AND at <= ?2 ORDER BY at LIMIT 1",
        )?
        .query_map((queue, now), |row| row.get::<_, i64>(0))?
        .next()
        .transpose()?;
    Ok(oldest.into_iter().chain(due).min())
}
