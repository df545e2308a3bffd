//! Files that are not a queue's, and folders that can't hold one.

mod common;

use std::fs;

use common::open;
use native_engine::engine::{Error, Options, Store};

fn refusal(folder: &std::path::Path) -> Error {
    match Store::open(Some(folder), Options::default(), &()) {
        Ok(_) => panic!("{} was opened", folder.display()),
        Err(error) => error,
    }
}

#[test]
fn a_file_where_the_folder_should_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = refusal(&file);
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("is a file")), "{error}");
}

#[test]
fn a_folder_whose_parent_is_missing_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no").join("queue");
    let error = refusal(&missing);
    assert!(
        matches!(&error, Error::Unavailable(text) if text.contains("make it first")),
        "{error}"
    );
    assert!(!folder.path().join("no").exists());
}

#[test]
fn a_file_that_is_no_database_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("localqueue.db");
    fs::write(&file, "certainly not a database, and long enough to be read as one").unwrap();
    let before = fs::read(&file).unwrap();
    let error = refusal(folder.path());
    assert!(matches!(error, Error::Corrupt(..)), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn somebody_elses_database_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("localqueue.db");
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("CREATE TABLE auth_user(id INTEGER PRIMARY KEY)").unwrap();
    drop(other);
    assert!(matches!(refusal(folder.path()), Error::Foreign(_)));
    let other = rusqlite::Connection::open(&file).unwrap();
    let mode: String = other.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete", "its journal mode was changed");
}

#[test]
fn a_newer_schema_is_refused() {
    let bench = open();
    bench.store.close();
    let other = rusqlite::Connection::open(bench.folder.path().join("localqueue.db")).unwrap();
    other.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(other);
    assert!(matches!(refusal(bench.folder.path()), Error::NewerSchema { found: 99, .. }));
}
