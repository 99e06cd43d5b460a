//! The project's pages: every target of a link exists, and the README's picture shows the figures
//! of `PERF.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::root;

/// Every file of the project, by its path below the root, without the files that builds and tools
/// leave behind.
pub(crate) fn files() -> BTreeSet<PathBuf> {
    let (mut files, mut dirs) = (BTreeSet::new(), vec![root().to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if !path.is_dir() {
                files.insert(path.strip_prefix(root()).expect("below the root").to_owned());
            } else if !["target", ".git", "node_modules"].iter().any(|left| name == *left) {
                dirs.push(path);
            }
        }
    }
    files
}

/// The paths of all pages.
pub(crate) fn pages(files: &BTreeSet<PathBuf>) -> impl Iterator<Item = &PathBuf> {
    files.iter().filter(|path| path.extension().is_some_and(|kind| kind == "md"))
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `text` without its code, in which brackets are no links.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // Every second piece stands between backticks.
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// The targets of a page's links: `[..](target)`, `[..]: target`, `src="target"` and the like.
fn targets(prose: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for (begin, end) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"'), ("srcset=\"", '"')] {
        let behind = prose.split(begin).skip(1);
        targets.extend(behind.filter_map(|rest| rest.split(end).next()));
    }
    let defined = prose.lines().filter(|line| line.starts_with('['));
    targets.extend(defined.filter_map(|line| line.split_once("]: ")).map(|(_, target)| target));
    targets
}

/// The anchors of a page's headings, as the usual hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() {
            continue;
        }
        let word = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor: String = title.trim().to_lowercase().chars().filter(word).collect();
        anchors.insert(anchor.replace(' ', "-"));
    }
    anchors
}

/// The path without `..` and `.`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part.as_os_str().to_str() {
            Some("..") => assert!(plain.pop(), "{} leaves the project", path.display()),
            Some(".") => {}
            _ => plain.push(part),
        }
    }
    plain
}

/// The fault of a link of the page at `from`; `None` if it is right, or leads elsewhere.
fn complaint(files: &BTreeSet<PathBuf>, from: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = plain(&from.parent().expect("a file is in a folder").join(file));
    let to = if file.is_empty() { from.to_owned() } else { to };
    if !files.iter().any(|known| known.starts_with(&to)) {
        return Some(format!("{}: there is no {target}", from.display()));
    }
    let is_there = anchor.is_empty() || anchors(&read(&to)).contains(anchor);
    (!is_there).then(|| format!("{}: {} has no heading #{anchor}", from.display(), to.display()))
}

#[test]
fn every_link_within_the_project_leads_to_a_file_and_a_heading() {
    let files = files();
    let (mut links, mut complaints) = (0, Vec::new());
    for page in pages(&files) {
        let text = prose(&read(page));
        for target in targets(&text) {
            links += 1;
            complaints.extend(complaint(&files, page, target));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(links > 50, "{links} links");
}

#[test]
fn a_link_to_no_file_and_one_to_no_heading_are_noticed() {
    let files = files();
    let wrong = |target| complaint(&files, Path::new("docs/servers.md"), target).is_some();
    assert!(wrong("../docs/no-such-page.md"));
    assert!(wrong("fencing.md#no-such-heading"));
    assert!(wrong("#no-such-heading"));
    assert!(!wrong("../README.md") && !wrong("../deploy") && !wrong("fencing.md#many-rows"));
    let page = prose("[a](b.md) `[c](d)` <img src=\"e.svg\">\n```\n[f](g)\n```\n[h]: i.md");
    assert_eq!(targets(&page), ["b.md", "e.svg", "i.md"]);
}

/// `REDBOLT_UPDATE=1 cargo test -p redbolt-it --all-features pages::` draws the picture anew.
#[test]
fn the_picture_of_the_readme_shows_the_table_of_perf() {
    let drawn = redbolt_benches::picture::beside_others(&read("PERF.md")).expect("a table");
    let file = "docs/clients.svg";
    if std::env::var_os("REDBOLT_UPDATE").is_some() {
        fs::write(root().join(file), &drawn).expect("a file that can be written");
    }
    let said = "REDBOLT_UPDATE=1 cargo test -p redbolt-it --all-features pages:: draws it anew";
    assert!(read(file) == drawn, "{file} is not what PERF.md says: {said}");
}

/// The cells of a table's line; none for any other line.
pub(crate) fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
    inner.map(|inner| inner.split(" | ").collect()).unwrap_or_default()
}

/// The rows of tuned clients that lock on all five servers.
fn tuned(perf: &str) -> impl Iterator<Item = Vec<&str>> {
    let is_tuned = |row: &Vec<&str>| match row.as_slice() {
        [_, "tuned", _, _, _, _, hung, _] => *hung != "one server",
        _ => false,
    };
    perf.lines().map(cells).filter(is_tuned)
}

#[test]
fn the_figures_of_the_comparison_are_those_of_perf() {
    let (perf, page) = (read("PERF.md"), read("docs/comparison.md"));
    let tuned: Vec<_> =
        tuned(&perf).map(|row| [row[2], row[5], row[6]].map(str::to_owned)).collect();
    let (_, table) = page.split_once("| client | free |").expect("a table of clients");
    let mut told = Vec::new();
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let row: Vec<_> = row.split('|').map(str::trim).collect();
        // A client over two drivers has two figures in each cell.
        let [free, hand_over, hung] = [2, 3, 4].map(|column| row[column].split(", "));
        for ((free, hand_over), hung) in free.zip(hand_over).zip(hung) {
            told.push([free, hand_over, hung].map(str::to_owned));
        }
    }
    assert_eq!(told, tuned);
}

/// A time in microseconds, or a count, at the beginning of a cell.
pub(crate) fn figure(cell: &str) -> Option<f64> {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let number: f64 = number.replace(',', "").parse().ok()?;
    Some(if unit.starts_with("ms") { number * 1e3 } else { number })
}

#[test]
fn the_first_figures_of_perf_are_those_of_its_table() {
    let perf = read("PERF.md");
    let (front, rest) = perf.split_once("## To run it again").expect("the first part");
    let front: Vec<_> = front.lines().map(cells).filter(|row| row.len() == 4).collect();
    let (ours, others): (Vec<_>, Vec<_>) =
        tuned(rest).partition(|row| row[0].starts_with("redbolt"));
    // Acquire, cycles per second, hand-over, one hung; the first row is the head.
    for (row, (column, is_rate)) in
        front[1..].iter().zip([(2, false), (4, true), (5, false), (6, false)])
    {
        let best = others.iter().filter_map(|other| figure(other[column]));
        let best = best.reduce(if is_rate { f64::max } else { f64::min });
        assert_eq!(row[1], ours[0][column], "{row:?}");
        assert_eq!(figure(row[2]), best, "{row:?}");
    }
    assert_eq!(front.len(), 5, "{front:?}");
}

/// A publisher of the project has one line to change.
#[test]
fn the_address_of_the_repository_is_in_one_place() {
    let manifest = read("Cargo.toml");
    let address = manifest.lines().find_map(|line| line.strip_prefix("repository = "));
    let address = address.expect("a repository").trim_matches('"');
    let named = files().into_iter().filter(|path| {
        // Pictures and inputs of fuzzers are not all text.
        fs::read(root().join(path)).is_ok_and(|bytes| {
            bytes.windows(address.len()).any(|window| window == address.as_bytes())
        })
    });
    assert_eq!(named.collect::<Vec<_>>(), [Path::new("Cargo.toml")]);
}
