//! The shape of the sources of all crates: who may import whom, what every file begins with, how
//! long it is.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines a file may have.
const LINES_MAX: usize = 600;

/// All folders with sources.
const DIRS: [&str; 7] =
    ["src", "tests", "examples", "benches", "cli", "embedded", "fuzz/fuzz_targets"];

fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut dirs = vec![root.join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a readable file");
                files.push((path.strip_prefix(root).expect("below the root").to_owned(), text));
            }
        }
    }
    assert!(!files.is_empty());
    files
}

/// The modules that a file below `src` is in, the outermost first.
fn modules(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let names = path.iter().skip(1).map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name != "mod").collect()
}

/// The layer of a source file: its directory or file name below `src`.
fn layer(path: &Path) -> String {
    modules(path).swap_remove(0)
}

/// The layers that a line of code in `modules` names by `crate::`, `super::` or `self::`.
fn named<'a>(modules: &'a [String], line: &'a str) -> impl Iterator<Item = &'a str> {
    let paths = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    paths.filter_map(|path| {
        let mut parts = path.split("::");
        let mut depth = match parts.next()? {
            "crate" => 0,
            "super" => modules.len() - 1,
            "self" => modules.len(),
            _ => return None,
        };
        let mut name = parts.next()?;
        while name == "super" {
            depth -= 1;
            name = parts.next()?;
        }
        if depth == 0 { Some(name) } else { modules.first().map(String::as_str) }
    })
}

#[test]
fn imports_point_only_downward() {
    let values = [
        "agreement",
        "claim",
        "client_name",
        "plain",
        "config",
        "address",
        "options",
        "count",
        "error",
        "histogram",
        "key",
        "quorum",
        "retry",
        "beside",
        "slab",
        "rules",
        "tls",
        "token",
        "time",
        "witness",
    ];
    let allowed: [(&str, &[&str]); 17] = [
        ("serialized", &["inspect", "engine"]),
        ("inspect", &["client", "engine", "status"]),
        ("shared", &["driver", "engine", "status"]),
        ("sim", &["engine", "resp"]),
        ("client", &["driver", "engine", "status", "command", "resp"]),
        ("driver", &["engine", "status"]),
        ("status", &["engine", "command", "resp"]),
        ("engine", &["node", "round", "command", "resp"]),
        ("node", &["command", "resp"]),
        ("round", &[]),
        ("command", &["resp"]),
        ("resp", &[]),
        ("config", &[]),
        ("rules", &[]),
        ("address", &[]),
        ("options", &[]),
        ("fuzzing", &["resp", "sim"]),
    ];
    for (path, text) in sources("src") {
        let layer = layer(&path);
        if layer == "lib" {
            continue;
        }
        let below: &[&str] =
            allowed.iter().find(|(name, _)| *name == layer).map_or(&[], |(_, below)| below);
        let mut modules = modules(&path);
        let file = modules.len();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            // In a module within the file one `super` more leads out.
            let is_module = line.starts_with("mod ") || line.starts_with("pub(super) mod ");
            if is_module && line.ends_with('{') {
                modules.push(line.to_owned());
            } else if line == "}" {
                modules.truncate(file);
            }
            for name in named(&modules, line) {
                let is_allowed = name == layer
                    || below.contains(&name)
                    || (values.contains(&name) && layer != "resp");
                assert!(is_allowed, "{}: {layer} may not import {name}", path.display());
            }
        }
    }
}

/// What the machine needs comes with its inputs, and what it wants done are its actions.
#[test]
fn waiting_knows_nothing_of_the_engine() {
    for (path, text) in sources("src/engine/wait") {
        let outward = if path.ends_with("wait/mod.rs") { "use super::" } else { "super::super" };
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let is_outward = !is_test && line.contains(outward) || line.contains("crate::engine::");
            assert!(!is_outward, "{}: {line}", path.display());
        }
    }
}

#[test]
fn only_the_driver_and_the_embedded_server_touch_sockets_and_clocks() {
    let words = ["mio::", "socket2::", "rustix::", "std::net::", "std::thread", "std::env"];
    let embedded = sources("embedded/src").into_iter();
    let embedded = embedded.filter(|(path, _)| !path.starts_with("embedded/src/server"));
    for (path, text) in sources("src").into_iter().chain(embedded) {
        let layer = layer(&path);
        if ["driver", "client", "shared", "lib"].contains(&layer.as_str()) {
            continue;
        }
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        for word in words.iter().filter(|_| !is_test) {
            assert!(
                !text
                    .lines()
                    .any(|line| !line.trim_start().starts_with("//") && line.contains(word)),
                "{}: {word} is not for {layer}",
                path.display()
            );
        }
    }
}

#[test]
fn every_file_says_what_it_is_for_and_is_no_longer_than_it_may_be() {
    for dir in DIRS {
        for (path, text) in sources(dir) {
            assert!(text.starts_with("//!"), "{}: begins without its purpose", path.display());
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "{}: {lines} lines", path.display());
        }
    }
}

/// Else a file would be in two crates, and its imports in neither's order.
#[test]
fn no_file_is_taken_by_its_path() {
    let attribute = concat!("#[", "path");
    for (path, text) in DIRS.into_iter().flat_map(sources) {
        assert!(!text.contains(attribute), "{}: takes a file by its path", path.display());
    }
}

/// What the model and the harness share with the client they could get wrong together.
#[test]
fn crates_depend_only_on_those_below() {
    let allowed: [(&str, &[&str]); 5] = [
        (".", &["redbolt-embedded"]),
        ("benches", &["redbolt"]),
        ("embedded", &[]),
        ("tests/rig", &[]),
        ("cli", &["redbolt", "redbolt-embedded"]),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (dir, below) in allowed {
        let file = root.join(dir).join("Cargo.toml");
        let text = fs::read_to_string(file).expect("a manifest");
        let named = text
            .split("\n[")
            .filter(|section| section.starts_with("dependencies]"))
            .flat_map(str::lines)
            .filter_map(|line| line.split_once(" = "))
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("redbolt"));
        assert_eq!(named.collect::<Vec<_>>(), below, "{dir}");
    }
}

/// A setting that a user cannot read about is none.
#[test]
fn every_setting_is_in_the_table_of_settings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).expect("a readable file");
    let table = read("docs/settings.md");
    let mut settings = 0;
    for file in ["src/config.rs", "src/options.rs", "src/retry.rs"] {
        let text = read(file);
        for line in text
            .lines()
            .filter(|line| line.trim_start().starts_with("pub ") && line.contains("(mut self"))
        {
            let name = line.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
            let name = name.expect("a function has a name");
            settings += 1;
            assert!(
                table.contains(&format!("`{name}")),
                "{file}: {name} is not in docs/settings.md"
            );
        }
    }
    assert!(settings > 20, "{settings} settings");
}
