//! Settings by option, variable and file: which one comes first, the report about a wrong one, and
//! their list in the documentation.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::cli::{Ended, command, end, redbolt};

/// `redbolt config --json` with a file and variables.
fn config(text: &str, variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("redbolt/config.toml");
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    fs::write(file, text).expect("a file");
    let mut command = command(&[&["config", "--json"], args].concat());
    command.env("XDG_CONFIG_HOME", dir.path()).envs(variables.iter().copied());
    end(command)
}

/// The object of one setting.
fn setting(report: &Value, key: &str) -> Value {
    let list = report["settings"].as_array().expect("settings");
    list.iter().find(|setting| setting["key"] == key).expect(key).clone()
}

/// For each setting two values, as users write them.
const VALUES: [(&str, &str, &str); 15] = [
    ("nodes", "h:1,h:2,h:3", "g:1,g:2,g:3"),
    ("next-nodes", "i:1,i:2,i:3", "j:1,j:2,j:3"),
    ("max-ttl", "31s", "1m1s"),
    ("restart-guard", "off", "on"),
    ("failover-guard", "off", "on"),
    ("quorum", "3", "2"),
    ("node-timeout", "51ms", "52ms"),
    ("max-clock-skew", "2s", "3s"),
    ("fence-ttl", "25h", "26h"),
    ("prefix", "p:", "q:"),
    ("user", "u", "v"),
    ("password-file", "/p", "/q"),
    ("tls-ca", "/p", "/q"),
    ("tls-cert", "/p", "/q"),
    ("tls-key", "/p", "/q"),
];

#[test]
fn an_option_comes_before_a_variable_and_that_before_the_file() {
    let all = redbolt(&["config", "--json"]).expect(0).json();
    assert_eq!(all["settings"].as_array().expect("settings").len(), VALUES.len());
    assert_eq!(all["file"], Value::Null);
    for (key, one, two) in VALUES {
        let before = setting(&all, key);
        let (flag, variable) =
            (before["flag"].as_str().unwrap(), before["variable"].as_str().unwrap());
        assert_eq!((&before["source"], &before["value"]), (&"default".into(), &before["default"]));
        let text = format!("{key} = \"{one}\"");
        let value = |ended: Ended| {
            let setting = setting(&ended.expect(0).json(), key);
            // humantime writes 25h as 1day1h.
            let value = setting["value"]
                .as_str()
                .unwrap()
                .replace("1day1h", "25h")
                .replace("1day2h", "26h");
            (setting["source"].as_str().unwrap().to_owned(), value)
        };
        let is = |source: &str, value: &str| (source.to_owned(), value.to_owned());
        assert_eq!(value(config(&text, &[], &[])), is("file", one));
        assert_eq!(value(config(&text, &[(variable, "")], &[])), is("file", one));
        assert_eq!(value(config(&text, &[(variable, two)], &[])), is("variable", two));
        assert_eq!(value(config(&text, &[(variable, two)], &[flag, one])), is("flag", one));
    }
}

#[test]
fn the_documentation_lists_each_setting_with_its_option_variable_key_and_default() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/command-line.md");
    let docs = fs::read_to_string(docs).expect("the page");
    let table = docs.split("\n## Settings\n").nth(1).expect("a section");
    let rows: Vec<String> = table
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| `--"))
        .map(|line| line.splitn(6, " | ").take(4).collect::<Vec<_>>().join(" | "))
        .collect();
    let all = redbolt(&["config", "--json"]).expect(0).json();
    let settings = all["settings"].as_array().expect("settings");
    let row = |setting: &Value| {
        let text = |field: &str| setting[field].as_str().unwrap_or("none").to_owned();
        let [flag, variable, key] =
            ["flag", "variable", "key"].map(|field| format!("`{}`", text(field)));
        format!("| {flag} | {variable} | {key} | {}", text("default"))
    };
    assert_eq!(rows, settings.iter().map(row).collect::<Vec<_>>());
    // The documentation leaves out no option that all commands take.
    let help = redbolt(&["doctor", "--help"]).expect(0).out;
    let common = help.split("Nodes and safety:").nth(1).expect("a section");
    let flags = common.lines().filter_map(|line| line.strip_prefix("      --"));
    let flags: Vec<&str> = flags.filter_map(|line| line.split(' ').next()).collect();
    let mut known: Vec<&str> =
        settings.iter().filter_map(|setting| setting["key"].as_str()).collect();
    known.extend(["config", "json"]);
    assert_eq!(flags, known);
    let words = common.split_whitespace().collect::<Vec<_>>().join(" ");
    for setting in settings {
        let flag = setting["flag"].as_str().expect("a flag");
        let (_, told) = words.split_once(&format!("{flag} <")).expect(flag);
        let told = told.split(" <").next().unwrap_or_default();
        if let Some(default) = setting["default"].as_str() {
            assert!(told.contains(&format!("[default: {default}")), "{told}");
        }
    }
    // The variables that `run` gives to its command must set nothing for a redbolt in it.
    for name in ["REDBOLT_KEY", "REDBOLT_TOKEN", "REDBOLT_FENCE"] {
        assert!(settings.iter().all(|setting| setting["variable"] != name), "{name}");
    }
}

#[test]
fn a_wrong_value_is_told_with_its_place_and_without_a_secret() {
    /// The file, variables, arguments, and the report.
    type Wrong = (
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
        &'static str,
    );
    let table: [Wrong; 12] = [
        (
            "",
            &[("REDBOLT_MAX_TTL", "30")],
            &[],
            "REDBOLT_MAX_TTL: it has no unit: write 30s or 30ms",
        ),
        (
            "",
            &[("REDBOLT_RESTART_GUARD", "yes")],
            &[],
            "REDBOLT_RESTART_GUARD: it must be on or off",
        ),
        ("", &[("REDBOLT_QUORUM", "two")], &[], "REDBOLT_QUORUM: write a whole number"),
        ("max-ttl = '30'", &[], &[], "config.toml: max-ttl: it has no unit"),
        ("max-ttl = 30", &[], &[], "config.toml: max-ttl: it has no unit"),
        ("max-ttl = true", &[], &[], "config.toml: max-ttl: write it in quotes"),
        (
            "max_ttl = '30s'",
            &[],
            &[],
            "config.toml: no setting is named max_ttl; there are nodes, next-nodes, max-ttl,",
        ),
        ("\nnodes = 'redis://u:s3cret@h", &[], &[], "config.toml: line 2: "),
        ("", &[("REDBOLT_CONFIG", "/nope")], &[], "/nope: No such file"),
        ("", &[], &["--config", "/nope"], "/nope: No such file"),
        ("", &[], &["--config", "/"], "/: Is a directory"),
        ("", &[], &["--nodes", "redis://u:s3cret@h:1"], "--nodes holds a password"),
    ];
    for (text, variables, args, words) in table {
        let ended = config(text, variables, args);
        assert_eq!(ended.code, Some(64), "{text} {variables:?}: {ended:?}");
        assert!(ended.text("message").contains(words), "{text} {variables:?}: {ended:?}");
        assert!(!ended.out.contains("s3cret"), "{ended:?}");
    }
}

#[test]
fn a_setting_that_cannot_be_used_is_told_with_its_source_also_by_config_behind_the_list() {
    let nodes = ("REDBOLT_NODES", "h:1,h:2,h:3");
    for (text, variable, words) in [
        ("", ("REDBOLT_MAX_TTL", "0s"), "REDBOLT_MAX_TTL is 0s: it must be from 4ms to 24days"),
        ("", ("REDBOLT_QUORUM", "99"), "REDBOLT_QUORUM 99 of 3 nodes: it must be from 2"),
        ("node-timeout = '0s'", ("REDBOLT_USER", ""), "config.toml: node-timeout is 0s: it must"),
        ("", ("REDBOLT_NEXT_NODES", "h:x"), "the port must be 1 to 65535"),
        ("nodes = [1]", ("REDBOLT_USER", ""), "config.toml: nodes: write each address in quotes"),
    ] {
        let ended = config(text, &[nodes, variable], &[]);
        assert_eq!(ended.code, Some(64), "{ended:?}");
        let said = ended.out.lines().last().unwrap_or_default();
        assert!(said.contains(words), "{ended:?}");
    }
    // Without nodes nothing can be said of a quorum.
    config("", &[("REDBOLT_QUORUM", "99")], &[]).expect(0);
}

#[test]
fn the_file_that_is_named_is_read_and_its_paths_count_from_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("my.toml");
    fs::write(&file, "nodes = ['redis://:s3cret@h:1', 'h:2']\nquorum = 2\npassword-file = 'pw'")
        .expect("a file");
    let password = dir.path().join("pw");
    fs::write(&password, "s3cret").expect("a file");
    let named = file.display().to_string();
    for ended in [
        config("quorum = 9", &[], &["--config", &named]),
        config("quorum = 9", &[("REDBOLT_CONFIG", &named)], &[]),
    ] {
        assert!(!ended.out.contains("s3cret"), "{ended:?}");
        let report = ended.expect(0).json();
        assert_eq!(report["file"], named);
        assert_eq!(setting(&report, "nodes")["value"], "redis://:***@h:1,h:2");
        assert_eq!(setting(&report, "quorum")["value"], "2");
        let place = password.display().to_string();
        assert_eq!(setting(&report, "password-file")["value"], place);
    }
    let text = redbolt(&["config", "--config", &named]).expect(0).out;
    assert!(text.contains("redis://:***@h:1,h:2") && text.contains("default"), "{text}");
    // The settings are in force: the lock is refused because of the file.
    fs::remove_file(&password).expect("a file");
    let refused = redbolt(&["lock", "k", "--ttl", "1s", "--config", &named]).expect(64);
    assert!(refused.err.contains("pw: No such file"), "{refused:?}");
    // A command that needs no setting works whatever the file holds.
    redbolt(&["completions", "bash", "--config", "/nope"]).expect(0);
}
