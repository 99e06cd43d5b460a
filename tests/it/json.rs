//! The JSON of what programs log: its names are promised, and no token is in it.

use redbolt::inspect::{clients, examine, permissions};
use redbolt::{Cause, Client, Config, ConnectError, UnlockError, Unlocked};
use serde_json::{Value, json, to_string};

use super::common::{Clients as _, Cluster, Kind, TTL, ms};

/// A token of the caller's own.
const TOKEN: &str = "tok-s3cr3t-en";

/// The JSON, which has none of these tokens, also not as numbers.
#[track_caller]
fn checked(text: serde_json::Result<String>, tokens: &[String]) -> Value {
    let text = text.expect("JSON");
    for token in tokens {
        let bytes: Vec<_> = token.bytes().take(8).map(|byte| byte.to_string()).collect();
        assert!(!text.contains(token) && !text.contains(&bytes.join(",")), "{text}");
    }
    serde_json::from_str(&text).expect("JSON")
}

/// The names of the fields, sorted.
#[track_caller]
fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

const HEALTH: [&str; 22] = [
    "append_only",
    "cause",
    "debts",
    "debts_dropped",
    "dialect",
    "direct_wake",
    "eviction",
    "info_denied",
    "message",
    "node",
    "resp3",
    "role",
    "round_trip_us",
    "run_id",
    "server",
    "silence_ms",
    "since_ms",
    "state",
    "unanswered",
    "until_ms",
    "uptime_s",
    "votes",
];

#[test]
fn what_is_seen_of_nodes_and_locks_is_json_without_a_token() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let config = || cluster.config().node_timeout(ms(2_000));
    let mut client = cluster.whole(config().client_name("till-7"));
    let mut other = cluster.whole(config());
    cluster.nodes().for_each(|node| drop(node.command(&["SET", "given", TOKEN, "PX", "20000"])));
    let drawn = client.try_lock("drawn\n", TTL).unwrap();
    let tokens = [TOKEN.to_owned(), drawn.token().to_string()];
    let checked = |text| checked(text, &tokens);

    for node in &client.nodes() {
        let node = checked(to_string(node));
        assert_eq!(names(&node), HEALTH);
        assert_eq!((&node["state"], &node["votes"]), (&"admitted".into(), &true.into()));
        assert_eq!((&node["cause"], &node["eviction"]), (&Value::Null, &"noeviction".into()));
        assert!(node["round_trip_us"].as_u64().is_some_and(|time| time > 0), "{node}");
    }

    let seen = checked(to_string(&other.holder("drawn\n").unwrap()));
    assert_eq!(names(&seen), ["holder", "key", "nodes", "verdict"]);
    assert_eq!((&seen["key"], &seen["verdict"]), (&r"drawn\n".into(), &"held".into()));
    let fields =
        ["address", "client", "ends_ms", "held_ms", "host", "pid", "program", "votes", "waiters"];
    assert_eq!(names(&seen["holder"]), fields);
    let pid = Value::from(std::process::id());
    assert_eq!((&seen["holder"]["pid"], &seen["holder"]["program"]), (&pid, &"till-7".into()));
    assert_eq!(seen["holder"]["client"].as_str().map(str::len), Some(16));
    // The third may not have been asked yet.
    let mut nodes = seen["nodes"].as_array().expect("a list").iter();
    let node = nodes.find(|node| node["state"] == "held").expect("a quorum");
    assert_eq!(names(node), ["cause", "message", "node", "state", "ttl_ms", "waits_ms"]);
    assert!(node["state"] == "held" && node["ttl_ms"].as_u64() <= Some(20_000), "{node}");

    let listing = checked(to_string(&other.locks("*", 9).unwrap()));
    assert_eq!(names(&listing), ["is_whole", "locks", "nodes"]);
    assert_eq!(listing["locks"].as_array().map(Vec::len), Some(2));
    assert_eq!(names(&listing["nodes"][0]), ["cause", "message", "node"]);

    let seen = checked(to_string(&clients(&mut other).unwrap()));
    assert_eq!(names(&seen), ["others", "settings", "unlisted"]);
    let settings = json!({
        "nodes": 3, "quorum": 2, "max_ttl_ms": 30_000, "restart_guard": false, "prefix": null,
    });
    assert_eq!((&seen["settings"], &seen["others"][0]["settings"]), (&settings, &settings));
    let reports = checked(to_string(&examine(&mut other).unwrap()));
    assert_eq!(names(&reports[0]["health"]), HEALTH);
    assert_eq!(reports[0]["info"]["role"], "master");
    let report = checked(to_string(&permissions(&mut other, "k").unwrap()));
    assert_eq!(names(&report[0]), ["cause", "message", "node", "refused"]);

    let error = checked(to_string(&other.try_lock("drawn\n", TTL).unwrap_err()));
    assert_eq!(
        (names(&error), &error["error"]),
        (vec!["error", "message", "nodes"], &"taken".into())
    );
    assert_eq!(names(&error["nodes"][0]), ["cause", "message", "node", "vote"]);

    let mut given = client.adopt("given", TOKEN, TTL).unwrap();
    for index in 0..3 {
        cluster.node(index).command(&["DEL", "given"]);
    }
    let error = checked(to_string(&client.extend(&mut given, TTL).unwrap_err()));
    assert_eq!(error["error"], "lost", "{error}");
    // Two decide it; the third is not waited for.
    let mut nodes = error["nodes"].as_array().expect("a list").iter();
    let node = nodes.find(|node| node["vote"] == "denied").expect("a quorum");
    assert_eq!(node["cause"], "gone");
    assert_eq!(checked(to_string(&client.unlock(drawn).unwrap())), "released");
}

#[test]
fn words_and_errors_are_json_as_the_command_prints_them() {
    let of = |text| checked(text, &[]);
    assert_eq!(
        of(to_string(&[Unlocked::Released, Unlocked::Unknown])),
        json!(["released", "unknown"])
    );
    assert_eq!(of(to_string(&Cause::OutOfMemory)), Cause::OutOfMemory.name());
    let not_held = json!({
        "error": "not_held", "message": UnlockError::NotHeld.to_string(), "nodes": [],
    });
    assert_eq!(of(to_string(&UnlockError::NotHeld)), not_held);
    let config = ConnectError::from(Config::new(["h:1", "h:1"]).unwrap_err());
    assert_eq!(of(to_string(&config))["error"], "config");
    // Nobody listens there.
    let error = Client::connect(Config::new(["127.0.0.1:1"]).unwrap()).unwrap_err();
    let node = json!({
        "node": "127.0.0.1:1",
        "vote": "failed",
        "cause": "connection_refused",
        "message": "connection refused",
    });
    assert_eq!(of(to_string(&error))["nodes"], json!([node]));
}

#[cfg(feature = "metrics")]
#[test]
fn counts_are_json_with_their_labels() {
    let driver =
        redbolt::driver::Driver::standalone(Config::new(["127.0.0.1:1"]).unwrap()).unwrap();
    let counts = checked(to_string(&driver.lease_counts()), &[]);
    assert_eq!(counts, json!({"first": 0, "transfer": 0, "wake": 0, "poll": 0, "again": 0}));
}
