//! Where there is no shared mapping: words of the process' own, and short sleeps.

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::shared::Words;

/// How long a waiter may not notice another process.
const NAP: Duration = Duration::from_millis(10);

pub(super) struct Mapping(Words);

impl Mapping {
    pub(super) fn own() -> Self {
        let zero = || AtomicU32::new(0);
        Self(Words { bell: zero(), released: zero(), lock_waiters: zero(), bell_waiters: zero() })
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
