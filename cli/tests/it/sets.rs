//! Several locks as one: `lock` prints one token, and `unlock`, `extend` and CMD take it.

use redbolt_embedded::Nodes;
use serde_json::{Value, json};

use super::cli::{Ended, Running, command_on, on, redbolt};
use super::holders::{NO_GUARD, at, servers, urls};
use redbolt_rig::{PATIENCE, RealServer, eventually};

fn verdict(servers: &[RealServer], key: &str) -> String {
    at(servers, &["status", key, "--json"]).expect(0).text("verdict")
}

/// Takes both locks for a long time, and returns their token.
fn take_both(servers: &[RealServer]) -> String {
    at(servers, &["lock", "b", "a", "--ttl", "30s", "--json"]).expect(0).text("token")
}

/// The same by a call that had to wait for the second.
fn take_in_two_attempts(servers: &[RealServer]) -> String {
    let other = at(servers, &["lock", "b", "--ttl", "30s", "--json"]).expect(0).text("token");
    let lock = ["lock", "b", "a", "--ttl", "30s", "--wait", "30s", "--json"];
    let waiting = Running::start(&urls(servers), &[&NO_GUARD[..], &lock].concat());
    // It keeps the locks before the one that it waits for.
    assert!(eventually(PATIENCE, || verdict(servers, "a") == "held"));
    at(servers, &["unlock", "b", "--token", &other]).expect(0);
    waiting.end().expect(0).text("token")
}

fn objects(ended: &Ended) -> Vec<Value> {
    ended.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn a_set_is_printed_once_with_one_token() {
    let nodes = Nodes::start(3).expect("nodes start");
    let lock = ["lock", "b", "a", "b", "--ttl", "20s", "--fence"];
    let set = on(&nodes, &[&lock[..], &["--json"]].concat()).expect(0);
    let token = set.text("token");
    let set = set.json();
    assert_eq!((&set["keys"], &set["votes"]), (&json!(["a", "b"]), &3.into()), "{set}");
    assert!(set["fences"].as_array().is_some_and(|it| it.len() == 2 && it[0].is_u64()), "{set}");
    assert!(set.get("key").is_none() && set.get("fence").is_none(), "{set}");
    let none = on(&nodes, &["lock", "b", "c", "--ttl", "20s"]).expect(75);
    assert!(none.err.contains("b: the lock is taken"), "{none:?}");
    assert_eq!(on(&nodes, &["status", "c", "--json"]).expect(0).text("verdict"), "free");
    on(&nodes, &["unlock", "a", "b", "--token", &token]).expect(0);
    let text = on(&nodes, &lock).expect(0).out;
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["key", "key", "token", "validity", "votes", "fence", "fence"], "{text}");
}

#[test]
fn a_set_is_extended_and_released_by_its_token_in_any_order_of_its_keys() {
    let Some(servers) = servers() else { return };
    for take in [take_both, take_in_two_attempts] {
        let token = take(&servers);
        let extend = ["extend", "b", "a", "--token", &token, "--ttl", "20s", "--json"];
        let extended = at(&servers, &extend).expect(0).json();
        assert_eq!((&extended["keys"], &extended["token"]), (&json!(["a", "b"]), &json!(token)));
        let left = extended["validity_ms"].as_u64();
        assert!(left.is_some_and(|ms| (15_000..20_000).contains(&ms)), "{extended}");
        let unlocked = at(&servers, &["unlock", "b", "a", "--token", &token]).expect(0);
        assert_eq!(unlocked.out, "a is released\nb is released\n");
        assert_eq!([verdict(&servers, "a"), verdict(&servers, "b")], ["free", "free"]);
    }
}

#[test]
fn a_key_that_was_released_before_is_named_and_the_others_are_released() {
    let Some(servers) = servers() else { return };
    for more in [&[][..], &["--json"]] {
        let token = take_both(&servers);
        let part = at(&servers, &["unlock", "a", "--token", &token]).expect(70);
        assert!(
            part.err.contains("if it is the token of several locks, name all of them"),
            "{part:?}"
        );
        let of_a = token.split(',').next().expect("a token");
        at(&servers, &["unlock", "a", "--token", of_a]).expect(0);
        let extended = at(&servers, &["extend", "a", "b", "--token", &token, "--ttl", "20s"]);
        let extended = extended.expect(70);
        assert!(extended.err.contains("one of a, b: the lock is no longer held"), "{extended:?}");
        let unlock = [&["unlock", "a", "b", "--token", &token], more].concat();
        let unlocked = at(&servers, &unlock).expect(70);
        assert!(!format!("{extended:?}{unlocked:?}").contains(&token));
        if more.is_empty() {
            assert_eq!(unlocked.out, "b is released\n");
            assert!(unlocked.err.contains("a is not held with this token"), "{unlocked:?}");
        } else {
            let [a, b] = objects(&unlocked).try_into().expect("one for each key");
            assert_eq!(a["error"], "not_held");
            assert_eq!(b, json!({"key": "b", "released": true}));
        }
        assert_eq!(verdict(&servers, "b"), "free");
    }
}

#[test]
fn one_token_may_be_that_of_all_keys_and_for_one_key_it_is_taken_as_it_stands() {
    let Some(servers) = servers() else { return };
    for (keys, token) in [(&["a", "b"][..], "t0ken"), (&["a", "a"], "x,y")] {
        for key in keys {
            servers.iter().for_each(|it| drop(it.command(&["SET", key, token, "EX", "9"])));
        }
        let extend = [&["extend"], keys, &["--token", token, "--ttl", "20s", "--json"]].concat();
        assert_eq!(at(&servers, &extend).expect(0).text("token"), token);
        at(&servers, &[&["unlock"], keys, &["--token", token]].concat()).expect(0);
        assert_eq!(verdict(&servers, "a"), "free");
    }
}

#[test]
fn a_wrong_number_of_tokens_or_keys_is_a_usage_error_that_shows_no_token() {
    let many: Vec<String> = (0..65).map(|number| format!("k{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = "t".repeat(256);
    for (keys, token, why) in [
        (&["a", "b", "c"][..], "t0ken,t0ken", "--token has 2 tokens for 3 keys"),
        (&["a", "b"], "t0ken,t0ken,t0ken", "--token has 3 tokens for 2 keys"),
        (&["a", "b"], "t0ken,", "a token in --token is empty"),
        (&["a", "b"], &long, "a token in --token is too long"),
        (&many, "t0ken", "65 keys"),
    ] {
        for (command, more) in [("unlock", &[][..]), ("extend", &["--ttl", "9s"])] {
            let args = [&[command], keys, &["--token", token, "--nodes", "h:1"], more].concat();
            let ended = redbolt(&args).expect(64);
            assert!(ended.err.contains(why), "{args:?}: {ended:?}");
            assert!(!ended.err.contains("t0ken") && !ended.err.contains("ttt"), "{ended:?}");
        }
    }
    let forced = redbolt(&["unlock", "--force", "--yes", "a", "b", "--nodes", "h:1"]).expect(64);
    assert!(forced.err.contains("--force takes one KEY"), "{forced:?}");
}

/// The node stands still for a while, so it greets the command long after the others.
#[test]
fn unlock_deletes_the_keys_of_a_node_that_connects_late() {
    let Some(servers) = servers() else { return };
    let token = take_both(&servers);
    let late = servers.last().expect("there are three");
    late.freeze();
    let unlock = ["unlock", "a", "b", "--token", &token, "--node-timeout", "50ms"];
    let unlock = Running::start(&urls(&servers), &[&NO_GUARD[..], &unlock].concat());
    std::thread::sleep(std::time::Duration::from_millis(400));
    late.thaw();
    unlock.end().expect(0);
    assert_eq!(late.command(&["EXISTS", "a", "b"]), b":0\r\n");
}

#[test]
fn a_command_under_several_locks_finds_their_token() {
    let Some(servers) = servers() else { return };
    let unlock = "echo ${REDBOLT_KEY-none}; trap '' TERM; \"$0\" unlock b a && exec sleep 600";
    let run = ["run", "a", "b", "--ttl", "30s", "--grace", "10s", "--", "sh", "-c", unlock];
    let run = [&NO_GUARD[..], &run, &[env!("CARGO_BIN_EXE_redbolt")]].concat();
    let mut command = command_on(&urls(&servers), &run);
    command.env("REDBOLT_KEY", "other").env("REDBOLT_RESTART_GUARD", "off");
    let mut running = Running::of(command);
    for line in ["none", "a is released", "b is released"] {
        assert_eq!(running.line(), line);
    }
    assert_eq!(running.end().code, Some(70));
}

#[test]
fn status_shows_several_locks_and_ends_with_the_worst_code() {
    let Some(servers) = servers() else { return };
    take_both(&servers);
    let shown = at(&servers, &["status", "b", "free", "a"]).expect(0).out;
    let places = ["a is held on 3 of 3", "b is held on 3 of 3", "free is free"];
    let places = places.map(|words| shown.find(words));
    assert!(places[0].is_some() && places.is_sorted(), "{shown}");
    servers.iter().for_each(|server| drop(server.command(&["HSET", "other", "field", "value"])));
    let ended = at(&servers, &["status", "a", "other", "b", "--json"]).expect(69);
    let verdicts: Vec<Value> = objects(&ended).iter().map(|it| it["verdict"].clone()).collect();
    assert_eq!(verdicts, ["held", "held", "unknown"]);
    let watch = ["status", "b", "free", "--watch", "--interval", "10ms"];
    let mut watch = Running::start(&urls(&servers), &[&NO_GUARD[..], &watch].concat());
    assert!(watch.line().contains("b is held") && watch.line().ends_with("free is free"));
    watch.signal("INT");
    watch.end().expect(0);
}
