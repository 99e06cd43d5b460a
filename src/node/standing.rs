//! The node's standing: the course of a greeting, the decision at its end, and the later answers
//! that change it.

use std::time::Duration;

use super::admission::{self, AdmissionRules, Standing};
use super::core::Node;
use super::greeting::{self, Facts, Login};
use super::pending::{GreetingPart, Pending, Request};
use super::state::{Now, State};
use super::trouble::DELAY_MAX;
use crate::command::{Dialect, ReleaseStep};
use crate::error::Cause;
use crate::guards::RestartGuard;
use crate::resp::encode::append_command;
use crate::rules;
use crate::time::Instant;

/// How soon the client asks a node again that refuses only for the moment.
const RETRY_SOON: Duration = Duration::from_millis(500);

/// The client would miss a node that fails over and back within twice this time. No sentinel is
/// that fast.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// More bytes than a look takes.
const LOOK_LEN: usize = 64;

impl Node {
    /// Writes a greeting: to a new connection, or again when a quarantine is over.
    pub(super) fn greet(&mut self, login: &Login, resp3: bool, now: Now) {
        let mut parts = Vec::with_capacity(8);
        greeting::append(&mut self.output, login, resp3, &mut parts);
        self.resp3 = resp3;
        self.reading.facts.logs_in = login.password.is_some();
        self.await_parts(&parts, now);
        self.greeted_at = now.attended;
        self.reading.seen_at = now.real;
        // Connecting and greeting have one `connect_timeout` together.
        let since = match self.state {
            State::Connecting { since } | State::Greeting { since } => since,
            State::Disconnected { .. }
            | State::Admitted { .. }
            | State::Quarantined { .. }
            | State::Refused { .. } => now.attended,
        };
        self.enter(State::Greeting { since });
    }

    /// From now on the client has this name, on the open connection too.
    pub(crate) fn rename(&mut self, name: &str, attended: Instant) {
        self.login.client_name = Some(name.to_owned());
        if self.is_connected() {
            append_command(&mut self.output, &[b"CLIENT", b"SETNAME", name.as_bytes()]);
            self.append(Request::Tell, &[], attended);
        }
    }

    /// All answers of the greeting have come: decides on the node's standing. Returns false if the
    /// greeting goes on: in RESP2, or with a second write.
    pub(crate) fn conclude_greeting(
        &mut self,
        rules: &AdmissionRules,
        is_duplicate: impl FnOnce(&str) -> bool,
        now: Now,
    ) -> bool {
        if self.reading.facts.hello_refused {
            let is_again = self.reading.facts.is_again;
            self.reading.facts = Facts { is_again, ..Facts::default() };
            let login = self.login.clone();
            self.greet(&login, false, now);
            return false;
        }
        if !self.reading.facts.is_asked_more {
            self.dialect = Dialect::of(self.reading.facts.server());
        }
        let is_fit = admission::refusal(&self.reading.facts, rules).is_none();
        if is_fit && self.ask_more(rules, now) {
            return false;
        }
        self.clock = None;
        if let Some(micros) = self.reading.facts.time_us {
            self.told_time(micros, self.reading.seen_at, now.real);
        }
        let standing = self.history.admit(&self.reading.facts, rules, is_duplicate, now.real);
        let standing = match standing {
            Standing::Refused(cause) => Standing::Refused(cause),
            Standing::Admitted | Standing::Quarantined { .. } if self.is_unproven => {
                Standing::Refused(Cause::NoDialect)
            }
            Standing::Admitted | Standing::Quarantined { .. } => standing,
        };
        self.is_settled = true;
        // Through two addresses of one server each message would come twice, and the client would
        // pass it on twice.
        if rules::may_listen(standing == Standing::Refused(Cause::Duplicate)) {
            self.subscribe(now);
        }
        let state = match standing {
            Standing::Admitted => {
                self.cause = Cause::None;
                State::Admitted { since: now.real }
            }
            Standing::Quarantined { until } => {
                self.cause = Cause::Quarantined;
                State::Quarantined { until }
            }
            Standing::Refused(cause) => self.refusal(cause, now.real),
        };
        self.enter(state);
        if self.is_admitted() {
            self.end_trouble_of_greeting();
            if rules.minds_failover(&self.reading.facts) {
                self.look_at = Some(self.reading.seen_at + BETWEEN_LOOKS);
            }
        }
        true
    }

    /// Asks whether the node has failed over, and perhaps back: the connection survives a failover,
    /// and no other answer shows one. The next SET goes behind the look.
    pub(crate) fn look_again(&mut self, now: Now) {
        if self.look_at.is_none_or(|at| at > now.real) {
            return;
        }
        self.look_at = Some(now.real + BETWEEN_LOOKS);
        if !self.is_stalled() && self.has_room_unstalled(LOOK_LEN) {
            greeting::append_look(&mut self.output);
            self.pending.push_back(Pending { request: Request::Look, written_at: now.attended });
            self.reading.looks.push_back(now.real);
        }
    }

    /// Whether the client reads an answer soon enough after the last answered look. A node that
    /// cannot fail over needs no look. A client that stood still has written no look, so it does
    /// not count the answer.
    pub(crate) fn is_watched(&self, now: Now) -> bool {
        let is_recent = now.real <= self.reading.seen_at + 2 * BETWEEN_LOOKS;
        self.look_at.is_none() || rules::is_watched(is_recent)
    }

    /// Asks the questions that the greeting has left open, if there are any. They are: since when
    /// the node has been a master, how many replicas its writes need, and whether the user may
    /// release by the next step.
    fn ask_more(&mut self, rules: &AdmissionRules, now: Now) -> bool {
        let facts = &mut self.reading.facts;
        let is_first = !std::mem::replace(&mut facts.is_asked_more, true);
        let is_refused = std::mem::take(&mut facts.is_step_refused);
        let mut parts = Vec::with_capacity(4);
        let is_guarded = is_first && rules.guard == RestartGuard::On;
        if let Some(replid) = facts.replid.as_deref().filter(|_| is_guarded && facts.was_replica) {
            greeting::append_mark(&mut self.output, replid, &mut parts);
        }
        if is_first && rules.minds_failover(facts) {
            greeting::append_floor(&mut self.output, &mut parts);
        }
        if let Some(step) = self.dialect.release.filter(|_| is_refused) {
            self.dialect.leave(step);
        }
        let is_doubted = self.is_unproven || self.dialect.release == Some(ReleaseStep::Eval);
        if let Some(step) = self.dialect.release.filter(|_| is_refused || is_first && is_doubted) {
            greeting::append_prove(&mut self.output, step, &mut parts);
        }
        if parts.is_empty() {
            self.is_unproven = self.dialect.release.is_none();
            return false;
        }
        self.await_parts(&parts, now);
        true
    }

    /// Notes that the client awaits answers to these parts of the greeting.
    fn await_parts(&mut self, parts: &[GreetingPart], now: Now) {
        for &part in parts {
            self.pending
                .push_back(Pending { request: Request::Greeting(part), written_at: now.attended });
        }
        self.reading.greeting_open = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    }

    fn refusal(&mut self, cause: Cause, now: Instant) -> State {
        self.cause = cause;
        self.note_trouble(cause, now);
        let is_passing = matches!(cause, Cause::Loading | Cause::Busy | Cause::TooManyClients);
        let wait = if is_passing { RETRY_SOON } else { DELAY_MAX };
        State::Refused { cause, retry_at: now + wait }
    }

    /// An answer showed that the node cannot serve locks as it is; the client greets it again
    /// later.
    pub(crate) fn refuse(&mut self, cause: Cause, now: Instant) {
        self.is_unproven |= cause == Cause::NoDialect;
        // The client greets a refused node again at `retry_at`, whatever the node answers until
        // then.
        if self.is_greeted() && !matches!(self.state, State::Refused { .. }) {
            self.end_admission(now);
            let state = self.refusal(cause, now);
            self.enter(state);
        }
    }

    /// An answer shows that the node is no master, or that it is loading: the keys that it granted
    /// may be gone.
    pub(crate) fn distrust(&mut self, rules: &AdmissionRules, now: Instant) {
        if rules.guard == RestartGuard::Off || !self.is_greeted() {
            return;
        }
        self.history.distrust(rules, now);
        // If a quarantined node says so again, that does not postpone its greeting: its address may
        // lead to another master.
        if self.is_admitted() {
            self.end_admission(now);
            self.cause = Cause::Quarantined;
            self.enter(State::Quarantined { until: now + rules.guard_time });
        }
    }

    /// An answer, a greeting or the end of a connection showed a fault of the node.
    pub(crate) fn note_trouble(&mut self, cause: Cause, now: Instant) {
        self.trouble.note(cause, now);
        self.trouble_changed();
    }

    /// A greeting found nothing against the node.
    pub(super) fn end_trouble_of_greeting(&mut self) {
        self.trouble.admitted();
        self.trouble_changed();
    }

    /// The node granted a vote.
    pub(crate) fn granted_in_trouble(&mut self, now: Instant) {
        if self.is_admitted() {
            self.trouble.granted(now);
            self.trouble_changed();
        }
    }

    fn trouble_changed(&mut self) {
        self.is_plain = self.is_admitted() && self.trouble.is_none();
        self.is_changed = true;
    }
}
