//! The engine without Python: what it stores, hands out, takes back and waits for.

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{LEASE, exchange, get, open, options, payload, put, settle};
use native_engine::engine::{
    Claim, Error, Filter, Finished, LeaseLoss, Message, Patience, Source, State, Store, Verb,
};

#[test]
fn a_put_job_is_handed_out_once_and_acked() {
    let bench = open();
    let id = bench.store.put_one("q", b"one", &()).unwrap();
    let job = get(&bench.store).unwrap();
    assert_eq!((job.id, job.attempts, job.payload.as_slice()), (id, 1, b"one".as_slice()));
    assert!(get(&bench.store).is_none());
    assert_eq!(exchange(&bench.store, &[settle(&job, Verb::Ack)], 0).0, [None]);
    let stats = bench.store.stats("q", &()).unwrap();
    assert_eq!((stats.ready, stats.processing, stats.acked), (0, 0, 1));
}

#[test]
fn ids_rise_even_when_the_clock_steps_back_and_the_last_job_was_purged() {
    let bench = open();
    let first = put(&bench.store, "a", None);
    bench.clock.step_wall(-86_400_000_000);
    let second = put(&bench.store, "b", None);
    assert!(second > first);
    let jobs = exchange(&bench.store, &[], 2).1;
    let acks: Vec<_> = jobs.iter().map(|job| settle(job, Verb::Ack)).collect();
    exchange(&bench.store, &acks, 0);
    assert_eq!(bench.store.purge("q", i64::MAX, &[Finished::Acked], None, &()).unwrap(), 2);
    assert!(put(&bench.store, "c", None) > second);
    assert!(bench.store.put_one("q", b"d", &()).unwrap() > second);
}

#[test]
fn a_duplicate_job_id_stores_nothing_and_says_what_is_there() {
    let bench = open();
    let message = |payload| Message { payload, job_id: Some("x"), ..Message::default() };
    let first = &bench.store.put("q", &[message(b"1")], &()).unwrap()[0];
    let second = &bench.store.put("q", &[message(b"2")], &()).unwrap()[0];
    assert_eq!((second.id, second.created, second.state), (first.id, false, State::Ready));
    assert_eq!(payload(get(&bench.store)).unwrap(), "1");
    let other = &bench.store.put("other", &[message(b"3")], &()).unwrap()[0];
    assert!(other.created, "job ids are unique in their queue, not in the store");
}

#[test]
fn an_old_receipt_changes_nothing_and_says_why() {
    let bench = open();
    put(&bench.store, "a", None);
    let old = get(&bench.store).unwrap();
    bench.clock.advance(LEASE);
    assert_eq!(exchange(&bench.store, &[settle(&old, Verb::Ack)], 0).0, [Some(LeaseLoss::Expired)]);
    let new = get(&bench.store).unwrap();
    assert_eq!((new.id, new.attempts), (old.id, 2));
    assert_ne!(new.receipt, old.receipt);
    assert_eq!(exchange(&bench.store, &[settle(&old, Verb::Ack)], 0).0, [Some(LeaseLoss::Expired)]);
    assert_eq!(exchange(&bench.store, &[settle(&new, Verb::Ack)], 0).0, [None]);
    assert_eq!(exchange(&bench.store, &[settle(&new, Verb::Ack)], 0).0, [None]);
    assert_eq!(
        exchange(&bench.store, &[settle(&new, Verb::Fail)], 0).0,
        [Some(LeaseLoss::Settled)]
    );
}

#[test]
fn a_job_whose_leases_all_lapse_becomes_a_dead_letter_that_says_so() {
    let bench = open();
    let id = put(&bench.store, "kills its worker", None);
    for attempt in 1..=4 {
        assert_eq!(get(&bench.store).unwrap().attempts, attempt);
        bench.clock.advance(LEASE);
    }
    assert!(get(&bench.store).is_none());
    let record = bench.store.lookup("q", &id.to_string(), &()).unwrap().unwrap();
    assert_eq!((record.state, record.reason.as_deref()), (State::Failed, Some("exhausted")));
    assert!(record.error.unwrap().message.contains("Delivery 4"));
    assert_eq!(record.history.len(), 4);
}

#[test]
fn a_lease_follows_the_boot_clock_and_ends_with_the_boot() {
    let bench = open();
    put(&bench.store, "a", None);
    let job = get(&bench.store).unwrap();
    bench.clock.step_wall(10 * LEASE);
    assert!(get(&bench.store).is_none());
    bench.store.close();
    bench.clock.reboot();
    let store = Store::open(Some(bench.folder.path()), options(&bench.clock), &()).unwrap();
    let again = get(&store).unwrap();
    assert_eq!((again.id, again.attempts), (job.id, 2));
}

#[test]
fn a_group_runs_one_at_a_time_and_in_order() {
    let bench = open();
    for name in ["a1", "a2"] {
        put(&bench.store, name, Some("a"));
    }
    put(&bench.store, "b1", Some("b"));
    let a1 = get(&bench.store).unwrap();
    assert_eq!(payload(get(&bench.store)).unwrap(), "b1");
    assert!(get(&bench.store).is_none());
    bench.clock.advance(1);
    exchange(&bench.store, &[settle(&a1, Verb::Nack)], 0);
    let a1 = get(&bench.store).unwrap();
    assert_eq!(a1.attempts, 2);
    let (_, next) = exchange(&bench.store, &[settle(&a1, Verb::Ack)], 5);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].payload, b"a2");
}

#[test]
fn a_retried_job_leads_its_group_again() {
    let bench = open();
    let first = put(&bench.store, "first", Some("g"));
    put(&bench.store, "second", Some("g"));
    let job = get(&bench.store).unwrap();
    exchange(&bench.store, &[settle(&job, Verb::Fail)], 0);
    assert_eq!(bench.store.retry_failed("q", &first.to_string(), &()).unwrap(), Some(true));
    assert_eq!(payload(get(&bench.store)).unwrap(), "first");
    assert!(get(&bench.store).is_none());
}

#[test]
fn pages_of_a_list_leave_nothing_out_and_repeat_nothing() {
    let bench = open();
    for number in 0..25 {
        let message = Message {
            payload: b"x",
            priority: number % 3,
            delay: i64::from(number >= 20),
            ..Message::default()
        };
        bench.store.put("q", &[message], &()).unwrap();
    }
    for (state, total) in [(State::Ready, 20), (State::Delayed, 5)] {
        let filter = Filter::of(state);
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = bench.store.list("q", &filter, 3, after, &()).unwrap();
            seen.extend(page.records.iter().map(|record| record.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let unique: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!((seen.len(), unique.len()), (total, total));
    }
}

#[test]
fn a_put_wakes_a_waiting_claim_of_another_thread() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        Store::open(Some(folder.path()), native_engine::engine::Options::default(), &()).unwrap();
    let waiter = store.clone();
    let waiting = thread::spawn(move || {
        let sources =
            [Source { queue: "q".to_owned(), lease: LEASE, max_retries: 3, limits: None }];
        let claim = Claim {
            want: 1,
            sources: &sources,
            round_robin: false,
            min_priority: -100,
            worker: "",
        };
        waiter.exchange(&[], &claim, None, &()).unwrap().1.pop().unwrap().payload
    });
    store.put_one("q", b"wake", &()).unwrap();
    assert_eq!(waiting.join().unwrap(), b"wake");
}

#[test]
fn a_wait_ends_by_interrupt_by_patience_and_by_close() {
    struct Over;
    impl Patience for Over {
        fn is_over(&self) -> bool {
            true
        }
    }
    fn wait(store: &Arc<Store>, patience: &dyn Patience) -> Result<usize, Error> {
        let sources =
            [Source { queue: "q".to_owned(), lease: LEASE, max_retries: 3, limits: None }];
        let claim = Claim {
            want: 1,
            sources: &sources,
            round_robin: false,
            min_priority: -100,
            worker: "",
        };
        store.exchange(&[], &claim, None, patience).map(|(_, jobs)| jobs.len())
    }
    let bench = open();
    bench.store.interrupt();
    assert_eq!(wait(&bench.store, &()).unwrap(), 0);
    assert!(matches!(wait(&bench.store, &Over), Err(Error::Interrupted)));
    let store = bench.store.clone();
    let waiting = thread::spawn(move || wait(&store, &()));
    bench.store.close();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    assert!(matches!(bench.store.stats("q", &()), Err(Error::Closed)));
}

#[test]
fn a_paused_queue_delivers_nothing_until_it_is_resumed() {
    let bench = open();
    put(&bench.store, "a", None);
    bench.store.set_paused("q", true, &()).unwrap();
    assert!(get(&bench.store).is_none());
    bench.store.set_paused("q", false, &()).unwrap();
    assert!(get(&bench.store).is_some());
}

#[test]
fn many_threads_share_one_store_and_lose_nothing() {
    let bench = open();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let store = bench.store.clone();
            thread::spawn(move || {
                for _ in 0..50 {
                    store.put_one("q", b"x", &()).unwrap();
                    let job = get(&store).unwrap();
                    assert_eq!(exchange(&store, &[settle(&job, Verb::Ack)], 0).0, [None]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let stats = bench.store.stats("q", &()).unwrap();
    assert_eq!((stats.ready, stats.processing, stats.acked), (0, 0, 200));
}

#[test]
fn vacuum_keeps_every_job() {
    let bench = open();
    for _ in 0..100 {
        bench.store.put_one("q", &[7; 1000], &()).unwrap();
    }
    bench.store.vacuum(&()).unwrap();
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 100);
    bench.store.put_one("q", b"after", &()).unwrap();
}

#[test]
fn the_log_stays_short_under_a_steady_load_and_recovers_from_a_long_reader() {
    let bench = open();
    let wal = bench.folder.path().join("localqueue.db-wal");
    let length = || std::fs::metadata(&wal).unwrap().len();
    let bound = 4 * 4_000 * 4_120; // four times the pages from which it is checkpointed
    let payload = vec![1; 30_000];
    let put = |count: usize| {
        for _ in 0..count {
            let message = Message { payload: &payload, ..Message::default() };
            bench.store.put("q", &[message; 20], &()).unwrap();
        }
    };
    put(240);
    assert!(length() < bound, "{}", length());
    let reader = rusqlite::Connection::open(bench.store.path().unwrap()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM messages").unwrap();
    put(240);
    let pinned = length();
    assert!(pinned > bound, "the reader kept nothing in the log");
    reader.execute_batch("ROLLBACK").unwrap();
    put(240);
    assert!(length() <= pinned + bound, "{} after {pinned}", length());
    assert_eq!(bench.store.stats("q", &()).unwrap().ready, 14_400);
}

#[test]
fn a_lock_held_elsewhere_is_waited_for_and_then_named() {
    let bench = open();
    bench.store.close();
    let mut options = options(&bench.clock);
    options.busy_timeout = Duration::from_millis(300);
    let store = Store::open(Some(bench.folder.path()), options, &()).unwrap();
    let other = rusqlite::Connection::open(store.path().unwrap()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.put_one("q", b"x", &()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(error.to_string().contains("localqueue.db"));
    other.execute_batch("ROLLBACK").unwrap();
    store.put_one("q", b"x", &()).unwrap();
}
