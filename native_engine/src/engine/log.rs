//! The log as it is synced: a descriptor of our own, and room ahead of those that write.
//!
//! The sync of a file that has grown writes the file system's journal too, and takes twice as long. So
//! while a log grows zeros are appended to it, as far as it grows before it is checkpointed.
//! SQLite takes zeros for the end of the log; appended, they can't lie on what somebody writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::checkpoint::LONG;
use super::identity::{self, Identity};
use super::store::lock;

/// Bytes of the log's header, and of a frame: its header and a page.
const HEADER: u32 = 32;
const FRAME: u32 = 24 + 4096;
/// Frames for which it is given room at a time, so that no sync beside it takes long.
const STEP: u32 = 256;
/// Frames of room that are few enough for more to be made.
const LITTLE: u32 = 64;

pub(super) struct Log {
    file: File,
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).open(path).map(|file| Self { file })
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(super) fn identity(&self) -> io::Result<Identity> {
        identity::of_file(&self.file)
    }
}

fn lengthen(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(&vec![0; (STEP * FRAME) as usize])?;
    file.sync_data()
}

/// What is known of the room in a log, and the thread that makes more of it.
#[derive(Default)]
pub(super) struct Room {
    /// Bytes that the log surely had; more than any where nothing can be appended.
    size: Arc<AtomicU64>,
    /// Frames in the log when it was last looked at.
    frames: AtomicU32,
    maker: Mutex<Option<Maker>>,
}

struct Maker {
    thread: JoinHandle<()>,
    /// A forked child has no such thread, and not every C library knows that.
    pid: u32,
}

impl Room {
    /// Has more room made where `frames` come near the end of the log, as well as can be.
    ///
    /// A thread does it: a sync with all the zeros would take milliseconds, and nobody waits for these.
    pub(super) fn see_to(&self, path: &Path, log: &Log, frames: u32) {
        if frames < self.frames.swap(frames, Ordering::Relaxed) {
            self.size.store(0, Ordering::Relaxed); // it began anew, and may have been cut off
        }
        let wanted = u64::from(HEADER + frames.saturating_add(LITTLE).min(LONG) * FRAME);
        if wanted <= self.size.load(Ordering::Relaxed) {
            return;
        }
        let mut maker = lock(&self.maker);
        if maker.as_ref().is_some_and(|maker| !maker.thread.is_finished()) {
            return;
        }
        let Ok(size) = identity::size(&log.file) else { return };
        self.size.store(size, Ordering::Relaxed);
        if wanted <= size {
            return;
        }
        let (size, path) = (self.size.clone(), path.to_owned());
        let work = move || {
            let made = lengthen(&path);
            failpoint!("log.room_made");
            if made.is_err() {
                size.store(u64::MAX, Ordering::Relaxed); // where the disk is full, none is taken for this
            }
        };
        let thread = thread::Builder::new().name("localqueue-room".to_owned()).spawn(work);
        *maker = thread.ok().map(|thread| Maker { thread, pid: process::id() });
    }

    /// The log may become another, or shorter, or be closed: returns once nobody makes room.
    ///
    /// A sync that fails is told to every descriptor that is open then. So the one that is synced for
    /// those who wait must not be closed, nor another opened, beside one that may be told first.
    pub(super) fn forget(&self) {
        if let Some(maker) = lock(&self.maker).take()
            && maker.pid == process::id()
        {
            let _ = maker.thread.join(); // it can't panic, and nothing would be lost with it
        }
        self.size.store(0, Ordering::Relaxed);
    }
}
