//! [`Settings`]: the nodes and the keyword arguments of a client. `docs/settings.md` has their ranges.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyString};
use redbolt::driver::Driver;
use redbolt::{Admission, Config, FailoverGuard, Quorum, RestartGuard, Retry, Tls};

use crate::failure::Failure;
use crate::time::duration;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) retry: Retry,
}

impl Settings {
    /// Reads the settings, and checks them all without asking a node.
    pub(crate) fn new(
        nodes: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = nodes.py();
        let mut reading = Reading {
            config: Config::new(list("nodes", nodes).map_err(|error| about(py, "nodes", error))?)
                .map_err(Failure::from)?,
            retry: Retry::default(),
            tls: None,
            identity: (None, None),
        };
        for (name, value) in options.into_iter().flatten() {
            let name = name.extract::<PyBackedStr>()?;
            reading.set(&name, &value).map_err(|error| about(py, &name, error))?;
        }
        let settings = reading.end()?;
        // A driver that is never driven opens no connection.
        Driver::standalone(settings.config.clone()).map_err(Failure::from)?;
        Ok(settings)
    }
}

/// The settings read so far.
struct Reading {
    config: Config,
    retry: Retry,
    tls: Option<Tls>,
    /// The client's certificate and its key.
    identity: (Option<Vec<u8>>, Option<Vec<u8>>),
}

/// Adds the setting's name to the message of a type or overflow error that lacks it.
fn about(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    let words = error.value(py).to_string();
    if words.contains(name) {
        return error;
    }
    let words = format!("{name}: {words}");
    let told = if error.is_instance_of::<PyOverflowError>(py) {
        PyErr::from(Failure::Argument(words))
    } else if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(words)
    } else {
        return error;
    };
    told.set_cause(py, Some(error));
    told
}

fn list(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    // A text is iterable too: each of its characters would be a node.
    if given.is_instance_of::<PyString>() {
        let why = format!("{name} is a list of addresses, such as [\"redis://10.0.0.1:6379\", ..]");
        return Err(Failure::Argument(why).into());
    }
    given.try_iter()?.map(|node| node?.extract()).collect()
}

impl Reading {
    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let seconds = || Ok::<_, PyErr>(duration(name, value.extract()?)?);
        let config = self.config.clone();
        self.config = match name {
            "next_nodes" => config.next_nodes(list(name, value)?).map_err(Failure::from)?,
            "quorum" => config.quorum(Quorum::AtLeast(value.extract()?)),
            "node_timeout" => config.node_timeout(seconds()?),
            "connect_timeout" => config.connect_timeout(seconds()?),
            "max_ttl" => config.max_ttl(seconds()?),
            "drift_factor" => config.drift_factor(value.extract()?),
            "restart_guard" if value.extract()? => config.restart_guard(RestartGuard::On),
            "restart_guard" => config.restart_guard(RestartGuard::Off),
            "failover_guard" if value.extract()? => config.failover_guard(FailoverGuard::On),
            "failover_guard" => config.failover_guard(FailoverGuard::Off),
            "admission" => config.admission(admission(&value.extract::<PyBackedStr>()?)?),
            "direct_wake" => config.direct_wake(value.extract()?),
            "in_flight_max" => config.in_flight_max(value.extract()?),
            "max_extensions" => config.max_extensions(value.extract()?),
            "max_hold" => config.max_hold(seconds()?),
            "local_turns" => config.local_turns(value.extract()?),
            "transfers_in_row" => config.transfers_in_row(value.extract()?),
            "max_clock_skew" => config.max_clock_skew(seconds()?),
            "fence_ttl" => config.fence_ttl(seconds()?),
            "key_prefix" => config.key_prefix(value.extract::<crate::keys::Key>()?.as_ref()),
            "client_name" => config.client_name(value.extract::<String>()?),
            "username" => config.username(value.extract::<String>()?),
            "password" => config.password(value.extract::<String>()?),
            _ => return self.set_other(name, value),
        };
        Ok(())
    }

    /// The settings that the library takes together: those of `Retry` and of `Tls`.
    fn set_other(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match name {
            "retry_timeout" if value.extract::<f64>()? == f64::INFINITY => {
                self.retry.timeout = None
            }
            "retry_timeout" => self.retry.timeout = Some(duration(name, value.extract()?)?),
            "retry_delay" => self.retry.delay = duration(name, value.extract()?)?,
            "retry_jitter" => self.retry.jitter = duration(name, value.extract()?)?,
            "tls_ca" => self.tls = Some(self.tls().ca(value.extract::<Vec<u8>>()?)),
            "tls_server_name" => {
                self.tls = Some(self.tls().server_name(value.extract::<String>()?))
            }
            "tls_cert" => self.identity.0 = Some(value.extract()?),
            "tls_key" => self.identity.1 = Some(value.extract()?),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn tls(&mut self) -> Tls {
        self.tls.take().unwrap_or_default()
    }

    fn end(mut self) -> Result<Settings, Failure> {
        match std::mem::take(&mut self.identity) {
            (None, None) => {}
            (Some(chain), Some(key)) => self.tls = Some(self.tls().identity(chain, key)),
            (Some(_), None) | (None, Some(_)) => {
                return Err(Failure::argument("tls_cert and tls_key belong together"));
            }
        }
        let mut config = self.config.retry(self.retry);
        if let Some(tls) = self.tls {
            config = config.tls(tls);
        }
        Ok(Settings { config, retry: self.retry })
    }
}

fn unknown(name: &str) -> PyErr {
    PyTypeError::new_err(format!("a client has no setting {name:?}"))
}

fn admission(name: &str) -> Result<Admission, Failure> {
    match name {
        "strict" => Ok(Admission::Strict),
        "lenient" => Ok(Admission::Lenient),
        _ => Err(Failure::argument("admission is \"strict\" or \"lenient\"")),
    }
}
