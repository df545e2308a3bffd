//! Whether the open file still is the one at its path: SQLite itself writes on into a removed one.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::access::Held;
use super::error::{Error, Result};
use super::identity::{self, Identity};
use super::store::{Patience, Store, lock};

/// Between two looks; what is stored meanwhile in a removed file is lost with it all the same.
const INTERVAL: Duration = Duration::from_millis(10);

/// What the open file was when it was opened.
#[derive(Default)]
pub(super) struct Presence(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    file: Option<Identity>,
    looked: Option<Instant>,
    /// It was there once: it isn't made again.
    made: bool,
}

impl Presence {
    /// Whether the file was ever opened.
    pub(super) fn was_made(&self) -> bool {
        lock(&self.0).made
    }

    /// Notes the file at `path`, which was opened just now.
    pub(super) fn note(&self, path: &Path) {
        *lock(&self.0) =
            Seen { file: identity::of_path(path).ok(), looked: Some(Instant::now()), made: true };
    }

    /// Whether the file is still at `path`, or was a moment ago.
    fn is_there(&self, path: &Path, now: Instant) -> bool {
        let mut seen = lock(&self.0);
        let Some(file) = seen.file else { return true };
        if seen.looked.is_some_and(|looked| now.saturating_duration_since(looked) < INTERVAL) {
            return true;
        }
        seen.looked = Some(now);
        !is_another(path, file)
    }

    /// Whether the file isn't at `path` any more.
    pub(super) fn has_moved(&self, path: &Path) -> bool {
        lock(&self.0).file.is_some_and(|file| is_another(path, file))
    }
}

fn is_another(path: &Path, file: Identity) -> bool {
    // Only what is sure is told: an error of the folder shows in what is done next.
    match identity::of_path(path) {
        Ok(found) => found != file,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

pub(super) fn moved(path: &Path) -> Error {
    Error::Unavailable(format!(
        "{} was removed or replaced while the queue was open: jobs that were stored in it are \
         where it went. Nothing was stored now; the next call uses what is at the path then.",
        path.display()
    ))
}

impl Store {
    /// Refuses to go on with a file that was removed or replaced; the next call opens what is there.
    pub(super) fn check_present(&self, held: &mut Held, now: Instant) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if self.presence.is_there(path, now) {
            return Ok(());
        }
        held.writer = None; // SQLite sees that the file has moved, and removes no log at its path
        *lock(&self.reader) = None;
        self.checkpointer.close();
        self.syncer.close();
        lock(&self.presence.0).file = None;
        Err(moved(path))
    }

    /// `check_present` for what only reads, which may wait a long time.
    pub(super) fn check_present_to_read(&self, patience: &dyn Patience) -> Result<()> {
        let now = Instant::now();
        match &self.path {
            Some(path) if !self.presence.is_there(path, now) => {
                let mut held = self.acquire(patience)?;
                lock(&self.presence.0).looked = None;
                self.check_present(&mut held, now)
            }
            _ => Ok(()),
        }
    }
}
