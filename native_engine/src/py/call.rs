//! Calling the engine without the GIL.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::engine::{self, Patience};

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
pub(super) fn detached<T: Send>(
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
