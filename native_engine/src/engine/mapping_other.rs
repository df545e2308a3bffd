//! Where there is no shared mapping: words of the process' own, and short sleeps.

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::shared::Page;

/// How long a waiter may not notice another process.
const NAP: Duration = Duration::from_millis(10);

pub(super) struct Mapping(Box<Page>);

impl Mapping {
    pub(super) fn own() -> Self {
        Self(Box::new(Page::new()))
    }

    pub(super) fn of(_: &File) -> io::Result<Self> {
        Ok(Self::own())
    }

    pub(super) fn get(&self) -> &Page {
        &self.0
    }
}

/// Waits while the word is `seen`; nobody can wake a waiter here, so it returns false.
pub(super) fn wait(word: &AtomicU32, seen: u32, at_most: Duration, _: NonZeroU32) -> bool {
    if word.load(Ordering::SeqCst) == seen {
        std::thread::sleep(at_most.min(NAP));
    }
    false
}

pub(super) fn wake(_: &AtomicU32, _: u32, _: NonZeroU32) -> usize {
    0
}

/// Nanoseconds on a clock of this process.
pub(super) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed();
    1 + u64::try_from(since.as_nanos()).unwrap_or(u64::MAX - 1)
}
