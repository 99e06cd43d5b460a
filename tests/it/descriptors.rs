//! A process runs out of file descriptors: calls that fail meanwhile work again once there are
//! some.

use std::fs::File;

use redbolt::{Cause, Client};
use redbolt_embedded::{Memory, Nodes};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::common::{PATIENCE, TTL, eventually, fresh_config, ms, own_test};

/// The limit is for the whole process, so the test runs in a process of its own.
const ALONE: &str = "REDBOLT_FEW_DESCRIPTORS";

#[test]
fn a_name_is_looked_up_again_after_descriptors_had_run_out() {
    if std::env::var_os(ALONE).is_none() {
        let name = "descriptors::a_name_is_looked_up_again_after_descriptors_had_run_out";
        let output = own_test(name).env(ALONE, "1").output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let limit = Rlimit { current: Some(128), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("a lower limit is allowed");
    let nodes = Nodes::start(1).expect("a port is free");
    let by_name = nodes.urls().into_iter().map(|url| url.replace("127.0.0.1", "localhost"));
    let config = fresh_config(by_name.collect()).connect_timeout(ms(500));
    let client = Client::connect(config).expect("the node is fit");
    let cause = || client.nodes().wait()[0].cause;
    nodes.kill(0).expect("it runs");
    assert!(eventually(PATIENCE, || cause() == Cause::ConnectionRefused), "{:?}", cause());
    // The client has forgotten the address that does not serve, so it looks the name up again, in
    // vain. An attempt to connect that is under way holds a descriptor, so the test takes again what
    // the attempt gives back.
    let mut all = Vec::new();
    let is_without = || {
        all.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        cause() == Cause::Network
    };
    assert!(eventually(PATIENCE, is_without), "{:?}", cause());
    drop(all);
    nodes.restart(0, Memory::Kept).expect("it was killed");
    assert!(
        eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()),
        "{:?}",
        client.nodes().wait()
    );
}
