//! Secrets: no password, key or token is in anything that Redbolt prints.

use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use redbolt::driver::{Driver, Outcome};
use redbolt::inspect::{Address, Query};
use redbolt::{Client, Config, Guard, LockError};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, TTL, ends_within, eventually, fresh_config, ms,
};

const PASSWORD: &str = "pass-s3cr3t";
/// A token of the caller's own.
const TOKEN: &str = "tok-s3cr3t-en";

/// `value` prints no secret, not even as a list of byte numbers.
#[track_caller]
fn keeps_quiet(value: &impl Debug) {
    for text in [format!("{value:?}"), format!("{value:#?}")] {
        says_nothing(&text);
    }
}

#[track_caller]
fn says_nothing(text: &str) {
    assert!(!text.contains("s3cr3t"), "{text}");
    // "s3cr" as a list of bytes.
    let flat: String = text.split_whitespace().collect();
    assert!(!flat.contains("115,51,99,114"), "{text}");
}

#[track_caller]
fn no_token_of(lease: &Guard, value: &impl Debug) {
    let token = lease.token().expect("it is held").to_string();
    for text in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!text.contains(&token), "{text}");
        let bytes: Vec<_> = token.bytes().take(8).map(|byte| byte.to_string()).collect();
        let flat: String = text.split_whitespace().collect();
        assert!(!flat.contains(&bytes.join(",")), "{text}");
    }
}

#[test]
fn addresses_and_configurations_print_no_password() {
    for text in [
        "redis://user:pass-s3cr3t@h:1/2",
        "redis://:pass-s3cr3t@h",
        "unix://user:pass-s3cr3t@/run/s",
    ] {
        keeps_quiet(&Address::parse(text).unwrap());
        keeps_quiet(&Config::new([text]).unwrap());
    }
    keeps_quiet(&Config::new(["h:1"]).unwrap().username("user").password(PASSWORD));
    for text in [
        "redis://user:pass-s3cr3t@h:99999",
        "redis://user:pass-s3cr3t@",
        "redis://:pass-s3cr3t@h/x",
        "http://user:pass-s3cr3t@h",
        "user:pass-s3cr3t@h:0",
        "redis://user:pass-s3cr3t/@h:1",
        "unix://user:pass-s3cr3t@run/s",
        "redis://h:1:pass-s3cr3t@",
    ] {
        if let Err(error) = Address::parse(text) {
            keeps_quiet(&error);
            says_nothing(&error.to_string());
        }
    }
    let twice = Config::new(["redis://:pass-s3cr3t@h", "redis://h"]).unwrap_err();
    says_nothing(&format!("{twice} {twice:?}"));
}

#[cfg(feature = "tls")]
#[test]
fn the_key_of_a_client_certificate_is_not_printed() {
    let tls = redbolt::Tls::new().ca("s3cr3t").identity("s3cr3t", "s3cr3t");
    keeps_quiet(&tls);
    let config = Config::new(["rediss://h:1"]).unwrap().tls(tls);
    keeps_quiet(&config);
    let error = Client::open(config).unwrap_err();
    says_nothing(&format!("{error} {error:?}"));
}

/// Every public value that holds a password or a token, or that was made from one.
#[test]
fn clients_leases_and_reports_print_no_secret() {
    let args = ["--requirepass", PASSWORD];
    let Some(cluster) = Cluster::start(&[Kind::Valkey91, Kind::Redis70], &args) else { return };
    let config = || cluster.config().password(PASSWORD);
    let client = Client::connect(config()).unwrap();
    keeps_quiet(&client);

    for node in cluster.nodes() {
        let mut wire = node.connect();
        assert_eq!(wire.ask(&["AUTH", PASSWORD]).unwrap(), b"+OK\r\n");
        assert_eq!(wire.ask(&["SET", "given", TOKEN, "PX", "20000"]).unwrap(), b"+OK\r\n");
    }
    let given = client.adopt("given", TOKEN, TTL).wait().unwrap();
    let drawn = client.try_lock("drawn", TTL).wait().unwrap();
    keeps_quiet(&given);
    keeps_quiet(&given.token().unwrap());
    no_token_of(&drawn, &drawn);
    no_token_of(&drawn, &drawn.token());
    for key in ["given", "drawn"] {
        let query = Query::leader(key.as_bytes());
        let seen =
            (client.query(&query).wait().unwrap(), client.leader(key).wait().unwrap(), query);
        keeps_quiet(&seen);
        no_token_of(&drawn, &seen);
        let error = client.try_lock(key, TTL).wait().unwrap_err();
        says_nothing(&format!("{error} {error:?} {error:#?}"));
        no_token_of(&drawn, &error);
    }
    keeps_quiet(&client.nodes().wait());
    client
        .with_lock("held", TTL, |held| {
            no_token_of(&drawn, held);
            Ok::<_, LockError>(())
        })
        .unwrap();
    keeps_quiet(&client.try_lock("called", TTL));

    let mut driver = Driver::standalone(config()).unwrap();
    keeps_quiet(&driver);
    let id = driver.try_lock("driven", TTL).unwrap();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        let Some(done) = driver.completion() else { return false };
        assert_eq!(done.id, id);
        keeps_quiet(&done);
        matches!(done.result, Outcome::Lock(Ok(_)))
    }));
    keeps_quiet(&driver);

    let wrong = Client::connect(cluster.config().password("wrong-s3cr3t")).unwrap_err();
    says_nothing(&format!("{wrong} {wrong:?}"));
}

#[test]
fn clients_print_no_secret() {
    let args = ["--requirepass", PASSWORD];
    let Some(cluster) = Cluster::start(&[Kind::Valkey91], &args) else { return };
    let shared = Client::connect(cluster.config().password(PASSWORD)).unwrap();
    keeps_quiet(&shared);
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    let token = guard.token().expect("a held lock").to_string();
    assert!(!format!("{guard:?} {shared:?}").contains(&token));
}

/// A server that returns every request as an error, as real ones do with a command that they do not
/// know.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    let said = buffer.get(..len).unwrap_or(&[]).escape_ascii().to_string();
                    let commands = said.matches("\\n*").count() + 1;
                    let line = format!("-ERR unknown command '{said}'\r\n").repeat(commands);
                    if stream.write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("redis://127.0.0.1:{port}")
}

#[test]
fn what_a_server_echoes_is_not_passed_on() {
    let config = fresh_config(vec![echo()]).password(PASSWORD).connect_timeout(ms(1_000));
    let client = Client::open(config).unwrap();
    let error = ends_within(ms(1_000), || client.try_lock("k", TTL).wait());
    let error = error.unwrap_err();
    says_nothing(&format!("{error} {error:?} {error:#?} {:?}", client.nodes().wait()));
    for notice in client.notices().wait() {
        says_nothing(&format!("{notice} {notice:?}"));
    }
    keeps_quiet(&client);
}
