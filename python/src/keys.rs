//! Keys from Python: one `str` or `bytes`, or several in any iterable.

use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

/// One key: any bytes, or text as UTF-8.
pub(crate) enum Key {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Key {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = given.extract() {
            return Ok(Self::Text(text));
        }
        Ok(Self::Bytes(given.extract()?))
    }
}

/// The keys of a call.
pub(crate) enum Keys {
    One(Key),
    Several(Vec<Key>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Keys {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(key) = given.extract() {
            return Ok(Self::One(key));
        }
        given.try_iter()?.map(|key| key?.extract()).collect::<PyResult<_>>().map(Self::Several)
    }
}
