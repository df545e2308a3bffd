//! What every test of the engine starts with.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;
use std::time::Duration;

use native_engine::engine::{
    Claim, Clock, Delivery, Durability, Failure, LeaseLoss, ManualClock, Message, Options,
    Settlement, Source, Store, Verb,
};

pub const LEASE: i64 = 60_000_000;

pub struct Bench {
    pub folder: tempfile::TempDir,
    pub clock: Arc<ManualClock>,
    pub store: Arc<Store>,
}

pub fn options(clock: &Arc<ManualClock>) -> Options {
    Options {
        durability: Durability::Full,
        busy_timeout: Duration::from_secs(30),
        clock: Clock::Manual(clock.clone()),
    }
}

pub fn open() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
    let store = Store::open(Some(folder.path()), options(&clock)).unwrap();
    Bench { folder, clock, store }
}

pub fn put(store: &Store, payload: &str, group: Option<&str>) -> i64 {
    let message = Message { payload: payload.as_bytes(), group, ..Message::default() };
    store.put("q", &[message], &()).unwrap()[0].id
}

pub fn settle(job: &Delivery, verb: Verb) -> Settlement {
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

pub fn exchange(
    store: &Store,
    settlements: &[Settlement],
    want: usize,
) -> (Vec<Option<LeaseLoss>>, Vec<Delivery>) {
    let sources = [Source { queue: "q".to_owned(), lease: LEASE, max_retries: 3 }];
    let claim =
        Claim { want, sources: &sources, round_robin: false, min_priority: -100, worker: "w" };
    store.exchange(settlements, &claim, Some(Duration::ZERO), &()).unwrap()
}

pub fn get(store: &Store) -> Option<Delivery> {
    exchange(store, &[], 1).1.pop()
}

pub fn payload(job: Option<Delivery>) -> Option<String> {
    job.map(|job| String::from_utf8(job.payload).unwrap())
}
