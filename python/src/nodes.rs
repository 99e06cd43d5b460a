//! `redbolt.testing.Nodes`: nodes in the process, for users' tests.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use redbolt_embedded::{Memory, NodesError};

use crate::own::Own;

/// Nodes in this process, on free ports of 127.0.0.1: they answer as Valkey 9.1 does, and fail when
/// told to. Leave the `with` block, or call `close()`, to end them.
///
///     with redbolt.testing.nodes(5) as nodes, redbolt.Client(nodes.urls) as client:
///         with client.lock("sku:42", ttl=10):
///             nodes.kill(0)  # four are left
#[pyclass(module = "redbolt.testing", frozen)]
pub(crate) struct Nodes {
    // Every thread that takes this mutex keeps the GIL meanwhile, so no fork finds the mutex taken.
    nodes: Mutex<Own<redbolt_embedded::Nodes>>,
}

impl Nodes {
    fn with<T>(
        &self,
        ask: impl FnOnce(&redbolt_embedded::Nodes) -> Result<T, NodesError>,
    ) -> PyResult<T> {
        let own = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = own.get().ok_or_else(|| {
            PyRuntimeError::new_err("the nodes were closed, or are the parent process's")
        })?;
        ask(nodes).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Nodes {
    #[new]
    #[pyo3(signature = (count=5))]
    fn new(count: usize) -> PyResult<Self> {
        let nodes = redbolt_embedded::Nodes::start(count)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self { nodes: Mutex::new(Own::new(nodes)) })
    }

    /// The addresses, for a client.
    #[getter]
    fn urls(&self) -> PyResult<Vec<String>> {
        self.with(|nodes| Ok(nodes.urls()))
    }

    /// Makes a node hang, like a machine that swaps, until `resume`.
    fn pause(&self, node: usize) -> PyResult<()> {
        self.with(|nodes| nodes.pause(node))
    }

    /// Lets a node that hangs go on: it answers all that it was sent meanwhile.
    fn resume(&self, node: usize) -> PyResult<()> {
        self.with(|nodes| nodes.resume(node))
    }

    /// Ends a node: it refuses connections until `restart`.
    fn kill(&self, node: usize) -> PyResult<()> {
        self.with(|nodes| nodes.kill(node))
    }

    /// Starts a node again, without its keys unless `keeps_memory`. While their restart guard is
    /// on, clients do not count its vote for their `max_ttl`, with or without the keys.
    #[pyo3(signature = (node, *, keeps_memory=false))]
    fn restart(&self, node: usize, keeps_memory: bool) -> PyResult<()> {
        let memory = if keeps_memory { Memory::Kept } else { Memory::Lost };
        self.with(|nodes| nodes.restart(node, memory))
    }

    /// How many keys a node has: 0 after a test that leaves none behind.
    fn key_count(&self, node: usize) -> PyResult<usize> {
        self.with(|nodes| nodes.key_count(node))
    }

    /// Ends all nodes.
    fn close(&self) {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|nodes| Ok(nodes.len()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        kind: Option<Bound<'_, PyType>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) {
        drop((kind, value, traceback));
        self.close();
    }
}
