//! `bench --plot` and `bench --compare` from outside.

use std::fs;

use redbolt_embedded::Nodes;

use super::cli::{on, redbolt};

#[test]
fn a_bench_draws_its_times_and_the_throughput_over_the_batch_size() {
    let nodes = Nodes::start(3).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.svg");
    let name = file.to_str().unwrap();
    let args = ["bench", "--iterations", "200", "--plot", name, "--json"];
    let report = on(&nodes, &args).expect(0).json();
    assert_eq!(report["plot"]["file"], name);
    let rates = report["plot"]["throughput"].as_array().unwrap();
    let batches: Vec<u64> = rates.iter().filter_map(|rate| rate["in_flight"].as_u64()).collect();
    assert_eq!(batches, [1, 2, 4, 8, 16, 32, 64, 128, 256]);
    assert!(rates.iter().all(|rate| rate["cycles_per_s"].as_f64().unwrap() > 0.0), "{report}");
    let svg = fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(svg.contains("3 nodes, quorum 2; latency with 1 in flight, park"), "{svg}");
    let lines: Vec<usize> = svg
        .split("stroke-width=\"2\" points=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().trim().split(' ').count())
        .filter(|points| *points > 2)
        .collect();
    assert_eq!(lines.len(), 3, "acquire, release and throughput: {svg}");
    assert!(lines[0] > 8 && lines[1] > 8 && lines[2] == 9, "{lines:?}");
    for word in ["NaN", "inf"] {
        assert!(!svg.contains(word), "{svg}");
    }
    assert!((0..3).all(|node| nodes.key_count(node).unwrap() == 0));
}

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
