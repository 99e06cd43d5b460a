//! Keys from Python: one `str` or `bytes`, or several in any iterable.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyString;

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
        if given.is_instance_of::<PyString>() {
            return given.extract().map(Self::Text);
        }
        given.extract().map(Self::Bytes).map_err(|_| no_key(given))
    }
}

fn no_key(given: Borrowed<'_, '_, PyAny>) -> PyErr {
    let kind = given.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
    PyTypeError::new_err(format!("a key is str or bytes, not {kind}"))
}

/// The keys of a call.
pub(crate) enum Keys {
    One(Key),
    Several(Vec<Key>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Keys {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyString>() {
            return given.extract().map(Self::One);
        }
        if let Ok(key) = given.extract() {
            return Ok(Self::One(key));
        }
        let is_type = |error: &PyErr| error.is_instance_of::<PyTypeError>(given.py());
        let several = given
            .try_iter()
            .map_err(|error| if is_type(&error) { no_key(given) } else { error })?;
        several.map(|key| key?.extract()).collect::<PyResult<_>>().map(Self::Several)
    }
}
