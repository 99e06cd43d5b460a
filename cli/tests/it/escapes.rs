//! A command that changes user, session, process group or capabilities does not write once its lock
//! is over. If the kernel lets nobody end it, `run` reports that.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use redbolt_embedded::Nodes;
use redbolt_rig::{PATIENCE, eventually, skip};

use super::cli::{Running, command_on, on, signal, without_settings};

/// The options with which `setpriv` becomes an ordinary user.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// The same user, with the right to become any other user, but not to end their processes.
const CHANGER: [&str; 5] = [
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+setuid",
    "--ambient-caps=+setuid",
];

/// A line that becomes root by a set-user-ID program, and then writes.
const AS_ROOT: &str = "\"$D/up\" --reuid=0 --regid=0 --clear-groups sh \"$D/writer\"";

/// It writes the time since the machine started every 20 ms, for a minute or two.
const WRITER: &str = "exec 2>/dev/null >>\"${0%/*}/diary\"
for i in $(seq 3000); do read up rest < /proc/uptime; echo $up; sleep 0.02; done";

/// A directory, `$D`, with a script that writes, a program with which any user becomes root, and
/// redbolt. All processes that write there end with it.
struct Desk {
    dir: tempfile::TempDir,
    /// A cgroup that the user `nobody` may use, for `run`.
    cgroup: Option<PathBuf>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        while let Some(pid) = self.writers().first() {
            signal("KILL", pid);
        }
        if let Some(cgroup) = &self.cgroup {
            let is_removed = || fs::remove_dir(cgroup).is_ok();
            assert!(eventually(PATIENCE, is_removed) || std::thread::panicking(), "{cgroup:?}");
        }
    }
}

impl Desk {
    /// `None` if this process may not become other users.
    fn new() -> Option<Self> {
        let desk = Self { dir: tempfile::tempdir().expect("a directory"), cgroup: None };
        let may_all = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
        };
        may_all(desk.dir.path(), 0o777);
        for (name, text) in [("writer", WRITER), ("diary", "")] {
            fs::write(desk.file(name), text).expect("a file");
            may_all(&desk.file(name), 0o666);
        }
        let redbolt = env!("CARGO_BIN_EXE_redbolt");
        assert!(install(redbolt, &desk.file("redbolt"), "0755"), "redbolt cannot be copied");
        let is_there = install("/usr/bin/setpriv", &desk.file("up"), "4755");
        let is_root = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        let mut up = Command::new("setpriv");
        up.args(NOBODY).arg(desk.file("up")).args(["--reuid=0", "true"]);
        if is_there && is_root(&mut up) {
            return Some(desk);
        }
        skip("no set-user-ID programs here", "run the tests as root, with util-linux installed");
        None
    }

    /// `None` if this process may make no cgroup whose members the kernel kills at once.
    fn with_cgroup(mut self) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a readable /proc");
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let name = self.dir.path().file_name().expect("a name").to_string_lossy().into_owned();
        let made = mount.and_then(|line| line.split(' ').nth(4)).and_then(|mount| {
            let folder = Path::new(mount).join(format!("redbolt-test{name}"));
            fs::create_dir(&folder).is_ok().then_some(folder)
        });
        let delegate = |folder: &PathBuf| {
            let of_nobody = |file: PathBuf| chown(file, Some(65534), Some(65534));
            of_nobody(folder.clone()).is_ok() && of_nobody(folder.join("cgroup.procs")).is_ok()
        };
        self.cgroup = made;
        if self.cgroup.as_ref().is_some_and(|it| it.join("cgroup.kill").exists() && delegate(it)) {
            return Some(self);
        }
        skip("no cgroups here", "run the tests as root, on Linux 5.14 with a cgroup2 file system");
        None
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `run k` as another user, with a line for the shell, once the script has written something.
    fn start(&self, nodes: &Nodes, user: &[&str], args: &[&str], line: &str) -> Running {
        self.start_as("run", nodes, user, args, line)
    }

    fn start_as(
        &self,
        name: &str,
        nodes: &Nodes,
        user: &[&str],
        args: &[&str],
        line: &str,
    ) -> Running {
        let args = [&[name, "k"], args, &["--", "sh", "-c", line]].concat();
        let inner = command_on(&nodes.urls(), &args);
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "[ -z \"$C\" ] || echo 0 >\"$C/cgroup.procs\"; exec setpriv \"$@\"",
            "sh",
        ]);
        command.args(user).arg(self.file("redbolt")).args(inner.get_args());
        without_settings(&mut command);
        command.env("REDBOLT_NODES", nodes.urls().join(",")).env("D", self.dir.path());
        command.env("C", self.cgroup.as_deref().unwrap_or_else(|| Path::new("")));
        let running = Running::of(command);
        assert!(eventually(PATIENCE, || self.last().is_some()), "nothing is written: {line}");
        running
    }

    /// The processes that write there.
    fn writers(&self) -> Vec<String> {
        let writer = self.file("writer").to_string_lossy().into_owned();
        let processes = fs::read_dir("/proc").expect("a readable /proc").flatten();
        let pids = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
        pids.filter(|pid| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split('\0').any(|word| word == writer)
        })
        .collect()
    }

    /// The first process that writes. The others are mostly its children.
    fn writer(&self) -> String {
        self.writers().into_iter().next().expect("a process that writes")
    }

    /// When a process last wrote.
    fn last(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.file("diary")).expect("the diary");
        let last = text.lines().rev().find_map(|line| line.parse().ok());
        last.map(Duration::from_secs_f64)
    }

    /// Another client takes the lock, and from then on no process writes.
    fn expect_no_write_after_the_lock(&self, nodes: &Nodes, what: &str) {
        on(nodes, &["lock", "k", "--ttl", "20s", "--wait", "60s"]).expect(0);
        let taken_at = Duration::from_nanos(redbolt::now().as_nanos());
        // A process that was killed may take a moment to be gone; it writes no more.
        assert!(eventually(PATIENCE, || self.writers().is_empty()), "{what}");
        assert!(self.last() <= Some(taken_at), "{what}");
    }
}

/// Copies a program. If this process wrote the copy itself, a child that another test starts just
/// now could hold it open, and it could not be run.
fn install(from: &str, to: &Path, mode: &str) -> bool {
    let mut install = Command::new("install");
    install.args(["-m", mode, from]).arg(to).stderr(Stdio::null());
    install.status().is_ok_and(|status| status.success())
}

fn five() -> Nodes {
    Nodes::start(5).expect("nodes start")
}

fn take_away(nodes: &Nodes) {
    let seen = on(nodes, &["status", "k", "--json"]).expect(0).json();
    let token = seen.pointer("/nodes/0/token").and_then(|token| token.as_str());
    on(nodes, &["unlock", "k", "--token", token.expect("a token")]).expect(0);
}

/// The changes leave a process in the reach of `run`.
fn end_with_the_lock(user: &[&str], lines: &[&str]) {
    for line in lines {
        let Some(desk) = Desk::new() else { return };
        let nodes = five();
        let running = desk.start(&nodes, user, &["--ttl", "3s", "--grace", "200ms"], line);
        take_away(&nodes);
        let ended = running.end();
        desk.expect_no_write_after_the_lock(&nodes, line);
        assert_eq!(ended.code, Some(70), "{line}: {ended:?}");
        assert!(ended.err.contains("so the command was ended"), "{line}: {ended:?}");
    }
}

#[test]
fn a_command_that_leaves_its_session_group_user_or_namespace_ends_with_its_lock() {
    let lines = [
        "setsid sh \"$D/writer\" & wait",
        "(setsid sh \"$D/writer\" &); exec sleep 600",
        "bash -c 'set -m; sh \"$D/writer\" & wait'",
        "setpriv --reuid=65534 --clear-groups setsid sh \"$D/writer\" & wait",
        "setpriv --bounding-set=-all --inh-caps=-all setsid sh \"$D/writer\" & wait",
        "unshare --pid --fork setsid sh \"$D/writer\" & wait",
    ];
    end_with_the_lock(&["--reuid=0"], &lines);
}

#[test]
fn a_command_of_an_ordinary_user_cannot_become_another_and_ends_with_its_lock() {
    let or_writes = |line: &str| format!("({line} || setsid sh \"$D/writer\") & wait");
    let lines = [
        or_writes(AS_ROOT),
        or_writes("unshare --user --map-root-user setsid sh \"$D/writer\""),
        "(setsid sh \"$D/writer\" &); exec sleep 600".to_owned(),
    ];
    end_with_the_lock(&NOBODY, &lines.each_ref().map(String::as_str));
}

/// Ways to become a user whose processes `run` may not end: for each the user of `run`, its options,
/// and the line for the shell.
fn changes_of_user() -> [(&'static [&'static str], &'static [&'static str], String); 3] {
    let any = &["--allow-new-privileges"];
    [
        (&NOBODY, any, format!("exec {AS_ROOT}")),
        (&NOBODY, any, format!("{AS_ROOT} & wait")),
        (&CHANGER, &[], "setpriv --reuid=1 setsid sh \"$D/writer\" & wait".to_owned()),
    ]
}

#[test]
fn a_command_that_run_may_not_end_is_named_and_has_an_exit_code_of_its_own() {
    for (user, args, line) in changes_of_user() {
        let Some(desk) = Desk::new() else { return };
        let nodes = five();
        let args = [&["--ttl", "3s", "--grace", "200ms"], args].concat();
        let running = desk.start(&nodes, user, &args, &line);
        take_away(&nodes);
        let ended = running.end();
        assert_eq!(ended.code, Some(79), "{line}: {ended:?}");
        let pid = desk.writer();
        let last = ended.err.lines().last().expect("a line");
        assert!(last.starts_with("redbolt: k was taken away, but process"), "{line}: {ended:?}");
        // The writer waits for a `sleep`, most of the time.
        assert!(last.contains(&format!(" {pid} (sh)")), "{line}: {ended:?}");
        let rest =
            "cannot be killed (permission denied): the command may still run; end it yourself";
        assert!(last.ends_with(rest), "{line}: {ended:?}");
    }
}

#[test]
fn a_command_that_became_another_user_ends_with_its_lock_where_run_may_make_a_cgroup() {
    for (user, args, line) in changes_of_user() {
        let Some(desk) = Desk::new().and_then(Desk::with_cgroup) else { return };
        let nodes = five();
        let args = [&["--ttl", "3s", "--grace", "200ms"], args].concat();
        let running = desk.start(&nodes, user, &args, &line);
        take_away(&nodes);
        let ended = running.end();
        assert_eq!(ended.code, Some(70), "{line}: {ended:?}");
        desk.expect_no_write_after_the_lock(&nodes, &line);
    }
}

/// Without a cgroup it would go on: it is another user's, and the watchdog may not have seen it.
#[test]
fn a_daemon_of_another_user_ends_where_run_is_killed_and_had_made_a_cgroup() {
    let Some(desk) = Desk::new().and_then(Desk::with_cgroup) else { return };
    let nodes = five();
    let line = format!("(setsid {AS_ROOT} &); exec sleep 600");
    let args = ["--ttl", "3s", "--allow-new-privileges"];
    let running = desk.start(&nodes, &NOBODY, &args, &line);
    running.signal("KILL");
    assert_eq!(running.end().code, None);
    desk.expect_no_write_after_the_lock(&nodes, &line);
}

#[test]
fn a_lock_whose_command_cannot_be_ended_is_not_released() {
    let Some(desk) = Desk::new() else { return };
    let nodes = five();
    let args = ["--ttl", "20s", "--max-hold", "2s", "--allow-new-privileges", "--json"];
    let running = desk.start(&nodes, &NOBODY, &args, &format!("exec {AS_ROOT}"));
    let ended = running.end();
    assert_eq!((ended.code, ended.text("error").as_str()), (Some(79), "not_killed"), "{ended:?}");
    assert_eq!(on(&nodes, &["status", "k", "--json"]).expect(0).text("verdict"), "held");
}

#[test]
fn a_signal_that_cannot_be_passed_on_is_said_to() {
    let Some(desk) = Desk::new() else { return };
    let nodes = five();
    let args = ["--ttl", "20s", "--allow-new-privileges"];
    let mut running = desk.start(&nodes, &NOBODY, &args, &format!("exec {AS_ROOT}"));
    running.signal("TERM");
    let pid = desk.writer();
    assert_eq!(
        running.err_line("redbolt: "),
        format!("redbolt: cannot send TERM to CMD (process {pid}): permission denied")
    );
}

#[test]
fn a_candidate_whose_command_cannot_be_ended_does_not_lead_again() {
    let Some(desk) = Desk::new() else { return };
    let nodes = five();
    let args = ["--ttl", "2s", "--allow-new-privileges"];
    let running = desk.start_as("elect", &nodes, &NOBODY, &args, &format!("exec {AS_ROOT}"));
    take_away(&nodes);
    let ended = running.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(!ended.err.contains("waits to lead again"), "{ended:?}");
}

#[test]
fn a_daemon_of_the_command_ends_with_the_lock_where_run_is_stopped() {
    let Some(desk) = Desk::new() else { return };
    let nodes = five();
    let line = "(setsid sh \"$D/writer\" &); exec sleep 600";
    let running = desk.start(&nodes, &NOBODY, &["--ttl", "3s", "--grace", "1400ms"], line);
    running.signal("STOP");
    desk.expect_no_write_after_the_lock(&nodes, line);
    running.signal("CONT");
    assert_eq!(running.end().code, Some(70));
}

#[test]
fn a_daemon_that_the_watchdog_has_seen_ends_where_run_is_killed() {
    let Some(desk) = Desk::new() else { return };
    let nodes = five();
    let line = "(setsid sh \"$D/writer\" &); exec sleep 600";
    let running = desk.start(&nodes, &NOBODY, &["--ttl", "1s"], line);
    let start = desk.last();
    // The watchdog looks with each extension, at most once in 5 s.
    assert!(eventually(PATIENCE, || desk.last() > start.map(|at| at + Duration::from_secs(6))));
    running.signal("KILL");
    assert_eq!(running.end().code, None);
    desk.expect_no_write_after_the_lock(&nodes, line);
}

#[test]
fn a_command_that_cannot_be_ended_is_named_where_run_was_stopped_meanwhile() {
    let Some(desk) = Desk::new() else { return };
    let nodes = five();
    let args = ["--ttl", "2s", "--allow-new-privileges"];
    let running = desk.start(&nodes, &NOBODY, &args, &format!("exec {AS_ROOT}"));
    running.signal("STOP");
    on(&nodes, &["lock", "k", "--ttl", "20s", "--wait", "60s"]).expect(0);
    running.signal("CONT");
    let ended = running.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.err.contains("k was lost, but process"), "{ended:?}");
}

/// As behind `cmd > >(tee log)`, where the shell becomes `run`.
#[test]
fn a_process_that_run_had_before_the_command_is_left_alone() {
    let Some(desk) = Desk::new() else { return };
    let nodes = five();
    let run =
        "exec \"$D/redbolt\" --node-timeout 2s run k --ttl 3s -- sh -c 'echo up; exec sleep 600'";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("setsid sh \"$D/writer\" & {run}")]);
    without_settings(&mut command);
    command.env("REDBOLT_NODES", nodes.urls().join(",")).env("D", desk.dir.path());
    let mut running = Running::of(command);
    assert_eq!(running.line(), "up");
    take_away(&nodes);
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    let last = desk.last();
    assert!(eventually(PATIENCE, || desk.last() > last), "{ended:?}");
}
