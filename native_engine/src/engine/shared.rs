//! What the processes of one store share beside the database: a lock file and a few words.
//!
//! The write lock (`turns`) is a POSIX record lock on a file of its own, taken before `BEGIN
//! IMMEDIATE`: it dies with its process and is not inherited by fork. The words lie
//! in a small mapping of the same file; waiting on them (futex) costs nothing while
//! idle and wakes other processes in microseconds. All of it is advisory: SQLite's
//! own locks still decide, so a lost wake-up or a foreign tool costs time, not jobs.
//!
//! On systems other than Linux there is no mapping, and waiting is a short sleep.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mapping;
use super::tally::Tally;
use super::turns::Turns;

/// The size of the lock file, all of it mapped.
pub(super) const SIZE: usize = 65_536;
/// Every waiter has this bit, so a put reaches all.
const EVERYBODY: u32 = 1;

/// What the mapping holds.
#[repr(C)]
pub(super) struct Page {
    pub(super) words: Words,
    pub(super) turns: Turns,
    pub(super) tally: Tally,
}

const _: () = assert!(size_of::<Page>() <= SIZE);

/// Whether the bell rang while somebody waited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rung {
    /// It did not.
    Not,
    /// Nobody else was waiting.
    ForMe,
    /// Others were, or there were some when they died.
    ForMany,
}

/// The words at the head of the mapping.
#[repr(C)]
pub(super) struct Words {
    /// Counts whatever may have made a job claimable.
    pub(super) bell: AtomicU32,
    /// How many wait for the bell; too high after a crash, which costs a system call.
    pub(super) bell_waiters: AtomicU32,
}

/// One process' end of what is shared.
pub(super) struct Shared {
    page: mapping::Mapping,
    lock_file: Option<File>,
    own_bit: NonZeroU32,
}

impl Page {
    /// One in which nothing happened yet.
    pub(super) fn new() -> Self {
        let words = Words { bell: AtomicU32::new(0), bell_waiters: AtomicU32::new(0) };
        Self { words, turns: Turns::new(), tally: Tally::new() }
    }
}

impl Shared {
    /// For a store in memory: shared by threads only.
    pub(super) fn private() -> Self {
        Self { page: mapping::Mapping::own(), lock_file: None, own_bit: own_bit() }
    }

    /// Opens, and makes if missing, the lock file at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < SIZE as u64 {
            file.set_len(SIZE as u64)?;
        }
        let page = mapping::Mapping::of(&file)?;
        Ok(Self { page, lock_file: Some(file), own_bit: own_bit() })
    }

    fn words(&self) -> &Words {
        &self.page.get().words
    }

    /// The counts of jobs.
    pub(super) fn tally(&self) -> &Tally {
        &self.page.get().tally
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.page.get().turns
    }

    /// The file whose lock is the write lock; None in memory.
    pub(super) fn lock_file(&self) -> Option<&File> {
        self.lock_file.as_ref()
    }

    /// What `wait` compares; read it before looking for work.
    pub(super) fn bell(&self) -> u32 {
        self.words().bell.load(Ordering::SeqCst)
    }

    /// Tells all waiters, of all processes, that there may be work.
    pub(super) fn ring(&self) {
        let words = self.words();
        words.bell.fetch_add(1, Ordering::SeqCst);
        if words.bell_waiters.load(Ordering::SeqCst) > 0 {
            mapping::wake(&words.bell, u32::MAX >> 1, NonZeroU32::MIN);
        }
    }

    /// Wakes the waiters of this process; those of others at most look once in vain.
    pub(super) fn ring_own(&self) {
        let bell = &self.words().bell;
        bell.fetch_add(1, Ordering::SeqCst);
        mapping::wake(bell, u32::MAX >> 1, self.own_bit);
    }

    /// Waits until the bell rings after `seen`, or for `at_most`; tells if it rang.
    pub(super) fn wait(&self, seen: u32, at_most: Duration) -> Rung {
        let words = self.words();
        words.bell_waiters.fetch_add(1, Ordering::SeqCst);
        mapping::wait(&words.bell, seen, at_most, self.own_bit | EVERYBODY);
        let waited = words.bell_waiters.fetch_sub(1, Ordering::SeqCst);
        match (self.bell() != seen, waited) {
            (false, _) => Rung::Not,
            (true, 1) => Rung::ForMe,
            (true, _) => Rung::ForMany,
        }
    }
}

/// A bit for the waiters of this process; two processes may share one.
fn own_bit() -> NonZeroU32 {
    NonZeroU32::new(2 << (std::process::id() % 31)).unwrap_or(NonZeroU32::MAX)
}
