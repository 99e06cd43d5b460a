//! The metrics and spans of a client's calls. Its I/O thread uses only the recorder and the
//! subscriber of the whole process, so these tests have a process of their own.
#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::thread;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redbolt::{Client, Config, LockError, LockOptions, RestartGuard, Retry};
use redbolt_rig::{Cluster, PATIENCE, TTL, eventually, ms};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Subscriber, info_span};
use tracing_subscriber::layer::{Context as Scope, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

fn shared(cluster: &Cluster, name: &str) -> Client {
    let config = Config::new(cluster.urls()).expect("addresses").restart_guard(RestartGuard::Off);
    let config = config.connect_timeout(PATIENCE).node_timeout(ms(2_000)).client_name(name);
    Client::connect(config).expect("fresh servers are admitted")
}

fn patient() -> LockOptions {
    LockOptions::new(TTL).retry(Retry::every(ms(5), ms(5))).timeout(PATIENCE)
}

/// Sums of counters, last values of gauges, and all samples, by name and labels.
#[derive(Default, Debug)]
struct Seen {
    values: BTreeMap<String, f64>,
    samples: BTreeMap<String, Vec<f64>>,
}

impl Seen {
    fn add(&mut self, snapshots: &Snapshotter) {
        for (key, _, _, value) in snapshots.snapshot().into_vec() {
            let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
            let name = format!("{} {}", key.key().name(), labels.join(" "));
            match value {
                DebugValue::Counter(more) => {
                    let more = f64::from(u32::try_from(more).expect("few"));
                    *self.values.entry(name).or_default() += more;
                }
                DebugValue::Gauge(value) => drop(self.values.insert(name, value.into_inner())),
                DebugValue::Histogram(samples) => {
                    let samples = samples.into_iter().map(|sample| sample.into_inner());
                    self.samples.entry(name).or_default().extend(samples);
                }
            }
        }
    }

    /// Whether the series has this value; an age above zero may be higher.
    fn is(&self, name: &str, wanted: u32) -> bool {
        let is_age = name.starts_with("redbolt_oldest") && wanted > 0;
        let is_so = |value: &f64| {
            let more = value - f64::from(wanted);
            more.abs() < 0.5 || (is_age && more > 0.0)
        };
        self.values.get(name).is_some_and(is_so)
    }

    fn samples(&self, name: &str) -> &[f64] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }
}

#[test]
fn every_call_of_a_client_is_counted_once_with_its_time_in_the_queue() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().expect("the only one of this process");
    let mut seen = Seen::default();
    let mut sees = |name: &str, wanted: u32| {
        let sees = eventually(PATIENCE, || {
            seen.add(&snapshots);
            seen.is(name, wanted)
        });
        assert!(sees, "{name} {wanted}: {seen:#?}");
    };
    let shared = shared(&cluster, "till");
    let held = shared.lock("k", patient()).wait().unwrap();
    thread::scope(|scope| {
        let waits = || drop(shared.lock("k", patient()).wait().expect("it becomes free"));
        (0..8).for_each(|_| drop(scope.spawn(waits)));
        // The queue shows while they wait.
        sees("redbolt_calls_queued till", 8);
        // No event happens, but both ages grow.
        sees("redbolt_oldest_hold_seconds till", 2);
        sees("redbolt_oldest_call_seconds till", 2);
        let at_once = shared.try_lock("k", TTL).wait();
        assert!(matches!(at_once, Err(LockError::Taken(_))), "{at_once:?}");
        let in_vain = shared.lock("k", patient().timeout(ms(100))).wait();
        assert!(matches!(in_vain, Err(LockError::Taken(_))), "{in_vain:?}");
        {
            let mut given_up = pin!(shared.lock("k", patient()));
            let mut context = Context::from_waker(Waker::noop());
            assert!(given_up.as_mut().poll(&mut context).is_pending());
        }
        drop(held);
    });
    assert!(shared.lock("", TTL).wait().is_err());
    for _ in 0..2 {
        drop(shared.lock("again", patient().linger(TTL)).wait().unwrap());
    }
    // A lock that lingers has no caller.
    sees("redbolt_oldest_hold_seconds till", 0);
    sees("redbolt_oldest_call_seconds till", 0);
    let leads = LockOptions::new(TTL).keep_alive().announced();
    let leader = shared.lock("led", leads).wait().unwrap();
    let kept = shared.lock("kept", patient().keep_alive()).wait().unwrap();
    sees("redbolt_oldest_hold_seconds till", 1);
    drop(kept);
    // A term lasts for as long as its leader wants.
    sees("redbolt_oldest_hold_seconds till", 0);
    drop(leader);
    shared.shutdown(PATIENCE).wait();

    for (outcome, calls) in
        [("won", 13), ("taken", 1), ("timed_out", 1), ("cancelled", 1), ("invalid", 1)]
    {
        sees(&format!("redbolt_calls_total till {outcome}"), calls);
    }
    for (by, leases) in [("first", 4), ("turn", 8), ("again", 1), ("wake", 0), ("poll", 0)] {
        sees(&format!("redbolt_leases_total till {by}"), leases);
    }
    sees("redbolt_calls_queued till", 0);
    assert_eq!(seen.samples("redbolt_hold_seconds till").len(), 13, "{seen:#?}");
    assert_eq!(seen.samples("redbolt_call_seconds till won").len(), 13, "{seen:#?}");
    // Failures count too, with all their time.
    let timed_out = seen.samples("redbolt_call_seconds till timed_out");
    assert!(timed_out.len() == 1 && timed_out[0] > 0.09, "{seen:#?}");
    // Eight calls stood in the queue while that call timed out.
    let won = seen.samples("redbolt_call_seconds till won").iter();
    assert!(won.filter(|waited| **waited > 0.09).count() >= 8, "{seen:#?}");

    // The counts of a client are exported when the call of `shutdown` returns.
    for round in 0..20 {
        let name = format!("round-{round}");
        let client = self::shared(&cluster, &name);
        drop(client.try_lock("k", TTL).wait().unwrap());
        client.shutdown(PATIENCE).wait();
        seen.add(&snapshots);
        assert!(seen.is(&format!("redbolt_calls_total {name} won"), 1), "{name}: {seen:#?}");
    }
}

/// Each span with the spans around it, outermost first.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, scope: Scope<'_, S>) {
        let mut text = Text::default();
        attributes.record(&mut text);
        let span = scope.span(id).expect("it is new");
        let told = format!("{}{}", attributes.metadata().name(), text.0);
        assert!(!told.starts_with("acquire key=\"dies\""), "on purpose");
        let around = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<String>().cloned()
        });
        let path = around.map_or_else(|| told.clone(), |around| format!("{around} > {told}"));
        self.0.lock().expect("no panic").push(path.clone());
        span.extensions_mut().insert(path);
    }
}

/// The spans of this process.
fn spans() -> &'static Spans {
    static SPANS: OnceLock<Spans> = OnceLock::new();
    SPANS.get_or_init(|| {
        let spans = Spans::default();
        let subscriber = tracing_subscriber::registry().with(spans.clone());
        tracing::subscriber::set_global_default(subscriber).expect("the only one");
        spans
    })
}

#[test]
fn the_spans_of_a_client_are_inside_the_span_of_their_caller() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let spans = spans();
    let shared = shared(&cluster, "traced");
    thread::scope(|scope| {
        let request = info_span!("request", id = 1).entered();
        let mut held = shared.lock("traced", patient()).wait().unwrap();
        held.extend(TTL).wait().unwrap();
        let other = scope.spawn(|| {
            let _request = info_span!("request", id = 2).entered();
            // The lease before is not kept alive, so the client does not hand it on, and this call
            // competes.
            shared.lock("traced", patient().keep_alive()).wait().map(drop)
        });
        let told = |path: &str| spans.0.lock().unwrap().iter().any(|span| span.contains(path));
        assert!(eventually(PATIENCE, || told("request id=2 > lock key=\"traced\" ttl_ms=20000")));
        held.unlock().wait().unwrap();
        other.join().unwrap().expect("it became free");
        drop(request);
        for path in [
            "request id=1 > lock key=\"traced\" ttl_ms=20000 > acquire key=\"traced\" ttl_ms=20000 > attempt",
            "request id=1 > extension key=\"traced\"",
            "request id=1 > release key=\"traced\"",
            "request id=2 > lock key=\"traced\" ttl_ms=20000 > acquire key=\"traced\" ttl_ms=20000 > attempt",
        ] {
            assert!(eventually(PATIENCE, || told(path)), "{path}: {:#?}", spans.0.lock());
        }
    });
    // No span stands alone: each call has its caller's span around it.
    let alone = |span: &&String| span.contains("traced") && !span.starts_with("request");
    let all = spans.0.lock().unwrap();
    assert_eq!(all.iter().filter(alone).count(), 0, "{all:#?}");
}

/// The thread of a waiting call drives the client meanwhile.
#[test]
fn what_a_client_does_by_itself_is_in_no_span_of_a_caller_that_waits() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let spans = spans();
    let holder = shared(&cluster, "holder");
    let _held = holder.lock("held", patient()).wait().unwrap();
    let shared = shared(&cluster, "waiter");
    let own = LockOptions::new(ms(900)).keep_alive();
    let _own = shared.try_lock("own", own).wait().unwrap();
    let request = info_span!("request", id = 3).entered();
    let part = info_span!("part").entered();
    let waited = shared.lock("held", patient().timeout(ms(1_000))).wait();
    assert!(matches!(waited, Err(LockError::Taken(_))), "{waited:?}");
    drop((info_span!("follows"), part));
    drop((info_span!("follows"), request));
    let all = spans.0.lock().unwrap();
    let extensions: Vec<_> =
        all.iter().filter(|span| span.contains("extension key=\"own\"")).collect();
    assert!(!extensions.is_empty(), "nothing was kept alive");
    assert!(extensions.iter().all(|span| span.starts_with("extension")), "{extensions:#?}");
    for path in [
        "request id=3 > part > lock key=\"held\" ttl_ms=20000 > acquire",
        "request id=3 > part > follows",
        "request id=3 > follows",
    ] {
        assert!(all.iter().any(|span| span.starts_with(path)), "{path}: {all:#?}");
    }
}

/// The program's own code, for example its log subscriber, may panic on the thread that drives: a
/// caller's, or the client's.
#[test]
fn a_thread_that_dies_ends_every_call_with_an_error() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    spans();
    let holder = shared(&cluster, "holder");
    let _held = holder.lock("of-another", patient()).wait().unwrap();
    for is_led in [true, false] {
        let shared = shared(&cluster, "mortal");
        let mut beside = pin!(shared.lock("of-another", patient()));
        if !is_led {
            let _waits = beside.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        thread::scope(|scope| {
            let waiters =
                [(); 3].map(|()| scope.spawn(|| shared.lock("of-another", patient()).wait()));
            let calls = if is_led { "calls: 3" } else { "calls: 4" };
            assert!(eventually(PATIENCE, || format!("{shared:?}").contains(calls)), "{shared:?}");
            let died = shared.try_lock("dies", TTL).wait();
            assert!(matches!(died, Err(LockError::Closed)), "{died:?}");
            for waiter in waiters {
                let result = waiter.join().unwrap();
                assert!(matches!(result, Err(LockError::Closed)), "{result:?}");
            }
        });
        assert!(matches!(shared.lock("k", TTL).wait(), Err(LockError::Closed)));
    }
}
