//! A durable queue in one SQLite file.
//!
//! `Store` is the file; its operations are grouped by what they do: `put`, `claim`
//! and `settle` (together the exchange), `repair` and `inspect`. The rules that
//! they keep are in docs/guarantees.md, the reasons in docs/architecture.md.

mod claim;
mod clock;
mod error;
mod exchange;
mod groups;
mod inspect;
mod put;
mod records;
mod repair;
mod scan;
mod schema;
mod settle;
mod shared;
mod store;
mod sync;

pub use clock::{Clock, ManualClock};
pub use error::{Error, LeaseLoss, Result};
pub use records::{
    Action, Applied, Attempt, Claim, Delivery, Durability, Failure, Filter, Message, Put, Record,
    Settlement, Source, State, Stats, Verb,
};
pub use store::{Options, Patience, Store, after_fork, before_fork};

/// The version of the SQLite that is compiled in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}
