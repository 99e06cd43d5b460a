//! The log: the faults of nodes that an operator must mend, each once.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::common::{
    Kind, Looped, PATIENCE, RealServer, TTL, eventually, fresh_config, kind_or_skip, log_to, ms,
};

/// Keeps the events of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Level, String)>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redbolt"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().expect("no panic").push((*event.metadata().level(), text.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Log {
    fn levels(&self) -> Vec<Level> {
        self.0.lock().expect("no panic").iter().map(|(level, _)| *level).collect()
    }
}

#[test]
fn a_wrong_password_is_logged_once_and_again_after_it_was_mended() {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70];
    if kinds.into_iter().filter_map(kind_or_skip).count() < kinds.len() {
        return;
    }
    let servers = kinds.map(|kind| RealServer::start(kind, &["--requirepass", "right"]));
    let log = Log::default();
    let urls = servers.each_ref().map(|server| {
        let password = if server.kind() == Kind::Redis70 { "wrong-one" } else { "right" };
        format!("redis://:{password}@127.0.0.1:{}", server.port())
    });
    let config = fresh_config(urls.into());
    let broken = &servers[2];
    let set_password = |before: &str, after: &str| {
        let mut wire = broken.connect();
        assert_eq!(wire.ask(&["AUTH", before]).unwrap(), b"+OK\r\n");
        assert_eq!(wire.ask(&["CONFIG", "SET", "requirepass", after]).unwrap(), b"+OK\r\n");
        for kind in ["normal", "pubsub"] {
            wire.ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
        }
    };
    log_to(log.clone(), || {
        let mut client = Looped::connect(config);
        let locks = |client: &mut Looped, count: usize| {
            for turn in 0..count {
                drop(client.try_lock(format!("log:{turn}"), TTL));
            }
            // A call that fails for want of nodes reads nothing.
            client.drive_for(ms(1));
        };
        locks(&mut client, 1_000);
        assert_eq!(log.levels(), [Level::ERROR], "{:?}", log.0);
        set_password("right", "wrong-one");
        let is_mended = eventually(PATIENCE, || {
            locks(&mut client, 10);
            log.levels().len() > 1
        });
        assert!(is_mended, "{:?} {:#?}", log.0, client.driver().nodes());
        assert_eq!(log.levels(), [Level::ERROR, Level::INFO], "{:?}", log.0);
        set_password("wrong-one", "third");
        let is_broken = eventually(PATIENCE, || {
            locks(&mut client, 10);
            log.levels().len() > 2
        });
        locks(&mut client, 1_000);
        assert!(is_broken, "it is not told again");
        assert_eq!(log.levels(), [Level::ERROR, Level::INFO, Level::ERROR], "{:?}", log.0);
    });
    let events = log.0.lock().unwrap();
    for (_, text) in events.iter() {
        assert!(text.contains(&format!("127.0.0.1:{}", broken.port())), "{text}");
        assert!(!["wrong-one", "right", "third"].iter().any(|word| text.contains(word)), "{text}");
    }
    assert!(events[0].1.contains("user or password refused"), "{events:?}");
}
