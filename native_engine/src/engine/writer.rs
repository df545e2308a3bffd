//! The connection that writes, and a transaction's view of it.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension};

use super::moves::Moves;

/// The connection that writes.
pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) queues: HashMap<String, i64>,
    pub(super) random: u64,
    pub(super) moves: Moves,
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

/// Runs `work` between `BEGIN` and `COMMIT`.
pub(super) fn in_transaction<T>(
    write: &mut Write,
    work: impl FnOnce(&mut Write) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    write.db().prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    failpoint!("transact.begun");
    let result = work(write)?;
    failpoint!("transact.worked");
    write.db().prepare_cached("COMMIT")?.execute([])?;
    Ok(result)
}

/// A seed that no other process or store has, for receipts.
pub(super) fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u128(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos(),
    );
    hasher.finish()
}

/// The id of a queue by name.
pub(super) fn queue_id(db: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT id FROM queues WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}
