//! Storing jobs.

use std::slice;
use std::thread::Thread;
use std::time::Instant;

use rusqlite::{OptionalExtension, params};

use super::error::{Error, Result};
use super::groups;
use super::once;
use super::records::{Message, Put, State};
use super::store::{Patience, Store};
use super::together::{Lead, is_small};
use super::unique;
use super::writer::{Write, in_transaction};

impl Store {
    /// Stores one job that is nothing but its payload; returns its id.
    pub fn put_one(&self, queue: &str, payload: &[u8], patience: &dyn Patience) -> Result<i64> {
        let message = Message { payload, ..Message::default() };
        Ok(self.put(queue, &[message], patience)?[0].id)
    }

    /// Stores all jobs or none; one [`Put`] for each, in order.
    pub fn put(
        &self,
        queue: &str,
        messages: &[Message],
        patience: &dyn Patience,
    ) -> Result<Vec<Put>> {
        match messages {
            [message] if is_small(message) => {
                Ok(vec![self.put_together(queue, message, patience)?])
            }
            _ => self.write(patience, |write| put_all(write, queue, messages)),
        }
    }

    /// Stores one job; the first of the line with it, where it leads.
    pub(super) fn put_leading(
        &self,
        lead: Option<Lead>,
        queue: &str,
        message: &Message,
        start: Instant,
        patience: &dyn Patience,
    ) -> Result<Put> {
        let mut group = None;
        let stored = self.commit(patience, start, |write| {
            // Only now that the lock is had, for meanwhile the line grew.
            let group =
                group.get_or_insert_with(|| lead.as_ref().map(Lead::group).unwrap_or_default());
            if group.asks().is_empty() {
                return Ok((put_alone(write, queue, message)?, Vec::new()));
            }
            in_transaction(write, |write| {
                let put = put_all(write, queue, slice::from_ref(message))?.remove(0);
                let mut puts = Vec::with_capacity(group.asks().len());
                for ask in group.asks() {
                    failpoint!("put.together");
                    puts.extend(put_all(write, ask.queue(), &[ask.message()])?);
                }
                Ok((put, puts))
            })
        });
        let group = group.unwrap_or_default();
        let ((put, puts), number) = match stored {
            Ok(stored) => stored,
            Err(Error::Full(_) | Error::Unavailable(_) | Error::Corrupt(..))
                if !group.asks().is_empty() =>
            {
                drop(group);
                drop(lead);
                return self.put_leading(None, queue, message, start, patience);
            }
            Err(error) => return Err(error),
        };
        let others = group.stored(puts, number);
        let durable = number.map_or(Ok(()), |number| self.make_durable(number));
        others.iter().for_each(Thread::unpark);
        drop(lead);
        durable?;
        failpoint!("put.durable");
        self.checkpoint_if_long();
        Ok(put)
    }
}

fn put_alone(write: &mut Write, queue: &str, message: &Message) -> rusqlite::Result<Put> {
    if message.is_plain()
        && message.priority == 0
        && let Some(id) = put_plain(write, queue, message.payload)?
    {
        return Ok(Put { id, created: true, state: State::Ready, met: None });
    }
    in_transaction(write, |write| Ok(put_all(write, queue, slice::from_ref(message))?.remove(0)))
}

/// Stores a job that is nothing but its payload with one statement; None in a queue not known yet.
fn put_plain(write: &mut Write, queue: &str, payload: &[u8]) -> rusqlite::Result<Option<i64>> {
    let Some(queue) = write.writer.queues.get(queue).copied() else { return Ok(None) };
    write.ring = true;
    write
        .db()
        .prepare_cached(
            "INSERT INTO messages(id, queue, state, prio, since, at, created, payload)
             SELECT id, ?1, 0, 0, id, id, ?2, ?3 FROM (SELECT max(?2,
               1 + coalesce((SELECT max(id) FROM messages), 0),
               1 + (SELECT value FROM meta WHERE key = 1)) AS id)",
        )?
        .execute((queue, write.now, payload))?;
    failpoint!("put.one");
    Ok(Some(write.db().last_insert_rowid()))
}

/// Stores all jobs, in the transaction of the caller.
pub(super) fn put_all(
    write: &mut Write,
    queue: &str,
    messages: &[Message],
) -> rusqlite::Result<Vec<Put>> {
    let queue = write.queue(queue)?;
    let mut last = write.last_id()?;
    let mut puts = Vec::with_capacity(messages.len());
    for message in messages {
        let put = put_message(write, queue, message, &mut last)?;
        puts.push(put);
    }
    write.promise = true; // a duplicate writes nothing and is promised all the same
    Ok(puts)
}

fn put_message(
    write: &mut Write,
    queue: i64,
    message: &Message,
    last: &mut i64,
) -> rusqlite::Result<Put> {
    if let Some(job_id) = message.job_id {
        let was_put = message.once && once::note(write, queue, job_id)?;
        if let Some((id, state, at)) = find(write, queue, job_id)? {
            return Ok(Put { id, created: false, state: shown(state, at, write.now), met: None });
        }
        if was_put {
            return Ok(once::gone(job_id));
        }
    }
    if let Some(key) = message.unique_key
        && let Some(holder) = unique::holder(write, queue, key)?
    {
        let state = shown(holder.state, holder.at, write.now);
        return Ok(Put { id: holder.id, created: false, state, met: Some(holder.public_id()) });
    }
    let id = write.now.max(*last + 1);
    if message.is_plain() {
        write
            .db()
            .prepare_cached(
                "INSERT INTO messages(id, queue, state, prio, since, at, created, payload)
                 VALUES (?1, ?2, 0, ?3, ?1, ?1, ?4, ?5)",
            )?
            .execute((id, queue, message.priority, write.now, message.payload))?;
        failpoint!("put.plain");
        *last = id;
        write.ring = true;
        return Ok(Put { id, created: true, state: State::Ready, met: None });
    }
    let due = write.now.saturating_add(message.delay);
    let blocked = match message.group {
        Some(group) => groups::has_lead(write.db(), queue, group)?,
        None => false,
    };
    // Its own time is its due time, or its id, which never goes back as a clock may.
    let (state, since, at) = match (blocked, message.delay > 0) {
        (true, true) => (State::Blocked, 0, due),
        (true, false) => (State::Blocked, id, 0),
        (false, true) => (State::Delayed, 0, due),
        (false, false) => (State::Ready, id, id),
    };
    write
        .db()
        .prepare_cached(
            "INSERT INTO messages(id, queue, state, prio, since, at, created, max_retries, grp,
               job_id, task, headers, payload, expires, unique_key, unique_until, retention)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        )?
        .execute(params![
            id,
            queue,
            state as i64,
            message.priority,
            since,
            at,
            write.now,
            message.max_retries,
            message.group,
            message.job_id,
            message.task,
            message.headers,
            message.payload,
            message.expires.map(|expires| write.now.saturating_add(expires)),
            message.unique_key,
            message.unique_key.map(|_| write.now.saturating_add(message.unique_for)),
            message.retention,
        ])?;
    failpoint!("put.row");
    *last = id;
    write.ring |= state != State::Blocked;
    Ok(Put { id, created: true, state, met: None })
}

fn find(write: &Write, queue: i64, job_id: &str) -> rusqlite::Result<Option<(i64, i64, i64)>> {
    write
        .db()
        .prepare_cached(
            "SELECT id, state, at FROM messages INDEXED BY m_job_id
             WHERE queue = ?1 AND job_id = ?2 AND job_id IS NOT NULL",
        )?
        .query_row((queue, job_id), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()
}

/// The state as users see it: a delayed job that is due is ready, promoted or not.
pub(super) fn shown(state: i64, at: i64, now: i64) -> State {
    match State::from_number(state) {
        Some(State::Delayed) if at <= now => State::Ready,
        Some(state) => state,
        None => State::Failed,
    }
}
