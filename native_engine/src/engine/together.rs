//! Small puts of several threads in one transaction.
//!
//! One thread at a time leads, until its put is durable. A put that comes meanwhile stands in line, and
//! whoever leads next stores all that stand there with its own: one write lock, one transaction, one
//! sync. The lead isn't handed to a certain thread, which may be slow to wake: whoever comes first takes it.
//!
//! An error of a group is nobody's: each of its puts is then tried alone, and fails by itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::Instant;

use super::error::{Error, Result};
use super::records::{Message, Put};
use super::store::{Patience, SLICE, Store, lock};

/// Bytes up to which a put may wait for another to store it, which takes a copy.
const SMALL: usize = 8_192;
/// Puts that are stored at once, so that no other process waits long for the lock.
const MOST: usize = 32;

/// The line of the puts of one store.
#[derive(Default)]
pub(super) struct Together(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// Some thread leads.
    led: bool,
    waiting: VecDeque<Arc<Ask>>,
}

impl Line {
    /// Takes out a put; false if a leader did.
    fn remove(&mut self, ask: &Arc<Ask>) -> bool {
        let place = self.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, ask));
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }
}

/// A put that stands in line.
pub(super) struct Ask {
    queue: String,
    message: Owned,
    thread: Thread,
    turn: Mutex<Turn>,
}

impl Ask {
    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    pub(super) fn message(&self) -> Message<'_> {
        self.message.borrowed()
    }

    fn tell(&self, turn: Turn) {
        *lock(&self.turn) = turn;
    }
}

/// What a put in line is to do.
#[derive(Clone)]
enum Turn {
    Wait,
    /// Its group failed.
    GoAlone,
    /// It was committed, with this number for the sync.
    Stored(Put, Option<u64>),
}

/// How a put goes on.
pub(super) enum Place<'a> {
    Leads(Lead<'a>),
    Alone,
    Stored(Put, Option<u64>),
}

/// The right to store what stands in line; passed on when dropped.
pub(super) struct Lead<'a>(&'a Together);

impl Lead<'_> {
    /// The first of the line, to be stored with the leader's own.
    pub(super) fn group(&self) -> Group {
        let mut line = lock(&self.0.0);
        let many = line.waiting.len().min(MOST);
        Group(line.waiting.drain(..many).collect())
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut line = lock(&self.0.0);
        line.led = false;
        call_first(line);
    }
}

/// Puts that another thread stores; where it didn't, each goes alone.
#[derive(Default)]
pub(super) struct Group(Vec<Arc<Ask>>);

impl Group {
    pub(super) fn asks(&self) -> &[Arc<Ask>] {
        &self.0
    }

    /// Leaves their results, in order; returns the threads, to be woken once commit `number` is durable.
    pub(super) fn stored(mut self, puts: Vec<Put>, number: Option<u64>) -> Vec<Thread> {
        let asks = std::mem::take(&mut self.0);
        asks.iter().zip(puts).for_each(|(ask, put)| ask.tell(Turn::Stored(put, number)));
        asks.iter().map(|ask| ask.thread.clone()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for ask in &self.0 {
            ask.tell(Turn::GoAlone);
            ask.thread.unpark();
        }
    }
}

impl Together {
    /// Leads, or waits in line until the put was stored or may be.
    pub(super) fn join(
        &self,
        queue: &str,
        message: &Message,
        patience: &dyn Patience,
    ) -> Result<Place<'_>> {
        let mut line = lock(&self.0);
        if !line.led {
            line.led = true;
            return Ok(Place::Leads(Lead(self)));
        }
        let ask = Arc::new(Ask {
            queue: queue.to_owned(),
            message: Owned::of(message),
            thread: thread::current(),
            turn: Mutex::new(Turn::Wait),
        });
        line.waiting.push_back(ask.clone());
        drop(line);
        let mut asked = Instant::now();
        loop {
            if let Some(place) = self.look(&ask) {
                return Ok(place);
            }
            thread::park_timeout(SLICE);
            if asked.elapsed() >= SLICE {
                asked = Instant::now();
                // Asked outside of the line: what gives up must not be stored.
                if self.step_out(&ask) {
                    if patience.is_over() {
                        self.call_if_idle();
                        return Err(Error::Interrupted);
                    }
                    lock(&self.0).waiting.push_front(ask.clone());
                }
            }
        }
    }

    /// How a put in line may go on; None while others lead.
    fn look(&self, ask: &Arc<Ask>) -> Option<Place<'_>> {
        match lock(&ask.turn).clone() {
            Turn::GoAlone => return Some(Place::Alone),
            Turn::Stored(put, number) => return Some(Place::Stored(put, number)),
            Turn::Wait => {}
        }
        let mut line = lock(&self.0);
        if line.led || !line.remove(ask) {
            return None; // where it isn't in line any more, its leader will tell
        }
        line.led = true;
        Some(Place::Leads(Lead(self)))
    }

    /// Takes a put out of the line; false if a leader did.
    fn step_out(&self, ask: &Arc<Ask>) -> bool {
        lock(&self.0).remove(ask)
    }

    /// Passes on the call of a put that may have left after it was called.
    fn call_if_idle(&self) {
        let line = lock(&self.0);
        if !line.led {
            call_first(line);
        }
    }
}

/// Wakes the first of the line.
fn call_first(line: MutexGuard<Line>) {
    let first = line.waiting.front().map(|ask| ask.thread.clone());
    drop(line);
    if let Some(first) = first {
        first.unpark();
    }
}

impl Store {
    /// Stores one job, with those of other threads that stand in line.
    pub(super) fn put_together(
        &self,
        queue: &str,
        message: &Message,
        patience: &dyn Patience,
    ) -> Result<Put> {
        self.check_usable()?;
        let start = Instant::now();
        let own = |lead| self.put_leading(lead, queue, message, start, patience);
        match self.together.join(queue, message, patience)? {
            Place::Leads(lead) => own(Some(lead)),
            Place::Alone => own(None),
            Place::Stored(put, number) => {
                if let Some(number) = number {
                    self.make_durable(number)?;
                }
                Ok(put)
            }
        }
    }
}

/// Whether a message is one to be put together with others.
pub(super) fn is_small(message: &Message) -> bool {
    message.payload.len() + message.headers.map_or(0, <[u8]>::len) <= SMALL
}

/// A message of its own, for another thread.
struct Owned {
    payload: Vec<u8>,
    job_id: Option<String>,
    group: Option<String>,
    task: Option<String>,
    headers: Option<Vec<u8>>,
    unique_key: Option<String>,
    /// All that is no text or bytes.
    rest: Message<'static>,
}

impl Owned {
    fn of(message: &Message) -> Self {
        Self {
            payload: message.payload.to_owned(),
            job_id: message.job_id.map(str::to_owned),
            group: message.group.map(str::to_owned),
            task: message.task.map(str::to_owned),
            headers: message.headers.map(<[u8]>::to_owned),
            unique_key: message.unique_key.map(str::to_owned),
            rest: Message {
                payload: &[],
                job_id: None,
                group: None,
                task: None,
                headers: None,
                unique_key: None,
                delay: message.delay,
                priority: message.priority,
                max_retries: message.max_retries,
                expires: message.expires,
                unique_for: message.unique_for,
                retention: message.retention,
                once: message.once,
            },
        }
    }

    fn borrowed(&self) -> Message<'_> {
        Message {
            payload: &self.payload,
            job_id: self.job_id.as_deref(),
            group: self.group.as_deref(),
            task: self.task.as_deref(),
            headers: self.headers.as_deref(),
            unique_key: self.unique_key.as_deref(),
            ..self.rest
        }
    }
}
