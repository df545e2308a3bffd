//! Puts of several threads that are stored in one transaction.

mod common;

use std::fs;
use std::path::Path;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Bench, open, put};
use native_engine::engine::{Error, Message, Patience, Put, Result, State, Store};
use rusqlite::Connection;

/// Knows that its put waits.
#[derive(Default)]
struct Asked {
    asked: AtomicBool,
    /// Gives up when it is asked.
    hasty: bool,
}

impl Patience for Asked {
    fn is_over(&self) -> bool {
        self.asked.store(true, Ordering::SeqCst);
        self.hasty
    }
}

impl Asked {
    fn wait(&self) {
        let start = Instant::now();
        while !self.asked.load(Ordering::SeqCst) {
            assert!(start.elapsed() < Duration::from_secs(60), "the put doesn't wait");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Puts each message from a thread of its own: the first leads and is kept waiting until all others
/// stand in line. `then` runs before they go on; those of `hasty` give up instead.
fn put_at_once(
    store: &Store,
    messages: &[Message],
    hasty: &[usize],
    then: impl FnOnce(),
) -> Vec<Result<Put>> {
    let foreign = Connection::open(store.path().unwrap()).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waits: Vec<_> = (0..messages.len())
        .map(|number| Asked { hasty: hasty.contains(&number), ..Asked::default() })
        .collect();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (message, wait) in messages.iter().zip(&waits) {
            threads.push(scope.spawn(move || {
                store.put("q", slice::from_ref(message), wait).map(|mut puts| puts.remove(0))
            }));
            if threads.len() == 1 {
                wait.wait();
            }
        }
        waits.iter().for_each(Asked::wait);
        then();
        drop(foreign);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn messages(count: usize) -> Vec<Message<'static>> {
    vec![Message { payload: b"job", ..Message::default() }; count]
}

/// The commits in the log.
fn commits(folder: &Path) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24 + 4096;
    let log = fs::read(folder.join("localqueue.db-wal")).unwrap();
    let frames = log[HEADER..].chunks_exact(FRAME);
    frames
        .take_while(|frame| frame[8..16] == log[16..24]) // of this log, by its salt
        .filter(|frame| frame[4..8] != [0; 4]) // the last of a transaction has the file's size
        .count()
}

fn ready(bench: &Bench) -> i64 {
    bench.store.stats("q", &()).unwrap().ready
}

#[test]
fn puts_that_wait_for_another_are_stored_in_one_transaction() {
    let bench = open();
    let before = commits(bench.folder.path());
    let puts = put_at_once(&bench.store, &messages(12), &[], || ());
    // The leader's, and that of the line; a put that asks its patience just then is late for it.
    assert!((2..6).contains(&(commits(bench.folder.path()) - before)));
    let mut ids: Vec<_> = puts.into_iter().map(|put| put.unwrap().id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 12);
    assert_eq!(ready(&bench), 12);
}

#[test]
fn a_transaction_takes_a_limited_number_of_them() {
    let bench = open();
    let before = commits(bench.folder.path());
    let puts = put_at_once(&bench.store, &messages(1 + 33 + 5), &[], || ());
    assert!(puts.iter().all(Result::is_ok));
    assert!((3..20).contains(&(commits(bench.folder.path()) - before)), "not 38 after the first");
}

#[test]
fn each_is_told_what_became_of_its_own() {
    let bench = open();
    let known = bench
        .store
        .put("q", &[Message { payload: b"old", job_id: Some("known"), ..Message::default() }], &())
        .unwrap()
        .remove(0);
    let full = Message {
        payload: b"new",
        job_id: Some("new"),
        delay: 60_000_000,
        priority: 7,
        max_retries: Some(2),
        task: Some("app.task"),
        headers: Some(b"{}"),
        expires: Some(90_000_000),
        unique_key: Some("key"),
        retention: Some(5_000_000),
        ..Message::default()
    };
    let mut all = messages(6);
    all[1] = Message { payload: b"again", job_id: Some("known"), ..Message::default() };
    all[3] = full;
    all[5] = Message { payload: b"grouped", group: Some("g"), ..Message::default() };
    let puts: Vec<_> =
        put_at_once(&bench.store, &all, &[], || ()).into_iter().map(Result::unwrap).collect();

    assert_eq!((puts[1].id, puts[1].created), (known.id, false));
    let created: Vec<_> = puts.iter().map(|put| put.created).collect();
    assert_eq!(created, [true, false, true, true, true, true]);
    assert_eq!(puts[3].state, State::Delayed);
    let record = bench.store.lookup("q", "new", &()).unwrap().unwrap();
    assert_eq!((record.id, record.payload.as_slice()), (puts[3].id, full.payload));
    assert_eq!((record.priority, record.max_retries), (full.priority, full.max_retries));
    assert_eq!((record.task.as_deref(), record.headers.as_deref()), (full.task, full.headers));
    assert_eq!((record.unique_key.as_deref(), record.retention), (full.unique_key, full.retention));
    assert_eq!(
        (record.at, record.expires_at),
        (record.created_at + full.delay, Some(record.created_at + 90_000_000))
    );
    let grouped = bench.store.lookup("q", &puts[5].id.to_string(), &()).unwrap().unwrap();
    assert_eq!(grouped.group.as_deref(), Some("g"));
}

#[test]
fn one_that_is_refused_disturbs_no_other() {
    let bench = open();
    Connection::open(bench.store.path().unwrap())
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN new.job_id = 'bad'
             BEGIN SELECT RAISE(ABORT, 'refused here'); END",
        )
        .unwrap();
    let mut all = messages(8);
    all[4].job_id = Some("bad");
    let puts = put_at_once(&bench.store, &all, &[], || ());
    for (number, put) in puts.iter().enumerate() {
        match put {
            Err(error) if number == 4 => assert!(error.to_string().contains("refused here")),
            put => assert!(put.is_ok() && number != 4, "put {number}: {put:?}"),
        }
    }
    assert_eq!(ready(&bench), 7);
}

#[test]
fn one_whose_caller_gives_up_leaves_the_line() {
    let bench = open();
    let puts = put_at_once(&bench.store, &messages(6), &[1, 3], || ());
    for (number, put) in puts.iter().enumerate() {
        match number {
            1 | 3 => assert!(matches!(put, Err(Error::Interrupted)), "put {number}: {put:?}"),
            _ => assert!(put.is_ok(), "put {number}: {put:?}"),
        }
    }
    assert_eq!(ready(&bench), 4);
}

#[test]
fn a_leader_whose_caller_gives_up_leaves_the_others_to_the_next() {
    let bench = open();
    let puts = put_at_once(&bench.store, &messages(1), &[0], || ());
    assert!(matches!(puts[..], [Err(Error::Interrupted)]));
    assert_eq!(ready(&bench), 0);
    put(&bench.store, "after", None);
    assert_eq!(ready(&bench), 1);
}

#[test]
fn all_of_a_group_are_told_that_the_disk_did_not_confirm() {
    let bench = open();
    let mark = bench.folder.path().join("localqueue.db-unsynced");
    // A mark that can't be taken away: no sync counts as long as it is there.
    let puts = put_at_once(&bench.store, &messages(8), &[], || fs::create_dir(&mark).unwrap());
    for put in puts {
        assert!(matches!(put, Err(Error::NotSynced(..))), "{put:?}");
    }
    fs::remove_dir(&mark).unwrap();
    put(&bench.store, "after", None);
    assert_eq!(ready(&bench), 9, "all are stored");
}
