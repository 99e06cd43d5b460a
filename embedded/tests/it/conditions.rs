//! Embedded nodes in trouble answer as real servers in the same trouble do.
//!
//! Each test brings the condition about on a real server, sets it on the model, and asks both the
//! same questions.

use redbolt_embedded::model::{Condition, ServerOptions};

use redbolt_rig::{PATIENCE, RealServer, available_kinds, eventually, request};

use super::pair::{Pair, flavor, words};

/// Commands of a lock client that a server in trouble treats in a way of its own.
const QUESTIONS: &[&str] = &[
    "PING",
    "ECHO x",
    "GET held",
    "SET k v",
    "SET k v NX PX 60000",
    "MSETEX 2 k1 v k2 v NX PX 60000",
    "SET k",
    "SET k v PX 0",
    "SET held held IFEQ held PX 60000",
    "DEL k",
    "PTTL k",
    "DELIFEQ k v",
    "DELEX k IFEQ v",
    "RPUSH list x",
    "EVAL TRANSFER 1 passed other next 60000 c m",
    "EVAL TRANSFER 1 passed mine next 60000 c m",
    "GET passed",
    "FLUSHALL",
    "DBSIZE",
    "SELECT 0",
    "EVAL RELEASE 1 held other",
    "EVAL RELEASE 1 none v",
    "EVAL EXTEND 1 held held 60000",
    "EVAL RELEASE 1 held held",
    "EVAL ACQUIRE 2 fenced fenced:fence token 60000 1795000000000000 60000",
    "GET fenced",
    "GET fenced:fence",
    "EVAL ACQUIRE 2 held held:fence token 60000 1795000000000000 60000",
    "EVAL TAKE_FIRST 3 held free badly t1 t2 t3 60000",
    "GET free",
    "EVAL TAKE_FIRST 2 held free t1 t2 60000",
    "EVAL RAISE 2 fenced fenced:fence token 1795000000000000 60000",
    "EVAL RAISE 2 fenced fenced:fence token 1795000000000001 60000",
    "EVAL RAISE 2 fenced fenced:fence other 1795000000000002 60000",
    "EVAL ACQUIRE 2 badly held token 60000 1795000000000000 60000",
    "GET badly",
    "PUBLISH c m",
    "CLIENT SETNAME n",
    "CONFIG GET save",
    "HELLO 2",
    "HELLO 3",
    "PING",
    "GET held",
    "FOO",
    "GET",
];

/// Asks the questions in a condition that `enter` brings about on the real server.
fn in_condition(args: &[&str], enter: &[&[&str]], condition: &Condition) {
    for kind in available_kinds() {
        let server = RealServer::start(kind, args);
        let mut pair = Pair::new(&server);
        pair.say(&["SET held held", "SET k v PX 60000", "SET passed mine"]);
        pair.run(1, &[words(&["SUBSCRIBE", "c"])]);
        for command in enter {
            let reply = server.command(command);
            assert_eq!(reply, b"+OK\r\n", "{} {command:?}", kind.name());
        }
        pair.set_condition(condition.clone());
        pair.say(QUESTIONS);
    }
}

#[test]
fn a_healthy_node_answers_as_a_healthy_server() {
    in_condition(&[], &[], &Condition::Replica(false));
}

/// No process listens on its master's port, so the replica keeps its keys.
#[test]
fn a_replica_answers_as_a_replica() {
    in_condition(&[], &[&["REPLICAOF", "127.0.0.1", "1"]], &Condition::Replica(true));
}

#[test]
fn a_replica_that_takes_writes_answers_as_one() {
    let enter: [&[&str]; 2] =
        [&["CONFIG", "SET", "replica-read-only", "no"], &["REPLICAOF", "127.0.0.1", "1"]];
    in_condition(&[], &enter, &Condition::WritableReplica(true));
}

#[test]
fn a_replica_without_its_master_answers_as_one() {
    let enter: [&[&str]; 2] =
        [&["CONFIG", "SET", "replica-serve-stale-data", "no"], &["REPLICAOF", "127.0.0.1", "1"]];
    in_condition(&[], &enter, &Condition::MasterDown(true));
}

#[test]
fn a_node_out_of_memory_answers_as_a_server_out_of_memory() {
    let enter: [&[&str]; 1] = [&["CONFIG", "SET", "maxmemory", "1"]];
    in_condition(&[], &enter, &Condition::OutOfMemory(true));
}

#[test]
fn a_node_without_replicas_answers_as_a_server_without_replicas() {
    let enter: [&[&str]; 1] = [&["CONFIG", "SET", "min-replicas-to-write", "1"]];
    in_condition(&[], &enter, &Condition::NoReplicas(true));
}

/// The script runs on a connection of its own until it is killed.
#[test]
fn a_node_that_runs_a_script_for_long_answers_as_such_a_server() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &["--busy-reply-threshold", "1"]);
        let mut pair = Pair::new(&server);
        pair.say(&["SET held held", "SET k v PX 60000", "SET passed mine"]);
        pair.run(1, &[words(&["SUBSCRIBE", "c"])]);
        let mut script = server.connect();
        script.send(&request(&["EVAL", "while true do end", "0"])).unwrap();
        assert!(eventually(PATIENCE, || server.command(&["PING"]).starts_with(b"-BUSY")));
        pair.set_condition(Condition::Busy(true));
        pair.say(QUESTIONS);
        pair.say(&["INFO", "SUBSCRIBE d", "AUTH a b", "RESET"]);
        pair.run_to_end(b"");
        assert_eq!(server.command(&["SCRIPT", "KILL"]), b"+OK\r\n", "{}", kind.name());
    }
}

#[test]
fn denied_commands_are_refused_as_access_lists_refuse_them() {
    let denied = ["get", "del", "eval", "publish", "config|get"];
    let mut enter = vec!["ACL", "SETUSER", "default"];
    let rules: Vec<_> = denied.iter().map(|name| format!("-{name}")).collect();
    enter.extend(rules.iter().map(String::as_str));
    let condition = Condition::Denied(denied.map(str::to_owned).to_vec());
    in_condition(&[], &[&enter], &condition);
}

/// The test removes the directory of the snapshot, so a snapshot fails.
#[test]
fn a_node_that_cannot_persist_answers_as_such_a_server() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &["--save", "3600 1"]);
        let mut pair = Pair::new(&server);
        pair.say(&["SET held held", "SET k v PX 60000", "SET passed mine"]);
        pair.run(1, &[words(&["SUBSCRIBE", "c"])]);
        std::fs::remove_dir_all(server.dir()).unwrap();
        assert!(server.command(&["BGSAVE"]).starts_with(b"+Background saving started"));
        let failed = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            server.command(&["PING"]).starts_with(b"-MISCONF")
        });
        assert!(failed, "{}: a snapshot without a directory fails", kind.name());
        pair.set_condition(Condition::Misconf(true));
        let questions = QUESTIONS.iter().filter(|question| **question != "CONFIG GET save");
        pair.say(&questions.copied().collect::<Vec<_>>());
    }
}

/// The real server is made to load slowly: it waits twenty milliseconds per key, and looks at its
/// sockets after each.
#[test]
fn a_loading_node_answers_as_a_loading_server() {
    for kind in available_kinds() {
        let mut server = RealServer::start(kind, &["--rdbcompression", "no"]);
        let mut wire = server.connect();
        for index in 0..500 {
            wire.ask(&["SET", &format!("k{index}"), &"x".repeat(1100)]).unwrap();
        }
        assert_eq!(wire.ask(&["SAVE"]).unwrap(), b"+OK\r\n");
        let slow = ["--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"];
        server.restart_until(&slow, |reply| reply.starts_with(b"-LOADING"));
        let mut pair = Pair::new(&server);
        pair.set_condition(Condition::Loading(true));
        pair.say(&[
            "HELLO 3",
            "PING",
            "SET k v NX PX 1000",
            "GET k",
            "SELECT 0",
            "ECHO x",
            "FOO",
            "GET",
        ]);
        pair.say(&["EVAL RELEASE 1 k v"]);
    }
}

#[test]
fn a_password_is_asked_for_as_real_servers_ask() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &["--requirepass", "secret"]);
        let options = ServerOptions::new(flavor(kind)).password("secret");
        let mut pair = Pair::with(&server, &options);
        pair.say(&["PING", "FOO", "GET", "HELLO", "HELLO 2", "HELLO 3", "HELLO 4", "HELLO x"]);
        pair.say(&["HELLO 3 SETNAME a", "HELLO 3 AUTH default bad", "HELLO 3 FOO", "AUTH bad"]);
        pair.say(&["AUTH nobody secret", "AUTH a b c", "RESET", "PING"]);
        pair.say(&["AUTH secret", "PING", "AUTH bad", "PING", "RESET", "PING"]);
        pair.say(&["HELLO 3 AUTH default secret SETNAME me", "GET none"]);
        pair.run_to_end(b"*11\r\n");
        pair.run_to_end(b"*1\r\n$16385\r\n");
        pair.run_to_end(b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*1\r\n$4\r\nPING\r\n");
    }
}

/// Redis 8 and Valkey 8 do not answer wrong credentials behind other replies of one pipeline.
#[test]
fn wrong_credentials_in_a_pipeline_are_answered_or_not_as_by_the_server() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let mut pair = Pair::new(&server);
        for login in [&["AUTH", "nobody", "x"][..], &["HELLO", "3", "AUTH", "nobody", "x"]] {
            let (ping, login) = (request(&["PING"]), request(login));
            pair.run_to_end(&login);
            pair.run_to_end(&[ping.clone(), login.clone(), ping.clone()].concat());
            pair.run_to_end(&[login.clone(), ping, login].concat());
        }
    }
}

#[test]
fn broken_framing_is_answered_as_real_servers_answer() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let mut pair = Pair::new(&server);
        for bytes in [
            &b"*abc\r\n"[..],
            b"*2147483648\r\n",
            b"*01\r\n",
            b"* 1\r\n",
            b"*\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$abc\r\n",
            b"*1\r\n$+4\r\nPING\r\n",
            b"*1\r\n$536870913\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n\r\n",
            b"*1\r\nPING\r\n",
            b"*1\r\n\x07\r\n",
            b"PING \"a\r\n",
            b"PING\r\n",
            b"PING 'a b'\n",
            b"\r\n",
            b"*0\r\n",
            b"*-5\r\nPING\r\n",
            b"$4\r\nPING\r\n",
            b"HTTP/1.1 400\r\n\r\n",
            b"POST / HTTP/1.1\r\n",
            b"Host: x\r\n",
            b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
            b"*1\r\n$0\r\n\r\n",
        ] {
            pair.run_to_end(bytes);
        }
    }
}

#[test]
fn a_subscribed_connection_is_as_on_real_servers() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let mut pair = Pair::new(&server);
        for version in ["2", "3"] {
            let hello = words(&["HELLO", version]);
            pair.run(0, &[hello.clone(), words(&["SUBSCRIBE", "a"])]);
            pair.run(1, &[hello, words(&["PUBLISH", "none", "m"])]);
            pair.say(&["SET k v", "PING", "PING x", "GET", "FOO", "HELLO 2", "SUBSCRIBE a"]);
            pair.say(&[
                "SUBSCRIBE b",
                "UNSUBSCRIBE b",
                "UNSUBSCRIBE zz",
                "UNSUBSCRIBE",
                "UNSUBSCRIBE",
            ]);
            pair.say(&["SUBSCRIBE", "SUBSCRIBE q", "RESET", "SET k v"]);
        }
        // A client's own message comes before or behind the number of receivers.
        let own = [["HELLO", "3"].as_slice(), &["SUBSCRIBE", "a"], &["PUBLISH", "a", "m"]];
        pair.run_to_end(&own.map(request).concat());
    }
}
