//! `redbolt doctor`: asks each node about its setup, and prints the findings of
//! [`advice`](crate::advice).

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use redbolt::inspect::{Address, Endpoint, NodeState};
use redbolt::{Client, now};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::advice::{Advice, advise};
use crate::agreement::{self, Agreed, SHOWN_MAX};
use crate::args::{DoctorArgs, Global, Switch};
use crate::examined::{Clients, Examined};
use crate::exit::{DEGRADED, Failure, UNSAFE, not_searched};
use crate::fitness::{Check, Level};
use crate::inspect::{NodeReport, examine, search};
use crate::names::SLOTS_MAX;
use crate::output::{Paint, say, short, shown, together, us};
use crate::progress::Progress;
use crate::table::Table;
use crate::terminal::wrap;
use crate::{holders, inspect, look, ls, settings, terminal};

/// The key whose permissions the doctor checks if the user names none.
const KEY: &[u8] = b"redbolt:doctor";

/// How many locks the doctor looks at.
const LOCKS_MAX: usize = 1000;

/// How many columns the word in front of a line takes.
const LABEL: usize = 10;

/// The pause between two looks, with `--wait`. Another client may greet a server later than this
/// command, and so learn later that it may vote. So nodes that were unfit must be fit in two looks.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(global: &Global, args: &DoctorArgs) -> Result<(), Failure> {
    Failure::by_signal(global.json)?;
    let end = args.wait.map(|wait| now() + wait);
    let spinner =
        args.wait.map(|_| Progress::spinner("waiting until the nodes are fit".to_owned()));
    let mut was_unfit = false;
    let Found { client, nodes, mut advice, clients, agreed } = loop {
        let found = look(global, args)?;
        let left = end.map_or(Duration::ZERO, |end| now().until(end));
        let is_fit = found.advice.verdict() == Level::Ok;
        if is_fit && !was_unfit || left.is_zero() {
            break found;
        }
        was_unfit = !is_fit;
        thread::sleep(PAUSE.min(left));
    };
    drop(spinner);
    advice.checks.push(locks(global, &client, &clients)?);
    if global.json {
        say(json(&nodes, &advice, &clients, &agreed))?;
    } else {
        print(&nodes, &advice, &agreed)?;
    }
    match advice.verdict() {
        Level::Ok | Level::Note => Ok(()),
        Level::Degraded => Err(Failure::code(DEGRADED)),
        Level::Unsafe => Err(Failure::code(UNSAFE)),
    }
}

/// The result of one look at the nodes.
struct Found {
    client: Client,
    nodes: Vec<Examined>,
    advice: Advice,
    clients: Clients,
    agreed: Agreed,
}

/// Looks at the nodes like a client that meets them for the first time.
fn look(global: &Global, args: &DoctorArgs) -> Result<Found, Failure> {
    let config = settings::config(global)?;
    let client = look::opened(config.clone())?;
    let clients = Clients {
        lists: settings::quorums(global, &config)?,
        guard_is_on: global.restart_guard != Some(Switch::Off),
        failover_guard_is_on: global.failover_guard != Some(Switch::Off),
        max_ttl: settings::max_ttl(global),
        max_clock_skew: settings::max_clock_skew(global),
        has_key: args.key.is_some(),
    };
    let asked_us = wall_us();
    let reports = examine(&client, args.key.as_ref().map_or(KEY, |key| &key.0))?;
    let others = inspect::clients(&client)?;
    let nodes: Vec<Examined> = reports
        .iter()
        .enumerate()
        .map(|(index, report)| examined(global, report, config.nodes().get(index), asked_us))
        .collect();
    let agreed = agreement::judge(others, &nodes, clients.max_clock_skew);
    let mut advice = advise(&nodes, &clients);
    advice.checks.extend(agreed.checks.iter().cloned());
    if let (Some(key), Some(slots)) = (&args.key, args.slots) {
        advice.checks.push(slots_above(&client, &key.0, slots)?);
    }
    Ok(Found { client, nodes, advice, clients, agreed })
}

/// Names locks that have no vote to spare. It costs as much as `redbolt ls`, or twice as much if a
/// lock seems to have no vote to spare.
fn locks(global: &Global, client: &Client, clients: &Clients) -> Result<Check, Failure> {
    let listing = search(client, ls::prefix(global), b"*", LOCKS_MAX)?;
    let mut tight = ls::without_spare(&listing, false);
    if !tight.is_empty() {
        // While a client takes a lock, the last votes come a moment later.
        thread::sleep(PAUSE);
        let again = search(client, ls::prefix(global), b"*", LOCKS_MAX)?;
        let again = ls::without_spare(&again, false);
        tight.retain(|lock| again.contains(lock));
    }
    let with = match ls::need_all(&clients.lists) {
        true => "needing the votes of all nodes",
        false => "with a vote to spare",
    };
    let (level, text) = if ls::may_miss(&clients.lists, &listing) {
        let why = not_searched(&listing.nodes).unwrap_or_default();
        (Level::Note, format!("not known, because nodes were not searched: {why}"))
    } else if !client.is_ready() {
        (Level::Note, "not known, because too few nodes vote".to_owned())
    } else if tight.is_empty() {
        let text = match listing.locks.iter().filter(|lock| lock.holder.is_some()).count() {
            0 => "none is held".to_owned(),
            1 => format!("1 is held, {with}"),
            count if listing.is_whole => format!("{count} are held, each {with}"),
            count => format!("{count} are held among the first {LOCKS_MAX}, each {with}"),
        };
        (Level::Ok, text)
    } else {
        let mut names: Vec<String> = tight.iter().map(|(key, _)| shown(key)).take(3).collect();
        if let Some(more @ 1..) = tight.len().checked_sub(names.len()) {
            names.push(format!("and {more} more"));
        }
        let names = names.join(", ");
        let text = match tight.len() {
            1 => {
                format!("{names} has no vote to spare: it ends if one more node fails or restarts")
            }
            count => format!(
                "{count} have no vote to spare ({names}): they end if one more node fails or restarts"
            ),
        };
        (Level::Note, text)
    };
    Ok(Check { topic: "locks", level, text })
}

/// Whether a client holds a slot above `slots`: then more than `slots` clients could hold the lock.
/// It takes at least one round trip for each slot above.
fn slots_above(client: &Client, key: &[u8], slots: u8) -> Result<Check, Failure> {
    let mut held = Vec::new();
    for slot in slots..SLOTS_MAX {
        let key = [key, format!(":slot:{slot}").as_bytes()].concat();
        if let Some(holder) = &inspect::holder(client, &key)?.holder {
            held.push(format!("{} by {}", shown(&key), holders::words(holder)));
        }
    }
    let (level, text) = if held.is_empty() {
        (Level::Ok, format!("no client holds a slot above the {slots} of {}", shown(key)))
    } else {
        let text = format!(
            "clients still hold slots above the {slots} of {}: {}. Wait until these are free",
            shown(key),
            held.join(", ")
        );
        (Level::Unsafe, text)
    };
    Ok(Check { topic: "slots", level, text })
}

fn json(nodes: &[Examined], advice: &Advice, clients: &Clients, agreed: &Agreed) -> Value {
    let of = |level| -> Vec<String> {
        let single = advice.of(level).map(|it| format!("{}: {}", it.node, it.text));
        let set = advice.checks.iter().filter(|check| check.level == level);
        single.chain(set.map(|it| format!("{}: {}", it.topic, it.text))).collect()
    };
    let checks = advice.checks.iter().map(
        |check| json!({"check": check.topic, "state": check.level.word(), "message": check.text}),
    );
    let quorum = |place: usize| clients.lists.get(place).map(|(_, quorum)| quorum);
    json!({
        "verdict": advice.verdict().word(),
        "nodes": nodes.iter().map(node_json).collect::<Vec<_>>(),
        "quorum": quorum(0),
        "next_quorum": quorum(1),
        "checks": checks.collect::<Vec<_>>(),
        "agreement": agreed.json(),
        "unsafe": of(Level::Unsafe),
        "degraded": of(Level::Degraded),
        "notes": of(Level::Note),
    })
}

impl Level {
    /// The word in its colour.
    fn label(self, paint: Paint) -> String {
        let word = format!("{:<LABEL$}", self.word());
        match self {
            Self::Ok => paint.green(word),
            Self::Note | Self::Degraded => paint.yellow(word),
            Self::Unsafe => paint.red(word),
        }
    }
}

/// Whether the address is on this machine.
fn is_local(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp { host, .. } => {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        _ => false,
    }
}

/// The wall clock, for comparison with servers; no lock depends on it.
fn wall_us() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
}

fn examined(
    global: &Global,
    report: &NodeReport,
    address: Option<&Address>,
    asked_us: i64,
) -> Examined {
    let health = &report.health;
    let info = |name: &str| report.info(name).map(str::to_owned);
    let number = |name: &str| report.info(name).and_then(|text| text.parse::<u64>().ok());
    let replicas = number("connected_slaves").unwrap_or(0);
    // The node read its clock about half a round trip after the request.
    let clock_us = report.time_us.zip(report.round_trip).and_then(|(time, round_trip)| {
        let half = i64::try_from(us(round_trip) / 2).ok()?;
        Some(time.saturating_sub(asked_us.saturating_add(half)))
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
        fsync_pauses: report.fsync_pauses,
        failed_save: failed_save(report),
        snapshots: info("rdb_last_save_time").is_some(),
        policy: health.maxmemory_policy.clone(),
        maxmemory: number("maxmemory"),
        used_memory: number("used_memory"),
        evicted: number("evicted_keys").unwrap_or(0),
        replicas,
        fails_over: replicas > 0 || number("repl_backlog_active") == Some(1),
        was_replica: info("master_replid2").is_some_and(|id| id.bytes().any(|byte| byte != b'0')),
        uptime: number("uptime_in_seconds").map(Duration::from_secs).or(health.uptime),
        info_denied: health.info_denied,
        dialect: health.dialect.clone().filter(|_| health.server.is_some()),
        direct_wake: health.direct_wake,
        resp3: health.resp3,
        refused: report.refused.clone(),
        has_login: global.password_file.is_some() || address.is_some_and(Address::has_login),
        is_local: address.is_some_and(|address| is_local(address.endpoint())),
        round_trip: report.round_trip,
        clock_us,
    }
}

/// The part that the node failed to save last time.
fn failed_save(report: &NodeReport) -> Option<&'static str> {
    let has_failed = |field| report.info(field).is_some_and(|status| status != "ok");
    if has_failed("aof_last_write_status") {
        return Some("the last write of its append-only file");
    }
    has_failed("rdb_last_bgsave_status").then_some("its last snapshot")
}

impl Examined {
    /// How the node keeps its keys across a restart.
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
            NodeState::Disconnected
            | NodeState::Connecting
            | NodeState::Greeting
            | NodeState::Unlisted
            | _ => "away".to_owned(),
        }
    }
}

fn node_json(node: &Examined) -> Value {
    json!({
        "node": node.name,
        "reachable": node.is_reachable,
        "votes": node.state == NodeState::Admitted,
        "cause": (node.state != NodeState::Admitted).then(|| node.cause.name()),
        "message": (node.state != NodeState::Admitted).then(|| node.cause.text()),
        "server": node.server,
        "role": node.role,
        "persistence": node.append_only.map(|_| node.persistence()),
        "eviction": node.policy,
        "uptime_s": node.uptime.map(|uptime| uptime.as_secs()),
        "guard": node.guard(),
        "dialect": node.dialect,
        "direct_wake": node.direct_wake,
        "round_trip_us": node.round_trip.map(us),
        "clock_offset_us": node.clock_us,
    })
}

fn print(nodes: &[Examined], advice: &Advice, agreed: &Agreed) -> Result<(), Failure> {
    let (paint, columns) = (Paint::stdout(), terminal::width());
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut states = Table::new(["node", "state", "server", "role", "up", "round trip", "clock"]);
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
    say(format_args!("{}\n\n{}\n", states.fit(columns), setups.fit(columns)))?;
    let line = |level: Level, text: &str| {
        say(wrap(&format!("{}{text}", level.label(paint)), LABEL, columns))
    };
    for level in [Level::Unsafe, Level::Degraded, Level::Note] {
        let found = advice.of(level).map(|finding| (&*finding.node, &*finding.text));
        for (names, text) in together(found, nodes.len(), "all nodes") {
            line(level, &format!("{names}: {text}"))?;
        }
    }
    for check in &advice.checks {
        line(check.level, &format!("{}: {}", check.topic, check.text))?;
    }
    for client in agreed.differing.iter().take(SHOWN_MAX) {
        line(client.level, &client.text())?;
    }
    if let Some(more @ 1..) = agreed.differing.len().checked_sub(SHOWN_MAX) {
        line(Level::Note, &format!("and {more} more clients: --json names all"))?;
    }
    let verdict = match advice.verdict() {
        Level::Ok | Level::Note => {
            "new locks on these nodes are safe; redbolt ls shows those that are held"
        }
        Level::Degraded => "new locks on these nodes are safe, but not all nodes vote: see above",
        Level::Unsafe if advice.is_unsafe() => "locks on these nodes would be unsafe: see above",
        Level::Unsafe => "no lock can be taken on these nodes now: see above",
    };
    Ok(line(advice.verdict(), &paint.bold(verdict))?)
}

/// A clock's distance from this machine's: `+1.2 s`. Within 50 ms it counts as the same.
fn offset(us: i64) -> String {
    let distance = Duration::from_micros(us.unsigned_abs());
    if distance < Duration::from_millis(50) {
        return "same".to_owned();
    }
    format!("{}{}", if us < 0 { '-' } else { '+' }, short(distance))
}
