//! What the processes of one store share beside the database: a lock file and a few words.
//!
//! The write lock is a POSIX record lock on a file of its own, taken before `BEGIN
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

use rustix::fs::{FlockOperation, fcntl_lock};

const SIZE: usize = 4096;
/// Every waiter has this bit, so a put reaches all.
const EVERYBODY: u32 = 1;

/// The words at the head of the mapping.
#[repr(C)]
struct Words {
    /// Counts whatever may have made a job claimable.
    bell: AtomicU32,
    /// Counts releases of the write lock.
    released: AtomicU32,
    /// How many wait for the write lock; too high after a crash, which costs a system call.
    lock_waiters: AtomicU32,
}

/// One process' end of what is shared.
pub(super) struct Shared {
    words: mapping::Mapping,
    lock_file: Option<File>,
    own_bit: NonZeroU32,
}

impl Shared {
    /// For a store in memory: shared by threads only.
    pub(super) fn private() -> Self {
        Self { words: mapping::Mapping::own(), lock_file: None, own_bit: own_bit() }
    }

    /// Opens, and makes if missing, the lock file at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < SIZE as u64 {
            file.set_len(SIZE as u64)?;
        }
        let words = mapping::Mapping::of(&file)?;
        Ok(Self { words, lock_file: Some(file), own_bit: own_bit() })
    }

    /// Tries to take the write lock for this process.
    pub(super) fn try_lock(&self) -> io::Result<bool> {
        let Some(file) = &self.lock_file else { return Ok(true) };
        match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// How often the write lock was released; read it before `try_lock`.
    pub(super) fn releases(&self) -> u32 {
        self.words.get().released.load(Ordering::SeqCst)
    }

    /// Waits until the lock was released since `seen`, or for `at_most`.
    pub(super) fn wait_for_release(&self, seen: u32, at_most: Duration) {
        let words = self.words.get();
        words.lock_waiters.fetch_add(1, Ordering::SeqCst);
        mapping::wait(&words.released, seen, at_most, NonZeroU32::MAX);
        words.lock_waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Gives the write lock back.
    pub(super) fn unlock(&self) {
        let Some(file) = &self.lock_file else { return };
        // An unlock of a lock that is held can't fail; if it did, the next try would tell.
        let _ = fcntl_lock(file, FlockOperation::Unlock);
        let words = self.words.get();
        words.released.fetch_add(1, Ordering::SeqCst);
        if words.lock_waiters.load(Ordering::SeqCst) > 0 {
            mapping::wake(&words.released, 1, NonZeroU32::MAX);
        }
    }

    /// What `wait` compares; read it before looking for work.
    pub(super) fn bell(&self) -> u32 {
        self.words.get().bell.load(Ordering::SeqCst)
    }

    /// Tells all waiters, of all processes, that there may be work.
    pub(super) fn ring(&self) {
        let bell = &self.words.get().bell;
        bell.fetch_add(1, Ordering::SeqCst);
        mapping::wake(bell, u32::MAX >> 1, NonZeroU32::MIN);
    }

    /// Wakes the waiters of this process; those of others at most look once in vain.
    pub(super) fn ring_own(&self) {
        let bell = &self.words.get().bell;
        bell.fetch_add(1, Ordering::SeqCst);
        mapping::wake(bell, u32::MAX >> 1, self.own_bit);
    }

    /// Waits until the bell rings after `seen`, or for `at_most`; true if it may have rung.
    pub(super) fn wait(&self, seen: u32, at_most: Duration) -> bool {
        mapping::wait(&self.words.get().bell, seen, at_most, self.own_bit | EVERYBODY)
    }
}

/// A bit for the waiters of this process; two processes may share one.
fn own_bit() -> NonZeroU32 {
    NonZeroU32::new(2 << (std::process::id() % 31)).unwrap_or(NonZeroU32::MAX)
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a shared mapping can't be had without")]
mod mapping {
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

    use super::{SIZE, Words};

    pub(super) enum Mapping {
        Own(Box<Words>),
        Shared(NonNull<c_void>),
    }

    // SAFETY: the mapping is only reached as `&Words`, whose fields are atomics.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(super) fn own() -> Self {
            let zero = || AtomicU32::new(0);
            Self::Own(Box::new(Words { bell: zero(), released: zero(), lock_waiters: zero() }))
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

        pub(super) fn get(&self) -> &Words {
            match self {
                Self::Own(words) => words,
                // SAFETY: page-aligned, SIZE bytes long, valid until drop; any bits are valid
                // atomics, and other processes write them only as such.
                Self::Shared(at) => unsafe { at.cast::<Words>().as_ref() },
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

    pub(super) fn wait(word: &AtomicU32, seen: u32, at_most: Duration, bits: NonZeroU32) -> bool {
        // This kind of wait takes a point in time.
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(
            u64::try_from(now.tv_sec).unwrap_or(0),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        );
        let until = now + at_most;
        let until = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(until.subsec_nanos()),
        };
        let result = futex::wait_bitset(word, futex::Flags::empty(), seen, Some(&until), bits);
        !matches!(result, Err(rustix::io::Errno::TIMEDOUT))
    }

    pub(super) fn wake(word: &AtomicU32, count: u32, bits: NonZeroU32) {
        // Fails only for a bad address, which a reference is not.
        let _ = futex::wake_bitset(word, futex::Flags::empty(), count, bits);
    }
}

#[cfg(not(target_os = "linux"))]
mod mapping {
    use std::fs::File;
    use std::io;
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::Words;

    /// How long a waiter may not notice another process.
    const NAP: Duration = Duration::from_millis(10);

    pub(super) struct Mapping(Words);

    impl Mapping {
        pub(super) fn own() -> Self {
            let zero = || AtomicU32::new(0);
            Self(Words { bell: zero(), released: zero(), lock_waiters: zero() })
        }

        pub(super) fn of(_: &File) -> io::Result<Self> {
            Ok(Self::own())
        }

        pub(super) fn get(&self) -> &Words {
            &self.0
        }
    }

    pub(super) fn wait(word: &AtomicU32, seen: u32, at_most: Duration, _: NonZeroU32) -> bool {
        if word.load(Ordering::SeqCst) == seen {
            std::thread::sleep(at_most.min(NAP));
        }
        true
    }

    pub(super) fn wake(_: &AtomicU32, _: u32, _: NonZeroU32) {}
}
