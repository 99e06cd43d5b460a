//! [`TlsServer`]: a real server that listens for TLS as well, on a port of its own.

use crate::authority::{Authority, Signed};
use crate::kind::{Kind, kind_or_skip};
use crate::ports::free_port;
use crate::server::RealServer;

/// The real servers that are built with TLS.
pub const TLS_KINDS: [Kind; 3] = [Kind::Redis70, Kind::Redis80, Kind::Valkey81];

/// A server, and its port for TLS.
pub struct TlsServer {
    pub server: RealServer,
    pub port: u16,
}

impl TlsServer {
    /// Starts a server that shows the certificate `shown`. If the server asks clients for
    /// certificates, it accepts those that `authority` signed. `args` are further arguments:
    /// `--tls-auth-clients yes`, ..
    pub fn start(kind: Kind, authority: &Authority, shown: &Signed, args: &[&str]) -> Option<Self> {
        kind_or_skip(kind)?;
        let port = free_port();
        let text = |path: &std::path::Path| path.display().to_string();
        let (cert, key) = (text(&shown.cert_file), text(&shown.key_file));
        let (ca, port_text) = (text(&authority.file()), port.to_string());
        let mut all = vec!["--tls-port", &port_text, "--tls-cert-file", &cert, "--tls-key-file"];
        all.extend([key.as_str(), "--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"]);
        all.extend(args);
        Some(Self { server: RealServer::start(kind, &all), port })
    }

    /// `rediss://HOST:PORT`
    pub fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.port)
    }
}
