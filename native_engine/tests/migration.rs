//! A file of an older schema is brought up to date in place.
//!
//! `data/version-1.db` was written by the first version of the engine: in `q` three
//! acked jobs (one purged after them had the last id), three failed ones (`failed`,
//! `exhausted`, `cancelled`), two leases (`leased`, `lead`), one blocked behind the lead, one
//! delayed for fifty years, three ready ones; in `paused`, which is, one ready job.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{exchange, open as open_new, options, put, settle};
use native_engine::engine::{Filter, Finished, ManualClock, State, Store, Verb};
use rusqlite::Connection;

/// When the stored file was made.
const THEN: i64 = 1_750_000_000_000_000;

fn old_file() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-1.db");
    std::fs::copy(data, folder.path().join("localqueue.db")).unwrap();
    folder
}

/// Opens it on another boot, with a wall clock that is behind.
fn open(folder: &Path) -> Arc<Store> {
    let clock = Arc::new(ManualClock::new(THEN - 1_000_000));
    clock.reboot();
    Store::open(Some(folder), options(&clock), &()).unwrap()
}

fn ids(store: &Store, state: State) -> Vec<String> {
    let page = store.list("q", &Filter::of(state), 100, None, &()).unwrap();
    let mut ids: Vec<_> = page.records.into_iter().filter_map(|record| record.job_id).collect();
    ids.sort();
    ids
}

fn schema(file: &Path) -> Vec<(String, String)> {
    let db = Connection::open(file).unwrap();
    db.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn every_job_of_an_old_file_is_where_it_was() {
    let folder = old_file();
    let store = open(folder.path());
    let stats = store.stats("q", &()).unwrap();
    assert_eq!((stats.ready, stats.delayed, stats.blocked), (5, 1, 1));
    assert_eq!((stats.processing, stats.acked, stats.failed), (2, 3, 3));
    assert!(store.stats("paused", &()).unwrap().paused);
    assert_eq!(ids(&store, State::Ready), ["big", "ready", "urgent"]);
    assert_eq!(ids(&store, State::Delayed), ["delayed"]);
    assert_eq!(ids(&store, State::Blocked), ["blocked"]);
    assert_eq!(ids(&store, State::Processing), ["lead", "leased"]);
    assert_eq!(ids(&store, State::Failed), ["cancelled", "exhausted", "failed"]);
    let failed = store.lookup("q", "failed", &()).unwrap().unwrap();
    assert_eq!(failed.task.as_deref(), Some("app.tasks.broken"));
    assert!(failed.error.unwrap().traceback.contains("ZeroDivisionError"));
    assert_eq!(store.lookup("q", "exhausted", &()).unwrap().unwrap().history.len(), 2);
    let done = store.list("q", &Filter::of(State::Acked), 1, None, &()).unwrap();
    assert_eq!(done.records[0].result.as_deref(), Some(br#"{"sum":2}"#.as_slice()));
}

#[test]
fn the_dead_letters_of_an_old_file_are_counted_by_what_went_wrong() {
    let folder = old_file();
    let store = open(folder.path());
    let groups = store.failures("q", 10, None, &()).unwrap();
    let found: Vec<_> = groups.iter().map(|group| (group.task.as_str(), group.total)).collect();
    assert_eq!(groups.iter().map(|group| group.total).sum::<i64>(), 2, "{found:?}");
    let of_task = groups.iter().find(|group| group.task == "app.tasks.broken").unwrap();
    let mut filter = Filter::of(State::Failed);
    filter.failure = Some(of_task.id);
    let page = store.list("q", &filter, 10, None, &()).unwrap();
    assert!(page.records.iter().any(|record| record.job_id.as_deref() == Some("failed")));
    assert_eq!(store.retry_failed("q", "failed", &()).unwrap(), Some(true));
    assert_eq!(
        store.list("q", &filter, 10, None, &()).unwrap().records.len() + 1,
        page.records.len()
    );
}

#[test]
fn the_jobs_of_an_old_file_go_on() {
    let folder = old_file();
    let store = open(folder.path());
    let last: i64 = Connection::open(folder.path().join("localqueue.db"))
        .unwrap()
        .query_row("SELECT value FROM meta WHERE key = 1", [], |row| row.get(0))
        .unwrap();
    assert!(put(&store, "new", None) > last, "the id of a purged job was given again");
    // Both leases are of another boot, so their jobs are delivered again.
    let jobs = exchange(&store, &[], 100).1;
    let mut delivered: Vec<_> = jobs.iter().filter_map(|job| job.job_id.as_deref()).collect();
    delivered.sort_unstable();
    assert_eq!(delivered, ["big", "lead", "leased", "ready", "urgent"]);
    let acks: Vec<_> = jobs.iter().map(|job| settle(job, Verb::Ack)).collect();
    let (results, jobs) = exchange(&store, &acks, 100);
    assert!(results.iter().all(Option::is_none), "{results:?}");
    assert_eq!(jobs[0].job_id.as_deref(), Some("blocked"));
    assert_eq!(store.retry_failed("q", "failed", &()).unwrap(), Some(true));
    assert_eq!(exchange(&store, &[], 1).1[0].job_id.as_deref(), Some("failed"));
    assert_eq!(
        store.purge("q", i64::MAX, &[Finished::Acked, Finished::Failed], None, &()).unwrap(),
        3 + 6 + 2
    );
}

#[test]
fn an_old_file_gets_the_tables_of_a_new_one_and_only_once() {
    let folder = old_file();
    open(folder.path()).close();
    let new = open_new();
    new.store.close();
    let file = folder.path().join("localqueue.db");
    let migrated = schema(&file);
    assert_eq!(migrated, schema(&new.folder.path().join("localqueue.db")));
    open(folder.path()).close();
    assert_eq!(schema(&file), migrated);
}
