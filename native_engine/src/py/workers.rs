//! What workers share, for Python: reports, duties, schedules.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arguments::{MessageArgs, message};
use super::call::detached;
use super::records::{Put, bytes};
use super::store::Store;
use crate::engine;

/// A worker's last report.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
pub(super) struct WorkerReport {
    name: String,
    seen_at: i64,
    alive: Option<bool>,
    command: Option<String>,
    record: Py<PyBytes>,
}

impl WorkerReport {
    fn new(py: Python<'_>, report: engine::WorkerReport) -> Self {
        Self {
            name: report.name,
            seen_at: report.seen_at,
            alive: report.alive,
            command: report.command,
            record: bytes(py, &report.record),
        }
    }
}

/// A schedule as it is stored.
#[pyclass(frozen, get_all, module = "django_localqueue._native")]
pub(super) struct Schedule {
    name: String,
    queue: String,
    next_at: i64,
    paused: bool,
    last_at: Option<i64>,
    last_id: Option<String>,
    seen_at: i64,
    timing: String,
    record: Py<PyBytes>,
}

impl Schedule {
    fn new(py: Python<'_>, schedule: engine::Schedule) -> Self {
        Self {
            name: schedule.name,
            queue: schedule.queue,
            next_at: schedule.next_at,
            paused: schedule.paused,
            last_at: schedule.last_at,
            last_id: schedule.last_id,
            seen_at: schedule.seen_at,
            timing: schedule.timing,
            record: bytes(py, &schedule.record),
        }
    }
}

#[pymethods]
impl Store {
    fn report_worker(
        &self,
        py: Python<'_>,
        name: &str,
        record: &[u8],
        done: &str,
    ) -> PyResult<Option<String>> {
        detached(py, |patience| self.0.report_worker(name, record, done, patience))
    }

    fn workers(&self, py: Python<'_>) -> PyResult<Vec<WorkerReport>> {
        let reports = detached(py, |patience| self.0.workers(patience))?;
        Ok(reports.into_iter().map(|report| WorkerReport::new(py, report)).collect())
    }

    fn command_worker(&self, py: Python<'_>, name: &str, command: &str) -> PyResult<bool> {
        detached(py, |patience| self.0.command_worker(name, command, patience))
    }

    fn forget_worker(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        detached(py, |patience| self.0.forget_worker(name, patience))
    }

    fn reclaim_from_dead(&self, py: Python<'_>, queue: &str, max_retries: i64) -> PyResult<usize> {
        detached(py, |patience| self.0.reclaim_from_dead(queue, max_retries, patience))
    }

    fn take_back(
        &self,
        py: Python<'_>,
        queue: &str,
        worker: &str,
        max_retries: i64,
    ) -> PyResult<usize> {
        detached(py, |patience| self.0.take_back(queue, worker, max_retries, patience))
    }

    fn duty(&self, py: Python<'_>, name: &str, micros: i64, worker: &str) -> PyResult<bool> {
        detached(py, |patience| self.0.duty(name, micros, worker, patience))
    }

    fn schedules(&self, py: Python<'_>) -> PyResult<Vec<Schedule>> {
        let schedules = detached(py, |patience| self.0.schedules(patience))?;
        Ok(schedules.into_iter().map(|schedule| Schedule::new(py, schedule)).collect())
    }

    fn save_schedule(
        &self,
        py: Python<'_>,
        name: &str,
        queue: &str,
        next_at: i64,
        timing: &str,
        record: &[u8],
    ) -> PyResult<()> {
        detached(py, |patience| {
            self.0.save_schedule(name, queue, next_at, timing, record, patience)
        })
    }

    #[allow(clippy::needless_pass_by_value, reason = "extracted for this call")]
    #[pyo3(signature = (name, due_at, next_at, queue, job))]
    fn fire_schedule(
        &self,
        py: Python<'_>,
        name: &str,
        due_at: i64,
        next_at: i64,
        queue: &str,
        job: Option<MessageArgs>,
    ) -> PyResult<Option<Vec<Put>>> {
        let puts = detached(py, |patience| {
            let job = job.as_ref().map(message);
            self.0.fire_schedule(name, due_at, next_at, queue, job.as_ref(), patience)
        })?;
        Ok(puts.map(|puts| puts.into_iter().map(Into::into).collect()))
    }

    #[pyo3(signature = (name, paused, next_at))]
    fn pause_schedule(
        &self,
        py: Python<'_>,
        name: &str,
        paused: bool,
        next_at: Option<i64>,
    ) -> PyResult<bool> {
        detached(py, |patience| self.0.pause_schedule(name, paused, next_at, patience))
    }

    fn forget_schedule(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        detached(py, |patience| self.0.forget_schedule(name, patience))
    }
}
