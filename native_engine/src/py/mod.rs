//! `django_localqueue._native`: argument checks, the GIL, conversion. No SQL, no policy.

mod error;
mod records;
mod workers;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

use crate::engine::{
    self, Claim, Clock, Cursor, Durability, Filter, Message, Options, Patience, Settlement,
};
use error::InvalidInput;
use records::{Attempt, Delivery, FailureGroup, Put, Record, Stats, receipt_number};

/// Lets Python's signal handlers run while the engine waits.
#[derive(Default)]
struct Signals(Mutex<Option<PyErr>>);

impl Patience for Signals {
    fn is_over(&self) -> bool {
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(raised) => {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
                true
            }
        })
    }
}

/// Runs `work` without the GIL; what a signal handler raised goes before the engine's error.
fn detached<T: Send>(
    py: Python<'_>,
    work: impl Send + FnOnce(&dyn Patience) -> engine::Result<T>,
) -> PyResult<T> {
    let signals = Signals::default();
    let result = py.detach(|| work(&signals));
    match signals.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(raised) => Err(raised),
        None => Ok(result?),
    }
}

/// A clock for tests that moves only when told.
#[pyclass(frozen, module = "django_localqueue._native")]
struct ManualClock(Arc<engine::ManualClock>);

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (now = 1_700_000_000_000_000))]
    fn new(now: i64) -> Self {
        Self(Arc::new(engine::ManualClock::new(now)))
    }

    fn advance(&self, seconds: f64) {
        self.0.advance(micros(seconds));
    }

    fn step_wall(&self, seconds: f64) {
        self.0.step_wall(micros(seconds));
    }

    fn reboot(&self) {
        self.0.reboot();
    }

    fn now(&self) -> i64 {
        self.0.now()
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a test's clock doesn't move by centuries")]
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

type MessageArgs = (
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
type ErrorArgs = (String, String, String, String);
type SettlementArgs =
    (String, i64, PyBackedStr, PyBackedStr, i64, i64, Option<Vec<u8>>, Option<ErrorArgs>, String);

/// The fields of a filter, in their order.
type FilterArgs = (
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
type LimitArgs = (Option<i64>, i64, i64);

/// One SQLite file with its named queues.
#[pyclass(frozen, module = "django_localqueue._native")]
struct Store(Arc<engine::Store>);

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (folder, *, durability = "full", busy_timeout = 30.0, clock = None))]
    fn new(
        py: Python<'_>,
        folder: Option<&str>,
        durability: &str,
        busy_timeout: f64,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let durability = match durability {
            "full" => Durability::Full,
            "normal" => Durability::Normal,
            other => {
                return Err(InvalidInput::new_err(format!(
                    "durability must be 'full' or 'normal', and it is {other:?}."
                )));
            }
        };
        let busy_timeout = Duration::try_from_secs_f64(busy_timeout)
            .map_err(|error| InvalidInput::new_err(format!("busy_timeout: {error}.")))?;
        let clock = clock.map_or(Clock::System, |clock| Clock::Manual(clock.get().0.clone()));
        let options = Options { durability, busy_timeout, clock };
        let folder = folder.map(Path::new);
        let store = detached(py, |patience| engine::Store::open(folder, options, patience))?;
        Ok(Self(store))
    }

    #[pyo3(signature = (queue, messages, once = false))]
    #[allow(clippy::needless_pass_by_value, reason = "extracted for this call")]
    fn put(
        &self,
        py: Python<'_>,
        queue: &str,
        messages: Vec<MessageArgs>,
        once: bool,
    ) -> PyResult<Vec<Put>> {
        let puts = detached(py, |patience| {
            let messages: Vec<Message> =
                messages.iter().map(|args| Message { once, ..message(args) }).collect();
            self.0.put(queue, &messages, patience)
        })?;
        Ok(puts.into_iter().map(Into::into).collect())
    }

    fn put_one(&self, py: Python<'_>, queue: &str, payload: &[u8]) -> PyResult<i64> {
        detached(py, |patience| self.0.put_one(queue, payload, patience))
    }

    #[pyo3(signature = (settlements, want, sources, *, round_robin, min_priority, worker, timeout,
        limits = None))]
    #[allow(clippy::too_many_arguments, reason = "one engine call, given by name")]
    #[allow(clippy::needless_pass_by_value, reason = "extracted for this call")]
    fn exchange(
        &self,
        py: Python<'_>,
        settlements: Vec<SettlementArgs>,
        want: usize,
        sources: Vec<(String, i64, i64)>,
        round_robin: bool,
        min_priority: i64,
        worker: &str,
        timeout: Option<f64>,
        limits: Option<Vec<Option<LimitArgs>>>,
    ) -> PyResult<(Vec<Option<&'static str>>, Vec<Delivery>)> {
        let settlements = settlements.into_iter().map(settlement).collect::<PyResult<Vec<_>>>()?;
        let sources: Vec<_> = sources
            .into_iter()
            .enumerate()
            .map(|(index, (queue, lease, max_retries))| {
                let limits = limits.as_ref().and_then(|limits| limits.get(index).copied()?);
                let limits = limits.map(|(max_running, interval, burst)| engine::Limits {
                    max_running,
                    interval,
                    burst,
                });
                engine::Source { queue, lease, max_retries, limits }
            })
            .collect();
        let claim = Claim { want, sources: &sources, round_robin, min_priority, worker };
        let timeout = timeout
            .map(Duration::try_from_secs_f64)
            .transpose()
            .map_err(|error| InvalidInput::new_err(format!("timeout: {error}.")))?;
        let (results, jobs) =
            detached(py, |patience| self.0.exchange(&settlements, &claim, timeout, patience))?;
        Ok((
            results.into_iter().map(|loss| loss.map(engine::LeaseLoss::as_str)).collect(),
            jobs.into_iter().map(|job| Delivery::new(py, job)).collect(),
        ))
    }

    fn interrupt(&self) {
        self.0.interrupt();
    }

    fn extend_lease(
        &self,
        py: Python<'_>,
        queue: &str,
        id: i64,
        receipt: &str,
        micros: i64,
    ) -> PyResult<(Option<&'static str>, bool, i64)> {
        let receipt = receipt_number(receipt);
        let (loss, cancel, end) =
            detached(py, |patience| self.0.extend_lease(queue, id, receipt, micros, patience))?;
        Ok((loss.map(engine::LeaseLoss::as_str), cancel, end))
    }

    fn progress(
        &self,
        py: Python<'_>,
        queue: &str,
        id: i64,
        receipt: &str,
        progress: &[u8],
    ) -> PyResult<(Option<&'static str>, bool)> {
        let receipt = receipt_number(receipt);
        let (loss, cancel) =
            detached(py, |patience| self.0.progress(queue, id, receipt, progress, patience))?;
        Ok((loss.map(engine::LeaseLoss::as_str), cancel))
    }

    fn stats(&self, py: Python<'_>, queue: &str) -> PyResult<Stats> {
        Ok(detached(py, |patience| self.0.stats(queue, patience))?.into())
    }

    fn lookup(&self, py: Python<'_>, queue: &str, id: &str) -> PyResult<Option<Record>> {
        let record = detached(py, |patience| self.0.lookup(queue, id, patience))?;
        Ok(record.map(|record| Record::new(py, record)))
    }

    fn list(
        &self,
        py: Python<'_>,
        queue: &str,
        filter: FilterArgs,
        limit: usize,
        after: Option<Cursor>,
    ) -> PyResult<(Vec<Record>, Option<Cursor>)> {
        let filter = known_filter(filter)?;
        let page = detached(py, |patience| self.0.list(queue, &filter, limit, after, patience))?;
        Ok((page.records.into_iter().map(|record| Record::new(py, record)).collect(), page.next))
    }

    fn count(
        &self,
        py: Python<'_>,
        queue: &str,
        filter: FilterArgs,
        cap: usize,
    ) -> PyResult<usize> {
        let filter = known_filter(filter)?;
        detached(py, |patience| self.0.count(queue, &filter, cap, patience))
    }

    #[allow(clippy::too_many_arguments, reason = "one engine call")]
    fn apply(
        &self,
        py: Python<'_>,
        queue: &str,
        action: &str,
        filter: FilterArgs,
        as_of: i64,
        limit: usize,
        delay: i64,
        target: &str,
    ) -> PyResult<(usize, usize, usize, bool)> {
        let action = match action {
            "retry" => engine::Action::Retry,
            "run_now" => engine::Action::RunNow,
            "delay" => engine::Action::Delay(delay),
            "move" => engine::Action::Move(target.to_owned()),
            "cancel" => engine::Action::Cancel,
            "discard" => engine::Action::Discard,
            "purge" => engine::Action::Purge,
            other => return Err(InvalidInput::new_err(format!("There is no action {other:?}."))),
        };
        let filter = known_filter(filter)?;
        let done =
            detached(py, |patience| self.0.apply(queue, &action, &filter, as_of, limit, patience))?;
        Ok((done.done, done.changed, done.not_found, done.more))
    }

    #[pyo3(signature = (queue, limit, after))]
    fn failures(
        &self,
        py: Python<'_>,
        queue: &str,
        limit: usize,
        after: Option<Cursor>,
    ) -> PyResult<Vec<FailureGroup>> {
        let groups = detached(py, |patience| self.0.failures(queue, limit, after, patience))?;
        Ok(groups.into_iter().map(Into::into).collect())
    }

    fn activity(
        &self,
        py: Python<'_>,
        queue: &str,
        since: i64,
        until: i64,
        step: i64,
    ) -> PyResult<Vec<(i64, i64, i64)>> {
        let steps = detached(py, |patience| self.0.activity(queue, since, until, step, patience))?;
        Ok(steps.into_iter().map(|step| (step.at, step.acked, step.failed)).collect())
    }

    fn list_failed(
        &self,
        py: Python<'_>,
        queue: &str,
        limit: usize,
        offset: usize,
    ) -> PyResult<Vec<Record>> {
        let records = detached(py, |patience| self.0.list_failed(queue, limit, offset, patience))?;
        Ok(records.into_iter().map(|record| Record::new(py, record)).collect())
    }

    fn retry_failed(&self, py: Python<'_>, queue: &str, id: &str) -> PyResult<Option<bool>> {
        detached(py, |patience| self.0.retry_failed(queue, id, patience))
    }

    fn cancel(&self, py: Python<'_>, queue: &str, id: &str) -> PyResult<Option<bool>> {
        detached(py, |patience| self.0.cancel(queue, id, patience))
    }

    fn once_ids(
        &self,
        py: Python<'_>,
        queue: &str,
        before: i64,
        limit: usize,
    ) -> PyResult<Vec<String>> {
        detached(py, |patience| self.0.once_ids(queue, before, limit, patience))
    }

    #[allow(clippy::needless_pass_by_value, reason = "extracted for this call")]
    fn forget_once(&self, py: Python<'_>, queue: &str, ids: Vec<String>) -> PyResult<()> {
        detached(py, |patience| self.0.forget_once(queue, &ids, patience))
    }

    fn edit(
        &self,
        py: Python<'_>,
        queue: &str,
        id: &str,
        payload: &[u8],
    ) -> PyResult<Option<bool>> {
        detached(py, |patience| self.0.edit(queue, id, payload, patience))
    }

    #[pyo3(signature = (queue, retention, limit))]
    fn prune(
        &self,
        py: Python<'_>,
        queue: &str,
        retention: Option<i64>,
        limit: usize,
    ) -> PyResult<usize> {
        detached(py, |patience| self.0.prune(queue, retention, limit, patience))
    }

    fn purge(
        &self,
        py: Python<'_>,
        queue: &str,
        finished_before: i64,
        kinds: Vec<String>,
        limit: Option<usize>,
    ) -> PyResult<usize> {
        let kinds = kinds
            .into_iter()
            .map(|kind| match kind.as_str() {
                "acked" => Ok(engine::Finished::Acked),
                "failed" => Ok(engine::Finished::Failed),
                "discarded" => Ok(engine::Finished::Discarded),
                other => Err(InvalidInput::new_err(format!("There is no kind {other:?}."))),
            })
            .collect::<PyResult<Vec<_>>>()?;
        detached(py, |patience| self.0.purge(queue, finished_before, &kinds, limit, patience))
    }

    fn reclaim(&self, py: Python<'_>, queue: &str, max_retries: i64) -> PyResult<usize> {
        detached(py, |patience| self.0.reclaim(queue, max_retries, patience))
    }

    fn set_paused(&self, py: Python<'_>, queue: &str, paused: bool) -> PyResult<()> {
        detached(py, |patience| self.0.set_paused(queue, paused, patience))
    }

    fn backup(&self, py: Python<'_>, target: &str) -> PyResult<()> {
        detached(py, |patience| self.0.backup(Path::new(target), patience))
    }

    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        detached(py, |patience| self.0.check(patience))
    }

    fn vacuum(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, |patience| self.0.vacuum(patience))
    }

    fn now(&self) -> i64 {
        self.0.now()
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

fn message(args: &MessageArgs) -> Message<'_> {
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

fn settlement(args: SettlementArgs) -> PyResult<Settlement> {
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

fn known_filter(args: FilterArgs) -> PyResult<Filter> {
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

/// Closes every store's connections; they reopen by themselves.
#[pyfunction]
fn before_fork(py: Python<'_>) {
    // The thread must stay the one that forks, and gives the GIL up only to let others finish.
    py.detach(engine::before_fork);
}

/// Lets stores be used again after a fork, in parent and child.
#[pyfunction]
fn after_fork() {
    engine::after_fork();
}

/// Refuses a second interpreter of this process: it would be given the first one's exceptions.
fn only_one_interpreter(py: Python<'_>) -> PyResult<()> {
    static HOME: OnceLock<usize> = OnceLock::new();
    let here = py.import("builtins")?.as_ptr().addr(); // each interpreter has its own
    if *HOME.get_or_init(|| here) == here {
        return Ok(());
    }
    Err(PyImportError::new_err("another interpreter of this process uses it already"))
}

// Nobody has tried it without a GIL: an interpreter that can do without turns it on for this module.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    only_one_interpreter(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BUILD_PROFILE", env!("BUILD_PROFILE"))?;
    module.add("SQLITE_VERSION", engine::sqlite_version())?;
    module.add_class::<ManualClock>()?;
    module.add_class::<Store>()?;
    module.add_class::<Put>()?;
    module.add_class::<Delivery>()?;
    module.add_class::<records::Error>()?;
    module.add_class::<Attempt>()?;
    module.add_class::<Record>()?;
    module.add_class::<FailureGroup>()?;
    module.add_class::<Stats>()?;
    module.add_class::<workers::WorkerReport>()?;
    module.add_class::<workers::Schedule>()?;
    module.add_function(wrap_pyfunction!(before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork, module)?)?;
    Ok(())
}
