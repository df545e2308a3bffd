//! A copy of the store as of one moment, made while everybody goes on.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use super::error::{Error, Result};
use super::schema::{sync_folder, unusable};
use super::store::{Patience, Store, beside};

impl Store {
    /// Copies the store to the new file `target`; returns once the copy is on the disk.
    ///
    /// It is written beside its place, under a name with `.part`, and gets its own name when it
    /// is whole. A file that is there is not overwritten.
    pub fn backup(&self, target: &Path, patience: &dyn Patience) -> Result<()> {
        let part = beside(target, ".part");
        let begun = OpenOptions::new().write(true).create_new(true).open(&part);
        begun.map_err(|error| taken(&part, &error))?;
        let done = self.copy_to(&part, patience).and_then(|()| name(&part, target));
        if done.is_err() {
            let _ = fs::remove_file(&part); // the error says what matters
        }
        done
    }

    fn copy_to(&self, part: &Path, patience: &dyn Patience) -> Result<()> {
        let name = part.to_str().ok_or_else(|| {
            Error::Unavailable(format!("{} is no UTF-8; choose another name.", part.display()))
        })?;
        self.aside(patience, |db| {
            // SQLite takes an empty file and nothing else; after an interruption it isn't empty.
            if File::create(part).is_err() {
                return Err(rusqlite::Error::InvalidPath(part.to_path_buf()));
            }
            db.execute_batch("PRAGMA query_only = OFF")?; // it would count the copy as a change
            db.execute("VACUUM INTO ?1", [name]).map(drop)
        })
        .map_err(|error| match error {
            Error::Full(_) => Error::Full(part.to_path_buf()), // the copy's disk, not the store's
            other => other,
        })?;
        let synced = File::open(part).and_then(|file| file.sync_all());
        synced.map_err(|error| unusable(part, "synced", &error))
    }
}

/// Gives the whole copy its name, where nothing has that name.
fn name(part: &Path, target: &Path) -> Result<()> {
    match fs::hard_link(part, target) {
        Ok(()) => fs::remove_file(part).map_err(|error| unusable(part, "removed", &error))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(taken(target, &error));
        }
        // A file system without links.
        Err(_) if !target.exists() => {
            fs::rename(part, target).map_err(|error| unusable(target, "made", &error))?;
        }
        Err(error) => return Err(taken(target, &error)),
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or(Path::new(".")))
}

fn taken(path: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Error::Unavailable(format!(
            "{} is there already, and a backup overwrites nothing; choose another name or remove it.",
            path.display()
        ));
    }
    unusable(path, "made", error)
}
