//! In each crate, no file calls a file that calls it back, and no file names a file that names it
//! back.
//!
//! A file needs another file if it names its path, or calls one of its methods: `self.method(..)`,
//! `self.field.method(..)` or `Type::function(..)`. A `mod.rs` does not need files that it only
//! lists or passes on (`pub use`). Tests may name any file.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{Call, Named, read, sources};

/// The types of the fields through which files of the engine call each other.
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

/// Each crate, with its remaining circles. `sim::*`: its files need each other.
const CRATES: [(&str, &[&str]); 7] = [
    ("src", &["sim::*"]),
    ("embedded/src", &[]),
    ("cli/src", &[]),
    ("benches/src", &[]),
    ("ffi/src", &[]),
    ("tests/rig/src", &[]),
    ("examples/tutorial/src", &[]),
];

/// The names in each file, by its module (`engine::locks`).
type Files = BTreeMap<String, Named>;

/// The other files that each file needs.
type Edges = BTreeMap<String, BTreeSet<String>>;

fn files(dir: &str) -> Files {
    let sources = sources(dir).into_iter().filter(|source| !source.is_test());
    let is_test = |modules: &[String]| modules.iter().any(|name| name == "tests");
    sources
        .map(|source| (source.modules(), source.read()))
        .filter(|(modules, _)| !is_test(modules))
        .map(|(modules, named)| (modules.join("::"), named))
        .collect()
}

/// The file to which a path leads.
fn target<'a>(files: &'a Files, path: &[String]) -> Option<&'a str> {
    let prefixes = (0..=path.len()).rev().filter_map(|len| path.get(..len));
    let mut found = prefixes.filter_map(|prefix| files.get_key_value(&prefix.join("::")));
    found.next().map(|(module, _)| module.as_str())
}

fn imports(files: &Files, edges: &mut Edges) {
    for (module, named) in files {
        let depth = module.split("::").filter(|part| !part.is_empty()).count();
        for path in named.paths.iter().filter(|path| !path.is_passed_on && !path.is_test) {
            let target = target(files, &path.parts).filter(|target| target != module);
            // Without an anchor the path can mean only a module of the file's own.
            let is_meant = |target: &&str| path.is_anchored || target.split("::").count() > depth;
            if let Some(target) = target.filter(is_meant) {
                edges.entry(module.clone()).or_default().insert(target.to_owned());
            }
        }
    }
}

fn calls(files: &Files, edges: &mut Edges) {
    let mut methods = BTreeMap::<(&str, &str), BTreeSet<&str>>::new();
    for (module, named) in files {
        for (owner, method) in &named.methods {
            methods.entry((owner, method)).or_default().insert(module);
        }
    }
    for (module, named) in files {
        for call in &named.calls {
            let (owner, method) = match call {
                Call::On(owner, method) => (Some(owner.as_str()), method),
                Call::Field(field, method) => {
                    let mut fields = FIELDS.iter().filter(|_| is_in(module, "engine"));
                    let owner = fields.find(|(name, _)| name == field);
                    (owner.map(|(_, owner)| *owner), method)
                }
            };
            let callees = owner.and_then(|owner| methods.get(&(owner, method)));
            // Where two types have one name, the test cannot know which is called.
            let callee = callees.filter(|callees| callees.len() == 1).and_then(BTreeSet::first);
            if let Some(&callee) = callee.filter(|callee| **callee != module) {
                edges.entry(module.clone()).or_default().insert(callee.to_owned());
            }
        }
    }
}

fn edges(files: &Files) -> Edges {
    let mut edges = Edges::new();
    imports(files, &mut edges);
    calls(files, &mut edges);
    edges
}

/// The edges that belong to no known circle.
fn without(edges: &Edges, circles: &[&str]) -> Edges {
    let is_known = |from: &str, to: &str| {
        circles.iter().any(|circle| match circle.strip_suffix("::*") {
            Some(module) => is_in(from, module) && is_in(to, module),
            None => from == *circle && is_in(to, circle),
        })
    };
    let left = edges.iter().map(|(from, to)| {
        (from.clone(), to.iter().filter(|to| !is_known(from, to)).cloned().collect())
    });
    left.collect()
}

fn is_in(file: &str, module: &str) -> bool {
    file.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
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

#[test]
fn no_file_needs_one_that_needs_it() {
    for (dir, circles) in CRATES {
        let edges = edges(&files(dir));
        let found = circle(&without(&edges, circles));
        assert_eq!(found, None, "{dir}: these files need each other");
        for known in circles {
            let others: Vec<_> = circles.iter().copied().filter(|other| other != known).collect();
            assert!(circle(&without(&edges, &others)).is_some(), "{dir}: {known} is no circle");
        }
    }
}

fn file(module: &str, code: &str) -> (String, Named) {
    (module.to_owned(), read(module.split("::").map(str::to_owned).collect(), code))
}

#[test]
fn a_circle_is_found_by_a_path_and_by_a_call() {
    let named = |back: &str| {
        Files::from([
            file("x::a", "use super::b::B; fn a() {}"),
            file("x::b", "use crate::x::{c::C, other}; fn b() {}"),
            file("x::c", back),
        ])
    };
    for back in [
        "use super::a;",
        "use super::{self as x, a::{A, self}};",
        "fn c() { super::a::a() }",
        "fn c() -> crate::x::a::A { todo!() }",
        "mod within { fn c() { assert!(super::super::a::a()) } }",
        "fn c() { unknown!(x => [self::super::a::a]) }",
    ] {
        let edges = edges(&named(back));
        assert_eq!(circle(&edges).map(|way| way.len()), Some(3), "{back}: {edges:?}");
    }
    for other in ["pub(crate) use super::a;", "mod tests { use super::super::a; }", "use a::b;"] {
        assert_eq!(circle(&edges(&named(other))), None, "{other}");
    }
    for back in ["self.engine.locks.up()", "self.locks.up()", "Locks::up(1)", "f(&Self::up(1))"] {
        let called = Files::from([
            file("engine::a", "impl Locks { fn up(&self) { debug_assert!(self.down()); } }"),
            file("engine::b", &format!("impl Locks {{ fn down(&self) {{ {back}; }} }}")),
        ]);
        let edges = edges(&called);
        assert_eq!(circle(&edges).map(|way| way.len()), Some(2), "{back}: {edges:?}");
    }
}
