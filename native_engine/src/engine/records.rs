//! What a job goes through: it is put, claimed, settled.
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

/// A place in a list: the record that it goes on behind.
pub type Cursor = (i64, i64);

/// The outcome of each settlement: nothing, or why the lease was lost.
pub(super) type Settled = Vec<Option<LeaseLoss>>;
