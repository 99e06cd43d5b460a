//! `docs/tutorial.md`: its programs are those of this crate, and its commands print the output that
//! it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redbolt_rig::{Kind, free_port, kind_or_skip, skip};

const PAGE: &str = include_str!("../../../docs/tutorial.md");

/// The ports that the page names; the test replaces each with a free one.
const PORTS: [&str; 5] = ["7001", "7002", "7003", "7004", "7005"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = here().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A block of the page, with the last line of text before it.
struct Block<'a> {
    title: &'a str,
    kind: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut title = "";
    // The parts are outside and inside a block by turns.
    for (number, part) in page.split("\n```").enumerate() {
        let (kind, text) = part.split_once('\n').unwrap_or((part, ""));
        if number % 2 == 1 {
            blocks.push(Block { title, kind, text });
        } else {
            title = text.trim_end().lines().last().unwrap_or_default();
        }
    }
    blocks
}

fn of_kind(kind: &str) -> impl Iterator<Item = Block<'static>> {
    blocks(PAGE).into_iter().filter(move |block| block.kind == kind)
}

/// The commands of a section, each with the output that the page shows.
fn steps(title: &str) -> Vec<(String, String)> {
    let (_, section) = PAGE.split_once(&format!(". {title}\n")).expect("a section");
    let section = format!("\n{}", section.split("\n## ").next().expect("a section"));
    let mut steps = Vec::new();
    for block in blocks(&section) {
        if block.kind == "sh" {
            steps.push((block.text.to_owned(), String::new()));
        } else if block.kind == "console" {
            let parts = format!("\n{}", block.text);
            let parts = parts.split("\n$ ").skip(1);
            let parts = parts.map(|step| step.split_once('\n').unwrap_or((step, "")));
            steps.extend(parts.map(|(command, output)| (command.to_owned(), output.to_owned())));
        }
    }
    assert!(!steps.is_empty(), "{title}");
    steps
}

#[test]
fn each_program_of_the_page_is_one_of_this_crate() {
    let mut shown = BTreeSet::new();
    for Block { title, text: program, .. } in of_kind("rust,ignore") {
        let file = title.rsplit('`').nth(1).expect("the name of a file");
        assert!(read(file).trim_end() == program, "{file} is not what the page shows");
        shown.insert(here().join(file));
    }
    let programs = fs::read_dir(here().join("src/bin")).expect("programs").flatten();
    assert_eq!(shown, programs.map(|entry| entry.path()).collect());
    let copied = "cp ../redbolt/examples/tutorial/src/lib.rs src/\n";
    assert!(PAGE.contains(copied) && here().ends_with("examples/tutorial"));
}

/// The dependencies of a manifest, without the paths of its own crates.
fn dependencies(manifest: &str) -> BTreeMap<String, String> {
    let (_, section) = manifest.split_once("[dependencies]\n").expect("dependencies");
    let lines = section.lines().map_while(|line| line.split_once(" = "));
    lines
        .map(|(name, what)| {
            let what = what.trim_matches(['{', '}', ' ']).split(", ");
            let what = what.filter(|part| !part.starts_with("path") && !part.starts_with("work"));
            (name.to_owned(), what.collect::<Vec<_>>().join(", "))
        })
        .collect()
}

#[test]
fn the_page_names_the_crates_and_features_that_its_programs_need() {
    let shown = dependencies(of_kind("toml").next().expect("a manifest").text);
    assert!(shown.len() > 3, "{shown:?}");
    assert_eq!(shown, dependencies(&read("Cargo.toml")));
}

/// A directory with the commands of the page. Processes that they left running end with it.
struct Site {
    dir: tempfile::TempDir,
    ports: Vec<String>,
}

impl Site {
    /// `None` if `redbolt` or the server is missing.
    fn new() -> Option<Self> {
        let redbolt = Path::new(env!("CARGO_BIN_EXE_late")).with_file_name("redbolt");
        if !redbolt.exists() {
            skip("redbolt is not built", "cargo build -p redbolt-cli");
            return None;
        }
        let server = fs::canonicalize(kind_or_skip(Kind::Valkey91)?.binary()).expect("it is there");
        let dir = tempfile::tempdir().expect("a directory");
        symlink(redbolt, dir.path().join("redbolt")).expect("a link");
        symlink(server, dir.path().join("valkey-server")).expect("a link");
        Some(Self { dir, ports: PORTS.iter().map(|_| free_port().to_string()).collect() })
    }

    fn with_own_ports(&self, text: &str) -> String {
        let ports = PORTS.iter().zip(&self.ports);
        ports.fold(text.to_owned(), |text, (shown, own)| text.replace(shown, own))
    }

    /// Runs the commands of the sections in one shell; each must print what the page shows.
    fn play(&self, titles: &[&str]) {
        let own = |(command, shown): (String, String)| {
            (self.with_own_ports(&command), self.with_own_ports(&shown))
        };
        let steps: Vec<_> = titles.iter().flat_map(|title| steps(title)).map(own).collect();
        let mut script = String::new();
        for (command, _) in &steps {
            let bin = Path::new(env!("CARGO_BIN_EXE_late")).parent().expect("a directory");
            let own = command.replace("cargo run --quiet --bin ", &format!("{}/", bin.display()));
            script.push_str(&format!("{own}\necho \"ended with $?\"\n"));
        }
        let printed = self.run(&script);
        let mut printed = printed.split("ended with ");
        let mut output = printed.next().expect("an output");
        for (command, shown) in &steps {
            let rest = printed.next().unwrap_or_else(|| panic!("{command}: never ran"));
            let (code, next) = rest.split_once('\n').expect("a line");
            assert_eq!(code, "0", "{command}:\n{output}");
            compare(command, shown, output);
            output = next;
        }
    }

    fn run(&self, script: &str) -> String {
        let path = std::env::var("PATH").expect("a PATH");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{script}")]).current_dir(self.dir.path());
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"REDBOLT_")) {
            shell.env_remove(name);
        }
        // Other tests run beside: with two servers dead, each of the others has to answer in time.
        shell.env("REDBOLT_NODE_TIMEOUT", "500ms");
        shell.env("PATH", format!("{}:{path}", self.dir.path().display()));
        shell.env_remove("HOME").env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
        let ended = shell.output().expect("a shell");
        String::from_utf8(ended.stdout).expect("text")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let files = self.ports.iter().map(|port| self.dir.path().join(format!("{port}.pid")));
        for file in files.filter(|file| file.exists()).collect::<Vec<PathBuf>>() {
            let pid = fs::read_to_string(file).unwrap_or_default();
            // A process that the page has killed left its file behind.
            let _ = Command::new("kill").args(["-9", pid.trim()]).stderr(Stdio::null()).status();
        }
    }
}

/// A line without the values that differ from run to run: times, and counts that the programs
/// check.
fn plain(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let varies = |at: usize| {
        let next = |behind: usize| words.get(at + behind).map(|word| word.trim_matches(','));
        let is_number = words.get(at).is_some_and(|word| word.parse::<f64>().is_ok());
        let is_time = matches!(next(1), Some("s" | "ms" | "us"));
        let is_count = next(1) == Some("late") || next(1) == Some("of") && next(2) == Some("100");
        is_number && (is_time || is_count)
    };
    let words = words.iter().enumerate().map(|(at, word)| if varies(at) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Where the page has `..`, it leaves out lines, or the rest of a line.
#[track_caller]
fn compare(command: &str, shown: &str, output: &str) {
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    let mut may_skip = false;
    for shown in shown.lines().filter(|line| !line.trim().is_empty()) {
        if shown == ".." {
            may_skip = true;
            continue;
        }
        let wanted = plain(shown);
        let fits = |line: &str| match wanted.strip_suffix(" ..") {
            Some(start) => plain(line).starts_with(start),
            None => plain(line) == wanted,
        };
        let found = if may_skip { lines.any(fits) } else { lines.next().is_some_and(fits) };
        assert!(found, "{command}: no \"{shown}\" in its place in\n{output}");
        may_skip = false;
    }
    let rest: Vec<_> = lines.collect();
    assert!(may_skip || rest.is_empty(), "{command}: the page does not show {rest:#?}");
}

#[test]
fn the_demo_prints_what_the_page_shows() {
    let Some(site) = Site::new() else { return };
    site.play(&["See a sale"]);
}

#[test]
fn without_a_lock_the_shop_oversells_and_with_one_it_does_not() {
    let Some(site) = Site::new() else { return };
    site.play(&["A shop that oversells", "A lock"]);
}

#[test]
fn a_lease_is_kept_while_its_holder_runs_and_lost_when_it_is_stopped() {
    let Some(site) = Site::new() else { return };
    site.play(&["A lease that is kept, and one that is lost"]);
}

#[test]
fn with_fences_the_stock_refuses_late_writes() {
    let Some(site) = Site::new() else { return };
    site.play(&["A fence"]);
}

#[test]
fn the_shop_sells_on_five_servers_of_which_two_are_killed() {
    let Some(site) = Site::new() else { return };
    site.play(&["Five servers", "What can be watched"]);
}

#[test]
fn the_dashboard_shows_the_series_of_which_the_page_speaks() {
    let dashboard = read("../../deploy/prometheus/dashboard.json");
    for block in of_kind("console") {
        for line in block.text.lines().filter(|line| line.starts_with("redbolt_")) {
            let name = line.split(['{', ' ']).next().expect("a name").trim_end_matches("_count");
            assert!(dashboard.contains(name), "{name}");
        }
    }
}

#[test]
fn a_line_that_the_page_lacks_or_has_too_many_is_noticed() {
    let differs = |shown, output| std::panic::catch_unwind(|| compare("", shown, output)).is_err();
    assert!(!differs("a\n..\nat 3 ms ..\n", "a\nb\n\nat 4.5 ms, c\n"));
    assert!(differs("a\n", "a\nb\n") && differs("a\nb\n", "a\n") && differs("a\nc\n", "a\nb\nc\n"));
    assert!(differs("99 left\n", "98 left\n") && !differs("9 of 100\n", "8 of 100\n"));
}
