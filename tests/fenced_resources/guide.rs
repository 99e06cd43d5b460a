//! [`statement`]: a statement of the guide, exactly as the guide prints it.

const GUIDE: &str = include_str!("../../docs/fencing.md");

const MARK: &str = "<!-- statement: ";

/// The code below the mark of that name.
#[track_caller]
pub(crate) fn statement(name: &str) -> &'static str {
    let (_, below) =
        GUIDE.split_once(&format!("{MARK}{name} -->\n```")).expect("the guide has the statement");
    let (_language, code) = below.split_once('\n').expect("code begins on a line of its own");
    code.split_once("\n```").expect("code ends").0
}

/// Rustdoc runs the guide's Rust examples, so they need no test here.
#[test]
fn every_statement_of_the_guide_has_a_mark_and_a_test() {
    let tests = [
        include_str!("file.rs"),
        include_str!("postgres.rs"),
        include_str!("redis.rs"),
        include_str!("sql.rs"),
    ];
    let mut marked = 0;
    for (before, below) in GUIDE.match_indices(MARK).map(|(at, _)| GUIDE.split_at(at)) {
        let name = below.trim_start_matches(MARK).split(' ').next().expect("a name");
        let is_run = |text: &&str| text.contains(&format!("statement(\"{name}\")"));
        assert!(tests.iter().any(is_run), "{name} is not run by a test");
        assert!(before.ends_with("\n\n"), "{name}: the mark is a paragraph of its own");
        marked += 1;
    }
    let blocks = ["```sql\n", "```lua\n", "```sh\n"].iter();
    let blocks: usize = blocks.map(|begin| GUIDE.matches(begin).count()).sum();
    assert_eq!(marked, blocks, "marks and blocks of code");
}
