//! [`redbolt_config`]: the nodes and the settings. `docs/settings.md` has their ranges.

use std::ffi::c_char;
use std::sync::Mutex;
use std::time::Duration;

use redbolt::{Admission, Config, FailoverGuard, IdleStrategy, Quorum, RestartGuard, Retry};

use crate::border::{at_border, free, give, object};
use crate::bytes::{bytes, texts};
use crate::code::redbolt_code;
use crate::error::redbolt_error;
use crate::failure::Failure;
use crate::tls::TlsTexts;

/// The nodes and the settings of clients and drivers. Any number of threads may use a
/// configuration. The clients and drivers made of it have a copy.
pub struct redbolt_config {
    settings: Mutex<Settings>,
}

#[derive(Clone)]
struct Settings {
    config: Config,
    retry: Retry,
    tls: TlsTexts,
}

/// The settings that are numbers, for `redbolt_config_set`.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum redbolt_setting {
    /// How long a node may take to answer.
    REDBOLT_NODE_TIMEOUT_NS = 1,
    /// How long a connection may take.
    REDBOLT_CONNECT_TIMEOUT_NS = 2,
    /// The longest TTL of all clients of the nodes.
    REDBOLT_MAX_TTL_NS = 3,
    /// How many votes a lock needs; more than half of the nodes. The same for all clients.
    REDBOLT_QUORUM = 4,
    /// The most that the rates of two clocks may differ, in parts per million.
    REDBOLT_DRIFT_PPM = 5,
    /// 0: a restarted node may vote at once. 1, the default: once it has run for the longest TTL.
    REDBOLT_RESTART_GUARD = 6,
    /// 0: a master with replicas votes like any other, and two holders are possible after a
    /// failover. 1, the default: such a master votes only if it stops granting when it is cut off
    /// from its replicas.
    REDBOLT_FAILOVER_GUARD = 7,
    /// 0: a node that denies INFO votes, unchecked. 1, the default: it does not vote.
    REDBOLT_STRICT_ADMISSION = 8,
    /// How long a call waits for a lock that it does not get; zero tries once.
    REDBOLT_RETRY_TIMEOUT_NS = 9,
    /// The shortest wait between two attempts.
    REDBOLT_RETRY_DELAY_NS = 10,
    /// The random part of the wait between two attempts is up to this.
    REDBOLT_RETRY_JITTER_NS = 11,
    /// 0: no release wakes a call that waits. 1, the default: a release wakes it.
    REDBOLT_DIRECT_WAKE = 12,
    /// For how long a caller that waits for answers spins before it sleeps. Zero, the default: not
    /// at all. `UINT64_MAX`: it never sleeps.
    REDBOLT_SPIN_NS = 13,
    /// How many operations may be under way, 1 to 1048576.
    REDBOLT_IN_FLIGHT_MAX = 14,
    /// How often a lease may be extended, 0 to 65535.
    REDBOLT_MAX_EXTENSIONS = 15,
    /// For how long a lease may be held in all.
    REDBOLT_MAX_HOLD_NS = 16,
    /// How often in a row a lock may go from one caller to another caller of the same client.
    REDBOLT_LOCAL_TURNS = 17,
    /// How often in a row a lock may go from one client to another without a free moment, 0 to 255.
    REDBOLT_TRANSFERS_IN_ROW = 18,
    /// How far apart the wall clocks of client and nodes may be, for fences.
    REDBOLT_MAX_CLOCK_SKEW_NS = 19,
    /// How long nodes keep the counter of a fence.
    REDBOLT_FENCE_TTL_NS = 20,
}

/// The settings that are text, for `redbolt_config_set_text`.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum redbolt_text_setting {
    /// The user of nodes whose address has none.
    REDBOLT_USERNAME = 1,
    /// The password of nodes whose address has none.
    REDBOLT_PASSWORD = 2,
    /// The name by which operators see this client, 1 to 64 letters, digits and .-_+@/
    REDBOLT_CLIENT_NAME = 3,
    /// What the nodes have in front of each key; any bytes.
    REDBOLT_KEY_PREFIX = 4,
    /// The list that is to replace the nodes: addresses with commas between them. While a program
    /// has both lists, a lock needs a quorum of each list.
    REDBOLT_NEXT_NODES = 5,
    /// The certificates, as PEM, that sign those of the nodes; without this setting, the system's.
    REDBOLT_TLS_CA = 6,
    /// The client's certificate and its chain, as PEM.
    REDBOLT_TLS_CERT = 7,
    /// The key of that certificate, as PEM.
    REDBOLT_TLS_KEY = 8,
    /// The name in the certificates of all nodes; without it, the host of each address.
    REDBOLT_TLS_SERVER_NAME = 9,
}

impl redbolt_setting {
    const ALL: [Self; 20] = [
        Self::REDBOLT_NODE_TIMEOUT_NS,
        Self::REDBOLT_CONNECT_TIMEOUT_NS,
        Self::REDBOLT_MAX_TTL_NS,
        Self::REDBOLT_QUORUM,
        Self::REDBOLT_DRIFT_PPM,
        Self::REDBOLT_RESTART_GUARD,
        Self::REDBOLT_FAILOVER_GUARD,
        Self::REDBOLT_STRICT_ADMISSION,
        Self::REDBOLT_RETRY_TIMEOUT_NS,
        Self::REDBOLT_RETRY_DELAY_NS,
        Self::REDBOLT_RETRY_JITTER_NS,
        Self::REDBOLT_DIRECT_WAKE,
        Self::REDBOLT_SPIN_NS,
        Self::REDBOLT_IN_FLIGHT_MAX,
        Self::REDBOLT_MAX_EXTENSIONS,
        Self::REDBOLT_MAX_HOLD_NS,
        Self::REDBOLT_LOCAL_TURNS,
        Self::REDBOLT_TRANSFERS_IN_ROW,
        Self::REDBOLT_MAX_CLOCK_SKEW_NS,
        Self::REDBOLT_FENCE_TTL_NS,
    ];

    fn of(number: u32) -> Result<Self, Failure> {
        Self::ALL.into_iter().find(|setting| *setting as u32 == number).ok_or(NO_SETTING)
    }
}

impl redbolt_text_setting {
    const ALL: [Self; 9] = [
        Self::REDBOLT_USERNAME,
        Self::REDBOLT_PASSWORD,
        Self::REDBOLT_CLIENT_NAME,
        Self::REDBOLT_KEY_PREFIX,
        Self::REDBOLT_NEXT_NODES,
        Self::REDBOLT_TLS_CA,
        Self::REDBOLT_TLS_CERT,
        Self::REDBOLT_TLS_KEY,
        Self::REDBOLT_TLS_SERVER_NAME,
    ];

    fn of(number: u32) -> Result<Self, Failure> {
        Self::ALL.into_iter().find(|setting| *setting as u32 == number).ok_or(NO_SETTING)
    }
}

const NO_SETTING: Failure = Failure::Argument("there is no setting of this number");

impl Settings {
    fn new(config: Config) -> Self {
        Self { config, retry: Retry::default(), tls: TlsTexts::default() }
    }

    fn set(&mut self, setting: redbolt_setting, value: u64) -> Result<(), Failure> {
        self.config = with(self.config.clone(), &mut self.retry, setting, value)?;
        Ok(())
    }

    fn set_text(&mut self, setting: redbolt_text_setting, value: &[u8]) -> Result<(), Failure> {
        let text = || {
            let text = std::str::from_utf8(value);
            text.map_err(|_| Failure::Argument("the text is no UTF-8"))
        };
        let config = || self.config.clone();
        match setting {
            redbolt_text_setting::REDBOLT_USERNAME => self.config = config().username(text()?),
            redbolt_text_setting::REDBOLT_PASSWORD => self.config = config().password(text()?),
            redbolt_text_setting::REDBOLT_CLIENT_NAME => {
                self.config = config().client_name(text()?);
            }
            redbolt_text_setting::REDBOLT_KEY_PREFIX => self.config = config().key_prefix(value),
            redbolt_text_setting::REDBOLT_NEXT_NODES => {
                self.config = config().next_nodes(text()?.split(','))?;
            }
            redbolt_text_setting::REDBOLT_TLS_CA => self.tls.ca = Some(value.to_vec()),
            redbolt_text_setting::REDBOLT_TLS_CERT => self.tls.chain = Some(value.to_vec()),
            redbolt_text_setting::REDBOLT_TLS_KEY => self.tls.key = Some(value.to_vec()),
            redbolt_text_setting::REDBOLT_TLS_SERVER_NAME => {
                self.tls.server_name = Some(text()?.to_owned());
            }
        }
        Ok(())
    }
}

/// A switch is 0 or 1.
fn switch<T>(value: u64, [off, on]: [T; 2]) -> Result<T, Failure> {
    match value {
        0 => Ok(off),
        1 => Ok(on),
        _ => Err(Failure::Argument("this setting is 0 or 1")),
    }
}

fn number<T: TryFrom<u64>>(value: u64) -> Result<T, Failure> {
    T::try_from(value).map_err(|_| Failure::Argument("the value is above the setting's range"))
}

fn with(
    config: Config,
    retry: &mut Retry,
    setting: redbolt_setting,
    value: u64,
) -> Result<Config, Failure> {
    let ns = Duration::from_nanos(value);
    Ok(match setting {
        redbolt_setting::REDBOLT_NODE_TIMEOUT_NS => config.node_timeout(ns),
        redbolt_setting::REDBOLT_CONNECT_TIMEOUT_NS => config.connect_timeout(ns),
        redbolt_setting::REDBOLT_MAX_TTL_NS => config.max_ttl(ns),
        redbolt_setting::REDBOLT_QUORUM => config.quorum(Quorum::AtLeast(number(value)?)),
        redbolt_setting::REDBOLT_DRIFT_PPM => {
            config.drift_factor(f64::from(number::<u32>(value)?) / 1e6)
        }
        redbolt_setting::REDBOLT_RESTART_GUARD => {
            config.restart_guard(switch(value, [RestartGuard::Off, RestartGuard::On])?)
        }
        redbolt_setting::REDBOLT_FAILOVER_GUARD => {
            config.failover_guard(switch(value, [FailoverGuard::Off, FailoverGuard::On])?)
        }
        redbolt_setting::REDBOLT_STRICT_ADMISSION => {
            config.admission(switch(value, [Admission::Lenient, Admission::Strict])?)
        }
        redbolt_setting::REDBOLT_DIRECT_WAKE => config.direct_wake(switch(value, [false, true])?),
        redbolt_setting::REDBOLT_SPIN_NS => config.idle_strategy(match value {
            0 => IdleStrategy::Park,
            u64::MAX => IdleStrategy::Spin,
            _ => IdleStrategy::SpinThenPark(ns),
        }),
        redbolt_setting::REDBOLT_IN_FLIGHT_MAX => config.in_flight_max(number(value)?),
        redbolt_setting::REDBOLT_MAX_EXTENSIONS => config.max_extensions(number(value)?),
        redbolt_setting::REDBOLT_MAX_HOLD_NS => config.max_hold(ns),
        redbolt_setting::REDBOLT_LOCAL_TURNS => config.local_turns(number(value)?),
        redbolt_setting::REDBOLT_TRANSFERS_IN_ROW => config.transfers_in_row(number(value)?),
        redbolt_setting::REDBOLT_MAX_CLOCK_SKEW_NS => config.max_clock_skew(ns),
        redbolt_setting::REDBOLT_FENCE_TTL_NS => config.fence_ttl(ns),
        redbolt_setting::REDBOLT_RETRY_TIMEOUT_NS => {
            retry.timeout = Some(ns);
            config.retry(*retry)
        }
        redbolt_setting::REDBOLT_RETRY_DELAY_NS => {
            retry.delay = ns;
            config.retry(*retry)
        }
        redbolt_setting::REDBOLT_RETRY_JITTER_NS => {
            retry.jitter = ns;
            config.retry(*retry)
        }
    })
}

impl redbolt_config {
    /// The configuration as it is now.
    pub(crate) fn copy(&self) -> Result<Config, Failure> {
        let settings = self.settings.lock().map_err(|_| Failure::Panic)?;
        settings.tls.add_to(settings.config.clone())
    }
}

/// Makes a configuration of `count` node addresses, 1 to 32, such as "redis://10.0.0.1:6379". The
/// caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_new(
    nodes: *const *const c_char,
    count: usize,
    config: *mut *mut redbolt_config,
    error: *mut redbolt_error,
) -> redbolt_code {
    let make = || {
        // SAFETY: by the rules for pointers.
        let nodes = unsafe { texts(nodes, count) }?;
        Ok(redbolt_config { settings: Mutex::new(Settings::new(Config::new(nodes)?)) })
    };
    // SAFETY: by the rules for pointers.
    let body = || unsafe { give(config, make) };
    // SAFETY: by the rules for pointers.
    unsafe { at_border(error, body) }
}

/// Sets a number: a `redbolt_setting`. The call refuses a value that the setting cannot hold, such
/// as 2 for a switch. The client or driver made of the configuration checks the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set(
    config: *mut redbolt_config,
    setting: u32,
    value: u64,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = || {
        // SAFETY: by the rules for pointers.
        let config = unsafe { object(config) }?;
        config
            .settings
            .lock()
            .map_err(|_| Failure::Panic)?
            .set(redbolt_setting::of(setting)?, value)
    };
    // SAFETY: by the rules for pointers.
    unsafe { at_border(error, body) }
}

/// Sets a text of `len` bytes: a `redbolt_text_setting`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_text(
    config: *mut redbolt_config,
    setting: u32,
    text: *const c_char,
    len: usize,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = || {
        // SAFETY: by the rules for pointers.
        let config = unsafe { object(config) }?;
        // SAFETY: by the rules for pointers.
        let text = unsafe { bytes(text, len) }?;
        let mut settings = config.settings.lock().map_err(|_| Failure::Panic)?;
        settings.set_text(redbolt_text_setting::of(setting)?, text)
    };
    // SAFETY: by the rules for pointers.
    unsafe { at_border(error, body) }
}

/// Frees a configuration. A call with null does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_free(config: *mut redbolt_config) {
    // SAFETY: by the rules for pointers.
    unsafe { free(config) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(Config::new(["redis://127.0.0.1:1"]).expect("an address"))
    }

    #[test]
    fn the_next_nodes_are_a_list_with_commas() {
        let mut settings = settings();
        let mut set = |text| settings.set_text(redbolt_text_setting::REDBOLT_NEXT_NODES, text);
        assert!(set(b"redis://127.0.0.1:1,redis://127.0.0.1:2,127.0.0.1:3").is_ok());
        for wrong in [&b""[..], b"redis://127.0.0.1:2,", b"redis://127.0.0.1:2 127.0.0.1:3"] {
            assert!(set(wrong).is_err(), "{wrong:?}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_library_without_tls_refuses_certificates_when_a_client_is_made() {
        let mut settings = settings();
        settings.set_text(redbolt_text_setting::REDBOLT_TLS_CA, b"pem").expect("kept for later");
        let config = redbolt_config { settings: Mutex::new(settings) };
        let why = config.copy().map(|_| ()).expect_err("no TLS").to_string();
        assert!(why.contains("built without TLS"), "{why}");
    }

    /// A server that asks clients for a certificate, and shows one of this machine's authority.
    #[cfg(feature = "tls")]
    #[test]
    fn a_client_with_certificates_gets_its_lock_through_tls_and_one_without_its_key_is_refused() {
        use redbolt_rig::{Authority, LOCAL, TLS_KINDS, TlsServer};
        let authority = Authority::new();
        let (shown, own) = (authority.issue(&LOCAL), authority.issue(&["client"]));
        let Some(&kind) = TLS_KINDS.first() else { return };
        let args = ["--tls-auth-clients", "yes"];
        let Some(server) = TlsServer::start(kind, &authority, &shown, &args) else { return };
        let url = server.url("127.0.0.1");
        let guard = RestartGuard::Off;
        let config = Config::new([url]).expect("an address").restart_guard(guard);
        let mut settings = Settings::new(config.node_timeout(Duration::from_secs(10)));
        let mut set = |setting, text: &str| settings.set_text(setting, text.as_bytes());
        set(redbolt_text_setting::REDBOLT_TLS_CA, authority.pem()).expect("a text");
        set(redbolt_text_setting::REDBOLT_TLS_CERT, &own.cert).expect("a text");
        let lacking = redbolt_config { settings: Mutex::new(settings.clone()) };
        assert!(lacking.copy().is_err());
        let mut set = |setting, text: &str| settings.set_text(setting, text.as_bytes());
        set(redbolt_text_setting::REDBOLT_TLS_KEY, &own.key).expect("a text");
        let whole = redbolt_config { settings: Mutex::new(settings) };
        let client = redbolt::Client::connect(whole.copy().expect("certificates"));
        let ttl = Duration::from_secs(10);
        drop(client.expect("a node").try_lock("k", ttl).wait().expect("nobody has it"));
    }

    #[test]
    fn every_setting_can_be_set_by_its_number_and_no_other_number_is_one() {
        let mut settings = settings();
        let mut set = |number, value| settings.set(redbolt_setting::of(number)?, value);
        let last = redbolt_setting::REDBOLT_FENCE_TTL_NS as u32;
        for number in 1..=last {
            assert!(set(number, 1).is_ok(), "{number}");
        }
        assert!(set(0, 1).is_err());
        assert!(set(last + 1, 1).is_err());
        for (setting, value) in [
            (redbolt_setting::REDBOLT_RESTART_GUARD, 2),
            (redbolt_setting::REDBOLT_DIRECT_WAKE, 2),
            (redbolt_setting::REDBOLT_MAX_EXTENSIONS, 1 << 40),
            (redbolt_setting::REDBOLT_TRANSFERS_IN_ROW, 256),
        ] {
            assert!(set(setting as u32, value).is_err(), "{setting:?}");
        }
    }
}
