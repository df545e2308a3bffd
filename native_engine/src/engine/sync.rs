//! Durable without holding the write lock while the disk works.
//!
//! SQLite commits with `synchronous=NORMAL`; after the lock is released the log is
//! synced through a descriptor of our own. The log is written in order, so what is
//! synced is always a prefix of what was committed. Threads share one sync: whoever
//! comes first syncs for all that committed before it started.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::identity;
use super::store::beside;

/// Syncs the log of one store for its threads.
pub(super) struct Syncer {
    wal: PathBuf,
    /// There once any process failed to sync the log, until it was checkpointed.
    mark: PathBuf,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    committed: u64,
    synced: u64,
    running: bool,
    log: Option<File>,
    failed: Option<String>,
}

impl Syncer {
    pub(super) fn new(database: &Path) -> Self {
        let (wal, mark) = (beside(database, "-wal"), beside(database, "-unsynced"));
        Self { wal, mark, state: Mutex::default(), done: Condvar::new() }
    }

    /// Notes a commit, under the write lock; returns its number for `wait`.
    pub(super) fn committed(&self) -> u64 {
        let mut state = self.lock();
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
        let mut state = self.lock();
        loop {
            if state.synced >= number {
                return Ok(());
            }
            // After an error the kernel may call unwritten pages clean: a later sync proves nothing.
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.running {
                state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            let covers = state.committed;
            let log = state.log.take();
            drop(state);
            let outcome = self.sync(log);
            state = self.lock();
            state.running = false;
            match outcome {
                Ok(log) => {
                    state.synced = covers;
                    state.log = Some(log);
                }
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.done.notify_all();
        }
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
        state.synced = state.committed;
        state.failed = None;
        state.log = None;
    }

    /// Forgets the descriptor, which must not outlive the connection.
    pub(super) fn close(&self) {
        self.lock().log = None;
    }

    fn sync(&self, log: Option<File>) -> io::Result<File> {
        let log = match log {
            Some(log) => log,
            None => File::open(&self.wal)?,
        };
        failpoint!("sync.opened");
        log.sync_data()?;
        failpoint!("sync.synced");
        self.still_the_log(&log)?;
        if self.is_marked() {
            // What was written before ours may be missing on the disk, though our sync went well.
            return Err(io::Error::other("another process could not sync the log"));
        }
        Ok(log)
    }

    /// An older SQLite that closes the file last may unlink a log that is in use.
    fn still_the_log(&self, log: &File) -> io::Result<()> {
        let ours = identity::of_file(log)?;
        match identity::of_path(&self.wal) {
            Ok(theirs) if ours == theirs => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Err(io::Error::other("another program replaced or removed its log")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
