//! An acquire over TLS beside a probe over TLS, and both beside plain TCP, on the same servers.

use std::sync::Arc;

use redbolt::{Client, Tls};
use redbolt_benches::probe::{Commands, Probe};
use redbolt_rig::{Authority, Kind, LOCAL, TlsServer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::nodes::{Keys, WAITS, config};
use crate::slices::{Bench, CYCLES, medians, percentile};
use crate::{Anything, Options};

pub(crate) fn run(options: &Options) -> Anything {
    println!("| wire | wait | acquire p50 | p50 of the probe | acquire p99 | p99 of the probe |");
    println!("|---|---|---|---|---|---|");
    let authority = Authority::new();
    let shown = authority.issue(&LOCAL);
    let start = |_| TlsServer::start(Kind::Valkey81, &authority, &shown, &[]);
    let Some(servers) = (0..5).map(start).collect::<Option<Vec<_>>>() else { return Ok(()) };
    let plain: Vec<_> =
        servers.iter().map(|server| format!("127.0.0.1:{}", server.server.port())).collect();
    let ports: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let urls: Vec<_> = servers.iter().map(|server| server.url("localhost")).collect();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tls = Arc::new(tls);
    for (name, wait) in WAITS {
        let client = Client::connect(config(&plain, wait)?)?;
        compare("TCP", name, (client, Probe::connect(&plain, wait)?), options)?;
        let client = Client::connect(config(&urls, wait)?.tls(Tls::new().ca(authority.pem())))?;
        compare("TLS", name, (client, Probe::connect_tls(&ports, &tls, wait)?), options)?;
    }
    Ok(())
}

fn compare(wire: &str, wait: &str, both: (Client, Probe), options: &Options) -> Anything {
    let (client, probe) = both;
    // These servers can compare only in a script. The probe has none, and the bench measures
    // acquires only.
    let commands = Commands::deleting();
    let mut bench = Bench { client, probe, keys: Keys::new(), commands, cycles: CYCLES };
    let pairs = bench.compare(options.slices)?;
    let [_, p50, p50_ratio] = medians(&pairs, |times| percentile(&times.acquire, 0.5));
    let [_, p99, p99_ratio] = medians(&pairs, |times| percentile(&times.acquire, 0.99));
    println!("| {wire} | {wait} | {p50:.1} us | {p50_ratio:.3} | {p99:.1} us | {p99_ratio:.3} |");
    Ok(())
}
