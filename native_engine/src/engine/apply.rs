//! One action on every job that a filter means, in many short transactions.

use super::error::Result;
use super::purge::remove;
use super::records::{Cursor, State};
use super::repair::{ask_to_stop, discard, postpone, retry, run_now, take_away};
use super::scan::{find_id, load, record, record_matches, walk};
use super::selection::{Action, Applied, Filter};
use super::store::{Patience, Store};
use super::transfer::transfer;
use super::views::Record;
use super::writer::Write;

/// Jobs that one transaction changes; the lock is free in between.
pub(super) const BATCH: usize = 500;
/// Rows that one transaction looks at.
const LOOK: usize = 5_000;

impl Store {
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
