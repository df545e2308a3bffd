//! Who is alive: a worker's process holds a lock on a byte of a file beside the database.
//!
//! POSIX record locks die with their process and are not inherited by fork. Asking who
//! holds one changes nothing. A process doesn't see its own locks, so those are noted.
//! On other systems nobody's death is seen, and the age of a report must do.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::store::lock;

/// What this process knows of the bytes.
pub(super) struct Liveness {
    path: Option<PathBuf>,
    /// Open for as long as the store: closing any descriptor of it drops the locks.
    file: Mutex<Option<File>>,
    /// The byte of each worker of this process.
    own: Mutex<HashMap<String, i64>>,
}

impl Liveness {
    /// `path` is that of the file; None for a store in memory, whose workers are this process'.
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, file: Mutex::new(None), own: Mutex::default() }
    }

    /// The byte that a worker of this process holds.
    pub(super) fn own(&self, name: &str) -> Option<i64> {
        lock(&self.own).get(name).copied()
    }

    /// Takes a byte for a worker of this process; false where another process has it.
    pub(super) fn take(&self, name: &str, slot: i64) -> io::Result<bool> {
        let mut own = lock(&self.own);
        if own.values().any(|taken| *taken == slot) {
            return Ok(false);
        }
        let taken = self.with_file(|file| byte::take(file, slot))?.unwrap_or(true);
        if taken {
            own.insert(name.to_owned(), slot);
        }
        Ok(taken)
    }

    /// Gives back the byte of a worker of this process.
    pub(super) fn leave(&self, name: &str) {
        if let Some(slot) = lock(&self.own).remove(name) {
            // What can't be unlocked goes with the process.
            let _ = self.with_file(|file| byte::leave(file, slot));
        }
    }

    /// Whether somebody holds a byte; None where that can't be known.
    pub(super) fn is_held(&self, slot: i64) -> Option<bool> {
        if lock(&self.own).values().any(|taken| *taken == slot) {
            return Some(true);
        }
        match self.with_file(|file| byte::is_held(file, slot)) {
            Ok(held) => held.unwrap_or(Some(false)),
            Err(_) => None,
        }
    }

    fn with_file<T>(&self, act: impl FnOnce(&File) -> io::Result<T>) -> io::Result<Option<T>> {
        let Some(path) = &self.path else { return Ok(None) };
        let mut file = lock(&self.file);
        let open = match file.take() {
            Some(open) => open,
            None => open(path)?,
        };
        let result = act(&open);
        *file = Some(open);
        result.map(Some)
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

#[cfg(unix)]
mod byte {
    use std::fs::File;
    use std::io;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short, flock, off_t};

    #[allow(clippy::cast_possible_truncation, reason = "small constants of the C library")]
    fn region(kind: c_int, slot: i64) -> flock {
        flock {
            l_type: kind as c_short,
            l_whence: SEEK_SET as c_short,
            l_start: slot as off_t,
            l_len: 1,
            l_pid: 0,
        }
    }

    pub(super) fn take(file: &File, slot: i64) -> io::Result<bool> {
        match fcntl(file, FcntlArg::F_SETLK(&region(F_WRLCK, slot))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn leave(file: &File, slot: i64) -> io::Result<()> {
        fcntl(file, FcntlArg::F_SETLK(&region(F_UNLCK, slot)))?;
        Ok(())
    }

    pub(super) fn is_held(file: &File, slot: i64) -> io::Result<Option<bool>> {
        let mut found = region(F_RDLCK, slot);
        fcntl(file, FcntlArg::F_GETLK(&mut found))?;
        Ok(Some(c_int::from(found.l_type) != F_UNLCK))
    }
}

#[cfg(not(unix))]
mod byte {
    use std::fs::File;
    use std::io;

    pub(super) fn take(_: &File, _: i64) -> io::Result<bool> {
        Ok(true)
    }

    pub(super) fn leave(_: &File, _: i64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn is_held(_: &File, _: i64) -> io::Result<Option<bool>> {
        Ok(None)
    }
}
