//! [`Authority`]: a CA made for one test, and the certificates that it signs.

use std::path::{Path, PathBuf};

use rand::TryRng as _;
use rand::rngs::SysRng;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tempfile::TempDir;

/// A CA that only clients with its certificate know.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    dir: TempDir,
}

/// A certificate and its key, as text and as files that live as long as their authority.
#[derive(Clone, Debug)]
pub struct Signed {
    pub cert: String,
    pub key: String,
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// The names of this machine under which clients find nodes.
pub const LOCAL: [&str; 3] = ["127.0.0.1", "::1", "localhost"];

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // If two authorities had the same name, a client would confuse them and take their
        // signatures for damaged.
        let number = SysRng.try_next_u64().expect("the system's random numbers");
        let name = format!("authority {number} of a test");
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let dir = tempfile::tempdir().expect("a directory for certificates");
        std::fs::write(dir.path().join("ca.pem"), &pem).expect("a writable directory");
        Self { issuer: Issuer::new(params, key), pem, dir }
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The directory of this authority's files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A certificate for these names and addresses.
    pub fn issue(&self, names: &[&str]) -> Signed {
        self.issue_for_years(names, 2020..2050)
    }

    /// A certificate that is valid in these years.
    pub fn issue_for_years(&self, names: &[&str], years: std::ops::Range<i32>) -> Signed {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        let key = key.serialize_pem();
        // The number of files so far makes the names of this certificate's files unique.
        let number = std::fs::read_dir(self.dir.path()).expect("a directory").count();
        let file = |kind: &str, text: &str| {
            let file = self.dir.path().join(format!("{number}.{kind}"));
            std::fs::write(&file, text).expect("a writable directory");
            file
        };
        let (cert_file, key_file) = (file("pem", &cert), file("key", &key));
        Signed { cert, key, cert_file, key_file }
    }
}
