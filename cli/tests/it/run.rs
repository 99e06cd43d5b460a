//! `run` holds its lock for as long as the command runs, and the command never outlives the lock.

use std::time::Duration;

use redbolt_embedded::{Memory, Nodes};

use super::cli::{Running, command_on, end, on, signal, take, without_settings};
use redbolt_rig::{PATIENCE, eventually};

fn five() -> Nodes {
    Nodes::start(5).expect("nodes start")
}

/// Less than the time after which the commands here end by themselves.
const OF_ITSELF: Duration = Duration::from_secs(60);

/// A command that prints its process number and then stays.
const STAY: [&str; 4] = ["--", "sh", "-c", "echo $$; exec sleep 600"];

/// As [`STAY`], with a child in its group, and deaf to TERM.
const STAY_DEAF: [&str; 4] =
    ["--", "sh", "-c", "trap '' TERM; sleep 600 & echo $$; while :; do sleep 600; done"];

/// A command that prints its process number, and is deaf to TERM. Every 20 ms it writes the time
/// since the machine started into a file, and `TERM` if it got one.
struct Diary {
    dir: tempfile::TempDir,
}

impl Diary {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("diary")
    }

    /// `run k` with `args`, and the number of the command's group.
    fn start(&self, nodes: &Nodes, args: &[&str]) -> (Running, String) {
        self.start_after("", nodes, args)
    }

    /// As [`start`](Self::start), with a line for the shell that comes first.
    fn start_after(&self, first: &str, nodes: &Nodes, args: &[&str]) -> (Running, String) {
        let script = format!(
            "{first}
             exec 2>/dev/null >'{}'; trap 'echo TERM' TERM; echo $$; \
             while :; do read up rest < /proc/uptime; echo $up; sleep 0.02; done",
            self.file().display()
        );
        let running = run(nodes, args, &["--", "sh", "-c", &script]);
        assert!(eventually(PATIENCE, || self.lines().len() > 2));
        let group = self.lines().swap_remove(0);
        (running, group)
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn says_term(&self) -> bool {
        self.lines().iter().any(|line| line == "TERM")
    }

    /// When the command last wrote into it.
    fn last(&self) -> Duration {
        let lines = self.lines();
        let last = lines.iter().skip(1).rev().find_map(|line| line.parse().ok());
        Duration::from_secs_f64(last.expect("it was written"))
    }
}

/// The time that a diary would show now.
fn uptime() -> Duration {
    Duration::from_nanos(redbolt::now().as_nanos())
}

fn run(nodes: &Nodes, args: &[&str], command: &[&str]) -> Running {
    Running::start(&nodes.urls(), &[&["run", "k"], args, command].concat())
}

fn verdict(nodes: &Nodes) -> String {
    on(nodes, &["status", "k", "--json"]).expect(0).text("verdict")
}

#[test]
fn it_ends_with_the_code_of_the_command() {
    let nodes = five();
    for (command, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 75"], 75),
        (&["sh", "-c", "kill -9 $$"], 128 + 9),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["/nowhere/at/all"], 127),
        (&["no-such-command-anywhere"], 127),
        (&["/"], 126),
        (&[env!("CARGO_MANIFEST_DIR")], 126),
    ] {
        let ended = on(&nodes, &[&["run", "k", "--"], command].concat()).expect(code);
        assert_eq!(ended.out, "", "{command:?}");
        assert_eq!(ended.err.is_empty(), !matches!(code, 126 | 127), "{ended:?}");
        assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 0), "{command:?}");
    }
}

#[test]
fn a_starter_that_hides_how_children_end_is_told_before_anything_is_locked() {
    let nodes = five();
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_redbolt"), "run", "k", "--", "true"]);
    let ended = end({
        command.env("REDBOLT_NODES", nodes.urls().join(","));
        command
    });
    assert_eq!(ended.code, Some(71), "{ended:?}");
    assert!(ended.err.contains("SIGCHLD") && !ended.err.contains("held"), "{ended:?}");
    assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn the_streams_are_the_commands_own() {
    let nodes = five();
    let args = ["run", "k", "--", "sh", "-c", "cat; echo err >&2"];
    let mut command = command_on(&nodes.urls(), &args);
    command.stdin(
        std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../LICENSE-MIT")).unwrap(),
    );
    let ended = end(command);
    assert_eq!(ended.code, Some(0));
    assert!(ended.out.contains("Permission is hereby granted"), "{ended:?}");
    assert_eq!(ended.err, "err\n");
}

#[test]
fn the_lock_is_held_and_extended_while_the_command_runs() {
    let nodes = five();
    let mut running = run(&nodes, &["--ttl", "2s"], &STAY);
    running.line();
    // Longer than two TTLs, watched all the time.
    let started = redbolt::now();
    while redbolt::now().saturating_since(started) < Duration::from_secs(5) {
        assert_eq!(verdict(&nodes), "held");
    }
    running.signal("TERM");
    running.end().expect(128 + 15);
    assert_eq!(verdict(&nodes), "free");
}

#[test]
fn a_lock_that_is_taken_starts_nothing() {
    let nodes = five();
    take(&nodes, "k");
    let ended = on(&nodes, &["run", "k", "--", "echo", "ran"]).expect(75);
    assert_eq!(ended.out, "");
    let ended = on(&nodes, &["run", "k", "--json", "--", "echo", "ran"]).expect(75);
    assert_eq!(ended.text("error"), "taken");
}

#[test]
fn the_ttl_that_nobody_gave_is_no_longer_than_the_longest_one_and_one_that_was_given_is_refused() {
    let nodes = five();
    for command in ["run", "elect"] {
        let with_max = |more: &[&str]| {
            let all = [&[command, "k"], more, &["--", "echo", "ran"]].concat();
            let mut command = command_on(&nodes.urls(), &all);
            command.env("REDBOLT_MAX_TTL", "2s");
            end(command)
        };
        let ended = with_max(&[]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
        let ended = with_max(&["--ttl", "3s"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(64), ""), "{ended:?}");
        assert!(ended.err.contains("--max-ttl raises the limit"), "{ended:?}");
    }
}

#[test]
fn a_lock_that_is_taken_is_said_with_its_holder_and_with_the_time_that_was_waited() {
    let nodes = five();
    let running = Running::holding(&nodes.urls(), &["k"]);
    let by = format!("process {} (client ", running.pid());
    let at_once = on(&nodes, &["run", "k", "--", "true"]).expect(75).err;
    let waited = on(&nodes, &["run", "k", "--wait", "300ms", "--", "true"]).expect(75).err;
    let lock = on(&nodes, &["lock", "k", "--ttl", "2s", "--wait", "300ms"]).expect(75).err;
    for text in [&at_once, &waited, &lock] {
        let start = "redbolt: the lock is taken: held on 5 of 5 nodes by run/sh on ";
        assert!(text.starts_with(start) && text.contains(&by), "{text}");
        assert!(text.contains("), for ") && !text.contains("redbolt status"), "{text}");
    }
    assert!(at_once.ends_with(" now; --wait 5s waits for it\n"), "{at_once}");
    for text in [waited, lock] {
        assert!(text.contains(" now; waited "), "{text}");
    }
    take(&nodes, "silent");
    let text = on(&nodes, &["lock", "silent", "--ttl", "2s"]).expect(75).err;
    let hint = "redbolt status silent shows the holder and the time left; --wait 5s waits for it\n";
    assert!(text.ends_with(hint) && text.contains("of 5 nodes by client "), "{text}");
    let quiet = on(&nodes, &["run", "k", "-E", "0", "--", "true"]).expect(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
}

#[test]
fn signals_reach_the_command_and_the_lock_is_released_afterwards() {
    let nodes = five();
    for name in ["INT", "TERM", "HUP", "QUIT"] {
        // The command ends in its own way, with its own code.
        let script = format!(
            "exec 2>/dev/null; trap 'echo got; exit 9' {name}; echo up; \
             while :; do sleep 0.01; done"
        );
        let mut running = run(&nodes, &[], &["--", "sh", "-c", &script]);
        assert_eq!(running.line(), "up");
        running.signal(name);
        assert_eq!(running.line(), "got", "{name}");
        running.end().expect(9);
        assert_eq!(verdict(&nodes), "free");
    }
}

/// The nodes go away under the lock, in both ways. The command and its group are gone before the
/// deadline. That is at most one TTL after the last extension that the nodes can have granted.
#[test]
fn a_command_is_ended_before_its_lock_is() {
    let ttl = Duration::from_millis(3_500);
    // The last part of the grace, after KILL, is the time that a loaded machine may add.
    let args = ["--ttl", "3500ms", "--grace", "1700ms", "--node-timeout", "500ms"];
    for (stay, is_killed) in [(&STAY, true), (&STAY_DEAF, true), (&STAY_DEAF, false)] {
        let nodes = five();
        // On a busy machine the lock may be lost before the command has said anything.
        let started = (0..5).find_map(|_| {
            let mut running = run(&nodes, &args, stay);
            running.try_line().map(|group| (running, group))
        });
        let (running, group) = started.expect("a command that says its number");
        for node in 0..3 {
            if is_killed { nodes.kill(node) } else { nodes.pause(node) }.unwrap();
        }
        let gone_at = redbolt::now();
        loop {
            let looked_at = redbolt::now();
            if !group_lives(&group) {
                break;
            }
            assert!(looked_at.saturating_since(gone_at) < ttl, "the group goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = running.end();
        assert_eq!(ended.code, Some(70), "{ended:?}");
        assert!(ended.err.lines().all(|line| line.starts_with("redbolt: ")), "{ended:?}");
        assert!(ended.err.contains("k was lost while the command ran"), "{ended:?}");
    }
}

#[test]
fn an_operator_who_takes_the_lock_away_ends_the_command_before_the_lock_would_have_ended() {
    let nodes = five();
    let (ttl, diary) = (Duration::from_secs(3), Diary::new());
    let (running, group) = diary.start(&nodes, &["--ttl", "3s", "--grace", "900ms"]);
    let status = on(&nodes, &["status", "k", "--json"]).expect(0).json();
    let token = status["nodes"][0]["token"].as_str().unwrap().to_owned();
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);
    // No extension can have won since: the present deadline is at most one TTL away.
    let over_at = uptime() + ttl;
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.err.contains("so the command was ended"), "{ended:?}");
    assert!(diary.says_term(), "it is told before it is killed");
    assert!(eventually(PATIENCE, || !group_lives(&group)) && diary.last() < over_at, "{ended:?}");
}

/// As on a machine on which nothing ran: not even the watchdog.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_stood_still_for_too_long_kills_the_command_and_does_not_ask_it_to_end() {
    let (nodes, diary) = (five(), Diary::new());
    let (running, group) = diary.start(&nodes, &["--ttl", "2s", "--grace", "900ms"]);
    running.signal("STOP");
    assert!(signal("STOP", &watchdog(&running)));
    on(&nodes, &["lock", "k", "--ttl", "20s", "--wait", "60s"]).expect(0);
    running.signal("CONT");
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.err.contains("so the command was ended"), "{ended:?}");
    assert!(eventually(PATIENCE, || !group_lives(&group)));
    assert!(!diary.says_term(), "{:?}", diary.lines());
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_does_not_outlive_its_lock_where_run_never_goes_on() {
    let (nodes, diary) = (five(), Diary::new());
    // An eighth of the grace is the time that a loaded machine may add.
    let (running, group) = diary.start(&nodes, &["--ttl", "5s", "--grace", "2400ms"]);
    // Some extensions have won before.
    let start = diary.last();
    assert!(eventually(PATIENCE, || diary.last() > start + Duration::from_secs(4)));
    running.signal("STOP");
    let status = on(&nodes, &["status", "k", "--json"]).expect(0).json();
    let left = status["nodes"].as_array().unwrap().iter().map(|node| node["ttl_ms"].as_u64());
    let ends_at = uptime() + Duration::from_millis(left.max().flatten().unwrap());
    assert!(eventually(PATIENCE, || !group_lives(&group)));
    assert!(diary.last() < ends_at && !diary.says_term(), "{ends_at:?}: {:?}", diary.lines());
    running.signal("CONT");
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.err.contains("so the command was ended"), "{ended:?}");
}

/// Nobody may read the output of `run`, as in a pipe to a pager. Then `run` stands still as well.
#[cfg(target_os = "linux")]
#[test]
fn a_command_does_not_outlive_its_lock_where_nobody_reads_what_run_says() {
    let (nodes, diary) = (five(), Diary::new());
    let args = ["--ttl", "3s", "--grace", "1400ms"];
    let (_running, group) = diary.start_after("cat /dev/zero >&2 &", &nodes, &args);
    let status = on(&nodes, &["status", "k", "--json"]).expect(0).json();
    on(&nodes, &["unlock", "k", "--token", status["nodes"][0]["token"].as_str().unwrap()])
        .expect(0);
    assert!(eventually(PATIENCE, || !group_lives(&group)));
    assert!(diary.says_term(), "{:?}", diary.lines());
}

/// The watchdog has no part in streams: a pipe ends with the command and `run`.
#[cfg(target_os = "linux")]
#[test]
fn the_watchdog_ends_with_run_and_holds_no_stream_open() {
    let nodes = five();
    let mut running = run(&nodes, &[], &STAY);
    running.line();
    let (run, watchdog) = (running.pid().to_string(), watchdog(&running));
    let to = |fd: &str| std::fs::read_link(format!("/proc/{run}/fd/{fd}")).unwrap();
    let open = std::fs::read_dir(format!("/proc/{watchdog}/fd")).unwrap().flatten();
    // A watchdog that starts closes the files of its start meanwhile.
    let open: Vec<_> = open.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    assert!(!open.contains(&to("1")) && !open.contains(&to("2")), "{open:?}");
    running.signal("KILL");
    running.end();
    assert!(eventually(PATIENCE, || !is_alive(&watchdog)));
}

#[test]
fn a_command_that_ended_by_itself_while_run_stood_still_is_said_to() {
    let nodes = five();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("end");
    let file_name = file.display();
    let script = format!("echo up; while [ ! -e '{file_name}' ]; do sleep 0.02; done; exit 3");
    // A busy machine may run the command late: it ends long before the watchdog kills it.
    let mut running = run(&nodes, &["--ttl", "3s"], &["--", "sh", "-c", &script]);
    // The lock is held before the command begins.
    assert_eq!(running.line(), "up");
    running.signal("STOP");
    std::fs::write(&file, "").unwrap();
    assert!(eventually(PATIENCE, || verdict(&nodes) == "free"));
    running.signal("CONT");
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.err.contains("(with exit code 3): check its work"), "{ended:?}");
}

#[test]
fn a_lock_that_was_gone_when_the_command_ended_is_an_error() {
    let nodes = five();
    let script = "echo up; read line; exit 0";
    let args = ["run", "k", "--ttl", "30s", "--", "sh", "-c", script];
    let mut command = command_on(&nodes.urls(), &args);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.as_mut().unwrap()),
        &mut line,
    )
    .unwrap();
    let status = on(&nodes, &["status", "k", "--json"]).expect(0).json();
    let token = status["nodes"][0]["token"].as_str().unwrap().to_owned();
    // Otherwise it would learn of the loss before the command has ended.
    let run = child.id().to_string();
    assert!(signal("STOP", &run));
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);
    std::io::Write::write_all(&mut input, b"go\n").unwrap();
    assert!(signal("CONT", &run));
    assert_eq!(child.wait().unwrap().code(), Some(70));
}

#[test]
fn the_command_and_what_it_started_die_with_run() {
    let nodes = five();
    for stay in [&STAY, &STAY_DEAF] {
        let mut running = run(&nodes, &["--ttl", "1s", "--wait", "60s"], stay);
        let group = running.line();
        assert!(group_lives(&group));
        running.signal("KILL");
        assert!(eventually(OF_ITSELF, || !group_lives(&group)), "{stay:?}");
        assert_eq!(running.end().code, None);
    }
}

#[test]
fn a_command_that_goes_on_after_term_is_named_and_keeps_its_lock_until_it_ends() {
    let nodes = five();
    let mut running = run(&nodes, &["--ttl", "2s"], &STAY_DEAF);
    let group = running.line();
    running.signal("TERM");
    running.signal("TERM");
    let said = running.err_line("redbolt: ");
    let expected = format!(
        "redbolt: passed TERM on to CMD (process {group}), which still runs: the lock is kept \
         until it ends"
    );
    assert_eq!(said, expected);
    assert_eq!(verdict(&nodes), "held");
    assert!(signal("KILL", &format!("-{group}")));
    let ended = running.end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(128 + 9), ""), "{ended:?}");
    assert_eq!(verdict(&nodes), "free");
}

/// Whether a process of this number runs; a process that nobody has reaped yet does not.
#[cfg(target_os = "linux")]
fn is_alive(pid: &str) -> bool {
    stat(pid).is_some_and(|(state, _)| !['Z', 'X'].contains(&state))
}

/// The watchdog of a `run`.
#[cfg(target_os = "linux")]
fn watchdog(running: &Running) -> String {
    let is_watchdog = |pid: &String| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("--watchdog\0")
    };
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    let mut found = None;
    // Its command line appears only some time after its start.
    assert!(eventually(PATIENCE, || {
        let children = std::fs::read_to_string(&children).expect("a list of children");
        found = children.split_whitespace().map(str::to_owned).find(is_watchdog);
        found.is_some()
    }));
    found.expect("a watchdog")
}

/// Whether a process of this group runs.
fn group_lives(group: &str) -> bool {
    if cfg!(not(target_os = "linux")) {
        return signal("0", &format!("-{group}"));
    }
    let processes = std::fs::read_dir("/proc").expect("a readable /proc").flatten();
    let mut stats = processes.filter_map(|entry| stat(entry.file_name().to_str()?));
    stats.any(|(state, of)| of == group && !['Z', 'X'].contains(&state))
}

/// As in a script that starts a helper and then becomes `run`; the helper ends first.
#[cfg(target_os = "linux")]
#[test]
fn what_the_command_leaves_behind_is_reaped_beside_a_child_that_run_had_before() {
    let nodes = five();
    let run = format!("exec '{}' --node-timeout 2s run k --", env!("CARGO_BIN_EXE_redbolt"));
    let line = "sh -c 'sleep 0.1 & echo $!'; exec sleep 600";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("true & {run} sh -c \"$0\""), line]);
    without_settings(&mut command);
    command.env("REDBOLT_NODES", nodes.urls().join(","));
    let mut running = Running::of(command);
    let left = running.line();
    assert!(eventually(PATIENCE, || stat(&left).is_none()), "{:?}", stat(&left));
    running.signal("TERM");
    assert_eq!(running.end().code, Some(128 + 15));
}

/// State and group of a process.
fn stat(pid: &str) -> Option<(char, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit(") ").next()?.split(' ');
    Some((words.next()?.chars().next()?, words.nth(1)?.to_owned()))
}

#[test]
fn a_command_that_hangs_is_ended_once_it_has_held_its_lock_for_max_hold() {
    let nodes = five();
    for (key, stay) in [("heeds", &STAY[..]), ("deaf", &STAY_DEAF)] {
        let args = ["run", key, "--ttl", "4s", "--grace", "500ms", "--max-hold", "1200ms"];
        let ended = on(&nodes, &[&args[..], stay].concat());
        assert_eq!(ended.code, Some(70), "{ended:?}");
        assert!(Duration::from_millis(1_200) <= ended.took && ended.took < OF_ITSELF, "{ended:?}");
        let last = format!("{key}: --max-hold 1.2 s is over, so the command was ended");
        let lines = ["--max-hold is over: ending the command", &last];
        assert_eq!(ended.err, lines.map(|line| format!("redbolt: {line}\n")).concat());
        // The lock is free at once.
        take(&nodes, key);
    }
    // A command that ends before is left alone.
    on(&nodes, &["run", "other", "--max-hold", "60s", "--", "true"]).expect(0);
}

#[test]
fn a_lock_that_could_not_be_extended_is_lost_with_the_names_of_the_nodes_that_are_away() {
    let nodes = five();
    let mut running = run(&nodes, &["--ttl", "3500ms", "--grace", "1700ms"], &STAY);
    running.line();
    (0..3).for_each(|node| nodes.kill(node).unwrap());
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    let said = ended.err.lines().next().unwrap_or_default();
    assert!(said.starts_with("redbolt: the lock could not be extended and ends ("), "{ended:?}");
    for url in &nodes.urls()[..3] {
        assert!(said.contains(url.trim_start_matches("redis://")), "{url}: {ended:?}");
    }
}

#[test]
fn a_lock_that_too_many_nodes_forgot_is_not_said_to_be_taken_away() {
    let nodes = five();
    let mut running = run(&nodes, &["--ttl", "3s"], &STAY);
    running.line();
    for node in 0..3 {
        nodes.restart(node, Memory::Lost).unwrap();
    }
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    let said: Vec<&str> = ended.err.lines().collect();
    assert!(
        said[0].starts_with("redbolt: the lock is lost, because only 2 of 5 nodes still hold it: "),
        "{ended:?}"
    );
    assert!(said[0].ends_with(" restarted or failed over: ending the command"), "{ended:?}");
    assert_eq!(said[1], "redbolt: k was lost while the command ran, so the command was ended");
}
