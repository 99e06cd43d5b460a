//! The spans of operations, for the program's subscriber: the feature `tracing`.

use tracing::Span;

use crate::slab::{Index, OpIndex};

/// The spans of operations under way.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Traces {
    ops: Vec<Spans>,
}

/// The spans of one operation.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Spans {
    pub(in crate::engine) call: Span,
    attempt: Span,
}

impl Spans {
    fn none() -> Self {
        Self { call: Span::none(), attempt: Span::none() }
    }
}

impl Traces {
    pub(in crate::engine) fn begin(&mut self, index: OpIndex, call: Span) {
        let place = index.place();
        if place >= self.ops.len() {
            self.ops.resize(place + 1, Spans::none());
        }
        if let Some(spans) = self.ops.get_mut(place) {
            *spans = Spans { call, attempt: Span::none() };
        }
    }

    pub(in crate::engine) fn end(&mut self, index: OpIndex) -> Spans {
        let spans = self.ops.get_mut(index.place());
        spans.map_or_else(Spans::none, |spans| std::mem::replace(spans, Spans::none()))
    }

    /// The span of the operation's present attempt, which `span` makes from the span of its call.
    pub(in crate::engine) fn attempt(&mut self, index: OpIndex, span: impl FnOnce(&Span) -> Span) {
        if let Some(spans) = self.ops.get_mut(index.place()) {
            spans.attempt = span(&spans.call);
        }
    }

    /// The innermost span of the operation.
    pub(in crate::engine) fn of(&self, index: Option<OpIndex>) -> &Span {
        const NONE: &Span = &Span::none();
        let Some(spans) = index.and_then(|index| self.ops.get(index.place())) else {
            return NONE;
        };
        if spans.attempt.is_none() { &spans.call } else { &spans.attempt }
    }
}
