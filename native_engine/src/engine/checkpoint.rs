//! Bringing the log into the database without keeping others waiting.
//!
//! SQLite's automatic checkpoint would run under the write lock. Here a thread copies
//! most of a long log while everybody writes on, and then the little that is left
//! under the lock, so that the next writer can begin the log anew.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rusqlite::Connection;

use super::fork::FORKING;
use super::schema;
use super::sqlite_file;
use super::store::{Patience, Store, lock};
use super::wal_index;

/// Pages in the log from which it is checkpointed.
pub(super) const LONG: u32 = 4_000;
/// Pages from which a caller waits until it is: others write faster than the disk takes it.
const TOO_LONG: u32 = 3 * LONG;
/// Pages that are few enough to be copied under the lock.
const LITTLE: u32 = 64;
/// Pages more until the next try, where a reader kept the last one from ending.
const STEP: u32 = 1_000;

pub(super) struct Checkpointer {
    /// Pages in the log after this process' last commit.
    pages: Arc<AtomicU32>,
    due: AtomicU32,
    running: AtomicBool,
    connection: Mutex<Option<Connection>>,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self {
            pages: Arc::default(),
            due: AtomicU32::new(LONG),
            running: AtomicBool::new(false),
            connection: Mutex::new(None),
        }
    }
}

impl Checkpointer {
    /// Follows the commits of `writer`, instead of SQLite's own checkpoints.
    pub(super) fn watch(&self, writer: &mut Connection) -> rusqlite::Result<()> {
        let pages = self.pages.clone();
        writer.wal_hook(Some(move |_: &mut _, in_log| {
            pages.store(u32::try_from(in_log).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))
    }

    /// Pages in the log after this process' last commit.
    pub(super) fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        *lock(&self.connection) = None;
    }
}

/// Gives way to a fork or to closing, which wait for the checkpoint to end.
struct GiveWay<'a>(&'a Store);

impl Patience for GiveWay<'_> {
    fn is_over(&self) -> bool {
        FORKING.load(Ordering::SeqCst) || self.0.is_closed()
    }
}

impl Store {
    /// Has a log that has become long checkpointed; to be called after a commit, without locks.
    ///
    /// A thread of its own does it, so that callers don't wait for the disk, as long as it keeps up.
    pub(super) fn checkpoint_if_long(&self) {
        let checkpointer = &self.checkpointer;
        let pages = checkpointer.pages();
        if pages < LONG {
            checkpointer.due.store(LONG, Ordering::Relaxed);
            return;
        }
        if pages < checkpointer.due.load(Ordering::Relaxed) {
            return;
        }
        if pages >= TOO_LONG {
            checkpointer.due.store(pages + STEP, Ordering::Relaxed);
            self.checkpoint(); // after the one that is running, if there is one
            return;
        }
        if checkpointer.running.swap(true, Ordering::SeqCst) {
            return;
        }
        checkpointer.due.store(pages + STEP, Ordering::Relaxed);
        let Some(store) = self.me.upgrade() else { return };
        let work = move || {
            store.checkpoint();
            store.checkpointer.running.store(false, Ordering::SeqCst);
        };
        let thread = std::thread::Builder::new().name("localqueue-log".to_owned());
        if thread.spawn(work).is_err() {
            checkpointer.running.store(false, Ordering::SeqCst); // the next commit tries again
        }
    }

    /// Copies the log while others write on, until little is left; that little under the lock.
    ///
    /// What fails here fails again, and is told, where it keeps a job from being stored.
    fn checkpoint(&self) {
        let Some(path) = &self.path else { return };
        let way = GiveWay(self);
        let mut guard = lock(&self.checkpointer.connection);
        if way.is_over() {
            return;
        }
        if guard.is_none() {
            *guard = schema::open_checkpointer(path).ok();
        }
        let Some(connection) = guard.as_ref() else { return };
        let mut left = u32::MAX;
        while left > LITTLE {
            match copy(connection) {
                Ok(Some(now)) if now < left && !way.is_over() => left = now,
                Ok(Some(_)) => break, // others write as fast, or a reader is in the way
                _ => return,          // another process is at it, or the disk is full
            }
        }
        failpoint!("checkpoint.copied");
        // The last copy syncs the file, under the lock: so that it finds little to bring to the disk.
        if !sqlite_file::sync(connection) {
            return;
        }
        let Ok(_writer) = self.acquire(&way) else { return };
        let Ok(_process) = self.lock_processes(&way, Instant::now()) else { return };
        let _ = copy(connection);
        failpoint!("checkpoint.ended");
    }
}

/// Brings the whole log into the database; false where a reader is in the way.
pub(super) fn bring_in(writer: &Connection) -> rusqlite::Result<bool> {
    writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(!row.get::<_, bool>(0)?))
}

/// Copies what no reader needs in the log any more; returns how much is left by now.
///
/// None where another connection is at it.
fn copy(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    let (busy, copied): (bool, i64) = connection
        .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?
        .query_row([], |row| Ok((row.get(0)?, row.get(2)?)))?;
    if busy {
        return Ok(None);
    }
    let frames = wal_index::latest(connection).map_or(0, |commit| commit.frames);
    Ok(Some(frames.saturating_sub(u32::try_from(copied).unwrap_or(0))))
}
