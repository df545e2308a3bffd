//! The clock that tests give a store.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::engine;

/// A clock for tests that moves only when told.
#[pyclass(frozen, module = "django_localqueue._native")]
pub(super) struct ManualClock(pub(super) Arc<engine::ManualClock>);

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
