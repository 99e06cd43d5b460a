//! Redbolt beside clients whose runtime is not in the package registries: the commands that their
//! sources send, replayed on real servers.
//!
//! `docs/moving.md` names them. The scripts here have the same effect as theirs, in our own words.

use redbolt::{ExtendError, UnlockError, Unlocked};

use super::common::{Clients as _, Cluster, TTL, eventually, taken};
use super::common::{PATIENCE, RealServer};

const THEIRS: &str = "6f1d0f2c-theirs";

/// Deletes the key where the token is the caller's: all of these clients release like this.
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                       return redis.call('del', KEYS[1]) else return 0 end";

/// Prolongs the key where the token is the caller's, and sets it where there is none.
const EXTEND_OR_SET: &str = "local held = redis.call('get', KEYS[1]) \
    if held == false then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 \
    elseif held == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) \
    else return -1 end";

/// Sets the key where there is none, or where it is the caller's.
const SET_UNLESS_FOREIGN: &str = "local held = redis.call('get', KEYS[1]) \
    if held == false and ARGV[3] == 'yes' or held == ARGV[1] then \
    return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end";

/// Deletes the key where it is the caller's, and sets it anew.
const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end \
                     return redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3], 'nx')";

/// Sets the key, whichever client has it.
const SET_ANYHOW: &str = "if redis.call('set', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2]) then \
    return 'OK' else return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) end";

type Words = Vec<String>;

fn words(words: &[&str]) -> Words {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The commands that a client sends to each node.
struct Replay {
    name: &'static str,
    /// The key of the lock `stock` at that client.
    key: &'static str,
    acquire: fn(&str) -> Words,
    extend: Option<fn(&str) -> Words>,
    /// The client's extension takes the lock from any holder.
    extension_steals: bool,
}

fn set_nx_px(key: &str) -> Words {
    words(&["SET", key, THEIRS, "NX", "PX", "20000"])
}

/// That client sends whole seconds as EX.
fn set_ex_nx(key: &str) -> Words {
    words(&["SET", key, THEIRS, "EX", "20", "NX"])
}

fn eval(script: &str, key: &str, args: &[&str]) -> Words {
    [words(&["EVAL", script, "1", key]), words(args)].concat()
}

const CLIENTS: [Replay; 7] = [
    Replay {
        name: "Redlock-rb",
        key: "stock",
        acquire: |key| eval(SET_UNLESS_FOREIGN, key, &[THEIRS, "20000", "yes"]),
        extend: Some(|key| eval(SET_UNLESS_FOREIGN, key, &[THEIRS, "20000", "yes"])),
        extension_steals: false,
    },
    Replay {
        name: "Redlock-php",
        key: "stock",
        acquire: set_nx_px,
        extend: None,
        extension_steals: false,
    },
    Replay {
        name: "PHPRedisMutex",
        key: "php-malkusch-lock:stock",
        acquire: |key| words(&["SET", key, THEIRS, "nx", "px", "20001"]),
        extend: None,
        extension_steals: false,
    },
    Replay {
        name: "RedLock.net",
        key: "redlock:stock",
        acquire: set_ex_nx,
        extend: Some(|key| eval(EXTEND_OR_SET, key, &[THEIRS, "20000"])),
        extension_steals: false,
    },
    Replay {
        name: "Redlock-cs",
        key: "stock",
        acquire: set_ex_nx,
        extend: None,
        extension_steals: false,
    },
    Replay {
        name: "Redlock-cpp",
        key: "stock",
        acquire: |key| words(&["set", key, THEIRS, "px", "20000", "nx"]),
        extend: Some(|key| eval(RENEW, key, &[THEIRS, THEIRS, "20000"])),
        extension_steals: false,
    },
    Replay {
        name: "Redis::DistLock",
        key: "stock",
        acquire: set_nx_px,
        extend: Some(|key| eval(SET_ANYHOW, key, &[THEIRS, "20000"])),
        extension_steals: true,
    },
];

/// Sends a command to all nodes. Returns how many accepted it.
fn yes(cluster: &Cluster, command: &[String]) -> usize {
    let is_yes = |node: &&RealServer| {
        let reply = node.command(command);
        assert!(!reply.starts_with(b"-"), "{command:?}: {}", reply.escape_ascii());
        reply == b"+OK\r\n" || reply == b"$2\r\nOK\r\n" || reply == b":1\r\n"
    };
    cluster.nodes().filter(is_yes).count()
}

#[test]
fn a_lock_of_either_keeps_the_other_out() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let redbolt = cluster.client();
    for client in CLIENTS {
        let (name, key) = (client.name, client.key);
        let acquire = (client.acquire)(key);
        let release = eval(RELEASE, key, &[THEIRS]);

        assert_eq!(yes(&cluster, &acquire), 3, "{name}");
        taken(redbolt.try_lock(key, TTL).wait());
        if let Some(extend) = client.extend {
            assert_eq!(yes(&cluster, &extend(key)), 3, "{name}");
            taken(redbolt.try_lock(key, TTL).wait());
        }
        assert_eq!(yes(&cluster, &release), 3, "{name}");

        let mut lease = redbolt.try_lock(key, TTL).wait().expect("it was released");
        // The SET may still be on its way to the last node.
        assert!(eventually(PATIENCE, || cluster.holders(key) == 3));
        assert_eq!(yes(&cluster, &acquire), 0, "{name} won what Redbolt holds");
        assert_eq!(yes(&cluster, &release), 0, "{name} released what Redbolt holds");
        lease.extend(TTL).wait().expect("nobody touched it");
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released, "{name}");
        assert!(eventually(PATIENCE, || cluster.holders(key) == 0));
    }
}

#[test]
fn an_extension_takes_redbolts_lock_only_where_it_asks_for_no_owner() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let redbolt = cluster.client();
    for client in CLIENTS {
        let (name, key) = (client.name, client.key);
        let Some(extend) = client.extend else { continue };
        let mut lease = redbolt.try_lock(key, TTL).wait().unwrap();
        assert!(eventually(PATIENCE, || cluster.holders(key) == 3));
        let extended = yes(&cluster, &extend(key));
        if client.extension_steals {
            assert_eq!(extended, 3, "{name}");
            // Redbolt reports the loss, and leaves alone the key that is no longer its own.
            let error = lease.extend(TTL).wait().unwrap_err();
            assert!(matches!(error, ExtendError::Lost { .. }), "{name}: {error}");
            assert_eq!(lease.unlock().wait(), Err(UnlockError::NotHeld), "{name}");
            assert_eq!(yes(&cluster, &eval(RELEASE, key, &[THEIRS])), 3, "{name}");
        } else {
            assert_eq!(extended, 0, "{name} extended what Redbolt holds");
            lease.extend(TTL).wait().expect("nobody touched it");
            assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released, "{name}");
            assert!(eventually(PATIENCE, || cluster.holders(key) == 0));
        }
    }
}
