//! Wall time for delays and display, boot time for leases.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a store takes its time from.
#[derive(Clone)]
pub enum Clock {
    /// The machine's clocks.
    System,
    /// A test's clock.
    Manual(Arc<ManualClock>),
}

/// A clock that moves only when told.
pub struct ManualClock {
    wall: AtomicI64,
    boot: AtomicI64,
    boots: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `now`, in microseconds since the epoch.
    pub fn new(now: i64) -> Self {
        Self { wall: AtomicI64::new(now), boot: AtomicI64::new(1), boots: AtomicI64::new(0) }
    }

    /// Lets `micros` pass.
    pub fn advance(&self, micros: i64) {
        self.wall.fetch_add(micros, Ordering::SeqCst);
        self.boot.fetch_add(micros, Ordering::SeqCst);
    }

    /// Sets the wall clock forth or back.
    pub fn step_wall(&self, micros: i64) {
        self.wall.fetch_add(micros, Ordering::SeqCst);
    }

    /// Restarts the machine, as far as a clock can.
    pub fn reboot(&self) {
        self.boots.fetch_add(1, Ordering::SeqCst);
        self.boot.store(1, Ordering::SeqCst);
    }

    /// The wall time.
    pub fn now(&self) -> i64 {
        self.wall.load(Ordering::SeqCst)
    }
}

impl Clock {
    /// Microseconds since the epoch.
    pub(super) fn wall(&self) -> i64 {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
            }
            Self::Manual(clock) => clock.now(),
        }
    }

    /// Microseconds since the machine started, time asleep included.
    pub(super) fn boot(&self) -> i64 {
        match self {
            Self::System => system_boot_time(),
            Self::Manual(clock) => clock.boot.load(Ordering::SeqCst),
        }
    }

    /// What tells one start of the machine from the next; empty where that can't be known.
    pub(super) fn boot_id(&self) -> String {
        match self {
            Self::System => {
                let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
                id.trim().to_owned()
            }
            Self::Manual(clock) => format!("manual-{}", clock.boots.load(Ordering::SeqCst)),
        }
    }

    pub(super) fn is_manual(&self) -> bool {
        matches!(self, Self::Manual(_))
    }
}

#[cfg(target_os = "linux")]
fn system_boot_time() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// Elsewhere leases follow the wall clock, which is the same in every process.
#[cfg(not(target_os = "linux"))]
fn system_boot_time() -> i64 {
    Clock::System.wall()
}
