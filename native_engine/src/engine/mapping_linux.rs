//! Memory shared by processes, and waiting on its words.
#![allow(unsafe_code, reason = "a shared mapping can't be had without")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::shared::{Page, SIZE};

pub(super) enum Mapping {
    Own(Box<Page>),
    Shared(NonNull<c_void>),
}

// SAFETY: the mapping is only reached as `&Page`, whose fields are atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn own() -> Self {
        Self::Own(Box::new(Page::new()))
    }

    pub(super) fn of(file: &File) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe {
            mmap(
                ptr::null_mut(),
                SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        Ok(Self::Shared(NonNull::new(at).ok_or(io::ErrorKind::OutOfMemory)?))
    }

    pub(super) fn get(&self) -> &Page {
        match self {
            Self::Own(page) => page,
            // SAFETY: page-aligned, SIZE bytes long, valid until drop; any bits are valid
            // atomics, and other processes write them only as such.
            Self::Shared(at) => unsafe { at.cast::<Page>().as_ref() },
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Self::Shared(at) = self {
            // SAFETY: mapped by `of` with this size, and no reference outlives self.
            let _ = unsafe { munmap(at.as_ptr(), SIZE) };
        }
    }
}

/// Waits while the word is `seen`; whether somebody woke this waiter.
pub(super) fn wait(word: &AtomicU32, seen: u32, at_most: Duration, bits: NonZeroU32) -> bool {
    // This kind of wait takes a point in time.
    let until = Duration::from_nanos(now()) + at_most;
    let until = Timespec {
        tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(until.subsec_nanos()),
    };
    futex::wait_bitset(word, futex::Flags::empty(), seen, Some(&until), bits).is_ok()
}

/// Wakes up to `count` waiters that share a bit; returns how many.
pub(super) fn wake(word: &AtomicU32, count: u32, bits: NonZeroU32) -> usize {
    // Fails only for a bad address, which a reference is not.
    futex::wake_bitset(word, futex::Flags::empty(), count, bits).unwrap_or(0)
}

/// Nanoseconds on a clock that all processes share.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
