//! What can go wrong, told apart by what the caller can do about it.

use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Why a receipt is not the live one of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseLoss {
    /// The deadline passed.
    Expired,
    /// Another verb already ended this delivery.
    Settled,
    /// No job has, or is known to have had, this receipt.
    Unknown,
}

impl LeaseLoss {
    /// The word for it in Python.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Settled => "settled",
            Self::Unknown => "unknown",
        }
    }
}

/// A failed operation of the engine. Unless a variant says otherwise nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Someone else held the write lock for the whole timeout.
    #[error(
        "The write lock of {path} was not free within {seconds:.1} s; see who holds it, or raise busy_timeout."
    )]
    Busy {
        /// The database file.
        path: PathBuf,
        /// How long was waited.
        seconds: f64,
    },
    /// The disk is full.
    #[error("The disk that holds {0} is full; free some space. Nothing was stored.")]
    Full(PathBuf),
    /// The file or folder cannot be used.
    #[error("{0}")]
    Unavailable(String),
    /// The file is damaged, or no database.
    #[error(
        "{0} is damaged or not a database ({1}); restore a backup, or move the file away. It was not changed."
    )]
    Corrupt(PathBuf, String),
    /// The file is a database of somebody else's.
    #[error(
        "{0} is a database that django-localqueue did not make; give the queue a folder of its own."
    )]
    Foreign(PathBuf),
    /// The file was written by a later version.
    #[error(
        "{path} has schema version {found} and this version of django-localqueue knows {known}; upgrade django-localqueue."
    )]
    NewerSchema {
        /// The database file.
        path: PathBuf,
        /// Its schema version.
        found: i64,
        /// The newest known.
        known: i64,
    },
    /// The store was closed.
    #[error("The queue was closed; open it again before using it.")]
    Closed,
    /// A store in memory doesn't outlive its process, not even by fork.
    #[error(
        "This process was forked from the one that opened the store; open it again in the child."
    )]
    Forked,
    /// Committed, but the disk did not confirm it.
    #[error(
        "The job is stored in {0}, but the disk did not confirm it ({1}): a power cut may lose it."
    )]
    NotSynced(PathBuf, String),
    /// A caller's `Patience` ended a wait.
    #[error("The wait was interrupted.")]
    Interrupted,
}

/// The result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Tells apart what SQLite reports about the file at `path`.
    pub(super) fn from_sqlite(error: &rusqlite::Error, path: &std::path::Path) -> Self {
        let path = path.to_path_buf();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Busy { path, seconds: 0.0 }
            }
            Some(ErrorCode::DiskFull) => Self::Full(path),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt(path, error.to_string())
            }
            _ => Self::Unavailable(format!(
                "{} can't be read or written: {error}; check the folder, its permissions and its disk.",
                path.display()
            )),
        }
    }
}
