//! Keeping the shared counts in step with the file.

use std::path::Path;

use rusqlite::Connection;

use super::store::{Store, beside, lock};
use super::tally::FileStamp;
use super::wal_index::{self, Commit};
use super::writer::Writer;

impl Store {
    /// Before a transaction, under the write lock: begins anew where the file went on without us.
    pub(super) fn counts_before(&self, writer: &Writer) -> Option<Commit> {
        let commit = wal_index::latest(&writer.db)?;
        let tally = self.shared.tally();
        if !tally.is_of(commit) {
            tally.restart(commit); // their writer died before it told, or it is a foreign program's
        }
        writer.moves.clear();
        Some(commit)
    }

    /// After it: adds what it moved, if it was committed.
    pub(super) fn counts_after(&self, writer: &Writer, before: Option<Commit>) {
        let Some(after) = wal_index::latest(&writer.db) else { return };
        let next = before.is_some_and(|before| before.number.wrapping_add(1) == after.number);
        if next {
            writer.moves.with(|moves| self.shared.tally().advance(after, moves));
        } else if before != Some(after) {
            self.shared.tally().restart(after);
        }
    }

    /// Once the file is opened: the counts hold on where nobody has written since they were noted.
    pub(super) fn counts_opened(&self, db: &Connection, path: &Path) {
        let tally = self.shared.tally();
        let (Some(commit), Some(noted)) = (wal_index::latest(db), tally.commit()) else { return };
        let same = if commit.frames == 0 {
            stamp(path).is_some_and(|stamp| tally.closed_as() == stamp)
        } else {
            commit.is_same_log(&noted) // the index was made anew, by the first who opened it
        };
        if same && commit != noted {
            tally.rename(commit);
        }
    }

    /// Whether the counts are of the latest commit.
    pub(super) fn counts_hold(&self, writer: &Writer) -> bool {
        wal_index::latest(&writer.db).is_some_and(|commit| self.shared.tally().is_of(commit))
    }

    /// Once our connections are closed: where they were the last, notes what the file looks like.
    pub(super) fn counts_closed(&self) {
        let Some(path) = &self.path else { return };
        let slot = lock(&self.slot);
        if !slot.is_empty() || beside(path, "-wal").exists() {
            return;
        }
        if self.shared.try_lock().is_ok_and(|locked| locked) {
            if let Some(stamp) = settled_stamp(path) {
                self.shared.tally().set_closed_as(stamp);
            }
            self.shared.unlock();
        }
    }
}

/// The file's identity, once a later change of it can't have the same times.
#[cfg(target_os = "linux")]
fn settled_stamp(path: &Path) -> Option<FileStamp> {
    use rustix::time::{ClockId, clock_gettime};
    use std::time::Duration;
    for _ in 0..20 {
        let stamp = stamp(path)?;
        let tick = clock_gettime(ClockId::RealtimeCoarse);
        let tick = nanoseconds(tick.tv_sec, tick.tv_nsec);
        if stamp[3] < tick && stamp[4] < tick {
            return Some(stamp);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[cfg(target_os = "linux")]
fn stamp(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    let (content, entry) = (
        nanoseconds(file.mtime(), file.mtime_nsec()),
        nanoseconds(file.ctime(), file.ctime_nsec()),
    );
    // A file system that keeps whole seconds can't tell.
    let exact = content % 1_000_000_000 != 0 && entry % 1_000_000_000 != 0;
    exact.then_some([file.dev(), file.ino(), file.size(), content, entry])
}

#[cfg(target_os = "linux")]
fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    u64::try_from(seconds.saturating_mul(1_000_000_000).saturating_add(rest)).unwrap_or(0)
}

/// Elsewhere the counts end with the process.
#[cfg(not(target_os = "linux"))]
fn settled_stamp(_: &Path) -> Option<FileStamp> {
    None
}

#[cfg(not(target_os = "linux"))]
fn stamp(_: &Path) -> Option<FileStamp> {
    None
}
