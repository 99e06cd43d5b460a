//! The data that a recorder of the `metrics` facade gets, with locks on real servers, of which one
//! is frozen and one restarted.

use std::collections::BTreeMap;

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::common::{
    Clients as _, Cluster, Looped, PATIENCE, RealServer, TTL, eventually, fresh_config, ms,
    no_quorum, taken,
};

/// The data that a recorder has got so far: sums of counters, last values of gauges, numbers of
/// samples.
#[derive(Default)]
struct Seen {
    values: BTreeMap<String, f64>,
    described: Vec<String>,
}

impl Seen {
    fn add(&mut self, snapshotter: &Snapshotter) {
        for (key, _, text, value) in snapshotter.snapshot().into_vec() {
            let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
            let name = format!("{} {}", key.key().name(), labels.join(" "));
            if text.is_some() {
                self.described.push(key.key().name().to_owned());
            }
            let place = self.values.entry(name.trim_end().to_owned()).or_default();
            match (key.kind(), value) {
                // A snapshot takes out the values that it reports.
                (MetricKind::Counter, DebugValue::Counter(more)) => {
                    *place += f64::from(u32::try_from(more).expect("few"));
                }
                (MetricKind::Gauge, DebugValue::Gauge(value)) => *place = value.into_inner(),
                (MetricKind::Histogram, DebugValue::Histogram(samples)) => {
                    assert!(
                        samples.iter().all(|sample| (0.0..10.0).contains(&sample.into_inner()))
                    );
                    *place += f64::from(u32::try_from(samples.len()).expect("few"));
                }
                (kind, value) => panic!("{kind:?}: {value:?}"),
            }
        }
    }

    #[track_caller]
    fn get(&self, name: &str) -> u32 {
        let Some(value) = self.values.get(name) else { panic!("{name}: {:#?}", self.values) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
        {
            *value as u32
        }
    }

    fn text(&self) -> String {
        format!("{:?}", self.values)
    }
}

fn name_of(cluster: &Cluster, index: usize) -> String {
    format!("127.0.0.1:{}", cluster.node(index).port())
}

/// A client whose series have its name, and for which this many nodes vote.
fn counted(cluster: &Cluster, voters: u32) -> Looped {
    let config = cluster.config().node_timeout(ms(1_000)).client_name("counted");
    let mut client = Looped::connect(config);
    drive(&mut client, voters);
    client
}

/// Drives the client until this many nodes may vote.
#[track_caller]
fn drive(client: &mut Looped, voters: u32) {
    let is_so = eventually(PATIENCE, || {
        client.drive_for(ms(1));
        client.driver().voters().count() == voters
    });
    assert!(is_so, "{:#?}", client.driver().nodes());
}

#[test]
fn a_recorder_gets_locks_and_votes() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let mut seen = Seen::default();
    metrics::with_local_recorder(&recorder, || {
        let mut client = counted(&cluster, 5);
        for turn in 0..20 {
            let lease = client.try_lock(format!("secret-key-{turn}"), TTL).unwrap();
            client.extend(&lease, TTL).unwrap();
            client.unlock(lease).unwrap();
        }
        let held = client.try_lock("secret-key", TTL).unwrap();
        taken(client.try_lock("secret-key", TTL));
        drop(held);
        client.wait_released(PATIENCE);
        client.driver().export_metrics();
    });
    seen.add(&snapshotter);
    assert_eq!(seen.get("redbolt_attempts_total counted won"), 21);
    assert_eq!(seen.get("redbolt_attempts_total counted taken"), 1);
    assert_eq!(seen.get("redbolt_extensions_total counted won caller"), 20);
    assert_eq!(seen.get("redbolt_releases_total counted released"), 20);
    assert_eq!(seen.get("redbolt_releases_total counted unreported"), 1);
    assert_eq!(seen.get("redbolt_attempt_seconds counted"), 21);
    assert_eq!(seen.get("redbolt_calls_total counted won"), 21);
    assert_eq!(seen.get("redbolt_calls_total counted taken"), 1);
    assert_eq!(seen.get("redbolt_call_seconds counted won"), 21);
    assert_eq!(seen.get("redbolt_hold_seconds counted"), 21);
    assert_eq!(seen.get("redbolt_voters counted"), 5);
    assert_eq!(seen.get("redbolt_quorum counted"), 3);
    for node in (0..5).map(|index| name_of(&cluster, index)) {
        assert_eq!(seen.get(&format!("redbolt_node_state counted {node} admitted")), 1);
        assert_eq!(seen.get(&format!("redbolt_node_state counted {node} stalled")), 0);
        let granted = seen.get(&format!("redbolt_votes_total counted {node} granted none"));
        let denied = seen.get(&format!("redbolt_votes_total counted {node} denied held"));
        assert_eq!((granted, denied), (21, 1), "{node}");
    }
    let text = seen.text();
    assert!(!text.contains("secret"), "{text}");
    for name in seen.values.keys().filter_map(|name| name.split(' ').next()) {
        assert!(seen.described.iter().any(|described| described == name), "{name}");
    }
}

#[test]
fn a_recorder_sees_a_node_that_is_frozen_and_one_that_is_restarted() {
    let Some(mut cluster) = Cluster::mixed(5) else { return };
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let mut seen = Seen::default();
    let (frozen, restarted) = (name_of(&cluster, 0), name_of(&cluster, 1));
    metrics::with_local_recorder(&recorder, || {
        let mut client = counted(&cluster, 5);
        // The frozen node owes an answer, and counts as stalled; the others go on.
        cluster.node(0).freeze();
        drop(client.try_lock("one", TTL).unwrap());
        drive(&mut client, 4);
        drop(client.try_lock("two", TTL).unwrap());
        cluster.node_mut(1).kill9();
        drive(&mut client, 3);
        drop(client.try_lock("three", TTL).unwrap());
        client.drive_for(ms(1));
        client.driver().export_metrics();
        seen.add(&snapshotter);
        assert_eq!(seen.get(&format!("redbolt_node_state counted {frozen} stalled")), 1);
        assert_eq!(seen.get(&format!("redbolt_node_state counted {frozen} admitted")), 0);
        assert_eq!(seen.get(&format!("redbolt_node_state counted {restarted} admitted")), 0);
        assert!(seen.get(&format!("redbolt_votes_total counted {frozen} failed stalled")) >= 2);
        assert!(seen.text().contains(&format!("redbolt_votes_total counted {restarted} failed ")));
        assert_eq!(seen.get("redbolt_voters counted"), 3);

        cluster.node_mut(1).restart();
        drive(&mut client, 4);
        (2..4).for_each(|index| cluster.node(index).freeze());
        no_quorum(client.try_lock("in vain", TTL));
        cluster.nodes().for_each(RealServer::thaw);
        // The driver's drop hands out the rest.
        client.wait_released(PATIENCE);
        drop(client);
    });
    seen.add(&snapshotter);
    assert_eq!(seen.get("redbolt_attempts_total counted no_quorum"), 1);
    assert_eq!(seen.get(&format!("redbolt_node_state counted {restarted} admitted")), 1);
    assert!(seen.text().contains(&format!("redbolt_connections_lost_total counted {restarted} ")));
    for node in (2..4).map(|index| name_of(&cluster, index)) {
        let name = format!("redbolt_votes_total counted {node} unknown timeout");
        assert_eq!(seen.get(&name), 1);
    }
}

/// The client exports by itself, at most once per second; an idle client comes to rest.
#[test]
fn a_client_that_is_driven_exports_by_itself() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let mut seen = Seen::default();
    metrics::with_local_recorder(&recorder, || {
        let mut client = Looped::connect(cluster.config());
        let lease = client.try_lock("k", TTL).unwrap();
        client.unlock(lease).unwrap();
        let comes = eventually(PATIENCE, || {
            client.drive_for(ms(100));
            seen.add(&snapshotter);
            seen.values.get("redbolt_releases_total released") == Some(&1.0)
        });
        assert!(comes, "{:#?}", seen.values);
        assert_eq!(seen.get("redbolt_attempts_total won"), 1);
    });
}

/// The driver asks for a pass while it has values to hand out, and then for none.
#[test]
fn an_idle_driver_comes_to_rest_behind_its_last_export() {
    let nodes = redbolt_embedded::Nodes::start(3).unwrap();
    let config = redbolt::Config::new(nodes.urls()).unwrap();
    let mut driver = redbolt::driver::Driver::standalone(config).unwrap();
    let rests = eventually(PATIENCE, || {
        driver.drive();
        driver.is_settled()
            && driver.next_deadline().is_some_and(|at| at > redbolt::now() + ms(100))
    });
    assert!(rests, "a pass is asked for to export what was counted");
    // A caller that keeps to the deadlines is asked for a few passes more, and then for none.
    let mut turns = 0;
    while let Some(at) = driver.next_deadline() {
        std::thread::sleep(redbolt::now().until(at));
        driver.drive();
        turns += 1;
        assert!(turns < 10, "it never comes to rest");
    }
}

/// Only the counter shows it: the driver is gone.
#[test]
fn what_a_dropped_driver_leaves_unanswered_is_counted() {
    let nodes = redbolt_embedded::Nodes::start(3).unwrap();
    let left = |is_shut_down: bool| {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let mut seen = Seen::default();
        metrics::with_local_recorder(&recorder, || {
            let config = fresh_config(nodes.urls());
            let mut driver = redbolt::driver::Driver::standalone(config).unwrap();
            assert!(eventually(PATIENCE, || {
                driver.drive();
                driver.voters().count() == 3
            }));
            driver.try_lock("k", TTL).unwrap();
            nodes.pause(0).unwrap();
            if is_shut_down {
                nodes.resume(0).unwrap();
                assert_eq!(driver.shutdown(PATIENCE), 0);
            }
            drop(driver);
        });
        nodes.resume(0).unwrap();
        seen.add(&snapshotter);
        let counts = seen.values.iter().filter(|(name, _)| name.contains("debts_left_total "));
        counts.map(|(_, count)| *count).collect::<Vec<_>>()
    };
    assert_eq!(left(true), [0.0; 3]);
    // The other nodes may have answered by then.
    let counts = left(false);
    assert!(counts.contains(&1.0) && counts.iter().all(|count| *count <= 1.0), "{counts:?}");
}

/// The age of the oldest lease and call; zero where there is none.
#[test]
fn the_age_of_the_oldest_lease_and_call_grows_while_nothing_happens() {
    let nodes = redbolt_embedded::Nodes::start(3).unwrap();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let mut seen = Seen::default();
    metrics::with_local_recorder(&recorder, || {
        let config = || fresh_config(nodes.urls());
        let mut holder = Looped::connect(config().client_name("holder"));
        let mut waiter = Looped::connect(config().client_name("waiter"));
        let lease = holder.try_lock("stuck", TTL).unwrap();
        let later = holder.try_lock("later", TTL).unwrap();
        let patient = redbolt::LockOptions::new(TTL).retry(redbolt::Retry::default());
        taken(waiter.lock("stuck", patient.timeout(ms(2_500))));
        seen.add(&snapshotter);
        let waited = seen.values["redbolt_oldest_call_seconds waiter"];
        assert!((0.9..2.6).contains(&waited), "{waited}");
        // The holder was not driven: only values that a drive exports are new.
        holder.driver().export_metrics();
        waiter.driver().export_metrics();
        seen.add(&snapshotter);
        assert!(seen.values["redbolt_oldest_hold_seconds holder"] > 2.4, "{:#?}", seen.values);
        assert_eq!(seen.values["redbolt_oldest_call_seconds waiter"], 0.0);
        holder.unlock(lease).unwrap();
        assert!(eventually(PATIENCE, || holder.driver().detach(&later).is_ok()));
        drop(later);
        let clears = eventually(PATIENCE, || {
            holder.drive_for(ms(100));
            seen.add(&snapshotter);
            seen.values["redbolt_oldest_hold_seconds holder"] == 0.0
        });
        assert!(clears, "{:#?}", seen.values);
        let spare = "redbolt_leases_without_spare_vote holder";
        assert_eq!(seen.values[spare], 0.0);
        nodes.kill(2).unwrap();
        let kept = holder.try_lock("kept", TTL).unwrap();
        let is_told = eventually(PATIENCE, || {
            holder.drive_for(ms(100));
            seen.add(&snapshotter);
            seen.values[spare] == 1.0
        });
        assert!(is_told, "{:#?}", seen.values);
        let grows = eventually(PATIENCE, || {
            holder.drive_for(ms(100));
            seen.add(&snapshotter);
            seen.values["redbolt_oldest_hold_seconds holder"] > 1.5
        });
        assert!(grows, "{:#?}", seen.values);
        // No driver is left that could set it back.
        drop(holder);
        seen.add(&snapshotter);
        assert_eq!(seen.values["redbolt_oldest_hold_seconds holder"], 0.0);
        drop(kept);
    });
}
