//! `redbolt.Client`: locks for threads.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use redbolt::{Call, LockOptions};

use crate::failure::Failure;
use crate::keys::Keys;
use crate::lease::Lease;
use crate::options::Asked;
use crate::own::Own;
use crate::settings::Settings;
use crate::time::duration;

/// How long a thread waits before it looks for signals, such as that of Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);

/// Locks on independent Redis or Valkey servers, for threads.
///
/// `nodes` is a list of addresses, such as `["redis://10.0.0.1:6379", ..]`: use three or five, and the
/// same for all programs that share locks. `rediss://` is TLS; `redis://user:password@host` logs in.
///
/// Make one client per program, and share it between threads. Making it connects to nothing: the first
/// lock does, with one connection per node and one thread. A process that was forked connects anew with
/// its first lock, so a client may be made before a server forks its workers.
///
/// Keyword arguments, with times in seconds:
///
/// - next_nodes: the list that is to replace `nodes`
/// - quorum: how many nodes must grant a lock (more than half of them)
/// - node_timeout: how long a node may take to answer (0.05)
/// - connect_timeout: how long a connection may take (1.0)
/// - max_ttl: the longest TTL that any client uses (30.0)
/// - retry_timeout: how long `lock` waits; `math.inf`: for ever (10.0)
/// - retry_delay, retry_jitter: between two attempts if no message wakes the call (0.2, 0.2)
/// - restart_guard: a node that restarts, empty or not, does not vote for `max_ttl` (True)
/// - failover_guard: masters with replicas must cease to grant when they are cut off (True)
/// - admission: "strict", or "lenient" for nodes that deny INFO
/// - drift_factor: the most that two clocks differ in rate (0.01)
/// - max_clock_skew, fence_ttl: for fences (1.0; a day, or longer with a long `max_ttl`)
/// - direct_wake: a release wakes a call that waits (True)
/// - local_turns, transfers_in_row: how often in a row a lock passes on, within the client and
///   between clients (64, 16)
/// - max_extensions, max_hold: limits for each lease (none)
/// - in_flight_max: how many calls may be under way (4096)
/// - key_prefix: what the nodes have in front of each key ("")
/// - client_name: how operators see the client (the program's name)
/// - username, password: for nodes whose address has none
/// - tls_ca, tls_cert, tls_key: PEM as bytes; tls_server_name: the name in all certificates
///
/// `nodes`, `quorum`, `max_ttl`, both guards and `key_prefix` must be the same for all programs
/// that share locks.
#[pyclass(module = "redbolt", frozen)]
pub(crate) struct Client {
    settings: Settings,
    // Every thread that takes this mutex keeps the GIL meanwhile, so no fork finds the mutex taken.
    state: Mutex<State>,
}

enum State {
    New,
    Open(Own<redbolt::Client>),
    Closed,
}

impl Client {
    /// The library's client of this process.
    fn open(&self) -> Result<redbolt::Client, Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Open(own) = &*state
            && let Some(client) = own.get()
        {
            return Ok(client.clone());
        }
        if matches!(*state, State::Closed) {
            return Err(Failure::Closed);
        }
        let client = redbolt::Client::open(self.settings.config.clone())?;
        *state = State::Open(Own::new(client.clone()));
        Ok(client)
    }

    fn take(
        &self,
        py: Python<'_>,
        keys: &Keys,
        options: LockOptions,
        waits: bool,
    ) -> PyResult<Lease> {
        let client = self.open()?;
        let call = match (keys, waits) {
            (Keys::One(key), true) => client.lock(key, options),
            (Keys::One(key), false) => client.try_lock(key, options),
            (Keys::Several(keys), true) => client.lock_all(keys, options),
            (Keys::Several(keys), false) => client.try_lock_all(keys, options),
        };
        drop(client);
        Ok(Lease::new(wait(py, call)?.map_err(Failure::from)?))
    }
}

/// Waits without the GIL. A signal handler that raises gives the call up.
fn wait<T: Send>(py: Python<'_>, mut call: Call<'static, T>) -> PyResult<T> {
    loop {
        if let Some(ended) = py.detach(|| call.wait_for(SLICE)) {
            return Ok(ended);
        }
        py.check_signals()?;
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (nodes, **options))]
    fn new(nodes: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let settings = Settings::new(nodes, options)?;
        Ok(Self { settings, state: Mutex::new(State::New) })
    }

    /// Takes the lock of a key, `str` or `bytes`, or of several keys at once: all or none. Waits until
    /// it has the lock, at most `timeout` seconds. Returns a `Lease`, which a `with` block releases:
    ///
    ///     with client.lock("sku:42", ttl=10) as lease:
    ///         if lease.remaining() > 1:
    ///             ...  # the work
    ///
    /// It costs one round trip to the nodes; other threads run meanwhile. The holder's release wakes a
    /// call that waits.
    ///
    /// - ttl: how many seconds after their grant the nodes drop the lock, if nobody releases it
    /// - timeout: how long to wait; by default the client's `retry_timeout`; `math.inf`: for ever
    /// - keep_alive: the client extends the lock while it is held
    /// - fenced: the lease has a `fence`, so that a resource can refuse an earlier holder
    /// - slots: how many callers may hold the lock at the same time, 1 to 63
    /// - read, write: the most readers at a time; the call reads among them, or writes alone. All
    ///   callers of the lock name the same number
    /// - min_validity: the call releases a lease with less left than this, and tries again or fails
    /// - linger: how long an unlocked lock may stay with this client for its next call
    ///
    /// Raises `Taken` if another caller holds the lock at the end of `timeout`. Raises `NoQuorum`
    /// if too few nodes answered, and `Expired` if too little was left of the lease. The caller
    /// then holds nothing.
    #[pyo3(signature = (key, ttl, *, timeout=None, keep_alive=false, fenced=false, slots=None, read=None, write=None, min_validity=0.0, linger=0.0))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn lock(
        &self,
        py: Python<'_>,
        key: Keys,
        ttl: f64,
        timeout: Option<f64>,
        keep_alive: bool,
        fenced: bool,
        slots: Option<usize>,
        read: Option<usize>,
        write: Option<usize>,
        min_validity: f64,
        linger: f64,
    ) -> PyResult<Lease> {
        let asked =
            Asked { ttl, timeout, min_validity, keep_alive, fenced, slots, read, write, linger };
        self.take(py, &key, asked.options(self.settings.retry)?, true)
    }

    /// As `lock`, but tries once. Each round trip takes at most `node_timeout`. A fence, slots or
    /// several keys may need more than one. Before a quorum is connected, the call takes at most
    /// `connect_timeout`. Raises `Taken` if another caller holds the lock.
    #[pyo3(signature = (key, ttl, *, keep_alive=false, fenced=false, slots=None, read=None, write=None, min_validity=0.0, linger=0.0))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn try_lock(
        &self,
        py: Python<'_>,
        key: Keys,
        ttl: f64,
        keep_alive: bool,
        fenced: bool,
        slots: Option<usize>,
        read: Option<usize>,
        write: Option<usize>,
        min_validity: f64,
        linger: f64,
    ) -> PyResult<Lease> {
        let asked = Asked {
            ttl,
            timeout: None,
            min_validity,
            keep_alive,
            fenced,
            slots,
            read,
            write,
            linger,
        };
        self.take(py, &key, asked.options(self.settings.retry)?, false)
    }

    /// Waits until a quorum of nodes may vote, at most `timeout` seconds. Raises `NoQuorum` otherwise; its
    /// message says for each node why not. For a readiness check, and for the start of a program.
    #[pyo3(signature = (timeout=10.0))]
    fn ready(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let call = self.open()?.ready(duration("timeout", timeout)?);
        Ok(wait(py, call)?.map_err(Failure::from)?)
    }

    /// Ends the client: sends the releases that it owes, and waits for them at most `limit` seconds. Calls
    /// under way and later ones raise `Closed`. Returns how many releases the nodes have not confirmed;
    /// those keys end with their TTL, and so do leases that are still held. A later call returns 0.
    #[pyo3(signature = (limit=1.0))]
    fn shutdown(&self, py: Python<'_>, limit: f64) -> PyResult<usize> {
        let limit = duration("limit", limit)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Open(mut own) = mem::replace(&mut *state, State::Closed) else { return Ok(0) };
        drop(state);
        let Some(client) = own.take() else { return Ok(0) };
        wait(py, client.shutdown(limit))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyType>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        drop((kind, value, traceback));
        self.shutdown(py, 1.0).map(drop)
    }
}
