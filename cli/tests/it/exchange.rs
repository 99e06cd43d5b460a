//! A fleet goes from five nodes to three, then to seven, and to five others, by the steps of
//! `docs/servers.md`: one write of the settings file for each step. Nothing is sold twice, and no
//! process has to stop.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redbolt::now;
use serde_json::Value;

use super::cli::{Running, STAY, command, end};
use redbolt_rig::{Kind, PATIENCE, RealServer, StopAtEnd, eventually, kind_or_skip};

/// The longest TTL of these locks.
const MAX_TTL: Duration = Duration::from_millis(1500);

const NODE_TIMEOUT: &str = "2s";

const SELLERS: usize = 8;

/// A sale: takes one piece from the stock, and says so.
const SALE: &str = "n=$(cat stock); echo $((n-1)) > stock; echo x >> sold";

struct Fleet {
    servers: Vec<RealServer>,
    dir: tempfile::TempDir,
}

impl Fleet {
    fn start(count: usize) -> Option<Self> {
        let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70, Kind::Valkey81, Kind::Redis80];
        let kinds: Option<Vec<Kind>> = kinds.into_iter().map(kind_or_skip).collect();
        let kinds = kinds?;
        let servers = kinds.iter().cycle().take(count).map(|kind| RealServer::start(*kind, &[]));
        Some(Self { servers: servers.collect(), dir: tempfile::tempdir().expect("a directory") })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The operator gives all clients these lists.
    fn set(&self, nodes: Range<usize>, next: Option<Range<usize>>) {
        let list = |range: Range<usize>| {
            let of_list = self.servers.iter().skip(range.start).take(range.len());
            let urls: Vec<String> = of_list.map(|server| format!("{:?}", server.url())).collect();
            urls.join(", ")
        };
        let next = next.map(|range| format!("next-nodes = [{}]\n", list(range)));
        let text = format!(
            "nodes = [{}]\n{}max-ttl = \"1500ms\"\nmax-clock-skew = \"1ms\"\nnode-timeout = {:?}\n",
            list(nodes),
            next.unwrap_or_default(),
            NODE_TIMEOUT
        );
        fs::write(self.file("new"), text).expect("a file");
        fs::rename(self.file("new"), self.file("config")).expect("a file");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("REDBOLT_CONFIG", self.file("config")).current_dir(self.dir.path());
        command
    }

    fn doctor(&self) -> Value {
        end(self.command(&["doctor", "--json"])).json()
    }

    /// Whether the doctor says this of the clients' lists, and finds nothing unsafe.
    fn is_said(&self, part: &str) -> bool {
        let report = self.doctor();
        let checks = report.get("checks").and_then(Value::as_array).expect("checks");
        let of = |check: &Value, field| check.get(field).and_then(Value::as_str).map(str::to_owned);
        let exchange =
            checks.iter().find(|check| of(check, "check").as_deref() == Some("exchange"));
        let text = exchange.and_then(|check| of(check, "message")).unwrap_or_default();
        text.contains(part) && of(&report, "verdict").as_deref() != Some("unsafe")
    }
}

/// Sells until `end`.
fn sell(fleet: &Fleet, sales: &AtomicUsize, end_of_day: &AtomicBool) {
    while !end_of_day.load(Ordering::SeqCst) {
        let sale = ["run", "-w", "30s", "--ttl", "1500ms", "till", "--", "sh", "-c", SALE];
        end(fleet.command(&sale)).expect(0);
        sales.fetch_add(1, Ordering::SeqCst);
        pause();
    }
}

/// Takes a lock that nobody else wants, again and again until `end`. Each time the lock is there
/// within `node-timeout`: there is no longer moment without locks.
fn probe(fleet: &Fleet, end_of_day: &AtomicBool) {
    while !end_of_day.load(Ordering::SeqCst) {
        let probe = ["run", "-w", NODE_TIMEOUT, "--ttl", "1500ms", "probe", "--", "true"];
        end(fleet.command(&probe)).expect(0);
        pause();
    }
}

/// Other tests need the processors too.
fn pause() {
    std::thread::sleep(Duration::from_millis(200));
}

fn number(file: &Path) -> usize {
    fs::read_to_string(file).expect("a file").trim().parse().expect("a number")
}

/// Waits until this time has passed, as an operator does.
fn wait_for(time: Duration) {
    let until = now() + time;
    assert!(eventually(PATIENCE, || now() >= until));
}

#[test]
fn eight_processes_sell_a_stock_while_their_nodes_are_exchanged() {
    let Some(fleet) = Fleet::start(12) else { return };
    fleet.set(0..5, None);
    fs::write(fleet.file("stock"), "100000").expect("a file");
    fs::write(fleet.file("sold"), "").expect("a file");
    // The servers are too young to vote at first.
    end(fleet.command(&["doctor", "--wait", "20s"]));
    let mut keepers = [("run", "keeper"), ("elect", "leader")].map(|(command, key)| {
        let args = [command, "--ttl", "1500ms", key];
        Running::of(fleet.command(&[&args[..], &STAY].concat()))
    });
    for keeper in &mut keepers {
        assert_eq!(keeper.line(), "held");
    }
    let (sales, end_of_day) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stop = StopAtEnd(&end_of_day);
        for _ in 0..SELLERS {
            scope.spawn(|| sell(&fleet, &sales, &end_of_day));
        }
        scope.spawn(|| probe(&fleet, &end_of_day));
        let goes_on = || {
            let before = sales.load(Ordering::SeqCst);
            assert!(eventually(PATIENCE, || sales.load(Ordering::SeqCst) > before + SELLERS));
        };
        goes_on();
        let lists = [0..5, 3..6, 3..10, 7..12];
        for (list, next) in lists.iter().zip(lists.iter().skip(1)) {
            fleet.set(list.clone(), Some(next.clone()));
            goes_on();
            let none_is_left = || fleet.is_said("0 other clients have the present list alone, ");
            assert!(eventually(PATIENCE, none_is_left), "{:#}", fleet.doctor());
            wait_for(MAX_TTL + MAX_TTL / 10);
            goes_on();
            fleet.set(next.clone(), None);
            goes_on();
            // The keepers go on by themselves.
            for keeper in &mut keepers {
                keeper.err_line("from now on a lock needs a quorum of the nodes in ");
                keeper.err_line("from now on a lock needs a quorum of the nodes in ");
            }
        }
        drop(stop);
    });
    let sold = fs::read_to_string(fleet.file("sold")).expect("a file").lines().count();
    assert_eq!(sold, sales.load(Ordering::SeqCst));
    assert_eq!(100_000 - number(&fleet.file("stock")), sold, "a sale was lost");
    for (keeper, key) in keepers.into_iter().zip(["keeper", "leader"]) {
        let taken = end(fleet.command(&["run", "-n", key, "--", "true"]));
        assert_eq!(taken.code, Some(75), "{taken:?}");
        keeper.signal("TERM");
        let ended = keeper.end();
        // A leader that had lost its office would have begun its command again.
        assert_eq!((ended.code, &*ended.out), (Some(128 + 15), ""), "{ended:?}");
    }
    let is_left = |server: &RealServer| server.exists("keeper") || server.exists("leader");
    let is_free = || !fleet.servers.iter().any(is_left);
    assert!(eventually(PATIENCE, is_free), "keys are left behind");
}

#[test]
fn run_and_elect_end_once_the_file_names_no_list_in_use_and_wrong_nodes_change_nothing() {
    let Some(fleet) = Fleet::start(4) else { return };
    fleet.set(0..2, None);
    end(fleet.command(&["doctor", "--wait", "20s"]));
    let mut keeper =
        Running::of(fleet.command(&[&["run", "--ttl", "1500ms", "k"][..], &STAY].concat()));
    let mut leader =
        Running::of(fleet.command(&[&["elect", "--ttl", "1500ms", "e"][..], &STAY].concat()));
    for command in [&mut keeper, &mut leader] {
        assert_eq!(command.line(), "held");
    }
    fs::write(fleet.file("config"), "nodes = [\"redis://\"]\n").expect("a file");
    for command in [&mut keeper, &mut leader] {
        command.err_line("config has changed, the nodes stay: ");
    }
    fleet.set(2..4, None);
    // A leader does not lead again on the old nodes: another may lead on the new ones by now.
    for mut command in [keeper, leader] {
        command.err_line("shares no list of nodes with the settings in use");
        let ended = command.end();
        assert_eq!(ended.code, Some(70), "{ended:?}");
        assert!(!ended.err.contains("not extended in time"), "{ended:?}");
    }
    let is_free = || !fleet.servers.iter().any(|server| server.exists("k") || server.exists("e"));
    assert!(eventually(PATIENCE, is_free), "keys are left behind");
}
