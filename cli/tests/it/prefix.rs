//! `--prefix`: the name of a lock here, and its name on the nodes.

use redbolt_embedded::Nodes;

use super::cli::on;

#[test]
fn the_command_line_takes_a_prefix() {
    let nodes = Nodes::start(3).unwrap();
    let lock = on(&nodes, &["lock", "k", "--ttl", "10s", "--prefix", "cli:", "--json"]).expect(0);
    assert_eq!(lock.json()["key"], "k");
    let status = |args: &[&str]| on(&nodes, args).expect(0).json()["verdict"].clone();
    assert_eq!(status(&["status", "k", "--prefix", "cli:", "--json"]), "held");
    assert_eq!(status(&["status", "cli:k", "--json"]), "held");
    assert_eq!(status(&["status", "k", "--json"]), "free");
    on(&nodes, &["unlock", "k", "--token", &lock.text("token"), "--prefix", "cli:"]).expect(0);
    assert_eq!(status(&["status", "cli:k", "--json"]), "free");
    let long = "p".repeat(4_096);
    let refused = on(&nodes, &["status", "k", "--prefix", &long]).expect(64);
    assert!(refused.err.contains("--prefix must be shorter than 4096 bytes"), "{refused:?}");
}
