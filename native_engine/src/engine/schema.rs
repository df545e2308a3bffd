//! Opening a file that has the tables, or making it.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::clock::Clock;
use super::error::{Error, Result};
use super::migrate::{VERSION, migrate};
use super::store::SLICE;

/// Marks our files, so that no other database is taken for a queue ("DJLQ").
const APPLICATION_ID: i64 = 0x444A_4C51;

/// The row of `meta` with the boot that leases are of; row 1 has the last id.
const META_BOOT_ID: i64 = 2;

/// Makes `folder` if its parent is there, so that a mistyped path is not made silently.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            return Err(Error::Unavailable(format!(
                "{} is a file, and a queue's location is a folder; name a folder.",
                folder.display()
            )));
        }
        Err(_) => {} // missing, or making it tells what is wrong
    }
    let parent = folder.parent().filter(|path| !path.as_os_str().is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    if !parent.is_dir() {
        return Err(Error::Unavailable(format!(
            "{} can't be made: {} is not a folder; make it first.",
            folder.display(),
            parent.display()
        )));
    }
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(unusable(folder, "made", &error));
        }
        _ => {}
    }
    sync_folder(&parent)
}

/// A new name in a folder is durable once the folder is synced; SQLite doesn't see to that.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| unusable(folder, "synced", &error))
}

pub(super) fn unusable(path: &Path, what: &str, error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::StorageFull {
        return Error::Full(path.to_path_buf());
    }
    Error::Unavailable(format!(
        "{} can't be {what}: {error}; check the path, its permissions and its disk.",
        path.display()
    ))
}

/// Opens the database for writing and brings its schema up to date.
///
/// The caller holds the write lock of the store's processes. A file that `was_made` before is not made again.
pub(super) fn open_writer(path: &Path, clock: &Clock, was_made: bool) -> Result<Connection> {
    let new = !path.exists();
    if new && was_made {
        return Err(Error::Unavailable(format!(
            "{} is gone, and was there when the queue was opened; put it back, or open the queue anew \
             to begin an empty one. Nothing was stored.",
            path.display()
        )));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sqlite = |error: rusqlite::Error| Error::from_sqlite(&error, path);
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(SLICE).map_err(sqlite)?;
    check_owner(&connection, path)?;
    failpoint!("open.checked");
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(sqlite)?;
    if mode != "wal" {
        return Err(Error::Unavailable(format!(
            "{} can't use a write-ahead log (journal mode {mode}), as on a file system without shared memory; \
             put the folder on a local disk.",
            path.display()
        )));
    }
    prepare(&mut connection, clock).map_err(sqlite)?;
    failpoint!("open.prepared");
    if new && let Some(folder) = path.parent() {
        sync_folder(folder)?;
    }
    Ok(connection)
}

/// Opens a private database in memory.
pub(super) fn open_memory(clock: &Clock) -> Result<Connection> {
    let sqlite = |error: rusqlite::Error| Error::from_sqlite(&error, Path::new(":memory:"));
    let mut connection = Connection::open_in_memory().map_err(sqlite)?;
    prepare(&mut connection, clock).map_err(sqlite)?;
    Ok(connection)
}

/// Opens the database for looking only; it never waits for writers nor makes them wait.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let sqlite = |error: rusqlite::Error| Error::from_sqlite(&error, path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection
        .execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;")
        .map_err(sqlite)?;
    tune_statements(&connection, 64).map_err(sqlite)?;
    Ok(connection)
}

/// Keeps statements prepared, and their plans as they are.
///
/// Without the planner's stability guarantee a statement with a bound LIMIT is
/// parsed anew each time it is bound: that was two fifths of a claim's time.
fn tune_statements(connection: &Connection, capacity: usize) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(capacity);
    Ok(())
}

/// Opens the database for checkpoints, which wait for nobody.
pub(super) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::ZERO)?;
    // A checkpoint that doesn't sync would break what is promised of the log.
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;")?;
    Ok(connection)
}

fn check_owner(connection: &Connection, path: &Path) -> Result<()> {
    let sqlite = |error: rusqlite::Error| Error::from_sqlite(&error, path);
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(sqlite);
    let owner = number("PRAGMA application_id")?;
    if owner != APPLICATION_ID && (owner != 0 || number("SELECT count(*) FROM sqlite_schema")? > 0)
    {
        return Err(Error::Foreign(path.to_path_buf()));
    }
    let found = number("PRAGMA user_version")?;
    if found > VERSION {
        return Err(Error::NewerSchema { path: path.to_path_buf(), found, known: VERSION });
    }
    Ok(())
}

fn prepare(connection: &mut Connection, clock: &Clock) -> rusqlite::Result<()> {
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -16000;
         PRAGMA journal_size_limit = 67108864;",
    )?;
    tune_statements(connection, 128)?;
    let boot_id = clock.boot_id();
    if is_current(connection, &boot_id)? {
        return Ok(()); // opened without the write lock, which somebody may hold for long
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    migrate(&transaction)?;
    failpoint!("open.tables_made");
    // A lease is a time on the boot clock, which starts again with the machine.
    if !is_current(&transaction, &boot_id)? {
        transaction.execute("UPDATE messages SET at = 0 WHERE state = 3", [])?;
        transaction.execute_batch("DELETE FROM duties; DELETE FROM rates;")?;
        transaction
            .execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", (META_BOOT_ID, &boot_id))?;
        failpoint!("open.boot_noted");
    }
    transaction.commit()
}

/// Whether the schema is this version's and its leases are of this boot.
fn is_current(connection: &Connection, boot_id: &str) -> rusqlite::Result<bool> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != VERSION {
        return Ok(false);
    }
    connection
        .prepare("SELECT 1 FROM meta WHERE key = ?1 AND value = ?2")?
        .exists((META_BOOT_ID, boot_id))
}
