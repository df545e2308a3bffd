//! `django_localqueue._native`: argument checks, the GIL, conversion. No SQL, no policy.

mod arguments;
mod call;
mod clock;
mod error;
mod manage;
mod records;
mod store;
mod workers;

use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

use crate::engine;

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
    module.add_class::<clock::ManualClock>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<records::Put>()?;
    module.add_class::<records::Error>()?;
    module.add_class::<records::Attempt>()?;
    module.add_class::<records::Record>()?;
    module.add_class::<records::FailureGroup>()?;
    module.add_class::<records::Stats>()?;
    module.add_class::<workers::WorkerReport>()?;
    module.add_class::<workers::Schedule>()?;
    module.add_function(wrap_pyfunction!(before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork, module)?)?;
    Ok(())
}
