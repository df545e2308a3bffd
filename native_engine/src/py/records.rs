//! Records as Python sees them: frozen, with the engine's field names.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::engine;

pub(super) fn bytes(py: Python<'_>, value: &[u8]) -> Py<PyBytes> {
    PyBytes::new(py, value).unbind()
}

/// A receipt is text to Python; a text that is none can't be live.
pub(super) fn receipt_text(receipt: i64) -> String {
    format!("{receipt:016x}")
}

/// The number of a receipt.
pub(super) fn receipt_number(text: &str) -> i64 {
    i64::from_str_radix(text, 16).unwrap_or(-1)
}

/// What became of one message.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
pub(super) struct Put {
    id: i64,
    created: bool,
    state: i64,
    met: Option<String>,
}

impl From<engine::Put> for Put {
    fn from(put: engine::Put) -> Self {
        Self { id: put.id, created: put.created, state: put.state as i64, met: put.met }
    }
}

/// A claimed job: a tuple, for reading the fields of an object one by one costs more than the rest.
pub(super) fn delivery(py: Python<'_>, job: engine::Delivery) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(
        py,
        [
            job.source.into_bound_py_any(py)?,
            job.id.into_bound_py_any(py)?,
            job.job_id.into_bound_py_any(py)?,
            PyBytes::new(py, &job.payload).into_any(),
            job.attempts.into_bound_py_any(py)?,
            receipt_text(job.receipt).into_bound_py_any(py)?,
            job.lease_expires_at.into_bound_py_any(py)?,
            job.created_at.into_bound_py_any(py)?,
            job.priority.into_bound_py_any(py)?,
            job.group.into_bound_py_any(py)?,
            job.task.into_bound_py_any(py)?,
            job.headers.map(|headers| PyBytes::new(py, &headers)).into_bound_py_any(py)?,
            job.max_retries.into_bound_py_any(py)?,
            job.expires_at.into_bound_py_any(py)?,
            job.unique_key.into_bound_py_any(py)?,
            job.retention.into_bound_py_any(py)?,
        ],
    )
}

/// What is kept of an error.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
#[derive(Clone)]
#[allow(clippy::struct_field_names, reason = "the names of the Python record")]
pub(super) struct Error {
    error_class: String,
    message: String,
    traceback: String,
    place: String,
}

impl From<engine::Failure> for Error {
    fn from(error: engine::Failure) -> Self {
        Self {
            error_class: error.class,
            message: error.message,
            traceback: error.traceback,
            place: error.place,
        }
    }
}

/// One ended delivery.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
#[derive(Clone)]
pub(super) struct Attempt {
    number: i64,
    worker: String,
    started_at: i64,
    ended_at: i64,
    outcome: String,
    error: Option<Error>,
}

impl From<engine::Attempt> for Attempt {
    fn from(attempt: engine::Attempt) -> Self {
        Self {
            number: attempt.number,
            worker: attempt.worker,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            outcome: attempt.outcome,
            error: attempt.error.map(Into::into),
        }
    }
}

/// A stored job, in any state.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
pub(super) struct Record {
    id: i64,
    job_id: Option<String>,
    state: i64,
    at: i64,
    since: i64,
    payload: Py<PyBytes>,
    attempts: i64,
    max_retries: Option<i64>,
    priority: i64,
    created_at: i64,
    group_id: Option<String>,
    task: Option<String>,
    headers: Option<Py<PyBytes>>,
    reason: Option<String>,
    failure: Option<i64>,
    error: Option<Error>,
    started_at: Option<i64>,
    lease_expires_at: Option<i64>,
    worker: Option<String>,
    result: Option<Py<PyBytes>>,
    cancel_requested: bool,
    expires_at: Option<i64>,
    unique_key: Option<String>,
    retention: Option<i64>,
    progress: Option<Py<PyBytes>>,
    original: Option<Py<PyBytes>>,
    cursor: (i64, i64),
    history: Vec<Attempt>,
}

impl Record {
    pub(super) fn new(py: Python<'_>, record: engine::Record) -> Self {
        Self {
            id: record.id,
            job_id: record.job_id,
            state: record.state as i64,
            at: record.at,
            since: record.since,
            payload: bytes(py, &record.payload),
            attempts: record.attempts,
            max_retries: record.max_retries,
            priority: record.priority,
            created_at: record.created_at,
            group_id: record.group,
            task: record.task,
            headers: record.headers.map(|headers| bytes(py, &headers)),
            reason: record.reason,
            failure: record.failure,
            error: record.error.map(Into::into),
            started_at: record.started_at,
            lease_expires_at: record.lease_expires_at,
            worker: record.worker,
            result: record.result.map(|result| bytes(py, &result)),
            cancel_requested: record.cancel_requested,
            expires_at: record.expires_at,
            unique_key: record.unique_key,
            retention: record.retention,
            progress: record.progress.map(|progress| bytes(py, &progress)),
            original: record.original.map(|payload| bytes(py, &payload)),
            cursor: record.cursor,
            history: record.history.into_iter().map(Into::into).collect(),
        }
    }
}

/// Dead letters with one error at one place in one task.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
pub(super) struct FailureGroup {
    id: i64,
    error_class: String,
    place: String,
    task: String,
    total: i64,
    hour: i64,
    day: i64,
    week: i64,
    first_at: i64,
    last_at: i64,
    series: Vec<i64>,
}

impl From<engine::FailureGroup> for FailureGroup {
    fn from(group: engine::FailureGroup) -> Self {
        Self {
            id: group.id,
            error_class: group.error_class,
            place: group.place,
            task: group.task,
            total: group.total,
            hour: group.hour,
            day: group.day,
            week: group.week,
            first_at: group.first_at,
            last_at: group.last_at,
            series: group.series,
        }
    }
}

/// One snapshot of a queue.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
pub(super) struct Stats {
    ready: i64,
    delayed: i64,
    blocked: i64,
    processing: i64,
    expired: i64,
    acked: i64,
    failed: i64,
    paused: bool,
    oldest_ready_at: Option<i64>,
}

impl From<engine::Stats> for Stats {
    fn from(stats: engine::Stats) -> Self {
        Self {
            ready: stats.ready,
            delayed: stats.delayed,
            blocked: stats.blocked,
            processing: stats.processing,
            expired: stats.expired,
            acked: stats.acked,
            failed: stats.failed,
            paused: stats.paused,
            oldest_ready_at: stats.oldest_ready_at,
        }
    }
}
