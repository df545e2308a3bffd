//! The SQLite queue engine of django-localqueue.
//!
//! [`engine`] is the queue: bytes and integers in, named records out, no Python.
//! `py`, behind the feature `python`, is its face for `django_localqueue._native`.

pub mod engine;

#[cfg(feature = "python")]
mod py;
