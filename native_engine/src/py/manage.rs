//! Jobs for whoever looks after them: looking, changing, removing.

use pyo3::prelude::*;

use super::arguments::{FilterArgs, known_filter};
use super::call::detached;
use super::error::InvalidInput;
use super::records::{FailureGroup, Record, Stats};
use super::store::Store;
use crate::engine::{self, Cursor};

#[pymethods]
impl Store {
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
}
