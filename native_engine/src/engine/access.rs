//! Who may write: one thread of a process at a time, and one process at a time.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use super::error::{Error, Result};
use super::fork::FORKING;
use super::schema;
use super::shared::Shared;
use super::store::{Patience, SLICE, Store, lock};
use super::turns::Wait;
use super::writer::Writer;

/// Which thread has waited so long has a right to the next turn.
const FAIR: Duration = Duration::from_millis(1);

/// The connection that writes, and whether a thread has it.
#[derive(Default)]
pub(super) struct Slot {
    taken: bool,
    /// The threads that wait and since when, the first to come first.
    waiting: VecDeque<(Thread, Instant)>,
    /// Kept for this thread, which has waited too long.
    reserved: Option<ThreadId>,
    writer: Option<Box<Writer>>,
}

impl Slot {
    /// No connection is open, and nobody is about to open one.
    pub(super) fn is_empty(&self) -> bool {
        !self.taken && self.writer.is_none()
    }

    fn is_free_for(&self, thread: ThreadId) -> bool {
        !self.taken
            && self.reserved.is_none_or(|reserved| reserved == thread)
            && !FORKING.load(Ordering::SeqCst)
    }

    /// Ends the wait of a thread, with or without its turn.
    fn forget(&mut self, thread: ThreadId) {
        self.waiting.retain(|(waiting, _)| waiting.id() != thread);
        if self.reserved == Some(thread) {
            self.reserved = None;
        }
    }

    /// The first of those that wait, for whom it is kept where it has waited long.
    fn call_next(&mut self) -> Option<Thread> {
        let (thread, since) = self.waiting.front()?;
        if since.elapsed() >= FAIR {
            self.reserved = Some(thread.id());
        }
        Some(thread.clone())
    }
}

impl Store {
    pub(super) fn check_usable(&self) -> Result<()> {
        if std::process::id() != self.pid {
            return Err(Error::Forked);
        }
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Takes the connection that writes, for one thread at a time.
    pub(super) fn acquire(&self, patience: &dyn Patience) -> Result<Held<'_>> {
        self.check_usable()?;
        let me = thread::current();
        let mut slot = lock(&self.slot);
        if slot.is_free_for(me.id()) && !self.is_closed() {
            slot.taken = true;
            return Ok(Held { store: self, writer: slot.writer.take() });
        }
        slot.waiting.push_back((me.clone(), Instant::now()));
        let mut asked = Instant::now() + SLICE;
        loop {
            if self.is_closed() {
                slot.forget(me.id());
                return Err(Error::Closed);
            }
            if slot.is_free_for(me.id()) {
                slot.forget(me.id());
                slot.taken = true;
                return Ok(Held { store: self, writer: slot.writer.take() });
            }
            let nap = if slot.taken { SLICE } else { Duration::from_millis(1) };
            drop(slot);
            thread::park_timeout(nap);
            let over = Instant::now() >= asked && {
                asked = Instant::now() + SLICE;
                patience.is_over()
            };
            slot = lock(&self.slot);
            if over {
                slot.forget(me.id());
                return Err(Error::Interrupted);
            }
        }
    }

    /// Takes the write lock among processes.
    pub(super) fn lock_processes(
        &self,
        patience: &dyn Patience,
        start: Instant,
    ) -> Result<ProcessLock<'_>> {
        let (mut wait, mut asked) = (Wait::default(), start);
        loop {
            match self.shared.try_turn(&mut wait) {
                Ok(true) => return Ok(ProcessLock(&self.shared)),
                Ok(false) => self.shared.wait_for_turn(&mut wait),
                Err(error) => {
                    let path = self.path.as_deref().unwrap_or(Path::new(":memory:"));
                    return Err(schema::unusable(path, "locked", &error));
                }
            }
            // Not each time: asking takes the interpreter's lock, and it may be this one's turn.
            if asked.elapsed() >= SLICE {
                asked = Instant::now();
                if patience.is_over() {
                    return Err(Error::Interrupted);
                }
            }
            if start.elapsed() >= self.options.busy_timeout {
                return Err(Error::Busy {
                    path: self.path.clone().unwrap_or_default(),
                    seconds: start.elapsed().as_secs_f64(),
                });
            }
        }
    }

    pub(super) fn drop_connections(&self) {
        let mut slot = lock(&self.slot);
        while slot.taken {
            drop(slot);
            thread::sleep(Duration::from_millis(1));
            slot = lock(&self.slot);
        }
        // The last connection to close removes the log, which other threads may be syncing: what
        // is committed is synced first. Its error reaches whoever waits for that commit.
        self.sync_all();
        let counts_hold = slot.writer.as_ref().is_some_and(|writer| self.counts_hold(writer));
        slot.writer = None;
        drop(slot);
        *lock(&self.reader) = None;
        self.wait_for_asides();
        self.checkpointer.close();
        self.syncer.close();
        if counts_hold {
            self.counts_closed();
        }
    }
}

/// The writer in the hands of one thread; goes back when dropped.
pub(super) struct Held<'a> {
    store: &'a Store,
    pub(super) writer: Option<Box<Writer>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut slot = lock(&self.store.slot);
        slot.taken = false;
        slot.writer = self.writer.take();
        let next = slot.call_next();
        drop(slot);
        if let Some(next) = next {
            next.unpark();
        }
    }
}

pub(super) struct ProcessLock<'a>(&'a Shared);

impl Drop for ProcessLock<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
