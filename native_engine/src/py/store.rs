//! The class of a store: opening it, the way of its jobs, its file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arguments::{LimitArgs, MessageArgs, SettlementArgs, message, settlement};
use super::call::detached;
use super::clock::ManualClock;
use super::error::InvalidInput;
use super::records::{Put, delivery, receipt_number};
use crate::engine::{self, Claim, Clock, Durability, Message, Options};

/// One SQLite file with its named queues.
#[pyclass(frozen, module = "django_localqueue._native")]
pub(super) struct Store(pub(super) Arc<engine::Store>);

/// Claimed jobs, each as [`delivery`] has it.
type Deliveries<'py> = Vec<Bound<'py, PyTuple>>;

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
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        settlements: Vec<SettlementArgs>,
        want: usize,
        sources: Vec<(String, i64, i64)>,
        round_robin: bool,
        min_priority: i64,
        worker: &str,
        timeout: Option<f64>,
        limits: Option<Vec<Option<LimitArgs>>>,
    ) -> PyResult<(Vec<Option<&'static str>>, Deliveries<'py>)> {
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
            jobs.into_iter().map(|job| delivery(py, job)).collect::<PyResult<_>>()?,
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
