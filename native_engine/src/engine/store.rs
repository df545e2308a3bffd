//! The file and who may use it: connections, the write lock, transactions, fork.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::clock::Clock;
use super::error::{Error, Result};
use super::records::Durability;
use super::schema;
use super::shared::Shared;
use super::sync::Syncer;

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
    pub(super) clock: Clock,
    pub(super) shared: Shared,
    pub(super) interrupted: AtomicBool,
    /// The last claim found work, so the next need not look before it locks.
    pub(super) busy: AtomicBool,
    pub(super) turn: std::sync::atomic::AtomicUsize,
    path: Option<PathBuf>,
    options: Options,
    slot: Mutex<Slot>,
    slot_free: Condvar,
    reader: Mutex<Option<Connection>>,
    syncer: Syncer,
    closed: AtomicBool,
    pid: u32,
}

#[derive(Default)]
struct Slot {
    taken: bool,
    writer: Option<Box<Writer>>,
}

/// The connection that writes.
pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) queues: HashMap<String, i64>,
    pub(super) random: u64,
}

/// A transaction's view of the store.
pub(super) struct Write<'a> {
    pub(super) writer: &'a mut Writer,
    /// Wall time.
    pub(super) now: i64,
    /// Boot time.
    pub(super) boot: i64,
    /// Something became claimable.
    pub(super) ring: bool,
    /// The caller is promised something, even if this transaction wrote nothing.
    pub(super) promise: bool,
}

impl Write<'_> {
    pub(super) fn db(&self) -> &Connection {
        &self.writer.db
    }

    /// The id of a queue by name.
    pub(super) fn known_queue(&mut self, name: &str) -> rusqlite::Result<Option<i64>> {
        if let Some(id) = self.writer.queues.get(name) {
            return Ok(Some(*id));
        }
        let id = queue_id(&self.writer.db, name)?;
        if let Some(id) = id {
            self.writer.queues.insert(name.to_owned(), id);
        }
        Ok(id)
    }

    /// The id of a queue by name, made if missing.
    pub(super) fn queue(&mut self, name: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.known_queue(name)? {
            return Ok(id);
        }
        self.db().execute("INSERT INTO queues(name) VALUES (?1)", [name])?;
        let id = self.db().last_insert_rowid();
        self.writer.queues.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The highest id ever given.
    pub(super) fn last_id(&self) -> rusqlite::Result<i64> {
        self.db()
            .prepare_cached(
                "SELECT max(coalesce((SELECT max(id) FROM messages), 0),
                            (SELECT value FROM meta WHERE key = 1))",
            )?
            .query_row([], |row| row.get(0))
    }

    /// Now, for ordering: never before the newest job, though the wall clock step back.
    pub(super) fn stamp(&self) -> rusqlite::Result<i64> {
        Ok(self.now.max(self.last_id()?))
    }
}

impl Store {
    /// Opens `folder`/localqueue.db, making both where missing, or a private store in memory.
    pub fn open(folder: Option<&Path>, options: Options) -> Result<Arc<Self>> {
        let path = folder.map(|folder| folder.join("localqueue.db"));
        let shared = match (&path, folder) {
            (Some(path), Some(folder)) => {
                schema::make_folder(folder)?;
                let lock = beside(path, "-lock");
                Shared::open(&lock).map_err(|error| schema::unusable(&lock, "opened", &error))?
            }
            _ => Shared::private(),
        };
        let store = Arc::new(Self {
            clock: options.clock.clone(),
            shared,
            interrupted: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            turn: std::sync::atomic::AtomicUsize::new(0),
            syncer: Syncer::new(path.as_deref().unwrap_or(Path::new(""))),
            path,
            options,
            slot: Mutex::default(),
            slot_free: Condvar::new(),
            reader: Mutex::new(None),
            closed: AtomicBool::new(false),
            pid: std::process::id(),
        });
        store.write(&(), |_| Ok(()))?;
        let mut stores = lock(registry());
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(&store));
        Ok(store)
    }

    /// The database file; None in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
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
        self.transact(patience, |write| {
            write.db().prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let result = work(write)?;
            write.db().prepare_cached("COMMIT")?.execute([])?;
            Ok(result)
        })
    }

    /// `write` for work that is a single statement, which is a transaction by itself.
    pub(super) fn write_statement<T>(
        &self,
        patience: &dyn Patience,
        work: impl FnMut(&mut Write) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.transact(patience, work)
    }

    fn transact<T>(
        &self,
        patience: &dyn Patience,
        mut work: impl FnMut(&mut Write) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let mut held = self.acquire(patience)?;
        let process = self.lock_processes(patience, start)?;
        if self.syncer.has_failed() {
            held.writer = None;
        }
        if held.writer.is_none() {
            held.writer = Some(Box::new(self.open_writer()?));
        }
        let Some(writer) = held.writer.as_mut() else { return Err(Error::Closed) };
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
            let (ring, dirty) =
                (write.ring, write.promise || write.db().total_changes() != before);
            match result {
                Ok(value) => break Ok((value, ring, dirty)),
                Err(error) => {
                    writer.queues.clear(); // one may have been made by what is now undone
                    if !writer.db.is_autocommit() {
                        // Its own failure would hide the reason; a broken connection is dropped below.
                        let _ = writer.db.execute_batch("ROLLBACK");
                    }
                    if !self.may_try_again(&error, start, patience)? {
                        break Err(self.error(&error, start));
                    }
                }
            }
        };
        match outcome {
            Ok((value, ring, dirty)) => {
                let number = dirty.then(|| self.syncer.committed());
                drop(process);
                drop(held);
                if ring {
                    self.shared.ring();
                }
                if let Some(number) = number {
                    self.make_durable(number)?;
                }
                Ok(value)
            }
            Err(error) => {
                if matches!(error, Error::Corrupt(..) | Error::Unavailable(..)) {
                    self.syncer.close();
                    held.writer = None; // whatever state it is in, the next call starts afresh
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
            write.db().execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
        })
    }

    fn error(&self, error: &rusqlite::Error, start: Instant) -> Error {
        let path = self.path.as_deref().unwrap_or(Path::new(":memory:"));
        match Error::from_sqlite(error, path) {
            Error::Busy { path, .. } => Error::Busy { path, seconds: start.elapsed().as_secs_f64() },
            other => other,
        }
    }

    fn make_durable(&self, number: u64) -> Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| self.options.durability == Durability::Full)
        else {
            return Ok(());
        };
        self.syncer.wait(number).map_err(|error| {
            // Any process that opens the store next checkpoints before it trusts the log.
            if let Err(mark) = std::fs::write(beside(path, "-unsynced"), &error) {
                return Error::NotSynced(path.clone(), format!("{error}; and {mark}"));
            }
            Error::NotSynced(path.clone(), error)
        })
    }

    fn open_writer(&self) -> Result<Writer> {
        let db = match &self.path {
            None => schema::open_memory(&self.clock)?,
            Some(path) => {
                let db = schema::open_writer(path, &self.clock)?;
                let mark = beside(path, "-unsynced");
                if mark.exists() || self.syncer.has_failed() {
                    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
                        .and_then(|busy| if busy == 0 { Ok(()) } else { Err(rusqlite::Error::InvalidQuery) })
                        .map_err(|_| Error::NotSynced(path.clone(), "its log can't be checkpointed".into()))?;
                    self.syncer.checkpointed();
                    let _ = std::fs::remove_file(&mark);
                }
                db
            }
        };
        db.busy_timeout(SLICE).map_err(|error| self.error(&error, Instant::now()))?;
        Ok(Writer { db, queues: HashMap::new(), random: seed() })
    }

    fn check_usable(&self) -> Result<()> {
        if std::process::id() != self.pid {
            return Err(Error::Forked);
        }
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Takes the connection that writes, for one thread at a time.
    fn acquire(&self, patience: &dyn Patience) -> Result<Held<'_>> {
        self.check_usable()?;
        let mut slot = lock(&self.slot);
        loop {
            if self.is_closed() {
                return Err(Error::Closed);
            }
            if !slot.taken && !FORKING.load(Ordering::SeqCst) {
                slot.taken = true;
                return Ok(Held { store: self, writer: slot.writer.take() });
            }
            let nap = if slot.taken { SLICE } else { Duration::from_millis(1) };
            (slot, _) = self.slot_free.wait_timeout(slot, nap).unwrap_or_else(PoisonError::into_inner);
            if patience.is_over() {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Takes the write lock among processes.
    fn lock_processes(&self, patience: &dyn Patience, start: Instant) -> Result<ProcessLock<'_>> {
        loop {
            let seen = self.shared.releases();
            match self.shared.try_lock() {
                Ok(true) => return Ok(ProcessLock(&self.shared)),
                Ok(false) => self.shared.wait_for_release(seen, SLICE / 5),
                Err(error) => {
                    let path = self.path.as_deref().unwrap_or(Path::new(":memory:"));
                    return Err(schema::unusable(path, "locked", &error));
                }
            }
            if patience.is_over() {
                return Err(Error::Interrupted);
            }
            if start.elapsed() >= self.options.busy_timeout {
                return Err(Error::Busy {
                    path: self.path.clone().unwrap_or_default(),
                    seconds: start.elapsed().as_secs_f64(),
                });
            }
        }
    }

    fn drop_connections(&self) {
        let mut slot = lock(&self.slot);
        while slot.taken {
            slot = self.slot_free.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        slot.writer = None;
        drop(slot);
        *lock(&self.reader) = None;
        self.syncer.close();
    }
}

/// The writer in the hands of one thread; goes back when dropped.
struct Held<'a> {
    store: &'a Store,
    writer: Option<Box<Writer>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut slot = lock(&self.store.slot);
        slot.taken = false;
        slot.writer = self.writer.take();
        drop(slot);
        self.store.slot_free.notify_one();
    }
}

struct ProcessLock<'a>(&'a Shared);

impl Drop for ProcessLock<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Stores of this process, for fork.
fn registry() -> &'static Mutex<Vec<Weak<Store>>> {
    static STORES: OnceLock<Mutex<Vec<Weak<Store>>>> = OnceLock::new();
    STORES.get_or_init(Mutex::default)
}

static FORKING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Held from before a fork until after it, so that the child doesn't inherit it locked.
    static REGISTRY_HELD: RefCell<Option<MutexGuard<'static, Vec<Weak<Store>>>>> = const { RefCell::new(None) };
}

/// Call before this thread forks: closes the connections of every store on a file.
///
/// SQLite keeps a table of open files in memory, locks included; a child that
/// inherits it would take its parent's locks for its own. They reopen by themselves.
pub fn before_fork() {
    let stores = lock(registry());
    FORKING.store(true, Ordering::SeqCst);
    for store in stores.iter().filter_map(Weak::upgrade).filter(|store| store.path.is_some()) {
        store.drop_connections();
    }
    REGISTRY_HELD.set(Some(stores));
}

/// Call after the fork, in parent and child. The child must open stores of its own.
pub fn after_fork() {
    FORKING.store(false, Ordering::SeqCst);
    REGISTRY_HELD.set(None);
}

/// A seed that no other process or store has, for receipts.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u128(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos(),
    );
    hasher.finish()
}

/// The id of a queue by name.
pub(super) fn queue_id(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT id FROM queues WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// The path of a file that stands beside the database.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
