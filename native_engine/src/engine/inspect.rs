//! Looking without changing anything.

use rusqlite::Connection;

use super::error::Result;
use super::records::{Cursor, Failure, State};
use super::scan::{Found, SCAN, Times, find_id, load, record, record_matches, walk};
use super::selection::Filter;
use super::store::{Patience, Store};
use super::views::{Attempt, Page, Record};
use super::writer::queue_id;

impl Store {
    pub(super) fn times(&self) -> Times {
        Times { now: self.clock.wall(), boot: self.clock.boot() }
    }

    /// The job with this public id, with its history.
    pub fn lookup(&self, queue: &str, id: &str, patience: &dyn Patience) -> Result<Option<Record>> {
        let times = self.times();
        self.read(patience, |db| {
            let Some(queue) = queue_id(db, queue)? else { return Ok(None) };
            let Some(id) = find_id(db, queue, id)? else { return Ok(None) };
            let Some(mut record) = load(db, id, times)? else { return Ok(None) };
            record.history = history(db, &record)?;
            let last = record.history.iter().rev().find_map(|attempt| attempt.error.as_ref());
            if let (Some(error), Some(last)) = (&mut record.error, last) {
                error.traceback.clone_from(&last.traceback);
            }
            Ok(Some(record))
        })
    }

    /// Matching jobs in the order of their state, and where to go on.
    ///
    /// A page can be short and still have a next one, where matches are rare.
    pub fn list(
        &self,
        queue: &str,
        filter: &Filter,
        limit: usize,
        after: Option<Cursor>,
        patience: &dyn Patience,
    ) -> Result<Page> {
        let times = self.times();
        self.read(patience, |db| {
            let Some(queue) = queue_id(db, queue)? else { return Ok(Page::default()) };
            if let Some(ids) = &filter.ids {
                return Ok(Page { records: by_ids(db, queue, ids, filter, times)?, next: None });
            }
            let Found { items, next } =
                walk(db, queue, filter, after, (limit, SCAN), |row| record(row, times))?;
            Ok(Page { records: items, next })
        })
    }

    /// How many jobs match, counting no further than `cap`.
    pub fn count(
        &self,
        queue: &str,
        filter: &Filter,
        cap: usize,
        patience: &dyn Patience,
    ) -> Result<usize> {
        let times = self.times();
        self.read(patience, |db| {
            let Some(queue) = queue_id(db, queue)? else { return Ok(0) };
            if let Some(ids) = &filter.ids {
                return Ok(by_ids(db, queue, ids, filter, times)?.len().min(cap));
            }
            // Ten looks' worth of rows: a count of rare matches in a large store is a lower bound.
            let found = walk(db, queue, filter, None, (cap, cap.max(10 * SCAN)), |_| Ok(()))?;
            Ok(found.items.len())
        })
    }

    /// Dead letters, newest first.
    pub fn list_failed(
        &self,
        queue: &str,
        limit: usize,
        offset: usize,
        patience: &dyn Patience,
    ) -> Result<Vec<Record>> {
        let times = self.times();
        self.read(patience, |db| {
            let Some(queue) = queue_id(db, queue)? else { return Ok(Vec::new()) };
            let ids = db
                .prepare_cached(
                    "SELECT id FROM messages INDEXED BY m_failed WHERE queue = ?1 AND state = 5
                     ORDER BY at DESC, id DESC LIMIT ?2 OFFSET ?3",
                )?
                .query_map((queue, limit, offset), |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<i64>>>()?;
            ids.into_iter().filter_map(|id| load(db, id, times).transpose()).collect()
        })
    }
}

fn by_ids(
    db: &Connection,
    queue: i64,
    ids: &[String],
    filter: &Filter,
    times: Times,
) -> rusqlite::Result<Vec<Record>> {
    let mut records = Vec::new();
    for id in ids {
        if let Some(id) = find_id(db, queue, id)?
            && let Some(record) = load(db, id, times)?
            && record_matches(&record, filter)
        {
            records.push(record);
        }
    }
    Ok(records)
}

/// Ended attempts, oldest first; the one that was acked is told by the job's own row.
fn history(db: &Connection, record: &Record) -> rusqlite::Result<Vec<Attempt>> {
    let mut attempts = db
        .prepare_cached(
            "SELECT attempt, worker, started, ended, outcome, err_class, err_message, err_place,
               traceback FROM history WHERE message = ?1 ORDER BY n",
        )?
        .query_map([record.id], |row| {
            let message: Option<String> = row.get(6)?;
            let error = message.map(|message| -> rusqlite::Result<Failure> {
                Ok(Failure {
                    class: row.get(5)?,
                    message,
                    place: row.get(7)?,
                    traceback: row.get(8)?,
                })
            });
            Ok(Attempt {
                number: row.get(0)?,
                worker: row.get(1)?,
                started_at: row.get(2)?,
                ended_at: row.get(3)?,
                outcome: row.get(4)?,
                error: error.transpose()?,
            })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    if record.state == State::Acked {
        attempts.push(Attempt {
            number: record.attempts,
            worker: record.worker.clone().unwrap_or_default(),
            started_at: record.started_at.unwrap_or(record.at),
            ended_at: record.at,
            outcome: "ack".to_owned(),
            error: None,
        });
    }
    Ok(attempts)
}
