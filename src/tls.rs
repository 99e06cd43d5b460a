//! How connections are encrypted: which certificates to trust, and which to present.
//!
//! Layer: bottom, plain values. Parses nothing; the driver parses the files when a caller makes it.

use std::fmt;

/// The TLS of a [`Config`](crate::Config): for nodes named `rediss://`, and for those named as a
/// bare `host:port`. Files are PEM; the caller reads them.
///
/// By default the client trusts the certificates that the operating system trusts (or those of
/// `SSL_CERT_FILE` and `SSL_CERT_DIR`), and presents no client certificate. It expects each node's
/// certificate to be for the host of its address. It speaks TLS 1.2 and 1.3, and does not check
/// revocation.
///
/// ```no_run
/// use redbolt::{Client, Config, Tls};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::new()
///     .ca(std::fs::read("/etc/redbolt/ca.pem")?)
///     .identity(std::fs::read("/etc/redbolt/me.pem")?, std::fs::read("/etc/redbolt/me.key")?);
/// let nodes = ["rediss://a.locks:6379", "rediss://b.locks:6379", "rediss://c.locks:6379"];
/// let client = Client::connect(Config::new(nodes)?.tls(tls))?;
/// # let _ = client;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<Identity>,
    pub(crate) server_name: Option<String>,
}

/// The client certificate and its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Tls {
    /// Trusts the operating system's certificates, and presents no client certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these certificates and no others.
    #[must_use]
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// The client certificate, followed by the intermediate certificates up to its CA, and its key
    /// without a passphrase. Servers with `tls-auth-clients yes` ask for it.
    #[must_use]
    pub fn identity(mut self, chain_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(Identity { chain: chain_pem.into(), key: key_pem.into() });
        self
    }

    /// The name or IP address that every node's certificate must be for, instead of the host of its
    /// address. Use it for nodes behind tunnels, or for addresses that no certificate holds.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_ca", &self.ca.is_some())
            .field("has_identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}
