//! No file calls back into one that called it, nor imports one that imports it: in the engine, and in the
//! command line.
//!
//! Read from the text: an import is a `use` of a path that ends at another file, a call is
//! `self.method(..)` or `self.field.method(..)` where a file has a method of that name for that type. The
//! list of modules in a `mod.rs`, and what it only passes on (`pub use`), is neither.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The types of the fields through which files call each other.
const FIELDS: [(&str, &str); 13] = [
    ("locks", "Locks"),
    ("nodes", "Nodes"),
    ("waiting", "Waiting"),
    ("slots", "Slots"),
    ("ops", "Ops"),
    ("keeps", "Keeps"),
    ("timers", "Timers"),
    ("traces", "Traces"),
    ("counts", "Counts"),
    ("prefix", "Prefix"),
    ("waiters", "Beside"),
    ("queues", "Beside"),
    ("wakes", "Wakes"),
];

/// The files of a directory by their module path (`locks::op`), without tests and comments.
fn modules(dir: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![(dir.to_owned(), String::new())];
    while let Some((dir, prefix)) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a readable directory").flatten() {
            let path = entry.path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                dirs.push((path, format!("{prefix}{name}::")));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let module = match name.as_str() {
                    "mod" | "main" | "lib" => prefix.trim_end_matches("::").to_owned(),
                    _ => format!("{prefix}{name}"),
                };
                let text = fs::read_to_string(&path).expect("a readable file");
                let text = text.split("#[cfg(test)]\nmod tests").next().expect("a first part");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                files.insert(module, code.collect::<Vec<_>>().join("\n"));
            }
        }
    }
    assert!(files.len() > 10, "the files of {}", dir.display());
    files
}

/// The paths of a `use` with its braces resolved.
fn paths(text: &str) -> Vec<String> {
    let Some((head, rest)) = text.split_once('{') else { return vec![text.trim().to_owned()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                parts.last_mut().expect("a part").push(c);
            }
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| paths(&format!("{}{part}", head.trim()))).collect()
}

/// The module of `files` that a path in `module` ends in; `root` is what `crate::` has before them.
fn target(
    files: &BTreeMap<String, String>,
    module: &str,
    path: &str,
    root: &[&str],
) -> Option<String> {
    let mut segments: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    match *segments.first()? {
        "super" => {
            while segments.first() == Some(&"super") {
                base.pop();
                segments.remove(0);
            }
        }
        "crate" => {
            segments = segments.get(1..)?.strip_prefix(root)?.to_vec();
            base.clear();
        }
        first => {
            let child = [&base[..], &[first]].concat().join("::");
            files.get(&child)?;
        }
    }
    loop {
        let path = [&base[..], &segments[..]].concat().join("::");
        if files.contains_key(&path) {
            return Some(path).filter(|path| path != module);
        }
        segments.pop()?;
    }
}

type Edges = BTreeMap<String, BTreeSet<String>>;

fn imports(files: &BTreeMap<String, String>, root: &[&str], edges: &mut Edges) {
    for (module, code) in files {
        let mut rest = code.as_str();
        while let Some(at) = rest.find("use ") {
            let line = rest[..at].rsplit('\n').next().expect("a line");
            let tail = &rest[at + 4..];
            let statement = tail.split(';').next().expect("a statement");
            let is_use = matches!(line.trim(), "" | "pub" | "pub(crate)" | "pub(super)")
                || line.trim().starts_with("pub(in");
            // What a facade passes on is no need of its own.
            if is_use && line.trim().is_empty() {
                for path in paths(&statement.replace('\n', " ")) {
                    if let Some(target) = target(files, module, &path, root) {
                        edges.entry(module.clone()).or_default().insert(target);
                    }
                }
            }
            rest = tail;
        }
    }
}

/// Each line of code with the type whose `impl` it is in.
fn with_types(code: &str) -> Vec<(Option<&str>, &str)> {
    let mut owner = None;
    let name = |line: &str| line.find(|c: char| !c.is_alphanumeric() && c != '_');
    let lines = code.lines().map(|line| {
        if let Some(rest) = line.strip_prefix("impl") {
            let rest = rest.rsplit(" for ").next().expect("a type");
            let rest = rest.trim_start_matches(|c: char| c != ' ').trim_start();
            owner = Some(&rest[..name(rest).unwrap_or(rest.len())]);
        } else if line.starts_with('}') {
            owner = None;
        }
        (owner, line)
    });
    lines.collect()
}

fn calls(files: &BTreeMap<String, String>, edges: &mut Edges) {
    let mut methods = BTreeMap::<(&str, &str), &str>::new();
    for (module, code) in files {
        for (owner, line) in with_types(code) {
            let after = line.split(" fn ").nth(1).filter(|_| line.starts_with("    "));
            if let (Some(owner), Some(after)) = (owner, after) {
                let len = after.find(['(', '<']).unwrap_or(after.len());
                methods.insert((owner, &after[..len]), module);
            }
        }
    }
    for (module, code) in files {
        for (owner, line) in with_types(code) {
            for call in line.split("self.").skip(1) {
                let len = call.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.');
                let Some(chain) = len.filter(|&len| call[len..].starts_with('(')) else { continue };
                let mut chain = call[..chain].rsplit('.');
                let (method, field) = (chain.next().expect("a name"), chain.next());
                let owner = field.map_or(owner, |field| {
                    FIELDS.iter().find(|(name, _)| *name == field).map(|(_, owner)| *owner)
                });
                let callee = owner.and_then(|owner| methods.get(&(owner, method)));
                if let Some(&callee) = callee.filter(|callee| **callee != module) {
                    edges.entry(module.clone()).or_default().insert(callee.to_owned());
                }
            }
        }
    }
}

/// A way from a file back to itself.
fn circle(edges: &Edges) -> Option<Vec<String>> {
    fn walk(at: &str, edges: &Edges, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(begin) = way.iter().position(|seen| seen == at) {
            way.drain(..begin);
            return true;
        }
        if !done.insert(at.to_owned()) {
            return false;
        }
        way.push(at.to_owned());
        let next = edges.get(at).into_iter().flatten();
        let is_found = next.into_iter().any(|next| walk(next, edges, way, done));
        if !is_found {
            way.pop();
        }
        is_found
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    edges.keys().any(|at| walk(at, edges, &mut way, &mut done)).then_some(way)
}

fn demand_no_circle(dir: &str, root: &[&str]) {
    let files = modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir));
    let mut edges = Edges::new();
    imports(&files, root, &mut edges);
    calls(&files, &mut edges);
    assert!(edges.len() > files.len() / 2, "{dir}: edges are found");
    assert_eq!(circle(&edges), None, "{dir}: these files need each other");
}

#[test]
fn no_file_of_the_engine_calls_back_into_one_that_called_it() {
    demand_no_circle("src/engine", &["engine"]);
}

#[test]
fn no_file_of_the_command_line_calls_back_into_one_that_called_it() {
    demand_no_circle("cli/src", &[]);
}

#[test]
fn a_circle_is_found_by_an_import_and_by_a_call() {
    let file = |module: &str, code: &str| (module.to_owned(), code.to_owned());
    let imported = BTreeMap::from([
        file("a", "use super::b::B;\n"),
        file("b", "use crate::x::{c::C, other};\n"),
        file("c", "use super::a;\n"),
    ]);
    let mut edges = Edges::new();
    imports(&imported, &["x"], &mut edges);
    assert_eq!(circle(&edges).map(|way| way.len()), Some(3), "{edges:?}");
    let called = BTreeMap::from([
        file("a", "impl Engine {\n    fn up(&self) {\n        self.locks.down();\n    }\n}\n"),
        file("b", "impl Locks {\n    fn down(&self) {\n        self.aside();\n    }\n}\n"),
        file("c", "impl Locks {\n    fn aside(&self) {}\n}\n"),
    ]);
    let mut edges = Edges::new();
    calls(&called, &mut edges);
    assert_eq!((edges.len(), circle(&edges)), (2, None), "{edges:?}");
    edges.entry("c".to_owned()).or_default().insert("a".to_owned());
    assert!(circle(&edges).is_some());
}
