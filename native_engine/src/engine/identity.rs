//! Which file it is: device and inode.

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
    if let Some(found) = asked(&statx(CWD, path, AtFlags::empty(), StatxFlags::INO)) {
        return found;
    }
    std::fs::metadata(path).map(|found| identity(&found))
}

/// An open file.
pub(super) fn of_file(file: &File) -> io::Result<Identity> {
    #[cfg(target_os = "linux")]
    if let Some(found) = asked(&statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)) {
        return found;
    }
    file.metadata().map(|found| identity(&found))
}

/// What was answered; None where this system can't be asked so.
///
/// It isn't asked for the times: whoever asks Linux for them makes the next write store them to the
/// nanosecond, so each write of the log changed its inode, and each sync was half as long again.
#[cfg(target_os = "linux")]
fn asked(found: &rustix::io::Result<rustix::fs::Statx>) -> Option<io::Result<Identity>> {
    match found {
        Ok(found) => {
            let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
            Some(Ok((device, found.stx_ino)))
        }
        Err(rustix::io::Errno::NOSYS) => None,
        Err(error) => Some(Err((*error).into())),
    }
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
