//! Who may write next: the write lock among processes, and turns for those that wait long.
//!
//! A lock that is merely tried goes to whoever happens to be awake, mostly to the process that just
//! gave it back, and some wait for a tenth of a second. Here whoever has waited for a
//! millisecond says so, and whoever gives the lock back then reserves it for the one that said
//! so first: the kernel keeps those in order, and forgets one that died. Until then anybody
//! may take it, which spares a change of process for each of many short operations.
//!
//! All of it is advice that runs out by itself: a reservation and a complaint are times, and
//! count for milliseconds only, so a process that dies with either costs others that long.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};

use super::mapping;
use super::shared::Shared;

/// Who has waited so long has a right to the next turn.
const FAIR: Duration = Duration::from_millis(1);
/// The longest sleep of a waiter, after which it looks by itself.
const NAP: Duration = Duration::from_millis(20);
/// A complaint counts as long as its waiter surely renews it.
const COMPLAINT: u64 = 2 * 20_000_000;
/// A reservation counts until a process that was woken surely had the processor.
const RESERVED: u64 = 5_000_000;

const ANYBODY: NonZeroU32 = NonZeroU32::MIN;
const COMPLAINER: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The words of the lock in the shared mapping.
#[repr(C)]
pub(super) struct Turns {
    /// Until when somebody who waits too long is known to wait (monotonic nanoseconds).
    complaint: AtomicU64,
    /// When the lock was reserved for the one who was woken; 0: it isn't.
    reserved: AtomicU64,
    /// Counts releases.
    released: AtomicU32,
    /// How many wait; too high after a crash, which costs a system call.
    waiting: AtomicU32,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            complaint: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            released: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }
}

/// What one waiter knows between two tries.
#[derive(Default)]
pub(super) struct Wait {
    /// Since when it waits; 0 before its first try.
    since: u64,
    seen: u32,
    /// The lock was reserved for this waiter, who was woken for it.
    called: bool,
}

impl Shared {
    /// Tries to take the write lock for this process, unless another is to have it now.
    pub(super) fn try_turn(&self, wait: &mut Wait) -> io::Result<bool> {
        let turns = self.turns();
        wait.seen = turns.released.load(Ordering::SeqCst);
        let reserved = turns.reserved.load(Ordering::SeqCst);
        if reserved != 0 && !wait.called && mapping::now().wrapping_sub(reserved) < RESERVED {
            return Ok(false);
        }
        if !self.try_lock()? {
            return Ok(false);
        }
        if reserved != 0 {
            turns.reserved.store(0, Ordering::SeqCst);
        }
        Ok(true)
    }

    /// Sleeps until the lock is given back, or for a while.
    pub(super) fn wait_for_turn(&self, wait: &mut Wait) {
        let turns = self.turns();
        let now = mapping::now();
        if wait.since == 0 {
            wait.since = now;
        }
        let waited = Duration::from_nanos(now.saturating_sub(wait.since));
        turns.waiting.fetch_add(1, Ordering::SeqCst);
        failpoint!("shared.waiting");
        let left = FAIR.saturating_sub(waited);
        if left.is_zero() {
            turns.complaint.store(now + COMPLAINT, Ordering::SeqCst);
            wait.called = mapping::wait(&turns.released, wait.seen, NAP, COMPLAINER);
            failpoint!("shared.called");
        } else {
            mapping::wait(&turns.released, wait.seen, left, ANYBODY);
        }
        turns.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Tries to take the write lock for this process.
    pub(super) fn try_lock(&self) -> io::Result<bool> {
        let Some(file) = self.lock_file() else { return Ok(true) };
        match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the write lock back, to whoever has waited too long if there is one.
    pub(super) fn unlock(&self) {
        let Some(file) = self.lock_file() else { return };
        let turns = self.turns();
        let complaint = turns.complaint.load(Ordering::SeqCst);
        let now = if complaint == 0 { 0 } else { mapping::now() };
        let complained = complaint != 0 && complaint.wrapping_sub(now) <= COMPLAINT;
        if complained {
            turns.reserved.store(now, Ordering::SeqCst);
        }
        // An unlock of a lock that is held can't fail; if it did, the next try would tell.
        let _ = fcntl_lock(file, FlockOperation::Unlock);
        failpoint!("shared.unlocked");
        turns.released.fetch_add(1, Ordering::SeqCst);
        if complained {
            if mapping::wake(&turns.released, 1, COMPLAINER) > 0 {
                return;
            }
            // Nobody sleeps who complained: it has had its turn, is awake, or died.
            let (then, now) = (Ordering::SeqCst, Ordering::Relaxed);
            let _ = turns.complaint.compare_exchange(complaint, 0, then, now);
            turns.reserved.store(0, Ordering::SeqCst);
        }
        if turns.waiting.load(Ordering::SeqCst) > 0 {
            mapping::wake(&turns.released, 1, ANYBODY);
        }
    }
}
