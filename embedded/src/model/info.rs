//! The server's information about itself: INFO, CONFIG, TIME.
//!
//! Layer: sans-IO. INFO has the fields by which a client or an operator judges a master, in the
//! order and with the names of the flavor. It does not have all of the two hundred fields of a real
//! server.

use std::fmt::Write as _;

use super::call::Call;
use super::flavor::Flavor;
use super::server::Server;

/// `INFO [section ..]`
pub(super) fn info(call: &mut Call<'_>) {
    let args = call.args;
    let is_wanted = |section: &str| {
        args.len() == 1
            || args.from(1).any(|wanted| {
                let is = |name: &str| wanted.eq_ignore_ascii_case(name.as_bytes());
                is(section) || is("all") || is("default") || is("everything")
            })
    };
    let mut text = String::with_capacity(TEXT_LEN);
    for (section, write) in SECTIONS {
        if is_wanted(section) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {section}\r\n");
            write(call.server, call.now_ms, &mut text);
        }
    }
    call.reply().verbatim(text.as_bytes());
}

/// Room for all that a client asks for at a time.
const TEXT_LEN: usize = 1024;

type Section = (&'static str, fn(&mut Server, i64, &mut String));

const SECTIONS: [Section; 7] = [
    ("Server", server),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

fn field(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(server: &mut Server, now_ms: i64, text: &mut String) {
    let valkey = server.flavor.is_valkey();
    let mode = if server.state.cluster { "cluster" } else { "standalone" };
    let uptime_s = server.uptime_s(now_ms);
    field(text, "redis_version", if valkey { "7.2.4" } else { server.flavor.version() });
    if valkey {
        field(text, "server_name", "valkey");
        field(text, "valkey_version", server.flavor.version());
        field(text, "valkey_release_stage", "ga");
    }
    field(text, if valkey { "server_mode" } else { "redis_mode" }, mode);
    field(text, "os", "embedded");
    field(text, "arch_bits", 64);
    let [high, low, ..] = server.life.run_id;
    field(text, "process_id", u16::from_be_bytes([high, low]));
    field(text, "run_id", hex(&server.life.run_id));
    field(text, "tcp_port", server.life.port);
    field(text, "server_time_usec", now_ms.saturating_mul(1000));
    field(text, "uptime_in_seconds", uptime_s);
    field(text, "uptime_in_days", uptime_s / 86_400);
    field(text, "hz", 10);
    if valkey {
        field(text, "availability_zone", "");
    }
}

fn memory(server: &mut Server, _now_ms: i64, text: &mut String) {
    // If memory is full, the limit is below the memory in use.
    let maxmemory = u64::from(server.state.oom);
    field(text, "used_memory", 1_000_000);
    field(text, "maxmemory", maxmemory);
    field(text, "maxmemory_human", format_args!("{maxmemory}B"));
    field(text, "maxmemory_policy", server.policy());
}

fn persistence(server: &mut Server, _now_ms: i64, text: &mut String) {
    field(text, "loading", u8::from(server.state.loading));
    field(text, "async_loading", 0);
    field(text, "rdb_changes_since_last_save", 0);
    field(text, "rdb_bgsave_in_progress", 0);
    field(text, "rdb_last_bgsave_status", if server.state.misconf { "err" } else { "ok" });
    field(text, "rdb_last_load_keys_expired", 0);
    field(text, "rdb_last_load_keys_loaded", 0);
    field(text, "aof_enabled", 0);
    field(text, "aof_rewrite_in_progress", 0);
    field(text, "aof_last_bgrewrite_status", "ok");
    field(text, "aof_last_write_status", "ok");
}

fn stats(server: &mut Server, _now_ms: i64, text: &mut String) {
    field(text, "total_connections_received", server.stats.connections);
    field(text, "total_commands_processed", server.stats.commands);
    field(text, "expired_keys", server.keys.expired);
    field(text, "expired_time_cap_reached_count", 0);
    field(text, "evicted_keys", server.stats.evicted);
}

fn replication(server: &mut Server, _now_ms: i64, text: &mut String) {
    if server.state.replica {
        let link = if server.state.master_down { "down" } else { "up" };
        field(text, "role", "slave");
        field(text, "master_host", "127.0.0.1");
        field(text, "master_port", 1);
        field(text, "master_link_status", link);
    } else {
        field(text, "role", "master");
    }
    field(text, "connected_slaves", u8::from(server.state.backed));
    if server.state.backed && !server.state.unguarded {
        field(text, "min_slaves_good_slaves", 1);
    }
    field(text, "master_failover_state", "no-failover");
    field(text, "master_replid", hex(&server.life.replid));
    field(text, "master_replid2", hex(server.life.replid2.as_ref().unwrap_or(&[0; 20])));
    field(text, "master_repl_offset", 0);
    field(text, "second_repl_offset", if server.life.replid2.is_some() { 1 } else { -1 });
}

fn cluster(server: &mut Server, _now_ms: i64, text: &mut String) {
    field(text, "cluster_enabled", u8::from(server.state.cluster));
}

fn keyspace(server: &mut Server, now_ms: i64, text: &mut String) {
    for db in 0..super::keyspace::DATABASES {
        let (count, volatile) = server.keys.count(db, now_ms);
        if count > 0 {
            let more = match server.flavor {
                Flavor::Redis70 | Flavor::Valkey81 => "",
                Flavor::Redis80 | Flavor::Redis86 => ",subexpiry=0",
                Flavor::Valkey91 => ",keys_with_volatile_items=0",
            };
            let _ = write!(text, "db{db}:keys={count},expires={volatile},avg_ttl=0{more}\r\n");
        }
    }
}

impl Server {
    fn policy(&self) -> &str {
        self.state.policy.as_deref().unwrap_or("noeviction")
    }

    fn setting(&self, name: &str) -> &str {
        match name {
            "appendfsync" => "everysec",
            "appendonly" => "no",
            "maxmemory" => {
                if self.state.oom {
                    "1"
                } else {
                    "0"
                }
            }
            "maxmemory-policy" => self.policy(),
            _ => "",
        }
    }
}

const SETTINGS: [&str; 5] = ["appendfsync", "appendonly", "maxmemory", "maxmemory-policy", "save"];

/// `CONFIG GET pattern ..`: a pattern is a name, or a prefix followed by `*`.
pub(super) fn config_get(call: &mut Call<'_>) {
    let args = call.args;
    let is_wanted = |name: &&&str| {
        args.from(2).any(|pattern| match pattern.strip_suffix(b"*") {
            Some(start) => name.as_bytes().starts_with(&start.to_ascii_lowercase()),
            None => pattern.eq_ignore_ascii_case(name.as_bytes()),
        })
    };
    let wanted = || SETTINGS.iter().filter(is_wanted);
    let mut reply = super::reply::Reply::new(call.out, call.session.resp3);
    reply.map(wanted().count());
    for name in wanted() {
        reply.text(name);
        reply.text(call.server.setting(name));
    }
}

/// `TIME`
pub(super) fn time(call: &mut Call<'_>) {
    let now_ms = call.now_ms;
    let mut reply = call.reply();
    reply.array(2);
    reply.text(&now_ms.div_euclid(1000).to_string());
    reply.text(&(now_ms.rem_euclid(1000) * 1000).to_string());
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let mut text = String::with_capacity(2 * bytes.len());
    text.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
    text
}
