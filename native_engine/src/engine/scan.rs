//! Walking the jobs of one state in order, from a cursor, with a filter and a bound.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::put::shown;
use super::records::{Cursor, Failure, State};
use super::selection::Filter;
use super::views::Record;

/// Rows that one look at a list reads at most; a rare match ends the page early instead.
pub(super) const SCAN: usize = 20_000;

/// A priority's weight in the cursor of ready jobs: above any time in microseconds.
const PRIORITY_STEP: i64 = 1 << 54;

/// What a walk found.
pub(super) struct Found<T> {
    pub(super) items: Vec<T>,
    /// Where to go on; None at the end.
    pub(super) next: Option<Cursor>,
}

macro_rules! select_record {
    ($tail:literal) => {
        concat!(
            "SELECT id, job_id, state, at, since, attempts, max_retries, prio, created, grp, task,
             headers, reason, err_class, err_message, err_place, started, worker, result, cancel,
             payload, failure, expires, unique_key, retention, progress, original FROM messages ",
            $tail
        )
    };
}

/// Both clocks of the store, for showing lease ends in wall time.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) now: i64,
    pub(super) boot: i64,
}

pub(super) fn record(row: &Row, times: Times) -> rusqlite::Result<Record> {
    let number: i64 = row.get(2)?;
    let (id, at, since, priority) = (row.get(0)?, row.get(3)?, row.get(4)?, row.get(7)?);
    let message: Option<String> = row.get(14)?;
    let error = message.map(|message| -> rusqlite::Result<Failure> {
        Ok(Failure {
            class: row.get::<_, Option<String>>(13)?.unwrap_or_default(),
            message,
            place: row.get::<_, Option<String>>(15)?.unwrap_or_default(),
            traceback: String::new(),
        })
    });
    let state = shown(number, at, times.now);
    let leased = state == State::Processing;
    Ok(Record {
        id,
        job_id: row.get(1)?,
        state,
        at,
        since,
        attempts: row.get(5)?,
        max_retries: row.get(6)?,
        priority,
        created_at: row.get(8)?,
        group: row.get(9)?,
        task: row.get(10)?,
        headers: row.get(11)?,
        reason: row.get(12)?,
        error: error.transpose()?,
        started_at: row.get(16)?,
        lease_expires_at: leased.then(|| times.now.saturating_add(at - times.boot)),
        worker: row.get(17)?,
        result: row.get(18)?,
        cancel_requested: row.get(19)?,
        payload: row.get(20)?,
        failure: row.get(21)?,
        expires_at: row.get(22)?,
        unique_key: row.get(23)?,
        retention: row.get(24)?,
        progress: row.get(25)?,
        original: row.get(26)?,
        cursor: cursor(number, (id, at, since, priority)),
        history: Vec::new(),
    })
}

fn cursor(state: i64, (id, at, since, priority): (i64, i64, i64, i64)) -> Cursor {
    match State::from_number(state) {
        Some(State::Ready) => ((100 - priority) * PRIORITY_STEP + since, id),
        Some(State::Blocked) => (0, id),
        _ => (at, id),
    }
}

/// The job of this public id: the caller's where given, else the engine's.
pub(super) fn find_id(db: &Connection, queue: i64, id: &str) -> rusqlite::Result<Option<i64>> {
    let given = db
        .prepare_cached(
            "SELECT id FROM messages INDEXED BY m_job_id
             WHERE queue = ?1 AND job_id = ?2 AND job_id IS NOT NULL",
        )?
        .query_row((queue, id), |row| row.get(0))
        .optional()?;
    match (given, id.parse::<i64>()) {
        (None, Ok(number)) if number.to_string() == id => db
            .prepare_cached(
                "SELECT id FROM messages WHERE id = ?1 AND queue = ?2 AND job_id IS NULL",
            )?
            .query_row((number, queue), |row| row.get(0))
            .optional(),
        _ => Ok(given),
    }
}

pub(super) fn load(db: &Connection, id: i64, times: Times) -> rusqlite::Result<Option<Record>> {
    db.prepare_cached(select_record!("WHERE id = ?1"))?
        .query_row([id], |row| record(row, times))
        .optional()
}

/// Collects what `keep` makes of matching rows, up to `limit`, reading at most `scan` rows.
pub(super) fn walk<T>(
    db: &Connection,
    queue: i64,
    filter: &Filter,
    after: Option<Cursor>,
    (limit, scan): (usize, usize),
    keep: impl Fn(&Row) -> rusqlite::Result<T>,
) -> rusqlite::Result<Found<T>> {
    let needle = filter.text.as_ref().map(|text| text.to_lowercase());
    let mut found = Found { items: Vec::new(), next: None };
    let mut read = 0;
    for (sql, low, id) in legs(filter, after) {
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = if filter.state == State::Blocked {
            statement.query(params![queue, id, &filter.group])?
        } else if filter.state == State::Failed && filter.failure.is_some() {
            statement.query(params![queue, low, id, filter.failure])?
        } else {
            statement.query(params![queue, low, id])?
        };
        while let Some(row) = rows.next()? {
            if found.items.len() == limit || read == scan {
                return Ok(found); // `next` is the row before this one
            }
            if is_past(row, filter)? {
                break;
            }
            read += 1;
            found.next =
                Some(cursor(row.get(2)?, (row.get(0)?, row.get(3)?, row.get(4)?, row.get(7)?)));
            if matches(row, filter, needle.as_deref())? {
                found.items.push(keep(row)?);
            }
        }
    }
    found.next = None;
    Ok(found)
}

/// The statements that together walk a state in order, each with where it starts.
fn legs(filter: &Filter, after: Option<Cursor>) -> Vec<(&'static str, i64, i64)> {
    let newest_first = matches!(filter.state, State::Acked | State::Failed);
    // -1 lies before every time, and before every rank of a ready job's cursor.
    let (low, id) = after.unwrap_or(if newest_first { (i64::MAX, i64::MAX) } else { (-1, -1) });
    // A list that runs back from `until` needn't read what is later.
    let (low, id) = match filter.until {
        Some(until) if newest_first && until < low => (until, i64::MAX),
        _ => (low, id),
    };
    match filter.state {
        State::Ready => vec![
            (
                select_record!(
                    "INDEXED BY m_ready WHERE queue = ?1 AND state = 0
                     AND prio = 100 - (?2 >> 54) AND (since, id) > (?2 & 0x3FFFFFFFFFFFFF, ?3)
                     ORDER BY since, id"
                ),
                low,
                id,
            ),
            (
                select_record!(
                    "INDEXED BY m_ready WHERE queue = ?1 AND state = 0
                     AND prio < 100 - (?2 >> 54) AND ?3 IS NOT NULL ORDER BY prio DESC, since, id"
                ),
                low,
                id,
            ),
        ],
        State::Delayed => vec![(
            select_record!(
                "INDEXED BY m_due WHERE queue = ?1 AND state = 1 AND (at, id) > (?2, ?3)
                 ORDER BY at, id"
            ),
            low,
            id,
        )],
        State::Processing => vec![(
            select_record!(
                "INDEXED BY m_taken WHERE queue = ?1 AND state = 3 AND (at, id) > (?2, ?3)
                 ORDER BY at, id"
            ),
            low,
            id,
        )],
        State::Acked => vec![(
            select_record!(
                "INDEXED BY m_taken WHERE queue = ?1 AND state = 4 AND (at, id) < (?2, ?3)
                 ORDER BY at DESC, id DESC"
            ),
            low,
            id,
        )],
        State::Failed if filter.failure.is_some() => vec![(
            select_record!(
                "INDEXED BY m_failure WHERE failure = ?4 AND failure IS NOT NULL AND queue = ?1
                 AND (at, id) < (?2, ?3) ORDER BY at DESC, id DESC"
            ),
            low,
            id,
        )],
        State::Failed => vec![(
            select_record!(
                "INDEXED BY m_failed WHERE queue = ?1 AND state = 5 AND (at, id) < (?2, ?3)
                 ORDER BY at DESC, id DESC"
            ),
            low,
            id,
        )],
        State::Blocked if filter.group.is_some() => vec![(
            select_record!(
                "INDEXED BY m_blocked WHERE queue = ?1 AND state = 2 AND id > ?2 AND grp = ?3
                 ORDER BY id"
            ),
            low,
            id,
        )],
        State::Blocked => vec![(
            select_record!(
                "INDEXED BY m_behind WHERE queue = ?1 AND state = 2 AND id > ?2 AND ?3 IS NULL
                 ORDER BY id"
            ),
            low,
            id,
        )],
    }
}

/// The time that orders the state, for `since` and `until`.
fn time_of(row: &Row, filter: &Filter) -> rusqlite::Result<i64> {
    match filter.state {
        State::Ready => row.get(4),
        State::Blocked => row.get(8),
        _ => row.get(3),
    }
}

/// Whether no later row can match, because the list is in the order of that time.
fn is_past(row: &Row, filter: &Filter) -> rusqlite::Result<bool> {
    let time = time_of(row, filter)?;
    Ok(match filter.state {
        State::Acked | State::Failed => filter.since.is_some_and(|since| time < since),
        State::Delayed => filter.until.is_some_and(|until| time > until),
        _ => false,
    })
}

fn matches(row: &Row, filter: &Filter, needle: Option<&str>) -> rusqlite::Result<bool> {
    let text = |column: usize| -> rusqlite::Result<&str> {
        Ok(match row.get_ref(column)? {
            ValueRef::Text(bytes) => std::str::from_utf8(bytes).unwrap_or(""),
            _ => "",
        })
    };
    let same = |column: usize, wanted: &Option<String>| -> rusqlite::Result<bool> {
        Ok(match wanted {
            Some(wanted) => text(column)? == wanted,
            None => true,
        })
    };
    let timed = filter.state != State::Processing;
    let time = time_of(row, filter)?;
    if timed
        && (filter.since.is_some_and(|since| time < since)
            || filter.until.is_some_and(|until| time > until))
    {
        return Ok(false);
    }
    let is_of = |failure: i64| row.get(21).is_ok_and(|own: Option<i64>| own == Some(failure));
    if !(filter.failure.is_none_or(is_of)
        && same(9, &filter.group)?
        && same(10, &filter.task)?
        && same(12, &filter.reason)?
        && same(13, &filter.error_class)?
        && filter.min_attempts.is_none_or(|least| row.get(5).is_ok_and(|n: i64| n >= least)))
    {
        return Ok(false);
    }
    let Some(needle) = needle else { return Ok(true) };
    for column in [1, 10, 13, 14, 15] {
        if text(column)?.to_lowercase().contains(needle) {
            return Ok(true);
        }
    }
    Ok(row.get::<_, i64>(0)?.to_string().contains(needle))
}

/// Whether one loaded job matches a filter that names ids.
pub(super) fn record_matches(record: &Record, filter: &Filter) -> bool {
    let state = match filter.state {
        // A due job counts as ready and is still walked with the delayed ones.
        State::Delayed => matches!(record.state, State::Delayed | State::Ready),
        state => record.state == state,
    };
    let time = if filter.state == State::Ready { record.since } else { record.at };
    let timed = matches!(filter.state, State::Acked | State::Failed);
    state
        && filter.task.is_none_or_eq(record.task.as_ref())
        && filter.group.is_none_or_eq(record.group.as_ref())
        && filter.reason.is_none_or_eq(record.reason.as_ref())
        && filter.min_attempts.is_none_or(|least| record.attempts >= least)
        && filter.failure.is_none_or(|failure| record.failure == Some(failure))
        && !(timed && filter.since.is_some_and(|since| time < since))
        && !(timed && filter.until.is_some_and(|until| time > until))
}

trait Wanted {
    fn is_none_or_eq(&self, value: Option<&String>) -> bool;
}

impl Wanted for Option<String> {
    fn is_none_or_eq(&self, value: Option<&String>) -> bool {
        self.is_none() || self.as_ref() == value
    }
}
