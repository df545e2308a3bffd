//! Places where a test lets the process die, as `kill -9` would at that moment.
//!
//! `LOCALQUEUE_FAILPOINTS="put.row=3,transact.committed=7"` kills the process when it comes to
//! `put.row` for the third time or to `transact.committed` for the seventh; the name `*` counts all of
//! them together. Without the cargo feature `failpoints` nothing of this is compiled.

/// A place where a test may end the process.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::engine::failpoint::hit($name);
    };
}

#[cfg(feature = "failpoints")]
pub(super) use armed::hit;

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    struct Armed {
        name: String,
        left: AtomicI64,
    }

    /// Comes to the failpoint `name`.
    pub(in super::super) fn hit(name: &str) {
        for armed in list().iter().filter(|armed| armed.name == name || armed.name == "*") {
            if armed.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                let _ = kill_process(getpid(), Signal::KILL);
                std::process::abort(); // a process may be slow to die of its own signal
            }
        }
    }

    /// What is armed; asked again until something is, for a forked child may be armed after its parent
    /// came here.
    fn list() -> &'static [Armed] {
        static LIST: OnceLock<Vec<Armed>> = OnceLock::new();
        if let Some(list) = LIST.get() {
            return list;
        }
        match std::env::var("LOCALQUEUE_FAILPOINTS") {
            Ok(text) if !text.is_empty() => {
                LIST.get_or_init(|| text.split(',').map(parse).collect())
            }
            _ => &[],
        }
    }

    fn parse(part: &str) -> Armed {
        let parsed = part.split_once('=').and_then(|(name, count)| {
            Some(Armed { name: name.to_owned(), left: AtomicI64::new(count.parse().ok()?) })
        });
        match parsed {
            Some(armed) => armed,
            None => panic!("LOCALQUEUE_FAILPOINTS: {part:?} is not NAME=COUNT"),
        }
    }
}
