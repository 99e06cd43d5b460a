//! Turns PEM and names into the parts of a session. The driver finds every fault in them before it
//! opens a socket.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::address::{Address, Endpoint};
use crate::config::Config;
use crate::error::ConfigError;
use crate::tls::{Identity, Tls};

/// The parts of a TLS session with one node.
#[derive(Clone)]
pub(in crate::driver) struct Target {
    pub(super) config: Arc<ClientConfig>,
    /// The name that the node's certificate must be for.
    pub(super) name: ServerName<'static>,
}

/// One target for each node, in order; `None` for nodes without TLS.
pub(in crate::driver) fn targets(config: &Config) -> Result<Vec<Option<Target>>, ConfigError> {
    if !config.nodes.iter().any(|node| config.is_tls(node)) {
        return if config.tls.is_some() {
            Err(ConfigError::TlsUnused)
        } else {
            Ok(vec![None; config.nodes.len()])
        };
    }
    let settings = config.tls.clone().unwrap_or_default();
    let shared = Arc::new(client_config(&settings)?);
    let target = |node: &Address| {
        let Some(host) = host_of(node).filter(|_| config.is_tls(node)) else { return Ok(None) };
        let name = settings.server_name.clone().unwrap_or(host);
        let name = ServerName::try_from(name)
            .map_err(|_| wrong("server name", "no certificate can be for such a name"))?;
        Ok(Some(Target { config: Arc::clone(&shared), name }))
    };
    config.nodes.iter().map(target).collect()
}

fn host_of(node: &Address) -> Option<String> {
    match node.endpoint() {
        Endpoint::Tcp { host, .. } => Some(host.clone()),
        Endpoint::Unix(_) => None,
    }
}

const fn wrong(role: &'static str, why: &'static str) -> ConfigError {
    ConfigError::Tls { role, why }
}

fn client_config(settings: &Tls) -> Result<ClientConfig, ConfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| wrong("protocol", "no version of it is built in"))?;
    let builder = builder.with_root_certificates(match &settings.ca {
        Some(pem) => given_roots(pem)?,
        None => platform_roots()?,
    });
    let Some(Identity { chain, key }) = &settings.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("client certificate", chain)?;
    let key = private_key(key)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
    builder.with_client_auth_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong("client key", "it is not the key of the client certificate")
        }
        rustls::Error::InvalidCertificate(_) => {
            wrong("client certificate", "its first certificate cannot be read")
        }
        _ => wrong("client key", "keys of its kind cannot be used (RSA, ECDSA, Ed25519 can)"),
    })
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("CA certificate", pem)? {
        roots
            .add(certificate)
            .map_err(|_| wrong("CA certificate", "one of them cannot be read"))?;
    }
    Ok(roots)
}

fn platform_roots() -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let why = "this machine has none installed, and none were given";
        return Err(wrong("CA certificate", why));
    }
    Ok(roots)
}

fn certificates(
    role: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let list = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| wrong(role, "its PEM is damaged"))?;
    if list.is_empty() {
        return Err(wrong(role, "it holds no certificate (BEGIN CERTIFICATE)"));
    }
    Ok(list)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, ConfigError> {
    use rustls::pki_types::pem::Error;
    let is_encrypted = pem.windows(9).any(|word| word == b"ENCRYPTED");
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let why = if is_encrypted {
            "it has a passphrase; give one without"
        } else if matches!(error, Error::NoItemsFound) {
            "it holds no private key (BEGIN PRIVATE KEY)"
        } else {
            "its PEM is damaged"
        };
        wrong("client key", why)
    })
}
