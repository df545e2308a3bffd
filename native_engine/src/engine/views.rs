//! What is shown of a queue: its jobs, their counts, failures and activity.
//!
//! Times are microseconds; wall time since the epoch unless a name says boot.

use super::records::{Cursor, Failure, State};

/// One ended delivery.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Which delivery it was.
    pub number: i64,
    /// Who had it.
    pub worker: String,
    /// When it was claimed.
    pub started_at: i64,
    /// When it ended.
    pub ended_at: i64,
    /// ack, nack, fail or lapsed.
    pub outcome: String,
    /// Why, where it failed.
    pub error: Option<Failure>,
}

/// A stored job in any state.
#[derive(Debug, Clone)]
pub struct Record {
    /// The engine's id.
    pub id: i64,
    /// The caller's id.
    pub job_id: Option<String>,
    /// Its state; due but unpromoted counts as ready.
    pub state: State,
    /// Due time, lease end (boot clock), finish time or own time, by state.
    pub at: i64,
    /// Since when it waits.
    pub since: i64,
    /// The payload.
    pub payload: Vec<u8>,
    /// Deliveries so far.
    pub attempts: i64,
    /// Its own limit of retries.
    pub max_retries: Option<i64>,
    /// Its priority.
    pub priority: i64,
    /// When it was put.
    pub created_at: i64,
    /// Its group.
    pub group: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// Its headers.
    pub headers: Option<Vec<u8>>,
    /// Why it is a dead letter.
    pub reason: Option<String>,
    /// The group of failures that it belongs to.
    pub failure: Option<i64>,
    /// The last error; its traceback is filled by `lookup`.
    pub error: Option<Failure>,
    /// When its last delivery was claimed.
    pub started_at: Option<i64>,
    /// When its lease ends, in wall time.
    pub lease_expires_at: Option<i64>,
    /// Who had it last.
    pub worker: Option<String>,
    /// What the handler returned.
    pub result: Option<Vec<u8>>,
    /// Somebody asked it to stop.
    pub cancel_requested: bool,
    /// Until when it may be delivered for the first time.
    pub expires_at: Option<i64>,
    /// Its unique key, whether it still holds or not.
    pub unique_key: Option<String>,
    /// How long it is kept once acked.
    pub retention: Option<i64>,
    /// What its worker said of how far it is; opaque to the engine.
    pub progress: Option<Vec<u8>>,
    /// The payload that it was put with, where it was edited since.
    pub original: Option<Vec<u8>>,
    /// Where a list goes on behind it.
    pub cursor: Cursor,
    /// Ended attempts, oldest first; filled by `lookup`.
    pub history: Vec<Attempt>,
}

/// One snapshot of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Waiting, delayed and blocked ones included.
    pub ready: i64,
    /// Not due yet.
    pub delayed: i64,
    /// Behind another job of their group.
    pub blocked: i64,
    /// Claimed.
    pub processing: i64,
    /// Claimed, and the lease ran out.
    pub expired: i64,
    /// Done.
    pub acked: i64,
    /// Dead letters.
    pub failed: i64,
    /// Nothing is delivered.
    pub paused: bool,
    /// The earliest `since` among claimable jobs.
    pub oldest_ready_at: Option<i64>,
}

/// Dead letters of one queue with one error at one place in one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureGroup {
    /// The engine's id.
    pub id: i64,
    /// Dotted path of the exception class.
    pub error_class: String,
    /// File and line.
    pub place: String,
    /// Dotted path of the task.
    pub task: String,
    /// Dead letters.
    pub total: i64,
    /// Those of the last hour.
    pub hour: i64,
    /// Those of the last day.
    pub day: i64,
    /// Those of the last week.
    pub week: i64,
    /// When the first of them failed.
    pub first_at: i64,
    /// When the last of them failed.
    pub last_at: i64,
    /// Those of the last week, by six hours, oldest first.
    pub series: Vec<i64>,
}

/// What a queue did in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// When that time begins.
    pub at: i64,
    /// Jobs that were done.
    pub acked: i64,
    /// Jobs that became dead letters by an error.
    pub failed: i64,
}

/// Part of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The jobs.
    pub records: Vec<Record>,
    /// Where to go on; None at the end.
    pub next: Option<Cursor>,
}
