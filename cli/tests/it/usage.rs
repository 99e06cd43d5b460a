//! A mistake of the user ends with 64 and one line that says what to do, before any node is asked.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cli::{command, end, redbolt};

/// No server listens there, and no test gets far enough to find out.
const NODES: &str = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";

/// Each command line with a part of its report.
fn refused(table: &[(&[&str], &str)]) {
    for (args, part) in table {
        let ended = redbolt(args).expect(64);
        assert_eq!(ended.out, "", "{args:?}");
        assert!(ended.err.contains(part), "{args:?}: {ended:?}");
    }
}

/// A code, and the first two words about it.
fn about(code: &str, text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).take(2).collect();
    format!("{code} {}", words.join(" "))
}

#[test]
fn the_help_and_the_page_know_the_same_exit_codes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/command-line.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, table) = page.split_once("| code | means |\n|---|---|\n").expect("a table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let of_page: Vec<_> = rows
        .filter_map(|row| row.trim_matches(['|', ' ']).split_once(" | "))
        .map(|(code, text)| about(code, text))
        .collect();
    let help = redbolt(&["--help"]).expect(0).out;
    let (_, list) = help.split_once("\nExit codes:\n").expect("a list");
    let rows = list.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    let of_help: Vec<_> = rows
        .filter(|(code, _)| code.starts_with(|letter: char| letter.is_ascii_digit()))
        .map(|(code, text)| about(code, text))
        .collect();
    assert!(of_help.len() > 10, "{help}");
    assert_eq!(of_page, of_help);
}

#[test]
fn wrong_usage_ends_with_64_on_one_line() {
    let n = NODES;
    let table: &[(&[&str], &str)] = &[
        (&[], "which command"),
        (&["lok"], "lock"),
        (&["lock"], "KEY"),
        (&["lock", "k"], "--ttl"),
        (&["lock", "k", "--ttl", "30"], "30s"),
        (&["lock", "k", "--ttl", "soon"], "write it as 30s, 250ms or 1m30s"),
        (&["lock", "k", "30s"], "--ttl"),
        (&["lock", "k", "--ttl", "1s", "--wait", "5"], "write 5s or 5ms, or forever"),
        (&["lock", "k", "--ttl=-1s"], "30s"),
        (
            &["lock", "k", "--ttl", "-1s"],
            "invalid value '-1s' for '--ttl': it must not be negative",
        ),
        (&["lock", "k", "--ttl", "1s", "--slots", "-1"], "invalid value '-1' for '--slots'"),
        (&["run", "k", "-E", "-1", "--", "true"], "invalid value '-1' for '-E'"),
        (&["run", "k", "--readers", "3", "--", "true"], "--read or --write is missing"),
        (&["ls", "--limit", "99999999999999999999"], "the number is too large"),
        (&["lock", "k:slot:0", "--ttl", "1s", "--nodes", n], ":slot:N"),
        (&["lock", "k", "--ttl", "1500us"], "whole milliseconds"),
        (
            &["lock", "k", "--ttl", "3ms", "--nodes", n],
            "the TTL is 3ms: it must be whole milliseconds from 4ms",
        ),
        (&["lock", "k", "--ttl", "31s", "--nodes", n], "to --max-ttl (30s)"),
        (&["run", "k", "--ttl", "0s", "--nodes", n, "--", "true"], "the TTL is 0ns"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "h:1 h:2"], "separated by commas"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "h:1;h:2"], "separated by commas"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "h:1,", "h:2"], "without spaces"),
        (&["status", "k", "--nodes", "h:1,", "h:2"], "without spaces"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "redis://:pw@h:1"], "--password-file"),
        (&["lock", "k", "--ttl", "31s", "--nodes", n], "--max-ttl"),
        (&["lock", "", "--ttl", "1s", "--nodes", n], "1 to 4096"),
        (&["lock", "j", "k", "--ttl", "1s", "--nodes", n, "--slots", "2"], "single key has slots"),
        (&["lock", "k", "--ttl", "1s"], "--nodes"),
        (&["lock", "k", "--ttl", "1s", "--nodes", ""], "at least one"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "h:1,,h:2"], "empty"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "h:1,h:2,redis://h:1"], "named twice"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "http://h:1"], "redis://"),
        (&["lock", "k", "--ttl", "1s", "--nodes", "redis://h:0"], "port"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--quorum", "1"], "--quorum 1 of 3"),
        (
            &["lock", "k", "--ttl", "1s", "--nodes", n, "--quorum", "4"],
            "from 2 (more than half) to 3 (all)",
        ),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--quorum", "two"], "write a whole number"),
        (
            &["lock", "k", "--ttl", "1s", "--nodes", n, "--node-timeout", "0s"],
            "--node-timeout is 0s",
        ),
        (
            &["lock", "k", "--ttl", "1s", "--nodes", n, "--max-ttl", "1ms"],
            "--max-ttl is 1ms: it must be from 4ms",
        ),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--restart-guard", "maybe"], "maybe"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--user", "u"], "--password-file"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--password-file", "/nope"], "/nope"),
    ];
    refused(table);
}

#[test]
fn wrong_usage_of_a_command_ends_with_64_on_one_line() {
    let n = NODES;
    let table: &[(&[&str], &str)] = &[
        (&["unlock", "k", "--nodes", n], "REDBOLT_TOKEN"),
        (&["unlock", "k", "--nodes", n, "--token-file", "/nope"], "/nope"),
        (
            &["unlock", "k", "--nodes", n, "--token-file", "-"],
            "the first line of --token-file - is empty",
        ),
        (
            &["unlock", "k", "--nodes", n, "--token", "t", "--token-file", "-"],
            "cannot be used with",
        ),
        (&["extend", "k", "--ttl", "1s", "--nodes", n], "REDBOLT_TOKEN"),
        (&["unlock", "k", "--token", "", "--nodes", n], "1 to 255"),
        (&["run", "k", "--nodes", n], "redbolt run k -- CMD"),
        (&["run", "k", "echo", "hi"], "redbolt run k -- echo hi"),
        (&["run", "--ttl", "1s", "k", "ls", "-l"], "redbolt run k -- ls -l"),
        (&["help", "rum"], "unrecognized subcommand"),
        (&["completions"], "bash|elvish|fish|powershell|zsh"),
        (&["completions", "tcsh"], "bash or elvish or fish or powershell or zsh"),
        (&["run", "k", "--nodes", n, "--ttl", "1s", "--grace", "1s", "--", "true"], "--grace"),
        (&["run", "--nodes", n, "--", "true"], "KEY"),
        (&["run", "k", "--nodes", n, "-n", "-w", "1s", "--", "true"], "--wait"),
        (&["run", "k", "--nodes", n, "-E", "256", "--", "true"], "255"),
        (&["run", "k", "--nodes", n, "-c", "true", "--", "true"], "--command"),
        (&["run", "j", "k", "--nodes", n, "--fence", "--", "true"], "one KEY"),
        (&["run", "j", "k", "--nodes", n, "--slots", "2", "--", "true"], "one KEY"),
        (&["lock", "k:fence", "--ttl", "1s", "--nodes", n], "it is no lock"),
        (&["status", "k:fence", "--nodes", n], "the last fence of the lock 'k'"),
        (&["lock", "redbolt:since:1", "--ttl", "1s", "--nodes", n], "it is no lock"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--fence-ttl", "1s"], "--fence-ttl"),
        (&["lock", "k", "--ttl", "1s", "--nodes", n, "--max-clock-skew", "2h"], "--max-clock-skew"),
        (
            &["lock", "k", "--ttl", "1s", "--nodes", n, "--fence", "--restart-guard", "off"],
            "no lock can be fenced: the restart guard is off",
        ),
        (&["status", "k", "--nodes", n, "--interval", "1s"], "--watch"),
        (&["status", "k", "--nodes", n, "--watch", "--interval", "0s"], "--interval"),
        (&["doctor", "--nodes", n, "--key", ""], "1 to 4096"),
        (&["bench", "--seconds", "0"], "--seconds"),
        (&["bench", "--seconds", "nan"], "--seconds"),
        (&["bench", "--seconds", "inf"], "a number above zero"),
        (&["bench", "--mode", "latency", "--in-flight", "2"], "--in-flight"),
        (&["bench", "--iterations", "0"], "iterations"),
        (&["bench", "--iterations", "1", "--seconds", "1"], "cannot be used with"),
        (&["demo", "--workers", "0"], "workers"),
        (&["demo", "--stock", "x"], "stock"),
        (&["node", "--count", "33"], "count"),
        (&["node", "--port", "0"], "from 1 to 65535"),
        (&["node", "--port", "65535"], "65535"),
        (&["--exec-under-lock"], "redbolt run"),
    ];
    refused(table);
}

#[test]
fn no_advice_sends_an_option_of_run_behind_the_dashes_of_its_command() {
    for name in ["run", "elect"] {
        let ended = redbolt(&[name, "-x", "--", "true"]).expect(64);
        assert!(ended.err.contains("unexpected argument '-x'"), "{ended:?}");
        assert!(!ended.err.contains("-- -x"), "{ended:?}");
    }
    let ended = redbolt(&["run", "k", "--wiat", "5s", "--", "true"]).expect(64);
    assert!(ended.err.contains("did you mean --wait?"), "{ended:?}");
}

#[test]
fn with_json_a_mistake_is_one_object_on_stdout() {
    for args in [&["lock", "k", "--json"][..], &["--json", "lock", "k", "--ttl", "1s"], &["--json"]]
    {
        let ended = redbolt(args).expect(64);
        assert_eq!(ended.err, "");
        assert_eq!(ended.text("error"), "usage");
        assert!(!ended.text("message").is_empty());
        assert_eq!(ended.json()["nodes"].as_array().map(Vec::len), Some(0));
    }
}

#[test]
fn what_is_too_long_or_may_be_a_token_is_not_repeated() {
    let (key, token) = ("k".repeat(4097), "t".repeat(256));
    let table: &[&[&str]] = &[
        &["lock", &key, "--ttl", "1s"],
        &["run", &key, "--", "true"],
        &["run", "k", &key, "true"],
        &["status", "k", &key],
        &[&key],
        &["unlock", "k", "--token", &token],
        &["unlock", "k", &token],
        &["extend", "k", &token, "--ttl", "1s"],
        &["unlock", "k", "--token", "--tttt"],
        &["unlock", "k", "--tokn=tttt"],
    ];
    for args in table {
        let ended = redbolt(args).expect(64);
        assert!(ended.err.len() < 400 && !ended.err.contains("tttt"), "{ended:?}");
    }
}

#[test]
fn each_shell_gets_its_completions_and_bash_understands_them() {
    for (shell, words) in [
        ("bash", "_redbolt()"),
        ("zsh", "#compdef redbolt"),
        ("fish", "complete -c redbolt"),
        ("elvish", "arg-completer[redbolt]"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let text = redbolt(&["completions", shell]).expect(0).out;
        assert!(text.contains(words) && text.contains("max-ttl"), "{shell}: {text}");
    }
    let script = "eval \"$(\"$0\" completions bash)\"; COMP_WORDS=(redbolt doc); COMP_CWORD=1; \
                  _redbolt redbolt doc redbolt; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_redbolt")]).output();
    let output = output.expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "doctor\n", "{output:?}");
}

#[test]
fn nodes_may_come_from_the_environment_and_the_option_wins() {
    let mut given = command(&["lock", "k", "--ttl", "1s"]);
    given.env("REDBOLT_NODES", "h:1,h:1");
    assert!(end(given).expect(64).err.contains("named twice"));
    let mut empty = command(&["lock", "k", "--ttl", "1s"]);
    empty.env("REDBOLT_NODES", "");
    assert!(end(empty).expect(64).err.contains("--nodes"));
    let mut both = command(&["lock", "k", "--ttl", "1s", "--nodes", "g:1,g:1"]);
    both.env("REDBOLT_NODES", "h:1,h:1");
    assert!(end(both).expect(64).err.contains("g:1"));
}

#[test]
fn no_password_is_ever_printed() {
    let url = "redis://u:s3cret@h:1";
    let table: &[&[&str]] = &[
        &["lock", "k", "--ttl", "1s", "--nodes", "redis://u:s3cret@h:99999"],
        &["lock", "k", "--ttl", "1s", "--nodes", "redis://u:s3cret@h:1,redis://u:s3cret@h:1"],
        &["lock", "k", "--ttl", "1s", "--nodes", "u:s3cret@h:1"],
        &["lock", "k", "--ttl", "1s", "--nodes", "unix://u:s3cret@/path"],
        // A blank in the list makes the second address an unexpected argument.
        &["lock", "k", "--ttl", "1s", "--nodes", "h:1,", url],
        &["leader", "k", url],
        &["lock", "--help"],
    ];
    for args in table {
        let mut command = command(args);
        command.env("REDBOLT_NODES", url);
        let ended = end(command);
        assert!(!format!("{ended:?}").contains("s3cret"), "{args:?}: {ended:?}");
    }
}

#[test]
fn every_command_has_help_with_an_example_and_the_exit_codes_are_listed() {
    let all = redbolt(&["--help"]).expect(0).out;
    for code in
        ["0 ", "1 ", "64 ", "69 ", "70 ", "71 ", "75 ", "77 ", "78 ", "79 ", "126", "127", "128+n"]
    {
        assert!(all.contains(code), "{code}: {all}");
    }
    let names = ["demo", "node", "lock", "unlock", "extend", "run", "status", "doctor", "bench"];
    for name in names.into_iter().chain(["completions"]) {
        assert!(all.contains(&format!("  {name} ")), "{name}: {all}");
        let help = redbolt(&[name, "--help"]).expect(0).out;
        assert_eq!(redbolt(&["help", name]).expect(0).out, help);
        assert!(help.contains(&format!("Example:  redbolt {name}")), "{help}");
        assert!(help.contains("--nodes"), "{help}");
    }
    assert!(redbolt(&["--version"]).expect(0).out.starts_with("redbolt "));
}
