//! What Python gives as tuples, and the engine's records that it becomes.

use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

use super::error::InvalidInput;
use super::records::receipt_number;
use crate::engine::{self, Filter, Message, Settlement};

pub(super) type MessageArgs = (
    PyBackedBytes,
    Option<PyBackedStr>,
    i64,
    i64,
    Option<PyBackedStr>,
    Option<i64>,
    Option<PyBackedStr>,
    Option<PyBackedBytes>,
    Option<i64>,
    Option<PyBackedStr>,
    i64,
    Option<i64>,
);
pub(super) type ErrorArgs = (String, String, String, String);
pub(super) type SettlementArgs =
    (String, i64, PyBackedStr, PyBackedStr, i64, i64, Option<Vec<u8>>, Option<ErrorArgs>, String);

/// The fields of a filter, in their order.
pub(super) type FilterArgs = (
    i64,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<Vec<String>>,
    Option<i64>,
    Option<i64>,
);

/// Most at a time, time between two, how many at once.
pub(super) type LimitArgs = (Option<i64>, i64, i64);

pub(super) fn message(args: &MessageArgs) -> Message<'_> {
    let (payload, job_id, delay, priority, group, max_retries, task, headers, ..) = args;
    let (.., expires, unique_key, unique_for, retention) = args;
    Message {
        payload,
        job_id: job_id.as_deref(),
        delay: *delay,
        priority: *priority,
        group: group.as_deref(),
        max_retries: *max_retries,
        task: task.as_deref(),
        headers: headers.as_deref(),
        expires: *expires,
        unique_key: unique_key.as_deref(),
        unique_for: *unique_for,
        retention: *retention,
        once: false,
    }
}

pub(super) fn settlement(args: SettlementArgs) -> PyResult<Settlement> {
    let (queue, id, receipt, verb, delay, max_retries, result, error, reason) = args;
    let Some(verb) = engine::Verb::from_name(&verb) else {
        return Err(InvalidInput::new_err(format!(
            "A job can be settled by ack, nack, fail or release, and not by {verb:?}."
        )));
    };
    let error = error.map(|(class, message, traceback, place)| engine::Failure {
        class,
        message,
        traceback,
        place,
    });
    let receipt = receipt_number(&receipt);
    Ok(Settlement { queue, id, receipt, verb, delay, max_retries, result, error, reason })
}

pub(super) fn known_filter(args: FilterArgs) -> PyResult<Filter> {
    let (state, task, error_class, text, group, reason, since, until, ids, min_attempts, failure) =
        args;
    let state = engine::State::from_number(state)
        .ok_or_else(|| InvalidInput::new_err(format!("There is no state {state}.")))?;
    Ok(Filter {
        state,
        task,
        error_class,
        text,
        group,
        reason,
        since,
        until,
        ids,
        min_attempts,
        failure,
    })
}
