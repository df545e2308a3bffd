//! The database file as SQLite has it open.
//!
//! A descriptor of our own on it would drop SQLite's locks when closed.
#![allow(unsafe_code, reason = "SQLite's file methods are C")]

use std::ptr::{self, NonNull};

use rusqlite::{Connection, ffi};

/// The file of an open connection, valid as long as that is; None where it has none.
pub(super) fn of(db: &Connection) -> Option<NonNull<ffi::sqlite3_file>> {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: the handle is open as long as `db` is borrowed; this opcode writes one pointer.
    let found = unsafe {
        ffi::sqlite3_file_control(
            db.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            ptr::from_mut(&mut file).cast(),
        )
    };
    if found == ffi::SQLITE_OK { NonNull::new(file) } else { None }
}

/// Brings what was written to the database file to the disk; false where that failed.
pub(super) fn sync(db: &Connection) -> bool {
    let Some(file) = of(db) else { return false };
    // SAFETY: the file is that of an open connection, and syncing it changes nothing in memory.
    unsafe {
        let Some(methods) = (*file.as_ptr()).pMethods.as_ref() else { return false };
        let Some(sync) = methods.xSync else { return false };
        sync(file.as_ptr(), ffi::SQLITE_SYNC_NORMAL) == ffi::SQLITE_OK
    }
}
