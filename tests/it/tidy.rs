//! The shape of the sources of all crates: which module may import which, how every file begins,
//! and how long it may be.

use std::fs;

use super::code::{Source, sources};
use super::common::root;

/// Lines a file may have.
const LINES_MAX: usize = 600;

/// All folders with sources.
const DIRS: [&str; 8] =
    ["src", "tests", "examples", "benches", "cli", "embedded", "ffi", "fuzz/fuzz_targets"];

#[test]
fn imports_point_only_downward() {
    let values = [
        "agreement",
        "checked",
        "claim",
        "client_name",
        "plain",
        "config",
        "address",
        "options",
        "count",
        "error",
        "generator",
        "histogram",
        "guards",
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
    let allowed: [(&str, &[&str]); 16] = [
        ("inspect", &["engine", "leader", "query"]),
        ("sim", &["client", "engine", "query", "resp"]),
        ("client", &["driver", "engine", "leader", "query"]),
        ("driver", &["engine", "query"]),
        ("leader", &["query"]),
        ("engine", &["query", "node", "round", "command", "resp"]),
        ("query", &["command", "resp"]),
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
    for source in sources("src") {
        let Some(layer) = source.modules().into_iter().next() else { continue };
        let below =
            allowed.iter().find(|(name, _)| *name == layer).map_or(&[][..], |(_, below)| below);
        for path in source.read().paths.into_iter().filter(|path| path.is_anchored) {
            let Some(name) = path.parts.first() else { continue };
            let is_allowed = *name == layer
                || below.contains(&name.as_str())
                || (values.contains(&name.as_str()) && layer != "resp");
            assert!(is_allowed, "{}: {layer} may not import {name}", source.path.display());
        }
    }
}

/// The code in `engine/wait` gets all that it needs with its inputs, and asks for work by its
/// actions.
#[test]
fn waiting_knows_nothing_of_the_engine() {
    for source in sources("src/engine/wait") {
        let is_test = source.is_test();
        for path in source.read().paths.iter().filter(|path| path.is_anchored) {
            let is_within = path.parts.get(1).is_some_and(|part| part == "wait");
            let is_engine = path.parts.first().is_some_and(|part| part == "engine");
            let is_allowed = !is_engine || is_within || is_test;
            assert!(is_allowed, "{}: {}", source.path.display(), path.parts.join("::"));
        }
    }
}

#[test]
fn only_the_driver_and_the_embedded_server_touch_sockets_and_clocks() {
    let names = ["mio", "socket2", "rustix"];
    let modules = ["net", "thread", "env"];
    let below = sources("embedded/src").into_iter();
    let below = below.filter(|source| !source.path.starts_with("embedded/src/server"));
    for source in sources("src").into_iter().chain(below).filter(|source| !source.is_test()) {
        let layer = source.modules().into_iter().next();
        if layer.is_none_or(|layer| ["driver", "client"].contains(&layer.as_str())) {
            continue;
        }
        for path in source.read().paths {
            let is_outside = match &path.written[..] {
                [first, second, ..] if first == "std" => modules.contains(&second.as_str()),
                [first, ..] => names.contains(&first.as_str()),
                [] => false,
            };
            let written = path.written.join("::");
            assert!(!is_outside, "{}: {written} is for the driver", source.path.display());
        }
    }
}

/// The switch of an experiment must not stay in the code, and users set the library up by `Config`.
#[test]
fn no_environment_variable_changes_what_the_libraries_do() {
    let read = ["env::var(", "env::var_os(", "env::vars("];
    for source in ["src", "embedded/src"].into_iter().flat_map(sources) {
        // A file of tests that is not named so: it asks how many schedules to try.
        let is_test = source.is_test() || source.path.ends_with("client/schedules.rs");
        let found = read.iter().find(|call| !is_test && source.text.contains(**call));
        assert!(found.is_none(), "{}: {found:?}", source.path.display());
    }
}

#[test]
fn every_file_says_what_it_is_for_and_is_no_longer_than_it_may_be() {
    for dir in DIRS {
        for Source { path, text } in sources(dir) {
            assert!(text.starts_with("//!"), "{}: begins without its purpose", path.display());
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "{}: {lines} lines", path.display());
        }
    }
}

/// If a row went over two lines, rustdoc would show the second line as a row of its own.
#[test]
fn each_row_of_a_table_in_the_documentation_is_one_line() {
    for Source { path, text } in DIRS.into_iter().flat_map(sources) {
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            let row = line.strip_prefix("//! |").or_else(|| line.strip_prefix("/// |"));
            let is_whole = row.is_none_or(|row| row.ends_with('|'));
            assert!(is_whole, "{}:{number}: a row without its end", path.display());
        }
    }
}

/// Otherwise a file would be in two crates, and neither crate's order of imports would hold for it. The
/// benchmark of RESP takes the codec, which is no public name and imports nothing of its crate.
#[test]
fn no_file_is_taken_by_its_path_but_the_codec_by_its_benchmark() {
    let attribute = concat!("#[", "path");
    for Source { path, text } in DIRS.into_iter().flat_map(sources) {
        let is_codec = path.ends_with("benches/resp.rs");
        assert!(
            is_codec || !text.contains(attribute),
            "{}: takes a file by its path",
            path.display()
        );
    }
}

/// The model and the harness must not share code with the client: the same error could be in both.
#[test]
fn crates_depend_only_on_those_below() {
    let allowed: [(&str, &[&str]); 6] = [
        (".", &["redbolt-embedded"]),
        ("benches", &["redbolt"]),
        ("embedded", &[]),
        ("tests/rig", &[]),
        ("ffi", &["redbolt"]),
        ("cli", &["redbolt", "redbolt-embedded"]),
    ];
    for (dir, below) in allowed {
        let file = root().join(dir).join("Cargo.toml");
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

/// A setting that a user cannot read about does not exist for that user.
#[test]
fn every_setting_is_in_the_table_of_settings() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect("a readable file");
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

/// The documentation of each setter of `Config`, in small letters on one line, without its links.
fn setters() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("src/config.rs")).expect("a readable file");
    let (mut all, mut told) = (Vec::new(), String::new());
    for line in text.lines().map(str::trim_start) {
        if let Some(comment) = line.strip_prefix("///") {
            told.push_str(&comment.to_lowercase());
        } else if let Some(name) = line.split("fn ").nth(1).filter(|_| line.contains("(mut self")) {
            let name = name.split('(').next().unwrap_or_default();
            let mut pieces = told.split("](");
            let mut plain = pieces.next().unwrap_or_default().to_owned();
            plain.extend(pieces.filter_map(|piece| Some(piece.split_once(')')?.1)));
            all.push((name.to_owned(), format!(" {}", plain.replace('[', ""))));
            told.clear();
        } else if !line.starts_with('#') {
            told.clear();
        }
    }
    all
}

/// Whether the phrase is in the text, and no word or number begins or ends within it.
fn has(text: &str, phrase: &str) -> bool {
    text.match_indices(&format!(" {phrase}")).any(|(at, found)| {
        let rest = text.get(at + found.len()..).unwrap_or_default();
        !rest.starts_with(char::is_alphanumeric)
    })
}

/// Two places tell the defaults and ranges, and this comparison keeps them equal.
#[test]
fn the_table_of_settings_has_the_defaults_and_ranges_of_the_setters() {
    let page = fs::read_to_string(root().join("docs/settings.md")).expect("a readable file");
    let (_, table) = page.split_once("| setting | default; range |").expect("a table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split(" | ").collect()).collect();
    let (mut defaults, mut ranges) = (0, 0);
    for (name, told) in setters() {
        let row = rows.iter().find(|row| row[0].contains(&format!("`{name}`")));
        let column = row.unwrap_or_else(|| panic!("no row of {name}"))[1].to_lowercase();
        assert_eq!(told.contains("by default"), column != "-", "{name}: {column}: {told}");
        let mut parts = column.split("; ").filter(|part| *part != "-");
        if let Some(default) = parts.next() {
            let after = has(&told, &format!("{default} by default"));
            let is_said = after || has(&told, &format!("by default {default}"));
            assert!(is_said, "{name}: {default} is not the default: {told}");
            defaults += 1;
        }
        for range in parts {
            assert!(has(&told, range), "{name}: {range} is no range: {told}");
            ranges += 1;
        }
        let digit = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
        let has_range = told.split(" from ").skip(1).any(digit);
        assert!(!has_range || column.contains("; from "), "{name} has a range: {told}");
    }
    assert!(defaults > 15 && ranges > 8, "{defaults} defaults, {ranges} ranges");
}
