//! Bringing the log into the database without keeping others waiting.
//!
//! SQLite's automatic checkpoint would run under the write lock. Here the thread
//! whose commit made the log long copies most of it while everybody writes on, and
//! then the rest under the lock, so that the next writer can begin the log anew.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rusqlite::Connection;

use super::fork::FORKING;
use super::schema;
use super::store::{Patience, Store, lock};

/// Pages in the log from which it is checkpointed.
const LONG: u32 = 4_000;
/// Pages more until the next try, where a reader kept the last one from ending.
const STEP: u32 = 1_000;

pub(super) struct Checkpointer {
    /// Pages in the log after this process' last commit.
    pages: Arc<AtomicU32>,
    due: AtomicU32,
    connection: Mutex<Option<Connection>>,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self { pages: Arc::default(), due: AtomicU32::new(LONG), connection: Mutex::new(None) }
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
    /// Checkpoints a log that has become long; to be called after a commit, without locks.
    ///
    /// What fails here fails again, and is told, where it keeps a job from being stored.
    pub(super) fn checkpoint_if_long(&self) {
        let checkpointer = &self.checkpointer;
        let pages = checkpointer.pages.load(Ordering::Relaxed);
        if pages < LONG {
            checkpointer.due.store(LONG, Ordering::Relaxed);
            return;
        }
        if pages < checkpointer.due.load(Ordering::Relaxed) {
            return;
        }
        let (Some(path), Ok(mut guard)) = (&self.path, checkpointer.connection.try_lock()) else {
            return;
        };
        let way = GiveWay(self);
        if way.is_over() {
            return;
        }
        checkpointer.due.store(pages + STEP, Ordering::Relaxed);
        if guard.is_none() {
            *guard = schema::open_checkpointer(path).ok();
        }
        let Some(connection) = guard.as_ref() else { return };
        if copy(connection).is_err() {
            return; // another process is at it, or the disk is full
        }
        failpoint!("checkpoint.copied");
        let Ok(_writer) = self.acquire(&way) else { return };
        let Ok(_process) = self.lock_processes(&way, Instant::now()) else { return };
        let _ = copy(connection);
        failpoint!("checkpoint.ended");
    }
}

/// Brings the whole log into the database, so that it takes no room on a full disk; false where it can't.
pub(super) fn make_room(writer: &Connection) -> bool {
    let busy = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    matches!(busy, Ok(false))
}

/// Copies what no reader needs in the log any more.
fn copy(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |_| Ok(()))
}
