//! Which jobs are meant, what is done to them, and what came of it.

use super::records::State;

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
