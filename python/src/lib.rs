//! Redbolt for Python: the module `redbolt._redbolt`. `docs/guide-python.md` is the guide.
//!
//! # Invariants
//!
//! - A thread that waits for nodes has let go of the GIL, and holds no mutex that a thread with the
//!   GIL waits for.
//! - The child of a fork touches neither client nor lease of its parent: another thread may have held
//!   their mutexes.

mod client;
mod driver;
mod failure;
mod keys;
mod lease;
mod loop_lease;
mod nodes;
mod options;
mod own;
mod reading;
mod settings;
mod time;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The types and the exceptions are those of the first interpreter: in another one no `except` would
/// catch them.
fn only_interpreter(py: Python<'_>) -> PyResult<()> {
    static FIRST: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    // Each interpreter has a module `sys` of its own.
    let sys = py.import("sys")?;
    if FIRST.get_or_init(py, || sys.clone().unbind()).is(&sys) {
        return Ok(());
    }
    let why = "another interpreter of this process has imported redbolt: only one can (in mod_wsgi: WSGIApplicationGroup %{GLOBAL})";
    Err(PyImportError::new_err(why))
}

#[pymodule]
mod _redbolt {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::driver::{Driver, Ending};
    #[pymodule_export]
    use super::lease::Lease;
    #[pymodule_export]
    use super::nodes::Nodes;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::only_interpreter(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // Both lease classes are called `Lease` in Python, so this module adds `LoopLease` by
        // another name.
        module.add("LoopLease", module.py().get_type::<super::loop_lease::LoopLease>())
    }
}
