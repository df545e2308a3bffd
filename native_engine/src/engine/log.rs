//! The log as it is synced: a descriptor of our own, and room ahead of those that write.
//!
//! The sync of a file that has grown writes the file system's journal too, and takes twice as long. So
//! while a log grows zeros are appended to it, as far as it grows before it is checkpointed.
//! SQLite takes zeros for the end of the log; appended, they can't lie on what somebody writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::checkpoint::LONG;
use super::identity::{self, Identity};

/// Bytes of the log's header, and of a frame: its header and a page.
const HEADER: u32 = 32;
const FRAME: u32 = 24 + 4096;
/// Frames up to which a log isn't given room: it may never grow longer.
const SHORT: u32 = 64;
/// Frames for which it is given room at a time, so that no sync takes long.
const STEP: u32 = 256;

pub(super) struct Log {
    file: File,
    /// Bytes that it surely had; more than any where nothing can be appended.
    size: u64,
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { file, size: 0 })
    }

    /// Gives it room where its `frames` reach its end, as well as can be.
    pub(super) fn make_room(&mut self, frames: u32) {
        if !(SHORT..LONG).contains(&frames) {
            return;
        }
        let used = u64::from(HEADER + frames * FRAME);
        if used < self.size {
            return;
        }
        let Ok(size) = identity::size(&self.file) else { return };
        self.size = size;
        if used < size {
            return;
        }
        let zeros = vec![0; (frames.min(STEP) * FRAME) as usize];
        self.size = match self.file.write(&zeros) {
            Ok(written) => size + written as u64,
            Err(_) => u64::MAX, // where the disk is full, none is taken for this
        };
        failpoint!("log.room_made");
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(super) fn identity(&self) -> io::Result<Identity> {
        identity::of_file(&self.file)
    }
}
