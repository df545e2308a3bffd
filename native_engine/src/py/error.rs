//! The one place where engine errors become Python exceptions.

use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;

use crate::engine::Error;

pyo3::import_exception!(django_localqueue.exceptions, ForeignDatabase);
pyo3::import_exception!(django_localqueue.exceptions, InvalidInput);
pyo3::import_exception!(django_localqueue.exceptions, NewerSchema);
pyo3::import_exception!(django_localqueue.exceptions, NotStored);
pyo3::import_exception!(django_localqueue.exceptions, QueueClosed);
pyo3::import_exception!(django_localqueue.exceptions, StoreBusy);
pyo3::import_exception!(django_localqueue.exceptions, StoreCorrupt);
pyo3::import_exception!(django_localqueue.exceptions, StoreFull);
pyo3::import_exception!(django_localqueue.exceptions, StoreUnavailable);
pyo3::import_exception!(django_localqueue.exceptions, StoredNotSynced);

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Busy { .. } => StoreBusy::new_err(text),
            Error::Full(_) => StoreFull::new_err(text),
            Error::Unavailable(_) => StoreUnavailable::new_err(text),
            Error::Corrupt(..) => StoreCorrupt::new_err(text),
            Error::Foreign(_) => ForeignDatabase::new_err(text),
            Error::NewerSchema { .. } => NewerSchema::new_err(text),
            Error::Closed => QueueClosed::new_err(text),
            Error::Forked => NotStored::new_err(text),
            Error::NotSynced(..) => StoredNotSynced::new_err(text),
            // The binding raises the signal's own exception instead.
            Error::Interrupted => PyRuntimeError::new_err(text),
        }
    }
}
