//! The shared counts are exact, whoever changed the file and however it was closed.

mod common;

use std::path::Path;

use common::{Bench, LEASE, exchange, open, options, settle};
use native_engine::engine::{Action, Filter, Finished, Message, State, Stats, Store, Verb};
use rusqlite::Connection;

/// Numbers that look random and are the same in every run (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

fn counted(folder: &Path, queue: &str) -> [i64; 6] {
    let db = Connection::open(folder.join("localqueue.db")).unwrap();
    let mut counts = [0; 6];
    let mut rows = db
        .prepare(
            "SELECT state, count(*) FROM messages WHERE queue = (SELECT id FROM queues WHERE name = ?1)
             GROUP BY state",
        )
        .unwrap();
    for row in rows.query_map([queue], |row| Ok((row.get::<_, usize>(0)?, row.get(1)?))).unwrap() {
        let (state, count) = row.unwrap();
        counts[state] = count;
    }
    counts
}

/// What `stats` says, by the states of the table; nothing is due or lapsed where this is used.
fn said(stats: Stats) -> [i64; 6] {
    [
        stats.ready - stats.delayed - stats.blocked,
        stats.delayed,
        stats.blocked,
        stats.processing,
        stats.acked,
        stats.failed,
    ]
}

#[track_caller]
fn assert_exact(store: &Store, folder: &Path) {
    for queue in ["q", "other", "new"] {
        assert_eq!(said(store.stats(queue, &()).unwrap()), counted(folder, queue), "{queue}");
    }
}

fn one_step(bench: &Bench, random: &mut Random, held: &mut Vec<native_engine::engine::Delivery>) {
    let (store, groups) = (&bench.store, ["a", "b"]);
    match random.below(9) {
        0 | 1 => {
            let messages: Vec<_> = (0..=random.below(5))
                .map(|_| Message {
                    payload: b"x",
                    group: groups.get(random.below(4)).copied(),
                    delay: if random.below(4) == 0 { i64::MAX / 4 } else { 0 },
                    ..Message::default()
                })
                .collect();
            store.put(["q", "other"][random.below(2)], &messages, &()).unwrap();
        }
        2 => drop(store.put_one("q", b"x", &()).unwrap()),
        3 | 4 => held.extend(exchange(store, &[], random.below(4)).1),
        5 | 6 => {
            let verbs = [Verb::Ack, Verb::Ack, Verb::Nack, Verb::Fail, Verb::Release];
            let settled: Vec<_> = (0..held.len().min(2))
                .map(|_| {
                    settle(&held.swap_remove(random.below(held.len())), verbs[random.below(5)])
                })
                .collect();
            exchange(store, &settled, random.below(2));
        }
        7 => {
            let (action, state) = &[
                (Action::Retry, State::Failed),
                (Action::RunNow, State::Delayed),
                (Action::Delay(i64::MAX / 4), State::Ready),
                (Action::Move("other".to_owned()), State::Ready),
                (Action::Move("new".to_owned()), State::Failed),
                (Action::Discard, State::Ready),
                (Action::Purge, State::Acked),
                (Action::Purge, State::Failed),
            ][random.below(8)];
            store.apply("q", action, &Filter::of(*state), i64::MAX, 3, &()).unwrap();
        }
        _ => {
            bench.clock.advance(1_000);
            let finished = [Finished::Acked, Finished::Failed];
            store.purge("q", bench.clock.now() - 20_000, &finished, Some(5), &()).unwrap();
        }
    }
}

#[test]
fn the_counts_follow_every_operation() {
    for seed in 0..4 {
        let bench = open();
        let (mut random, mut held) = (Random(seed), Vec::new());
        bench.store.put("other", &[Message { payload: b"x", ..Message::default() }], &()).unwrap();
        bench.store.put_one("q", b"x", &()).unwrap();
        for _ in 0..300 {
            one_step(&bench, &mut random, &mut held);
            assert_exact(&bench.store, bench.folder.path());
        }
        assert!(bench.store.recounts() <= 3, "more than one count for each queue");
    }
}

#[test]
fn lapsed_leases_and_due_jobs_are_counted_where_users_see_them() {
    let bench = open();
    let message = Message { payload: b"x", delay: 5, ..Message::default() };
    bench.store.put("q", &[message], &()).unwrap();
    bench.store.put_one("q", b"x", &()).unwrap();
    exchange(&bench.store, &[], 1);
    let before = bench.store.stats("q", &()).unwrap();
    assert_eq!((before.ready, before.delayed, before.processing, before.expired), (1, 1, 1, 0));
    bench.clock.advance(LEASE);
    let after = bench.store.stats("q", &()).unwrap();
    assert_eq!((after.ready, after.delayed, after.processing, after.expired), (1, 0, 1, 1));
}

#[test]
fn a_failed_transaction_counts_for_nothing() {
    let bench = open();
    bench.store.put_one("q", b"good", &()).unwrap();
    let foreign = Connection::open(bench.folder.path().join("localqueue.db")).unwrap();
    foreign
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN new.payload = CAST('bad' AS BLOB)
             BEGIN SELECT raise(ABORT, 'refused'); END",
        )
        .unwrap();
    let message = |payload| Message { payload, ..Message::default() };
    assert_exact(&bench.store, bench.folder.path());
    bench.store.put("q", &[message(b"good"), message(b"bad")], &()).unwrap_err();
    assert_exact(&bench.store, bench.folder.path());
    bench.store.put_one("q", b"good", &()).unwrap();
    assert_exact(&bench.store, bench.folder.path());
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 2);
}

#[test]
fn what_a_foreign_program_changes_is_counted() {
    let bench = open();
    for _ in 0..5 {
        bench.store.put_one("q", b"x", &()).unwrap();
    }
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 5);
    let foreign = Connection::open(bench.folder.path().join("localqueue.db")).unwrap();
    let delete = "DELETE FROM messages WHERE id = (SELECT min(id) FROM messages)";
    foreign.execute_batch(delete).unwrap();
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 4);
    foreign.execute_batch(delete).unwrap();
    bench.store.put_one("q", b"x", &()).unwrap();
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 4);
    assert_exact(&bench.store, bench.folder.path());
}

#[test]
#[cfg(target_os = "linux")]
fn counts_outlive_closing_and_nothing_is_counted_again() {
    let bench = open();
    for _ in 0..5 {
        bench.store.put_one("q", b"x", &()).unwrap();
    }
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 5);
    bench.store.close();
    let again = Store::open(Some(bench.folder.path()), options(&bench.clock), &()).unwrap();
    assert_eq!(again.stats("q", &()).unwrap().ready, 5);
    again.put_one("q", b"x", &()).unwrap();
    assert_eq!(again.stats("q", &()).unwrap().ready, 6);
    assert_eq!(again.recounts(), 0);
}

#[test]
fn a_file_changed_while_it_was_closed_is_counted_again() {
    let bench = open();
    for _ in 0..5 {
        bench.store.put_one("q", b"x", &()).unwrap();
    }
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 5);
    bench.store.close();
    let file = bench.folder.path().join("localqueue.db");
    Connection::open(&file).unwrap().execute_batch("DELETE FROM messages").unwrap();
    let again = Store::open(Some(bench.folder.path()), options(&bench.clock), &()).unwrap();
    assert_eq!(again.stats("q", &()).unwrap().ready, 0);
}

#[test]
fn counts_of_a_restored_copy_are_of_the_copy() {
    let bench = open();
    bench.store.put_one("q", b"x", &()).unwrap();
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 1);
    bench.store.close();
    let file = bench.folder.path().join("localqueue.db");
    let copy = bench.folder.path().join("copy");
    std::fs::copy(&file, &copy).unwrap();
    let again = Store::open(Some(bench.folder.path()), options(&bench.clock), &()).unwrap();
    again.put_one("q", b"y", &()).unwrap();
    assert_eq!(again.stats("q", &()).unwrap().ready, 2);
    again.close();
    std::fs::copy(&copy, &file).unwrap();
    let restored = Store::open(Some(bench.folder.path()), options(&bench.clock), &()).unwrap();
    assert_eq!(restored.stats("q", &()).unwrap().ready, 1);
}

#[test]
fn a_vacuum_changes_no_counts_and_needs_no_counting() {
    let bench = open();
    bench.store.put_one("q", b"x", &()).unwrap();
    bench.store.stats("q", &()).unwrap();
    bench.store.vacuum(&()).unwrap();
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 1);
    bench.store.put_one("q", b"x", &()).unwrap();
    assert_exact(&bench.store, bench.folder.path());
    assert_eq!(bench.store.recounts(), 1);
}
