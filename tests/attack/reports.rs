//! The reports of drivers when they are dropped: unanswered releases, by the node that owes the
//! answer.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LEFT: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);

/// Listens from now on, in the whole process.
pub(crate) fn install() {
    // An error means that another test was first.
    let _ = tracing::subscriber::set_global_default(Reports);
}

/// How many unanswered releases the drivers have reported for this node, `host:port`.
pub(crate) fn left(node: &str) -> u64 {
    LEFT.lock().expect("no panic").get(node).copied().unwrap_or(0)
}

struct Reports;

#[derive(Default)]
struct Debt {
    node: String,
    count: u64,
}

impl Visit for Debt {
    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "node" {
            value.clone_into(&mut self.node);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "count" {
            self.count = value;
        }
    }
}

impl Subscriber for Reports {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "debt" && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut debt = Debt::default();
        event.record(&mut debt);
        *LEFT.lock().expect("no panic").entry(debt.node).or_default() += debt.count;
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
