//! Which file it is: device and inode. And how long.
//!
//! Linux isn't asked for times: whoever asks for them makes the next write store them to the nanosecond, so
//! each write of the log changed its inode, and each sync was half as long again.

use std::fs::File;
use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// Device and inode of a file.
pub(super) type Identity = (u64, u64);

/// The file at `path`.
pub(super) fn of_path(path: &Path) -> io::Result<Identity> {
    #[cfg(target_os = "linux")]
    if let Some(found) = answer(statx(CWD, path, AtFlags::empty(), StatxFlags::INO)) {
        return found.map(|found| identity_of(&found));
    }
    std::fs::metadata(path).map(|found| identity(&found))
}

/// An open file.
pub(super) fn of_file(file: &File) -> io::Result<Identity> {
    #[cfg(target_os = "linux")]
    if let Some(found) = answer(statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)) {
        return found.map(|found| identity_of(&found));
    }
    file.metadata().map(|found| identity(&found))
}

/// The length of an open file in bytes.
pub(super) fn size(file: &File) -> io::Result<u64> {
    #[cfg(target_os = "linux")]
    if let Some(found) = answer(statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE)) {
        return found.map(|found| found.stx_size);
    }
    file.metadata().map(|found| found.len())
}

/// What was answered; None where this system can't be asked so.
#[cfg(target_os = "linux")]
fn answer<T>(found: rustix::io::Result<T>) -> Option<io::Result<T>> {
    match found {
        Err(rustix::io::Errno::NOSYS) => None,
        found => Some(found.map_err(io::Error::from)),
    }
}

#[cfg(target_os = "linux")]
fn identity_of(found: &rustix::fs::Statx) -> Identity {
    (u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor), found.stx_ino)
}

#[cfg(unix)]
fn identity(found: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

/// Elsewhere an open file can't be removed or replaced.
#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> Identity {
    (0, 0)
}
