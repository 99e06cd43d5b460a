//! Spans and events: they report what happens to locks and nodes, in the words of the
//! documentation, and never a token.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use redbolt::{LockOptions, RestartGuard};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::common::{
    Clients as _, Cluster, Kind, Looped, PATIENCE, TTL, eventually, log_to, ms, taken,
};

/// One event: the spans around it, outermost first, its name and its fields.
#[derive(Clone, Debug)]
struct Told {
    level: Level,
    target: &'static str,
    spans: String,
    name: String,
    fields: String,
}

#[derive(Default)]
struct State {
    events: Vec<Told>,
    /// Name, fields and parent of each span.
    spans: BTreeMap<u64, (String, Option<u64>)>,
    /// The spans that are closed.
    closed: Vec<String>,
}

/// Keeps the spans and events of this thread below `redbolt::`.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<State>>);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Recording {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("redbolt::")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        let mut state = self.0.lock().expect("no panic");
        let id = u64::try_from(state.spans.len()).expect("few") + 1;
        let parent = span.parent().map(Id::into_u64);
        let name = format!("{}({})", span.metadata().name(), text.0.trim_end());
        state.spans.insert(id, (name, parent));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut state = self.0.lock().expect("no panic");
        let mut spans = String::new();
        let mut next = event.parent().map(Id::into_u64);
        while let Some((name, parent)) = next.and_then(|id| state.spans.get(&id)) {
            spans = format!("{name} {spans}");
            next = *parent;
        }
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let name = event.metadata().name().to_owned();
        state.events.push(Told { level, target, spans, name, fields: text.0 });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        let mut state = self.0.lock().expect("no panic");
        let name = state.spans.get(&id.into_u64()).map(|(name, _)| name.clone());
        state.closed.extend(name);
        true
    }
}

impl Recording {
    /// The events since the last call, with their fields.
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().expect("no panic").events)
    }

    fn closed(&self, name: &str) -> usize {
        let state = self.0.lock().expect("no panic");
        state.closed.iter().filter(|closed| closed.starts_with(name)).count()
    }
}

fn named<'a>(events: &'a [Told], name: &str) -> Vec<&'a Told> {
    events.iter().filter(|told| told.name == name).collect()
}

#[test]
fn the_life_of_a_lock_is_told_in_its_spans() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let log = Recording::default();
    let mut tokens = Vec::new();
    log_to(log.clone(), || {
        let mut client = Looped::connect(cluster.config());
        let events = log.take();
        assert_eq!(named(&events, "admission").len(), 3, "{events:?}");
        let lease = client.try_lock("sku:42", TTL).unwrap();
        tokens.push(lease.token().to_string());
        taken(client.try_lock("sku:42", TTL));
        client.extend(&lease, TTL).unwrap();
        client.unlock(lease).unwrap();
        client.wait_released(PATIENCE);
        drop(client.try_lock("given", TTL).unwrap());
        client.wait_released(PATIENCE);
    });
    let events = log.take();
    let votes = named(&events, "vote");
    let granted = votes.iter().filter(|told| told.fields.contains("vote=\"granted\"")).count();
    let denied = votes.iter().filter(|told| told.fields.contains("cause=\"held\"")).count();
    assert_eq!((granted, denied), (6, 3), "{votes:#?}");
    assert!(votes.iter().all(|told| told.level == Level::TRACE), "{votes:#?}");
    let first = votes.first().expect("there is one");
    assert!(
        first.spans.starts_with("acquire(key=\"sku:42\" ttl_ms=20000) attempt(voters=3)"),
        "{first:?}"
    );

    let quorum = named(&events, "quorum");
    let outcomes: Vec<_> =
        quorum.iter().map(|told| told.fields.split(' ').nth(1).unwrap_or_default()).collect();
    assert_eq!(outcomes, ["outcome=\"won\"", "outcome=\"taken\"", "outcome=\"won\""]);
    let lease = named(&events, "lease");
    assert_eq!(lease.len(), 2);
    assert!(lease[0].fields.contains("validity_ms=") && lease[0].spans.starts_with("acquire("));
    assert_eq!(named(&events, "refused").len(), 1);
    let extended = named(&events, "extended");
    assert!(extended[0].spans.starts_with("extension(key=\"sku:42\""), "{extended:?}");
    assert!(extended[0].fields.contains("is_won=true"), "{extended:?}");
    let released = named(&events, "released");
    assert!(released[0].spans.starts_with("release(key=\"sku:42\""), "{released:?}");
    for (span, count) in [("acquire", 3), ("attempt", 3), ("extension", 1), ("release", 1)] {
        assert_eq!(log.closed(span), count, "{span}");
    }
    let all = format!("{events:?} {:?}", log.0.lock().unwrap().spans);
    assert!(events.iter().all(|told| told.target == "redbolt::lock"), "{events:#?}");
    assert!(!all.contains("a-given-token") && !all.contains(&tokens[0]), "{all}");
}

/// One node freezes and one restarts: the events for them, at their levels, once each.
#[test]
fn what_happens_to_nodes_is_told_once() {
    let Some(mut cluster) = Cluster::mixed(5) else { return };
    let log = Recording::default();
    log_to(log.clone(), || {
        let config = cluster.config().node_timeout(ms(500));
        let mut client = Looped::connect(config);
        let voters = |client: &mut Looped, wanted: u32| {
            assert!(eventually(PATIENCE, || {
                client.drive_for(ms(1));
                client.driver().voters().count() == wanted
            }));
        };
        voters(&mut client, 5);
        log.take();

        let frozen = format!("127.0.0.1:{}", cluster.node(0).port());
        let lease = client.try_lock("k", TTL).unwrap();
        cluster.node(0).freeze();
        client.unlock(lease).unwrap();
        voters(&mut client, 4);
        for turn in 0..20 {
            drop(client.try_lock(format!("k{turn}"), TTL).unwrap());
        }
        client.drive_for(ms(1));
        let events = log.take();
        let stall = named(&events, "stall");
        assert_eq!(stall.len(), 1, "{events:#?}");
        assert_eq!((stall[0].level, stall[0].target), (Level::WARN, "redbolt::node"));
        assert!(stall[0].fields.contains(&frozen) && stall[0].fields.contains("is_quorum=true"));
        let votes = named(&events, "vote");
        let stalled = |told: &&&Told| told.fields.contains("cause=\"stalled\"");
        assert_eq!(votes.iter().filter(stalled).count(), 20, "{votes:#?}");
        cluster.node(0).thaw();
        voters(&mut client, 5);

        let held = client.try_lock("held", TTL).unwrap();
        cluster.node_mut(1).kill9();
        voters(&mut client, 4);
        client.unlock(held).unwrap();
        cluster.node_mut(1).restart();
        voters(&mut client, 5);
        client.wait_released(PATIENCE);
        let events = log.take();
        let restarted = format!("127.0.0.1:{}", cluster.node(1).port());
        let of_it: Vec<_> = events.iter().filter(|told| told.fields.contains(&restarted)).collect();
        let names: Vec<_> = of_it.iter().map(|told| told.name.as_str()).collect();
        assert!(names.contains(&"connection") && names.contains(&"admission"), "{of_it:#?}");
        let debts: Vec<_> = of_it.iter().filter(|told| told.name == "debt").collect();
        assert!(debts.iter().any(|told| told.fields.contains("state=\"owed\"")), "{of_it:#?}");
        assert!(debts.iter().any(|told| told.fields.contains("state=\"paid\"")), "{of_it:#?}");
    });
}

#[test]
fn a_node_that_is_too_young_is_told_as_quarantined() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let log = Recording::default();
    log_to(log.clone(), || {
        let config = cluster.config().restart_guard(RestartGuard::On);
        assert!(!Looped::connect(config).driver().is_ready(), "they have just begun");
    });
    let events = log.take();
    let quarantine = named(&events, "quarantine");
    assert_eq!(quarantine.len(), 3, "{events:#?}");
    assert!(quarantine.iter().all(|told| told.level == Level::INFO));
    assert!(quarantine[0].fields.contains("seconds="), "{quarantine:?}");
    assert!(named(&events, "admission").is_empty());
}

#[test]
fn a_lost_lease_a_wake_and_a_transfer_are_told() {
    for (event, transfers_in_row) in [("wake", 0), ("transfer", 16)] {
        let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
        let log = Recording::default();
        let config = cluster.config().node_timeout(ms(500)).transfers_in_row(transfers_in_row);
        let mut waiter = Looped::connect(config.clone());
        log_to(log.clone(), || {
            let mut client = Looped::connect(config);
            let kept = LockOptions::new(ms(1_000)).keep_alive();
            let lease = client.try_lock("k", kept).unwrap();
            for index in 0..3 {
                cluster.node(index).command(&["DEL", "k"]);
            }
            assert!(!client.drive_for(PATIENCE), "it is lost");
            drop(lease);
            let events = log.take();
            let lost = named(&events, "lost");
            assert_eq!(lost.len(), 1, "{events:#?}");
            assert!(
                lost[0].level == Level::WARN && lost[0].fields.contains("key=\"k\""),
                "{lost:?}"
            );

            // The holder may release before it has read the waiter's message.
            let is_sent = |told: &Told| told.fields.contains("direction=\"sent\"");
            assert!(eventually(PATIENCE, || {
                release_beside(&mut client, &mut waiter, &cluster);
                named(&log.take(), event).into_iter().any(is_sent)
            }));
        });
    }
}

/// Releases a lock for which the waiter waits.
fn release_beside(client: &mut Looped, waiter: &mut Looped, cluster: &Cluster) {
    let published = || {
        let stats = cluster.nodes().map(|server| server.command(&["INFO", "commandstats"]));
        let stats = stats.map(|stats| String::from_utf8_lossy(&stats).into_owned());
        stats
            .flat_map(|text| text.lines().find(|line| line.contains("publish:")).map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let lease = client.lock("k", TTL).expect("it is free soon");
    let before = published();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let lease = waiter.lock("k", TTL).expect("it is released");
            waiter.unlock(lease).expect("its own lease");
        });
        let told = || {
            client.drive_for(ms(1));
            published() != before
        };
        assert!(eventually(PATIENCE, told), "it tells nobody");
        client.unlock(lease).expect("its own lease");
        assert!(eventually(PATIENCE, || {
            client.wait_released(ms(1));
            waits.is_finished()
        }));
        waits.join().expect("no panic");
    });
}

#[test]
fn a_dropped_driver_tells_of_each_node_that_owes_it_an_answer() {
    let nodes = redbolt_embedded::Nodes::start(3).unwrap();
    let log = Recording::default();
    log_to(log.clone(), || {
        let config = redbolt::Config::new(nodes.urls()).unwrap();
        let mut driver = redbolt::driver::Driver::standalone(config).unwrap();
        assert!(eventually(PATIENCE, || {
            driver.drive();
            driver.voters().count() == 3
        }));
        for key in ["a", "b"] {
            driver.try_lock(key, TTL).unwrap();
        }
        (0..3).for_each(|node| nodes.pause(node).unwrap());
        drop(driver);
    });
    let events = log.take();
    let left: Vec<_> =
        named(&events, "debt").into_iter().map(|told| (told.level, &told.fields)).collect();
    assert_eq!(left.len(), 3, "{events:?}");
    let is_so = |fields: &str| fields.contains("state=\"left\"") && fields.contains("count=2");
    assert!(left.iter().all(|(level, fields)| *level == Level::WARN && is_so(fields)), "{left:?}");
}
