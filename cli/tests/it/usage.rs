//! A mistake of the user ends with 64 and one line that says what to do, before any node is asked.

use super::cli::{command, end, redbolt};

/// Nobody listens there; no test gets so far as to find out.
const NODES: &str = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";

#[test]
fn wrong_usage_ends_with_64_on_one_line() {
    let n = NODES;
    let table: &[(&[&str], &str)] = &[
        (&[], "which command"),
        (&["lok"], "lock"),
        (&["lock"], "KEY"),
        (&["lock", "k"], "--ttl"),
        (&["lock", "k", "--ttl", "30"], "30s"),
        (&["lock", "k", "--ttl", "soon"], "30s"),
        (&["lock", "k", "--ttl=-1s"], "30s"),
        (&["lock", "k", "--ttl", "1500us"], "whole milliseconds"),
        (&["lock", "k", "--ttl", "3ms", "--nodes", n], "from 4ms"),
        (&["lock", "k", "--ttl", "31s", "--nodes", n], "--max-ttl"),
        (&["lock", "", "--ttl", "1s", "--nodes", n], "1 to 4096"),
        (&["lock", "k", "--ttl", "1s"], "--nodes"),
        (&["lock", "k", "--ttl", "1s", "--nodes", ""], "at least one"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "h:1,,h:2"], "empty"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "h:1,h:2,redis://h:1"], "named twice"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "http://h:1"], "redis://"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "redis://h:0"], "port"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--quorum", "1"], "more than half"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--quorum", "4"], "at most all"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--node-timeout", "0s"], "node_timeout"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--max-ttl", "1ms"], "max_ttl"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--restart-guard", "maybe"], "maybe"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--user", "u"], "--password-file"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--password-file", "/nope"], "/nope"),
        (&["unlock", "k", "--nodes", n], "TOKEN"),
        (&["unlock", "k", "", "--nodes", n], "1 to 255"),
        (&["run", "k", "--nodes", n], "CMD"),
        (&["run", "k", "--nodes", n, "--ttl", "1s", "--grace", "1s", "--", "true"], "--grace"),
        (&["run", "--nodes", n, "--", "true"], "KEY"),
        (&["run", "k", "--nodes", n, "-n", "-w", "1s", "--", "true"], "--wait"),
        (&["run", "k", "--nodes", n, "-E", "256", "--", "true"], "255"),
        (&["run", "k", "--nodes", n, "-c", "true", "--", "true"], "--command"),
        (&["run", "j", "k", "--nodes", n, "--fence", "--", "true"], "one KEY"),
        (&["lock", "k:fence", "--ttl", "1s", "--nodes", n], "it is no lock"),
        (&["status", "k:fence", "--nodes", n], "the last fence of the lock 'k'"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--fence-ttl", "1s"], "fence_ttl"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--max-clock-skew", "2h"], "max_clock_skew"),
        (
            &["lock", "k", "--ttl", "1s", "--nodes", n, "--fence", "--restart-guard", "off"],
            "no lock can be fenced: the restart guard is off",
        ),
        (&["status", "k", "--nodes", n, "--interval", "1s"], "--watch"),
        (&["status", "k", "--nodes", n, "--watch", "--interval", "0s"], "--interval"),
        (&["doctor", "--nodes", n, "--key", ""], "1 to 4096"),
        (&["bench", "--compare", "/nope"], "/nope"),
        (&["bench", "--compare", "Cargo.toml"], "not what redbolt bench --json prints"),
        (&["bench", "--plot", "/nope/out.svg"], "its directory is not there"),
        (&["bench", "--seconds", "0"], "--seconds"),
        (&["bench", "--seconds", "nan"], "--seconds"),
        (&["bench", "--mode", "latency", "--in-flight", "2"], "--in-flight"),
        (&["bench", "--iterations", "0"], "iterations"),
        (&["bench", "--iterations", "1", "--seconds", "1"], "cannot be used with"),
        (&["demo", "--workers", "0"], "workers"),
        (&["demo", "--stock", "x"], "stock"),
        (&["demo", "--pause", "--no-lock"], "cannot be used with"),
        (&["node", "--count", "33"], "count"),
        (&["node", "--port", "65535"], "65535"),
        (&["--exec-under-lock"], "redbolt run"),
    ];
    for (args, part) in table {
        let ended = redbolt(args).expect(64);
        assert_eq!(ended.out, "", "{args:?}");
        assert!(ended.err.contains(part), "{args:?}: {ended:?}");
    }
}

/// With TLS `tests/it/cli_tls.rs` says what becomes of these.
#[cfg(not(feature = "tls"))]
#[test]
fn a_command_without_tls_says_so_and_how_to_get_it() {
    let nodes: [&[&str]; 2] = [&["rediss://h:1"], &["h:1", "--tls-ca", "ca.pem"]];
    for nodes in nodes {
        let words = ["status", "k", "--nodes"];
        let ended = redbolt(&[&words, nodes].concat()).expect(64);
        assert!(ended.err.contains("has no TLS"), "{ended:?}");
        assert!(ended.err.contains("--features tls"), "{ended:?}");
    }
}

#[test]
fn with_json_a_mistake_is_one_object_on_stdout() {
    for args in [&["lock", "k", "--json"][..], &["--json", "lock", "k", "--ttl", "1s"], &["--json"]]
    {
        let ended = redbolt(args).expect(64);
        assert_eq!(ended.err, "");
        assert_eq!(ended.text("error"), "usage");
        assert!(!ended.text("message").is_empty());
        assert_eq!(ended.json()["nodes"].as_array().map(Vec::len), Some(0));
    }
}

#[test]
fn nodes_may_come_from_the_environment_and_the_option_wins() {
    let mut given = command(&["lock", "k", "--ttl", "1s"]);
    given.env("REDBOLT_NODES", "h:1,h:1");
    assert!(end(given).expect(64).err.contains("named twice"));
    let mut empty = command(&["lock", "k", "--ttl", "1s"]);
    empty.env("REDBOLT_NODES", "");
    assert!(end(empty).expect(64).err.contains("--nodes"));
    let mut both = command(&["lock", "k", "--ttl", "1s", "--nodes", "g:1,g:1"]);
    both.env("REDBOLT_NODES", "h:1,h:1");
    assert!(end(both).expect(64).err.contains("g:1"));
}

#[test]
fn no_password_is_ever_printed() {
    let url = "redis://u:s3cret@h:1";
    let table: &[&[&str]] = &[
        &["lock", "k", "--ttl", "1s", "--nodes", "redis://u:s3cret@h:99999"],
        &["lock", "k", "--ttl", "1s", "--nodes", "redis://u:s3cret@h:1,redis://u:s3cret@h:1"],
        // A blank in the list makes the second address an argument that nobody expects.
        &["lock", "k", "--ttl", "1s", "--nodes", "h:1,", url],
        &["status", "k", url],
        &["lock", "--help"],
    ];
    for args in table {
        let mut command = command(args);
        command.env("REDBOLT_NODES", url);
        let ended = end(command);
        assert!(!format!("{ended:?}").contains("s3cret"), "{args:?}: {ended:?}");
    }
}

#[test]
fn every_command_has_help_with_an_example_and_the_exit_codes_are_listed() {
    let all = redbolt(&["--help"]).expect(0).out;
    for code in ["0 ", "1 ", "64 ", "69 ", "70 ", "71 ", "75 ", "78 ", "126", "127", "128+n"] {
        assert!(all.contains(code), "{code}: {all}");
    }
    for name in ["demo", "node", "lock", "unlock", "extend", "run", "status", "doctor", "bench"] {
        assert!(all.contains(&format!("  {name} ")), "{name}: {all}");
        let help = redbolt(&[name, "--help"]).expect(0).out;
        assert!(help.contains(&format!("Example:  redbolt {name}")), "{help}");
        assert!(help.contains("--nodes"), "{help}");
    }
    assert!(redbolt(&["--version"]).expect(0).out.starts_with("redbolt "));
}
