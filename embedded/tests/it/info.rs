//! A client can read INFO and CONFIG of an embedded node like those of the server whose flavor it
//! has.

use std::collections::BTreeMap;

use redbolt_embedded::{Nodes, NodesOptions};

use redbolt_rig::{RealServer, Wire, available_kinds};

use super::pair::flavor;

/// The fields by which a client judges a master.
const NEEDED: &[&str] = &[
    "redis_version",
    "run_id",
    "tcp_port",
    "uptime_in_seconds",
    "maxmemory",
    "maxmemory_policy",
    "loading",
    "aof_enabled",
    "aof_last_write_status",
    "rdb_last_bgsave_status",
    "evicted_keys",
    "expired_keys",
    "role",
    "connected_slaves",
    "master_replid",
    "master_replid2",
    "second_repl_offset",
    "cluster_enabled",
];
/// Fields whose values differ between servers.
const OWN: &[&str] = &[
    "run_id",
    "tcp_port",
    "uptime_in_seconds",
    "server_time_usec",
    "process_id",
    "os",
    "used_memory",
    "rdb_changes_since_last_save",
    "master_replid",
    "total_connections_received",
    "total_commands_processed",
    "db0",
];

/// Fields with their sections in front, in the order of the reply.
fn fields(reply: &[u8]) -> (Vec<String>, BTreeMap<String, String>) {
    let text = String::from_utf8_lossy(reply);
    let (mut sections, mut fields) = (Vec::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(section) = line.strip_prefix("# ") {
            sections.push(section.to_owned());
        } else if let (Some(section), Some((name, value))) = (sections.last(), line.split_once(':'))
        {
            fields.insert(format!("{section}/{name}"), value.to_owned());
        }
    }
    (sections, fields)
}

#[test]
fn every_field_of_info_is_one_of_the_real_servers() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let options = NodesOptions::new(1).flavor(flavor(kind));
        let nodes = Nodes::start_with(&options).unwrap();
        let mut ours = Wire::connect_url(&nodes.urls()[0]).unwrap();
        let mut real = server.connect();
        for wire in [&mut ours, &mut real] {
            wire.ask(&["SET", "k", "v", "PX", "60000"]).unwrap();
        }
        for args in
            [&["INFO"][..], &["info", "all"], &["INFO", "SERVER", "memory"], &["INFO", "nothing"]]
        {
            let (our_sections, our_fields) = fields(&ours.ask(args).unwrap());
            let (real_sections, real_fields) = fields(&real.ask(args).unwrap());
            let known = real_sections.iter().filter(|section| our_sections.contains(section));
            assert!(known.eq(&our_sections), "{}: {our_sections:?}", kind.name());
            for (name, value) in &our_fields {
                let bare = name.split('/').nth(1).unwrap();
                let real = real_fields.get(name);
                assert!(real.is_some(), "{} has no {name}", kind.name());
                assert!(
                    OWN.contains(&bare) || real == Some(value),
                    "{}: {name}: {value}, {real:?}",
                    kind.name()
                );
            }
        }
        let (_, all) = fields(&ours.ask(&["INFO"]).unwrap());
        for name in NEEDED {
            assert!(all.keys().any(|key| key.ends_with(&format!("/{name}"))), "{name}");
        }
    }
}

#[test]
fn info_is_a_verbatim_string_where_resp3_has_one() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let nodes = Nodes::start_with(&NodesOptions::new(1).flavor(flavor(kind))).unwrap();
        let ours = Wire::connect_url(&nodes.urls()[0]).unwrap();
        let replies = [ours, server.connect()].map(|mut wire| {
            wire.ask(&["HELLO", "3"]).unwrap();
            wire.ask(&["INFO", "cluster"]).unwrap()
        });
        assert_eq!(replies[0], b"=34\r\ntxt:# Cluster\r\ncluster_enabled:0\r\n\r\n");
        assert_eq!(replies[0], replies[1]);
    }
}

#[test]
fn config_get_names_the_same_settings() {
    let settings = ["appendfsync", "appendonly", "maxmemory", "maxmemory-policy", "save"];
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let nodes = Nodes::start_with(&NodesOptions::new(1).flavor(flavor(kind))).unwrap();
        let mut ours = Wire::connect_url(&nodes.urls()[0]).unwrap();
        for name in settings {
            let args = ["CONFIG", "GET", name];
            assert_eq!(ours.ask(&args).unwrap(), server.command(&args), "{}", kind.name());
        }
    }
}
