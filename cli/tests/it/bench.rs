//! `bench --compare` from outside.

use std::fs;

use redbolt_embedded::Nodes;

use super::cli::{on, redbolt};

#[test]
fn a_bench_stands_beside_a_saved_one_of_the_same_settings_only() {
    let nodes = Nodes::start(3).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("saved.json");
    let name = file.to_str().unwrap();
    let saved = on(&nodes, &["bench", "--iterations", "100", "--json"]).expect(0).out;
    fs::write(&file, &saved).unwrap();
    let compare = ["bench", "--iterations", "100", "--compare", name];
    let report = on(&nodes, &[&compare[..], &["--json"]].concat()).expect(0).json();
    let saved: serde_json::Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(report["compare"]["saved"], saved);
    for (field, part) in [("cycles_per_s", None), ("acquire_us", Some("p50"))] {
        let of = |run: &serde_json::Value| match part {
            None => run[field].as_f64().unwrap(),
            Some(part) => run[field][part].as_f64().unwrap(),
        };
        let ratio = of(&report["compare"]["ratio"]);
        assert!((ratio - of(&report) / of(&saved)).abs() < 0.001, "{report}");
    }
    let text = on(&nodes, &compare).expect(0).out;
    for words in ["saved", "now / saved", "cycles per second", "acquire p50", "release p99.9"] {
        assert!(text.contains(words), "{words}: {text}");
    }

    let more = ["--mode", "throughput", "--in-flight", "8", "--poll", "spin", "--quorum", "3"];
    let refused = on(&nodes, &[&compare[..], &more].concat()).expect(64);
    for words in [
        "mode latency (now throughput)",
        "in_flight 1 (now 8)",
        "poll park (now spin)",
        "quorum 2 (now 3)",
    ] {
        assert!(refused.err.contains(words), "{words}: {refused:?}");
    }
    assert!(!refused.err.contains("nodes 3"), "{refused:?}");
    let refused = redbolt(&compare).expect(64);
    assert!(refused.err.contains("nodes 3 (now 5), quorum 2 (now 3), embedded false (now true)"));
}
