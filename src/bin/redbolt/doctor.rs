//! `redbolt doctor`: asks each node how it is set up, and prints what [`advice`](crate::advice)
//! makes of it.

use std::time::Duration;

use redbolt::client::NodeReport;
use redbolt::engine::NodeState;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::advice::{Advice, Examined, advise};
use crate::args::{Global, Switch};
use crate::exit::{Failure, UNSAFE};
use crate::output::{Paint, say, short, us};
use crate::table::Table;
use crate::{look, settings};

pub(crate) fn run(global: &Global) -> Result<(), Failure> {
    let (mut client, config) = look::patient_client(global)?;
    let quorum = settings::quorum(global, &config)?;
    let asked_us = wall_us();
    let reports = client.examine()?;
    let nodes: Vec<Examined> = reports.iter().map(|report| examined(report, asked_us)).collect();
    let guard_is_on = global.restart_guard != Some(Switch::Off);
    let advice = advise(&nodes, quorum, guard_is_on);
    if global.json {
        let list: Vec<Value> = nodes.iter().map(node_json).collect();
        say(json!({
            "ok": advice.unsafe_because.is_empty(),
            "nodes": list,
            "quorum": quorum,
            "unsafe": advice.unsafe_because,
            "notes": advice.notes,
        }))?;
    } else {
        print(&nodes, &advice, quorum)?;
    }
    if advice.unsafe_because.is_empty() { Ok(()) } else { Err(Failure::code(UNSAFE)) }
}

/// The wall clock, which people set servers by; no lock depends on it.
fn wall_us() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
}

fn examined(report: &NodeReport, asked_us: i64) -> Examined {
    let health = &report.health;
    let info = |name: &str| report.info(name).map(str::to_owned);
    // The node read its clock half a round trip after it was asked.
    let clock_us = report.time_us.zip(report.round_trip).and_then(|(time, round_trip)| {
        let half = i64::try_from(us(round_trip) / 2).ok()?;
        Some(i64::try_from(time).ok()?.saturating_sub(asked_us.saturating_add(half)))
    });
    Examined {
        name: health.name.clone(),
        state: health.state,
        cause: if report.round_trip.is_some() { health.cause } else { report.cause },
        is_reachable: report.round_trip.is_some() || health.server.is_some(),
        server: health.server.clone(),
        role: health.role.clone(),
        append_only: health.append_only,
        append_fsync: report.append_fsync.clone(),
        snapshots: info("rdb_last_save_time").is_some(),
        policy: health.maxmemory_policy.clone(),
        maxmemory: info("maxmemory").and_then(|bytes| bytes.parse().ok()),
        replicas: info("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0),
        uptime: info("uptime_in_seconds")
            .and_then(|seconds| seconds.parse().ok())
            .map(Duration::from_secs)
            .or(health.uptime),
        info_denied: health.info_denied,
        denied: report.denied.clone(),
        direct_wake: health.direct_wake,
        resp3: health.resp3,
        dialect: health.dialect.clone(),
        round_trip: report.round_trip,
        clock_us,
    }
}

impl Examined {
    /// How the node keeps its keys over a restart.
    fn persistence(&self) -> String {
        match (self.append_only, self.append_fsync.as_deref()) {
            (Some(true), Some(fsync)) => format!("aof, fsync {fsync}"),
            (Some(true), None) => "aof".to_owned(),
            (Some(false), _) if self.snapshots => "no aof".to_owned(),
            (Some(false), _) => "none".to_owned(),
            (None, _) => String::new(),
        }
    }

    /// Whether the node votes, and from when.
    fn guard(&self) -> String {
        match self.state {
            NodeState::Admitted => "votes".to_owned(),
            NodeState::Quarantined(left) => format!("waits {}", short(left)),
            NodeState::Refused => "refused".to_owned(),
            NodeState::Stalled => "hangs".to_owned(),
            NodeState::Disconnected | NodeState::Connecting | NodeState::Greeting | _ => {
                "away".to_owned()
            }
        }
    }
}

fn node_json(node: &Examined) -> Value {
    json!({
        "node": node.name,
        "reachable": node.is_reachable,
        "votes": node.state == NodeState::Admitted,
        "cause": (node.state != NodeState::Admitted).then(|| node.cause.text()),
        "server": node.server,
        "role": node.role,
        "persistence": node.append_only.map(|_| node.persistence()),
        "eviction": node.policy,
        "uptime_s": node.uptime.map(|uptime| uptime.as_secs()),
        "guard": node.guard(),
        "dialect": node.dialect,
        "direct_wake": node.direct_wake,
        "denied": node.denied,
        "round_trip_us": node.round_trip.map(us),
        "clock_offset_us": node.clock_us,
    })
}

fn print(nodes: &[Examined], advice: &Advice, quorum: usize) -> Result<(), Failure> {
    let paint = Paint::stdout();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let header = ["node", "state", "server", "role", "up", "round trip", "clock"];
    let mut states = Table::new(header);
    let mut setups = Table::new(["node", "persistence", "eviction", "release / extend"]);
    for node in nodes {
        states.add([
            node.name.clone(),
            if node.is_reachable { node.guard() } else { "unreachable".to_owned() },
            text(&node.server),
            text(&node.role),
            node.uptime.map(short).unwrap_or_default(),
            node.round_trip.map(short).unwrap_or_default(),
            node.clock_us.map(offset).unwrap_or_default(),
        ]);
        setups.add([
            node.name.clone(),
            node.persistence(),
            text(&node.policy),
            text(&node.dialect),
        ]);
    }
    say(format_args!("{states}\n\n{setups}\n"))?;
    for reason in &advice.unsafe_because {
        say(format_args!("{}  {reason}", paint.red("unsafe")))?;
    }
    for note in &advice.notes {
        say(format_args!("{}    {note}", paint.yellow("note")))?;
    }
    let voting = nodes.iter().filter(|node| node.state == NodeState::Admitted).count();
    let summary = format!("{voting} of {} nodes vote, {quorum} make a lock", nodes.len());
    if advice.unsafe_because.is_empty() {
        say(format_args!("{}      {summary}", paint.green("ok")))?;
    } else {
        say(format_args!("{}  {summary}", paint.red("not ok")))?;
    }
    Ok(())
}

/// A clock's distance from ours: `+1.2 s`; within 50 ms it is the same for this purpose.
fn offset(us: i64) -> String {
    let distance = Duration::from_micros(us.unsigned_abs());
    if distance < Duration::from_millis(50) {
        return "same".to_owned();
    }
    format!("{}{}", if us < 0 { '-' } else { '+' }, short(distance))
}
