//! The file and who may use it: connections, the write lock, transactions, fork.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::access::Slot;
use super::checkpoint::{self, Checkpointer};
use super::clock::Clock;
use super::error::{Error, Result};
use super::fork::{self, FORKING};
use super::liveness::Liveness;
use super::moves::Moves;
use super::presence::Presence;
use super::records::{Cursor, Durability};
use super::schema;
use super::shared::Shared;
use super::sync::Syncer;
use super::together::Together;
use super::writer::{Write, Writer, in_transaction, seed};

/// How often a wait asks its caller's [`Patience`].
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// When an operation counts as done.
    pub durability: Durability,
    /// How long an operation waits for the write lock.
    pub busy_timeout: Duration,
    /// Where the time comes from.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            busy_timeout: Duration::from_secs(30),
            clock: Clock::System,
        }
    }
}

/// Asked now and then by whatever waits; Python's signals arrive through it.
pub trait Patience {
    /// True ends the wait with [`Error::Interrupted`].
    fn is_over(&self) -> bool;
}

/// Waits without being disturbed.
impl Patience for () {
    fn is_over(&self) -> bool {
        false
    }
}

/// One SQLite file with its named queues, shared by the threads of a process.
///
/// A process opens a file once: POSIX locks belong to the process, so a second
/// `Store` on the file would not be kept out by the first.
pub struct Store {
    pub(super) me: Weak<Self>,
    pub(super) clock: Clock,
    pub(super) shared: Shared,
    pub(super) interrupted: AtomicBool,
    /// The last claim found work, so the next need not look before it locks.
    pub(super) busy: AtomicBool,
    /// The last claim without a look found nothing, so the next looks before it locks.
    pub(super) looks_first: AtomicBool,
    /// Some queue that this process claims from has limits.
    pub(super) limited: AtomicBool,
    pub(super) turn: std::sync::atomic::AtomicUsize,
    /// How far each queue was pruned.
    pub(super) pruned: Mutex<HashMap<String, Cursor>>,
    pub(super) path: Option<PathBuf>,
    pub(super) options: Options,
    pub(super) slot: Mutex<Slot>,
    pub(super) together: Together,
    pub(super) reader: Mutex<Option<Connection>>,
    pub(super) syncer: Syncer,
    pub(super) checkpointer: Checkpointer,
    pub(super) presence: Presence,
    pub(super) liveness: Liveness,
    pub(super) recounts: AtomicU64,
    /// Held while a long look has a connection of its own.
    pub(super) aside: Mutex<()>,
    closed: AtomicBool,
    pub(super) pid: u32,
}

impl Store {
    /// Opens `folder`/localqueue.db, making both where missing, or a private store in memory.
    pub fn open(
        folder: Option<&Path>,
        options: Options,
        patience: &dyn Patience,
    ) -> Result<Arc<Self>> {
        let path = folder.map(|folder| folder.join("localqueue.db"));
        let shared = match (&path, folder) {
            (Some(path), Some(folder)) => {
                schema::make_folder(folder)?;
                let lock = beside(path, "-lock");
                Shared::open(&lock).map_err(|error| schema::unusable(&lock, "opened", &error))?
            }
            _ => Shared::private(),
        };
        let store = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            clock: options.clock.clone(),
            shared,
            interrupted: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            looks_first: AtomicBool::new(false),
            limited: AtomicBool::new(false),
            turn: std::sync::atomic::AtomicUsize::new(0),
            pruned: Mutex::default(),
            syncer: Syncer::new(path.as_deref().unwrap_or(Path::new(""))),
            liveness: Liveness::new(path.as_deref().map(|path| beside(path, "-workers"))),
            path,
            options,
            slot: Mutex::default(),
            together: Together::default(),
            reader: Mutex::new(None),
            checkpointer: Checkpointer::default(),
            recounts: AtomicU64::new(0),
            aside: Mutex::default(),
            presence: Presence::default(),
            closed: AtomicBool::new(false),
            pid: std::process::id(),
        });
        // Opens and, where it is new, makes the file; without a transaction, for which a foreign
        // lock could keep it waiting.
        store.transact(patience, |_| Ok(()))?;
        fork::register(&store);
        Ok(store)
    }

    /// The database file; None in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file whose bytes live workers hold.
    pub(super) fn workers_path(&self) -> PathBuf {
        beside(self.path.as_deref().unwrap_or(Path::new(":memory:")), "-workers")
    }

    /// The store's wall time, microseconds since the epoch.
    pub fn now(&self) -> i64 {
        self.clock.wall()
    }

    /// Ends the waits of this store; every later operation fails with [`Error::Closed`].
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.shared.ring_own();
        self.drop_connections();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Runs `work` in one transaction; all of it is stored, or nothing.
    ///
    /// Returns once the result is as durable as the store promises. `work` runs
    /// again where a foreign lock made SQLite give up.
    pub(super) fn write<T>(
        &self,
        patience: &dyn Patience,
        mut work: impl FnMut(&mut Write) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.transact(patience, |write| in_transaction(write, &mut work))
    }

    /// `write` for work that commits by itself, as a single statement does.
    pub(super) fn transact<T>(
        &self,
        patience: &dyn Patience,
        work: impl FnMut(&mut Write) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let (value, number) = self.commit(patience, Instant::now(), work)?;
        if let Some(number) = number {
            self.make_durable(number)?;
            failpoint!("transact.durable");
            self.checkpoint_if_long();
        }
        Ok(value)
    }

    /// Runs `work`, which commits, under the locks; also returns the commit's number, if there was one.
    pub(super) fn commit<T>(
        &self,
        patience: &dyn Patience,
        start: Instant,
        mut work: impl FnMut(&mut Write) -> rusqlite::Result<T>,
    ) -> Result<(T, Option<u64>)> {
        let mut held = self.acquire(patience)?;
        let process = self.lock_processes(patience, start)?;
        failpoint!("transact.locked");
        self.check_present(&mut held, start)?;
        let full = self.options.durability == Durability::Full;
        if self.syncer.has_failed() || (full && self.syncer.is_marked()) {
            held.writer = None;
        }
        if held.writer.is_none() {
            held.writer = Some(Box::new(self.open_writer(start, patience)?));
        }
        let Some(writer) = held.writer.as_mut() else { return Err(Error::Closed) };
        let before = self.counts_before(writer);
        let mut relieved = false;
        let outcome = loop {
            let mut write = Write {
                now: self.clock.wall(),
                boot: self.clock.boot(),
                ring: false,
                promise: false,
                writer,
            };
            let before = write.db().total_changes();
            let result = work(&mut write);
            let (ring, dirty) = (write.ring, write.promise || write.db().total_changes() != before);
            match result {
                Ok(value) => break Ok((value, ring, dirty)),
                Err(error) => {
                    writer.queues.clear(); // one may have been made by what is now undone
                    if !writer.db.is_autocommit() {
                        // Its own failure would hide the reason; a broken connection is dropped below.
                        let _ = writer.db.execute_batch("ROLLBACK");
                    }
                    if !relieved && error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
                        relieved = true;
                        // In the database, the log takes no room.
                        if checkpoint::bring_in(&writer.db) == Ok(true) {
                            continue;
                        }
                    }
                    if !self.may_try_again(&error, start, patience)? {
                        break Err(self.error(&error, start));
                    }
                }
            }
        };
        failpoint!("transact.uncounted");
        self.counts_after(writer, before);
        match outcome {
            Ok((value, ring, dirty)) => {
                let number = dirty.then(|| self.syncer.committed(self.checkpointer.pages()));
                failpoint!("transact.committed");
                drop(process);
                failpoint!("transact.unlocked");
                drop(held);
                if ring {
                    self.shared.ring();
                    failpoint!("transact.rung");
                }
                Ok((value, number))
            }
            Err(error) => {
                if matches!(error, Error::Corrupt(..) | Error::Unavailable(..)) {
                    // Whatever state it is in, the next call starts afresh; what others committed
                    // is synced first, for the last connection to close removes the log.
                    self.sync_all();
                    self.syncer.close();
                    held.writer = None;
                }
                Err(error)
            }
        }
    }

    /// A foreign program holds SQLite's lock: SQLite itself waited one slice for it.
    fn may_try_again(
        &self,
        error: &rusqlite::Error,
        start: Instant,
        patience: &dyn Patience,
    ) -> Result<bool> {
        if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy)
            || start.elapsed() >= self.options.busy_timeout
        {
            return Ok(false);
        }
        if patience.is_over() { Err(Error::Interrupted) } else { Ok(true) }
    }

    /// Runs `look` on one snapshot, without disturbing writers.
    pub(super) fn read<T>(
        &self,
        patience: &dyn Patience,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let snapshot = |db: &Connection| {
            let transaction = db.unchecked_transaction()?;
            let result = look(&transaction)?;
            transaction.finish()?;
            Ok(result)
        };
        let start = Instant::now();
        let Some(path) = &self.path else {
            let held = self.acquire(patience)?;
            let Some(writer) = &held.writer else { return Err(Error::Closed) };
            return snapshot(&writer.db).map_err(|error| self.error(&error, start));
        };
        self.check_present_to_read(patience)?;
        let mut reader = loop {
            self.check_usable()?;
            let guard = lock(&self.reader);
            if !FORKING.load(Ordering::SeqCst) {
                break guard;
            }
            drop(guard);
            std::thread::sleep(Duration::from_millis(1));
        };
        if reader.is_none() {
            *reader = Some(schema::open_reader(path)?);
        }
        let Some(connection) = reader.as_ref() else { return Err(Error::Closed) };
        let result = snapshot(connection).map_err(|error| self.error(&error, start));
        if matches!(result, Err(Error::Corrupt(..) | Error::Unavailable(..))) {
            *reader = None;
        }
        result
    }

    /// Shrinks the file; nothing else can be done meanwhile.
    pub fn vacuum(&self, patience: &dyn Patience) -> Result<()> {
        self.transact(patience, |write| {
            // Synced under the lock: the whole file goes through the log, and nobody should wait twice.
            write.db().execute_batch("VACUUM")?;
            failpoint!("vacuum.done");
            write.db().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        })
    }

    pub(super) fn error(&self, error: &rusqlite::Error, start: Instant) -> Error {
        let path = self.path.as_deref().unwrap_or(Path::new(":memory:"));
        match Error::from_sqlite(error, path) {
            Error::Busy { path, .. } => {
                Error::Busy { path, seconds: start.elapsed().as_secs_f64() }
            }
            other => other,
        }
    }

    /// Opens the connection that writes; waits for a foreign lock as a transaction does.
    fn open_writer(&self, start: Instant, patience: &dyn Patience) -> Result<Writer> {
        loop {
            let seconds = match self.try_open_writer() {
                Err(Error::Busy { .. }) => start.elapsed(),
                done => return done,
            };
            if seconds >= self.options.busy_timeout {
                let path = self.path.clone().unwrap_or_default();
                return Err(Error::Busy { path, seconds: seconds.as_secs_f64() });
            }
            if patience.is_over() {
                return Err(Error::Interrupted);
            }
        }
    }

    fn try_open_writer(&self) -> Result<Writer> {
        let mut db = match &self.path {
            None => schema::open_memory(&self.clock)?,
            Some(path) => schema::open_writer(path, &self.clock, self.presence.was_made())?,
        };
        if let Some(path) = &self.path {
            self.presence.note(path);
            if self.syncer.is_marked() || self.syncer.has_failed() {
                self.trust_again(&db, path)?;
            }
            self.checkpointer.watch(&mut db).map_err(|error| self.error(&error, Instant::now()))?;
            self.counts_opened(&db, path);
        }
        let moves = Moves::watch(&db).map_err(|error| self.error(&error, Instant::now()))?;
        Ok(Writer { db, queues: HashMap::new(), random: seed(), moves })
    }
}

/// The path of a file that stands beside the database.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Locks, also after a panic elsewhere: what the mutexes guard is whole between statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
