//! Which commit a connection sees: the header of SQLite's wal-index.
//!
//! Its format is documented (sqlite.org/walformat.html). The memory is SQLite's own mapping,
//! asked for through its file methods: a descriptor of our own on that file would
//! drop SQLite's locks when closed.
#![allow(unsafe_code, reason = "SQLite's file methods are C")]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rusqlite::Connection;

use super::sqlite_file;

/// The size of one part of the wal-index.
const PART: i32 = 32_768;
/// 32-bit words of one of the header's two copies.
const WORDS: usize = 12;

/// A commit: no two of one file have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Commit {
    /// Commits since the wal-index was made.
    pub(super) number: u32,
    /// Frames in the log, up to this commit.
    pub(super) frames: u32,
    /// The checksum of all of them.
    pub(super) checksum: u64,
    /// What tells this log from the one before it.
    pub(super) salt: u64,
}

impl Commit {
    /// The same content of the log, though its index was made anew.
    pub(super) fn is_same_log(&self, other: &Self) -> bool {
        Self { number: 0, ..*self } == Self { number: 0, ..*other }
    }
}

/// The latest commit of the file that `db` has open; None where it has no log, or in the
/// middle of a commit.
pub(super) fn latest(db: &Connection) -> Option<Commit> {
    let mut part: *mut c_void = ptr::null_mut();
    let file = sqlite_file::of(db)?.as_ptr();
    // SAFETY: the file is that of an open connection. Asked for without extending, the first part
    // is the mapping that the connection already has, or null.
    unsafe {
        let methods = (*file).pMethods.as_ref()?;
        if methods.iVersion < 2 || methods.xShmMap?(file, 0, PART, 0, &raw mut part) != 0 {
            return None;
        }
    }
    if part.is_null() {
        return None;
    }
    // SAFETY: the part is longer than this, aligned, mapped as long as `db` is borrowed, and
    // written by others only in whole words.
    let words = unsafe { &*part.cast::<[AtomicU32; 2 * WORDS]>() };
    let copy = |at: usize| -> [u32; WORDS] {
        std::array::from_fn(|word| words[at + word].load(Ordering::Relaxed))
    };
    // A writer fills the second copy first, then the first.
    let first = copy(0);
    fence(Ordering::SeqCst);
    if first != copy(WORDS) {
        return None;
    }
    let pair = |at: usize| u64::from(first[at]) << 32 | u64::from(first[at + 1]);
    Some(Commit { number: first[2], frames: first[4], checksum: pair(6), salt: pair(8) })
}
