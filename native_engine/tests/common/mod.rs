//! What every test of the engine starts with.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;
use std::time::Duration;

use native_engine::engine::{
    Claim, Clock, Delivery, Durability, Failure, LeaseLoss, ManualClock, Message, Options,
    Settlement, Source, Store, Verb,
};

pub(crate) const LEASE: i64 = 60_000_000;

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<Store>,
}

pub(crate) fn options(clock: &Arc<ManualClock>) -> Options {
    Options {
        durability: Durability::Full,
        busy_timeout: Duration::from_secs(30),
        clock: Clock::Manual(clock.clone()),
    }
}

pub(crate) fn open() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let store = Store::open(Some(folder.path()), options(&clock), &()).unwrap();
    Bench { folder, clock, store }
}

pub(crate) fn put(store: &Store, payload: &str, group: Option<&str>) -> i64 {
    let message = Message { payload: payload.as_bytes(), group, ..Message::default() };
    store.put("q", &[message], &()).unwrap()[0].id
}

pub(crate) fn settle(job: &Delivery, verb: Verb) -> Settlement {
    Settlement {
        queue: "q".to_owned(),
        id: job.id,
        receipt: job.receipt,
        verb,
        delay: 0,
        max_retries: 3,
        result: None,
        error: Some(Failure { message: "broken".to_owned(), ..Failure::default() }),
        reason: "failed".to_owned(),
    }
}

pub(crate) fn exchange(
    store: &Store,
    settlements: &[Settlement],
    want: usize,
) -> (Vec<Option<LeaseLoss>>, Vec<Delivery>) {
    let sources = [Source { queue: "q".to_owned(), lease: LEASE, max_retries: 3, limits: None }];
    let claim =
        Claim { want, sources: &sources, round_robin: false, min_priority: -100, worker: "w" };
    store.exchange(settlements, &claim, Some(Duration::ZERO), &()).unwrap()
}

pub(crate) fn get(store: &Store) -> Option<Delivery> {
    exchange(store, &[], 1).1.pop()
}

pub(crate) fn payload(job: Option<Delivery>) -> Option<String> {
    job.map(|job| String::from_utf8(job.payload).unwrap())
}
