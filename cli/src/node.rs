//! `redbolt node`: embedded nodes in the foreground.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use redbolt_embedded::{Nodes, NodesOptions};
use serde_json::json;

use crate::args::{Global, NodeArgs};
use crate::exit::Failure;
use crate::output::{note, say};
use crate::signals::{ENDING, Signals};

pub(crate) fn run(global: &Global, args: &NodeArgs) -> Result<(), Failure> {
    if args.port.checked_add(args.count - 1).is_none() {
        let message =
            format!("{} nodes from port {} on pass 65535: lower --port", args.count, args.port);
        return Err(Failure::usage(message));
    }
    let signals = Signals::watch(&ENDING, || {})?;
    let options = NodesOptions::new(args.count.into()).first_port(args.port);
    let nodes = Nodes::start_with(&options)
        .map_err(|error| Failure::from(error).hint("another --port may be free"))?;
    let urls = nodes.urls();
    if global.json {
        say(json!({"nodes": urls}))?;
    } else {
        say(urls.join("\n"))?;
    }
    if io::stderr().is_terminal() {
        note(format_args!("the nodes run until Ctrl-C; REDBOLT_NODES={}", urls.join(",")));
    }
    while signals.wait(Duration::from_secs(3600)).is_none() {}
    Ok(())
}
