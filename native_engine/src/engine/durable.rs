//! Durability as a promise: wait for the disk, and what follows when it doesn't confirm.
//!
//! After a failed sync a mark stands beside the file. Whoever meets it, in any process, first
//! brings the log into the database; until that has succeeded nothing is stored.

use std::path::Path;

use rusqlite::Connection;

use super::checkpoint::bring_in;
use super::error::{Error, Result};
use super::presence::moved;
use super::records::Durability;
use super::store::Store;

impl Store {
    /// Waits until commit `number` is on the disk, where the store promises that.
    pub(super) fn make_durable(&self, number: u64) -> Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| self.options.durability == Durability::Full)
        else {
            return Ok(());
        };
        self.syncer.wait(number).map_err(|error| {
            if self.presence.has_moved(path) {
                return moved(path);
            }
            // Any process that opens the store next checkpoints before it trusts the log.
            if let Err(mark) = std::fs::write(self.syncer.mark(), &error) {
                return Error::NotSynced(path.clone(), format!("{error}; and {mark}"));
            }
            Error::NotSynced(path.clone(), error)
        })
    }

    pub(super) fn sync_all(&self) {
        if self.path.is_some() && self.options.durability == Durability::Full {
            let _ = self.syncer.wait(self.syncer.last());
        }
    }

    /// Brings a log that couldn't be synced into the database, and takes the mark away.
    pub(super) fn trust_again(&self, db: &Connection, path: &Path) -> Result<()> {
        checkpoint_whole(db, path)?;
        failpoint!("unsynced.checkpointed");
        self.syncer.checkpointed();
        // Left behind, it costs the next opening another checkpoint.
        let _ = std::fs::remove_file(self.syncer.mark());
        Ok(())
    }
}

/// Brings a log that couldn't be synced into the database itself, or says who is in the way.
fn checkpoint_whole(db: &Connection, path: &Path) -> Result<()> {
    match bring_in(db) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Unavailable(format!(
            "The disk once failed to confirm what was written to {}, and its log can't be brought in \
             while another program reads it; end that program's read transaction. Nothing was stored.",
            path.display()
        ))),
        Err(error) => Err(Error::from_sqlite(&error, path)),
    }
}
