//! What goes into the engine and what comes out of it.
//!
//! Times are microseconds; wall time since the epoch unless a name says boot.

use super::error::LeaseLoss;

/// When an operation counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the disk has it: survives a power cut.
    Full,
    /// When it is committed: survives the process.
    Normal,
}

/// The state of a job; the numbers are what the table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum State {
    /// Claimable.
    Ready = 0,
    /// Not due yet.
    Delayed = 1,
    /// Behind another job of its group.
    Blocked = 2,
    /// In the hands of a worker.
    Processing = 3,
    /// Done.
    Acked = 4,
    /// A dead letter.
    Failed = 5,
}

impl State {
    /// The state of a number in the table.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Ready, Self::Delayed, Self::Blocked, Self::Processing, Self::Acked, Self::Failed]
            .into_iter()
            .find(|state| *state as i64 == number)
    }
}

/// How a delivery ended; the numbers are what the table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum Verb {
    /// Done.
    Ack = 1,
    /// To be tried again.
    Nack = 2,
    /// A dead letter at once.
    Fail = 3,
    /// Given back, not counted.
    Release = 4,
    /// The lease ran out; nobody's verb.
    Lapse = 5,
}

impl Verb {
    /// The verb of its name in Python.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ack" => Some(Self::Ack),
            "nack" => Some(Self::Nack),
            "fail" => Some(Self::Fail),
            "release" => Some(Self::Release),
            _ => None,
        }
    }

    /// The word for the ended attempt.
    pub(super) fn outcome(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Fail => "fail",
            Self::Release => "release",
            Self::Lapse => "lapsed",
        }
    }
}

/// A job to be stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    /// The payload, opaque to the engine.
    pub payload: &'a [u8],
    /// The caller's id, unique in its queue.
    pub job_id: Option<&'a str>,
    /// How long it must not be delivered.
    pub delay: i64,
    /// -100 to 100.
    pub priority: i64,
    /// The group whose jobs run one at a time.
    pub group: Option<&'a str>,
    /// Instead of the queue's.
    pub max_retries: Option<i64>,
    /// Dotted path of the task.
    pub task: Option<&'a str>,
    /// Opaque to the engine.
    pub headers: Option<&'a [u8]>,
    /// How long it may wait for its first delivery.
    pub expires: Option<i64>,
    /// While the queue has a live job of this key it takes no other.
    pub unique_key: Option<&'a str>,
    /// How long after its put the key holds at least, even if the job has finished.
    pub unique_for: i64,
    /// How long it is kept once acked, instead of as long as the queue says.
    pub retention: Option<i64>,
    /// It is not stored if its `job_id` was put like this before, though that job be gone.
    pub once: bool,
}

impl Message<'_> {
    /// Nothing but a payload and a priority.
    pub(super) fn is_plain(&self) -> bool {
        self.delay <= 0
            && self.job_id.is_none()
            && self.group.is_none()
            && self.max_retries.is_none()
            && self.task.is_none()
            && self.headers.is_none()
            && self.expires.is_none()
            && self.unique_key.is_none()
            && self.retention.is_none()
    }
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The engine's id of the job.
    pub id: i64,
    /// False where the queue had a job of this id.
    pub created: bool,
    /// The state of the job that is there now.
    pub state: State,
    /// The public id of a job that was met by its unique key.
    pub met: Option<String>,
}

/// What is kept of an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// Dotted path of the exception class.
    pub class: String,
    /// The message.
    pub message: String,
    /// The traceback as text.
    pub traceback: String,
    /// File and line.
    pub place: String,
}

/// How one claimed job ended.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The name of the queue.
    pub queue: String,
    /// The engine's id of the job.
    pub id: i64,
    /// The token of the delivery.
    pub receipt: i64,
    /// What to do.
    pub verb: Verb,
    /// For `Nack`: how long to wait.
    pub delay: i64,
    /// The queue's.
    pub max_retries: i64,
    /// For `Ack`.
    pub result: Option<Vec<u8>>,
    /// For `Nack` and `Fail`.
    pub error: Option<Failure>,
    /// For `Fail`: the reason of the dead letter.
    pub reason: String,
}

/// A queue to claim from.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name.
    pub queue: String,
    /// How long a lease lasts.
    pub lease: i64,
    /// How often its jobs are retried.
    pub max_retries: i64,
    /// What bounds its claims, across all processes.
    pub limits: Option<Limits>,
}

/// What bounds the claims of a queue.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// So many jobs in the hands of workers at a time.
    pub max_running: Option<i64>,
    /// The time from one delivery to the next; 0 for none.
    pub interval: i64,
    /// So many deliveries may come at once.
    pub burst: i64,
}

/// What to claim.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// How many jobs at most.
    pub want: usize,
    /// From where, in this order.
    pub sources: &'a [Source],
    /// Taking turns instead.
    pub round_robin: bool,
    /// Only jobs of at least this priority.
    pub min_priority: i64,
    /// A name to record with the attempt.
    pub worker: &'a str,
}

/// A claimed job.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The engine's id.
    pub id: i64,
    /// The caller's id.
    pub job_id: Option<String>,
    /// The index of its source in the claim.
    pub source: usize,
    /// The payload.
    pub payload: Vec<u8>,
    /// Deliveries so far, this one included.
    pub attempts: i64,
    /// The token of this delivery.
    pub receipt: i64,
    /// When the lease ends.
    pub lease_expires_at: i64,
    /// When it was put.
    pub created_at: i64,
    /// Its priority.
    pub priority: i64,
    /// Its group.
    pub group: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// Its headers.
    pub headers: Option<Vec<u8>>,
    /// Its own limit of retries.
    pub max_retries: Option<i64>,
    /// Until when it may be delivered for the first time.
    pub expires_at: Option<i64>,
    /// Its unique key.
    pub unique_key: Option<String>,
    /// How long it is kept once acked.
    pub retention: Option<i64>,
}

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

/// Which jobs of a queue are meant.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Their state.
    pub state: State,
    /// Exactly this task.
    pub task: Option<String>,
    /// Exactly this error class.
    pub error_class: Option<String>,
    /// In error class, message, place, task or id, without regard to case.
    pub text: Option<String>,
    /// Exactly this group.
    pub group: Option<String>,
    /// Exactly this reason.
    pub reason: Option<String>,
    /// Not earlier than this, in the time that orders the state.
    pub since: Option<i64>,
    /// Not later than this.
    pub until: Option<i64>,
    /// Only these public ids.
    pub ids: Option<Vec<String>>,
    /// At least so many deliveries.
    pub min_attempts: Option<i64>,
    /// Dead letters of this group of failures.
    pub failure: Option<i64>,
}

impl Filter {
    /// Every job of a state.
    pub fn of(state: State) -> Self {
        Self {
            state,
            task: None,
            error_class: None,
            text: None,
            group: None,
            reason: None,
            since: None,
            until: None,
            ids: None,
            min_attempts: None,
            failure: None,
        }
    }
}

/// What `apply` does to each job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Failed to ready.
    Retry,
    /// Delayed to ready.
    RunNow,
    /// Ready or delayed to delayed, for so many microseconds from now.
    Delay(i64),
    /// Waiting or failed to the queue of this name.
    Move(String),
    /// Waiting to failed; a running one is asked to stop.
    Cancel,
    /// Waiting or failed to failed, as discarded.
    Discard,
    /// Acked or failed to gone.
    Purge,
}

/// What `purge` removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Done.
    Acked,
    /// All dead letters.
    Failed,
    /// Those that somebody discarded.
    Discarded,
}

/// What `apply` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Jobs done.
    pub done: usize,
    /// Jobs that were in another state by then.
    pub changed: usize,
    /// Ids that are not there.
    pub not_found: usize,
    /// The limit was reached with matching jobs left.
    pub more: bool,
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

/// A place in a list: the record that it goes on behind.
pub type Cursor = (i64, i64);

/// Part of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The jobs.
    pub records: Vec<Record>,
    /// Where to go on; None at the end.
    pub next: Option<Cursor>,
}

/// The outcome of each settlement: nothing, or why the lease was lost.
pub(super) type Settled = Vec<Option<LeaseLoss>>;
