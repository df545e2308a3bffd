//! A durable queue in one SQLite file.
//!
//! `Store` is the file; its operations are grouped by what they do: `put`, `claim`
//! and `settle` (together the exchange), `inspect`, `repair`, `apply` and `purge`. The rules
//! that they keep are in docs/guarantees.md, the reasons in docs/architecture.md.

#[macro_use]
mod failpoint;

mod access;
mod activity;
mod apply;
mod aside;
mod backup;
mod check;
mod checkpoint;
mod claim;
mod clock;
mod counts;
mod durable;
mod error;
mod exchange;
mod failures;
mod fork;
mod groups;
mod identity;
mod inspect;
mod limits;
mod liveness;
mod log;
#[cfg_attr(target_os = "linux", path = "mapping_linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "mapping_other.rs")]
mod mapping;
mod migrate;
mod moves;
mod once;
mod presence;
mod prune;
mod purge;
mod put;
mod records;
mod repair;
mod scan;
mod schedules;
mod schema;
mod selection;
mod settle;
mod shared;
mod sqlite_file;
mod stats;
mod store;
mod sync;
mod tally;
mod together;
mod transfer;
mod turns;
mod unique;
mod views;
mod wal_index;
mod workers;
mod writer;

pub use clock::{Clock, ManualClock};
pub use error::{Error, LeaseLoss, Result};
pub use fork::{after_fork, before_fork};
pub use records::{
    Claim, Cursor, Delivery, Durability, Failure, Limits, Message, Put, Settlement, Source, State,
    Verb,
};
pub use schedules::Schedule;
pub use selection::{Action, Applied, Filter, Finished};
pub use store::{Options, Patience, Store};
pub use views::{Activity, Attempt, FailureGroup, Page, Record, Stats};
pub use workers::WorkerReport;

/// The version of the SQLite that is compiled in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}
