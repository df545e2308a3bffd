//! Durable without holding the write lock while the disk works.
//!
//! SQLite commits with `synchronous=NORMAL`; after the lock is released the log is
//! synced through a descriptor of our own. The log is written in order, so what is
//! synced is always a prefix of what was committed. Threads share one sync: whoever
//! comes first syncs for all that committed before it started.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, Thread};

use super::identity;
use super::log::{Log, Room};
use super::store::{beside, lock};

/// Syncs the log of one store for its threads.
pub(super) struct Syncer {
    wal: PathBuf,
    /// There once any process failed to sync the log, until it was checkpointed.
    mark: PathBuf,
    /// The latest commit that is on the disk; changed under the mutex, read without.
    synced: AtomicU64,
    state: Mutex<State>,
    room: Room,
}

#[derive(Default)]
struct State {
    committed: u64,
    /// Frames in the log after the latest commit.
    frames: u32,
    running: bool,
    /// Threads that sleep until the running sync ends, and the commits that they wait for.
    waiting: Vec<(u64, Thread)>,
    log: Option<Log>,
    failed: Option<String>,
}

impl State {
    /// Whom the end of a sync wakes: all that it covers, and one that syncs for the others.
    ///
    /// A thread that is woken looks for itself without the mutex: all at once they would queue for it.
    fn call(&mut self, covers: u64) -> Vec<Thread> {
        let all = self.failed.is_some();
        let is_done = |waiting: &mut (u64, Thread)| all || waiting.0 <= covers;
        let mut called: Vec<_> = self.waiting.extract_if(.., is_done).collect();
        if !self.waiting.is_empty() {
            called.push(self.waiting.remove(0));
        }
        called.into_iter().map(|(_, thread)| thread).collect()
    }

    fn forget(&mut self, thread: &Thread) {
        self.waiting.retain(|(_, waiting)| waiting.id() != thread.id());
    }
}

impl Syncer {
    pub(super) fn new(database: &Path) -> Self {
        let (wal, mark) = (beside(database, "-wal"), beside(database, "-unsynced"));
        Self {
            wal,
            mark,
            synced: AtomicU64::new(0),
            state: Mutex::default(),
            room: Room::default(),
        }
    }

    /// Notes a commit, under the write lock, and the `frames` of the log; returns its number for `wait`.
    pub(super) fn committed(&self, frames: u32) -> u64 {
        let mut state = self.lock();
        state.frames = frames;
        state.committed += 1;
        state.committed
    }

    /// The number of the latest commit.
    pub(super) fn last(&self) -> u64 {
        self.lock().committed
    }

    /// Returns once commit `number`, and so every commit before it, is on the disk.
    ///
    /// The error is the disk's text: the commit stands, and a power cut may undo it.
    pub(super) fn wait(&self, number: u64) -> Result<(), String> {
        if self.is_synced(number) {
            return Ok(());
        }
        let me = thread::current();
        loop {
            let mut state = self.lock();
            state.forget(&me); // woken for nothing, it is still among them
            if self.is_synced(number) {
                return Ok(());
            }
            // After an error the kernel may call unwritten pages clean: a later sync proves nothing.
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.running {
                state.waiting.push((number, me.clone()));
                drop(state);
                thread::park();
                if self.is_synced(number) {
                    return Ok(());
                }
                continue;
            }
            state.running = true;
            let (covers, frames) = (state.committed, state.frames);
            let log = state.log.take();
            drop(state);
            let outcome = self.sync(log);
            if let Ok(log) = &outcome {
                self.room.see_to(&self.wal, log, frames);
            }
            state = self.lock();
            state.running = false;
            match outcome {
                Ok(log) => {
                    self.synced.fetch_max(covers, Ordering::SeqCst);
                    state.log = Some(log);
                }
                Err(error) => state.failed = Some(error.to_string()),
            }
            let called = state.call(covers);
            drop(state);
            called.iter().for_each(Thread::unpark);
        }
    }

    fn is_synced(&self, number: u64) -> bool {
        self.synced.load(Ordering::SeqCst) >= number
    }

    /// Whether a sync failed, so that the log must be checkpointed before it is trusted again.
    pub(super) fn has_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    /// The file that stands beside the database once a sync failed.
    pub(super) fn mark(&self) -> &Path {
        &self.mark
    }

    /// Whether a process, this or another, left the mark of a failed sync.
    pub(super) fn is_marked(&self) -> bool {
        self.mark.exists()
    }

    /// Everything committed so far reached the database file itself.
    pub(super) fn checkpointed(&self) {
        let mut state = self.lock();
        self.synced.fetch_max(state.committed, Ordering::SeqCst);
        state.failed = None;
        self.room.forget();
        state.log = None;
    }

    /// Forgets the descriptor, which must not outlive the connection.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        self.room.forget();
        state.log = None;
    }

    fn sync(&self, log: Option<Log>) -> io::Result<Log> {
        let log = match log {
            Some(log) => log,
            None => Log::open(&self.wal)?,
        };
        failpoint!("sync.opened");
        log.sync()?;
        failpoint!("sync.synced");
        self.still_the_log(&log)?;
        if self.is_marked() {
            // What was written before ours may be missing on the disk, though our sync went well.
            return Err(io::Error::other("another process could not sync the log"));
        }
        Ok(log)
    }

    /// An older SQLite that closes the file last may unlink a log that is in use.
    fn still_the_log(&self, log: &Log) -> io::Result<()> {
        let ours = log.identity()?;
        match identity::of_path(&self.wal) {
            Ok(theirs) if ours == theirs => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Err(io::Error::other("another program replaced or removed its log")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.close();
    }
}
