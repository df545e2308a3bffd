//! The log that a durable store syncs.

mod common;

use std::fs;
use std::path::Path;

use common::{open, options, put};
use native_engine::engine::{Durability, Options, Store};

/// The bytes of the log that nobody wrote anything to yet, all zeros, and its length.
fn room(folder: &Path) -> (usize, usize) {
    let log = fs::read(folder.join("localqueue.db-wal")).unwrap();
    (log.iter().rev().take_while(|byte| **byte == 0).count(), log.len())
}

const PAGE: usize = 4096;

#[test]
fn a_log_that_grows_has_room_ahead() {
    let bench = open();
    let lengths: Vec<_> = (0..600)
        .map(|number| {
            put(&bench.store, &number.to_string(), None);
            room(bench.folder.path()).1
        })
        .collect();
    let grown = lengths.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(grown < 100, "the log changed its length {grown} times in 600 puts");
    assert!(room(bench.folder.path()).0 > PAGE);
}

#[test]
fn a_short_log_and_one_that_is_not_synced_have_none() {
    let bench = open();
    put(&bench.store, "one", None);
    assert!(room(bench.folder.path()).0 < PAGE);

    let normal = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Normal, ..options(&bench.clock) };
    let store = Store::open(Some(normal.path()), options, &()).unwrap();
    for _ in 0..200 {
        put(&store, "one", None);
    }
    assert!(room(normal.path()).0 < PAGE);
}

#[test]
fn room_is_no_part_of_what_is_recovered() {
    let bench = open();
    for number in 0..200 {
        put(&bench.store, &number.to_string(), None);
    }
    assert!(room(bench.folder.path()).0 > PAGE);
    // As the files are when all processes are killed.
    let copy = tempfile::tempdir().unwrap();
    for name in ["localqueue.db", "localqueue.db-wal"] {
        fs::copy(bench.folder.path().join(name), copy.path().join(name)).unwrap();
    }
    let store = Store::open(Some(copy.path()), options(&bench.clock), &()).unwrap();
    assert_eq!(store.stats("q", &()).unwrap().ready, 200);
    assert_eq!(store.check(&()).unwrap(), Vec::<String>::new());
    put(&store, "after", None);
    assert_eq!(store.stats("q", &()).unwrap().ready, 201);
}
