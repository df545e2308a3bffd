//! The log that a durable store syncs.

mod common;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use common::{open, options, put};
use native_engine::engine::{Durability, Options, Store};

/// The bytes of the log that nobody wrote anything to yet, all zeros, and its length.
fn room(folder: &Path) -> (usize, usize) {
    let log = fs::read(folder.join("localqueue.db-wal")).unwrap();
    (log.iter().rev().take_while(|byte| **byte == 0).count(), log.len())
}

const PAGE: usize = 4096;

/// Waits until the log has more than a page of room, which a thread makes.
fn wait_for_room(folder: &Path) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while room(folder).0 <= PAGE {
        assert!(Instant::now() < give_up, "no room was made in the log");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_log_that_grows_has_room_ahead() {
    let bench = open();
    let mut lengths: Vec<_> = (0..200)
        .map(|number| {
            put(&bench.store, &number.to_string(), None);
            wait_for_room(bench.folder.path());
            room(bench.folder.path()).1
        })
        .collect();
    lengths.dedup();
    assert!(lengths.len() < 40, "200 puts found no room {} times", lengths.len());
}

#[test]
fn a_log_that_was_cut_off_is_given_room_again() {
    let bench = open();
    for _ in 0..100 {
        put(&bench.store, "one", None);
        wait_for_room(bench.folder.path());
    }
    bench.store.vacuum(&()).unwrap();
    put(&bench.store, "two", None);
    wait_for_room(bench.folder.path());
}

#[test]
fn a_log_that_is_not_synced_has_none() {
    let normal = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Normal, ..options(&open().clock) };
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
    wait_for_room(bench.folder.path());
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
