//! `deploy/prometheus`: its alerts fire. They and the dashboard name series that the library
//! exports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use redbolt_rig::program_or_skip;
use serde_json::Value;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs promtool in `dir`; none if it is not installed.
fn promtool(dir: &Path, args: &[&str]) -> Option<()> {
    let program = program_or_skip("promtool", "tests/promtool.sh")?;
    let program = fs::canonicalize(program).expect("it is there");
    let output = Command::new(program).args(args).current_dir(dir).output().expect("it starts");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Some(())
}

/// The rest of each line behind `start`.
fn after<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(start)).collect()
}

/// The queries of the dashboard, with Grafana's variables filled in.
fn queries() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&file("deploy/prometheus/dashboard.json")).expect("JSON");
    let panels = dashboard.get("panels").and_then(Value::as_array).expect("panels");
    // A row has none.
    let panels: Vec<_> = panels.iter().filter(|panel| panel["type"] != "row").collect();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let query = |target: &Value| target["expr"].as_str().expect("a query").to_owned();
    let queries: Vec<String> = targets
        .map(query)
        .map(|query| {
            query.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$client", ".*")
        })
        .collect();
    assert!(queries.len() > panels.len() && queries.iter().all(|query| !query.contains('$')));
    queries
}

#[test]
fn each_alert_fires_in_its_test_and_is_silent_where_all_is_well() {
    let rules = file("deploy/prometheus/alerts.yml");
    let tests = file("deploy/prometheus/alerts_test.yml");
    let (quiet, loud) =
        tests.split_once("\n\n  - name:").expect("the first is for all that is well");
    let alerts = after(&rules, "- alert: ");
    assert!(alerts.len() > 5, "{alerts:?}");
    for alert in alerts {
        let tested = format!("alertname: {alert}\n");
        assert!(quiet.contains(&tested), "{alert} is not known to be silent");
        let fires = format!("{tested}        exp_alerts:\n          - exp_labels:");
        assert!(!quiet.contains(&fires) && loud.contains(&fires), "{alert} is not known to fire");
    }
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus");
    if promtool(&dir, &["check", "rules", "alerts.yml"]).is_some() {
        promtool(&dir, &["test", "rules", "alerts_test.yml"]);
    }
}

#[test]
fn each_alert_names_the_section_of_the_runbook_that_helps_and_that_section_the_alert() {
    let (rules, runbook) = (file("deploy/prometheus/alerts.yml"), file("docs/runbook.md"));
    let (names, places) = (after(&rules, "- alert: "), after(&rules, "runbook: "));
    assert_eq!(names.len(), places.len());
    for (name, place) in names.into_iter().zip(places) {
        let place = place.trim_matches('"').strip_prefix("docs/runbook.md#").expect("a section");
        let has_title = |part: &&str| {
            let title = part.lines().next().unwrap_or_default();
            title.to_lowercase().replace(' ', "-") == place
        };
        let section = runbook.split("\n## ").find(has_title).unwrap_or_else(|| panic!("{place}"));
        assert!(section.contains(&format!("`{name}`")), "{place} does not name {name}");
    }
}

#[test]
fn each_query_of_the_dashboard_is_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, query) in queries().iter().enumerate() {
        // JSON is YAML.
        let query = Value::from(query.as_str());
        rules.push_str(&format!("      - record: query_{number}\n        expr: {query}\n"));
    }
    fs::write(dir.path().join("rules.yml"), rules).expect("a file");
    promtool(dir.path(), &["check", "rules", "rules.yml"]);
}

/// The series that a text names, with the text in their braces.
fn series(text: &str) -> Vec<(String, String)> {
    text.match_indices("redbolt_")
        .map(|(at, _)| {
            let rest = text.get(at..).unwrap_or_default();
            let end = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
            let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
            let inside = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
            (name.to_owned(), inside.unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn names_labels_and_their_values_are_those_of_the_library_and_its_documentation() {
    let export = file("src/driver/export.rs");
    let page = file("docs/observing.md");
    let alerts = file("deploy/prometheus/alerts.yml");
    let queries = after(&alerts, "expr: ").join("\n");
    // The further lines of a query.
    let queries =
        queries + &alerts.lines().filter(|line| line.contains("(rate(")).collect::<String>();
    let mut count = 0;
    for (name, labels) in series(&queries).into_iter().chain(series(&self::queries().join("\n"))) {
        let name = name.strip_suffix("_bucket").unwrap_or(&name);
        assert!(export.contains(&format!("(\"{name}\",")), "{name} is not exported");
        let row =
            page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("{name} is not documented"));
        for matcher in labels.split(", ").filter(|matcher| !matcher.is_empty()) {
            let (label, value) = matcher.split_once(['=', '!']).expect("a matcher");
            // Every series has these.
            if ["job", "client", "instance"].contains(&label) {
                continue;
            }
            assert!(row.contains(&format!("`{label}`")), "{name} has no {label}");
            for value in value.trim_matches(['=', '~', '"']).split('|') {
                let text = if label == "state" { &page } else { row };
                assert!(text.contains(&format!("`{value}`")), "{name}: {label} is never {value}");
                count += 1;
            }
        }
    }
    assert!(count > 8, "{count} values");
}
