//! The command and TLS: each mistake gives one line that says what to do.

use std::path::Path;

use super::cli::{Ended, command, end, redbolt};
use redbolt_rig::{Authority, Kind, LOCAL, TLS_KINDS, TlsServer, kind_or_skip};

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn server(authority: &Authority, args: &[&str]) -> Option<TlsServer> {
    let kind = TLS_KINDS.into_iter().find_map(kind_or_skip)?;
    TlsServer::start(kind, authority, &authority.issue(&LOCAL), args)
}

/// Runs a command on one node with these options.
fn on(url: &str, options: &[&str], words: &[&str]) -> Ended {
    let mut args = vec!["--nodes", url, "--restart-guard", "off", "--node-timeout", "2s"];
    args.extend(options);
    args.extend(words);
    redbolt(&args)
}

/// Runs a command until it reports `cause`: on a loaded machine a handshake may miss the second
/// that it has.
fn until_told(cause: &str, run: impl Fn() -> Ended) -> Ended {
    let mut ended = run();
    for _ in 0..10 {
        if ended.err.contains(cause) || ended.out.contains(cause) {
            break;
        }
        ended = run();
    }
    ended
}

const LOCK: [&str; 4] = ["lock", "k", "--ttl", "5s"];

#[test]
fn nodes_behind_tls_are_locked_and_looked_at() {
    let authority = Authority::new();
    let Some(server) = server(&authority, &["--tls-auth-clients", "yes"]) else { return };
    let me = authority.issue(&["me"]);
    let (ca, cert, key) = (text(&authority.file()), text(&me.cert_file), text(&me.key_file));
    let options = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let url = server.url("localhost");
    on(&url, &options, &LOCK).expect(0);
    assert!(on(&url, &options, &["status", "k"]).expect(0).out.contains("held"));
    // The doctor does not praise one node as a set, but the node votes.
    let doctor = on(&url, &options, &["doctor", "--json"]);
    let nodes = doctor.json()["nodes"].clone();
    assert!(nodes[0]["votes"].as_bool().is_some_and(|votes| votes), "{doctor:?}");
    // With TLS options a bare address means TLS as well.
    on(&format!("127.0.0.1:{}", server.port), &options, &["status", "k"]).expect(0);
}

/// `SSL_CERT_FILE` stands in for the certificates of the machine.
#[test]
fn without_a_ca_those_of_the_system_are_trusted() {
    let authority = Authority::new();
    let Some(server) = server(&authority, &[]) else { return };
    let url = server.url("localhost");
    let nodes = ["--nodes", &url, "--restart-guard", "off", "--node-timeout", "2s"];
    let with_system = |file: &Path| {
        let mut command = command(&[&nodes[..], &LOCK].concat());
        command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", file);
        end(command)
    };
    until_told("token", || with_system(&authority.file())).expect(0);
    let stranger = Authority::new();
    let refused = until_told("is not trusted", || with_system(&stranger.file())).expect(69);
    assert!(refused.err.contains("is not trusted"), "{refused:?}");
    let none = with_system(Path::new("/dev/null")).expect(64);
    assert!(none.err.contains("TLS CA certificate: this machine has none"), "{none:?}");
}

#[test]
fn what_is_wrong_with_tls_is_said_with_its_remedy() {
    let authority = Authority::new();
    let Some(server) = server(&authority, &["--tls-auth-clients", "yes"]) else { return };
    let stranger = Authority::new();
    let me = authority.issue(&["me"]);
    let other = stranger.issue(&["me"]);
    let (ca, wrong_ca) = (text(&authority.file()), text(&stranger.file()));
    let (cert, key) = (text(&me.cert_file), text(&me.key_file));
    let (other_cert, other_key) = (text(&other.cert_file), text(&other.key_file));
    let url = server.url("127.0.0.1");
    let plain_url = format!("redis://127.0.0.1:{}", server.port);
    let plain_port = format!("rediss://127.0.0.1:{}", server.server.port());
    let table: [(&str, &[&str], &str, &str); 5] = [
        (&url, &["--tls-ca", &wrong_ca], "is not trusted", "--tls-ca"),
        (&url, &["--tls-ca", &ca], "wants a client certificate", "--tls-cert"),
        (
            &url,
            &["--tls-ca", &ca, "--tls-cert", &other_cert, "--tls-key", &other_key],
            "or refuses the one shown",
            "tls-ca-cert-file",
        ),
        (&plain_url, &[], "as a TLS port does", "rediss://"),
        (&plain_port, &["--tls-ca", &ca], "is it a TLS port?", "redis://"),
    ];
    for (url, options, cause, remedy) in table {
        let lock = until_told(cause, || on(url, options, &LOCK)).expect(69);
        assert!(lock.err.contains(cause), "{lock:?}");
        let doctor = until_told(cause, || on(url, options, &["doctor"])).expect(78);
        assert!(doctor.out.contains(cause) && doctor.out.contains(remedy), "{doctor:?}");
    }
    let bad = text(&authority.dir().join("bad.pem"));
    std::fs::write(&bad, "no certificate").expect("a writable directory");
    let table: [(&[&str], &str); 6] = [
        (&["--tls-ca", "/nowhere.pem"], "--tls-ca /nowhere.pem: No such file"),
        (&["--tls-ca", &bad], "TLS CA certificate: it holds no certificate"),
        (&["--tls-cert", &cert], "--tls-cert needs --tls-key"),
        (&["--tls-key", &key], "--tls-key needs --tls-cert"),
        (&["--tls-cert", &bad, "--tls-key", &key], "TLS client certificate: it holds no"),
        (&["--tls-cert", &cert, "--tls-key", &other_key], "it is not the key of the client"),
    ];
    for (options, part) in table {
        let ended = on(&url, options, &LOCK).expect(64);
        assert!(ended.err.contains(part), "{ended:?}");
    }
    let unused = on("redis://127.0.0.1:1", &["--tls-ca", &ca], &LOCK).expect(64);
    assert!(unused.err.contains("write rediss://"), "{unused:?}");
}

/// The user's missing rights are in the doctor's notes, and are no reason against the set.
#[test]
fn the_doctor_says_which_rights_are_missed() {
    let Some(kind) = kind_or_skip(Kind::Valkey91) else { return };
    let server = redbolt_rig::RealServer::start(kind, &[]);
    let mut rules = vec!["ACL", "SETUSER", "locks", "reset", "on", ">secret", "~*"];
    rules.extend(["+info", "+set", "+delifeq", "+get"]);
    assert_eq!(server.command(&rules), b"+OK\r\n");
    let mut doctor = command(&["--restart-guard", "off", "--node-timeout", "2s", "doctor"]);
    doctor.env("REDBOLT_NODES", server.url().replace("redis://", "redis://locks:secret@"));
    // Without the guard, a server as young as this is unsafe for that alone.
    let doctor = end(doctor).expect(78);
    for part in ["+pttl", "+publish", "+subscribe"] {
        assert!(doctor.out.contains(part), "{part}: {doctor:?}");
    }
    assert!(!doctor.out.contains("secret"), "{doctor:?}");
}
