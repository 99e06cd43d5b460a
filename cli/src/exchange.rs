//! The step that the clients have reached while they exchange one list of nodes for another.

use std::time::Duration;

use redbolt::inspect::{Agreement, NodeList};

use crate::fitness::{Check, Level};
use crate::inspect::Clients;
use crate::output::short;

/// How many clients have which of two lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// The present list alone.
    present: usize,
    both: usize,
    /// The next list alone.
    next: usize,
    /// Clients with other lists or names of nodes, or that do not tell theirs.
    others: usize,
    /// Nodes that have not listed their clients.
    silent: usize,
}

impl Step {
    /// `None` unless this command has both lists.
    pub(crate) fn of(seen: &Clients) -> Option<Self> {
        let [present, next] = seen.own.lists.as_slice() else { return None };
        let has = |agreement: &Agreement, list: &NodeList| agreement.lists.contains(list);
        let silent = seen.nodes.iter().filter(|(_, why)| why.is_some()).count();
        let mut step = Self { silent, ..Self::default() };
        for client in &seen.others {
            let Some(theirs) = &client.name.agreement else {
                step.others += 1;
                continue;
            };
            if theirs.prefix != seen.own.prefix {
                continue;
            }
            match (has(theirs, present), has(theirs, next)) {
                (true, true) => step.both += 1,
                (true, false) => step.present += 1,
                (false, true) => step.next += 1,
                (false, false) => step.others += 1,
            }
        }
        Some(step)
    }

    /// The step, and when the next one may begin.
    pub(crate) fn check(self, max_ttl: Duration, max_clock_skew: Duration) -> Check {
        let Self { present, both, next, others, silent } = self;
        let (wait, skew) = (short(max_ttl), short(max_clock_skew * 2));
        let level = if present > 0 && next > 0 { Level::Unsafe } else { Level::Note };
        let advice = match (present, both, next) {
            (1.., _, 1..) => {
                "a client with only the present list and one with only the next list can hold the same \
                 lock: give every client both lists"
                    .to_owned()
            }
            (1.., _, 0) => {
                "give both lists to the clients that have only the present one".to_owned()
            }
            (0, ..) if others > 0 || silent > 0 => format!(
                "{others} have other lists or do not tell theirs, and {silent} nodes do not list \
                 their clients, so it is not known whether a client has the present list alone"
            ),
            (0, 1.., _) => format!(
                "give the next list alone to the clients that have both, once {wait} (with fences, \
                 {skew} more) have passed since the last client of the present list alone ended or \
                 got both. The doctor sees connected clients only"
            ),
            (0, 0, 1..) => "the nodes that are in the present list alone may be stopped".to_owned(),
            (0, 0, 0) => "no client with these lists is connected".to_owned(),
        };
        let text = format!(
            "{present} other clients have the present list alone, {both} have both, {next} have the next \
             list alone: {advice}"
        );
        Check { topic: "exchange", level, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_list_alone_beside_those_of_the_other_are_unsafe() {
        for (counts, level, said) in [
            ([3, 0, 0, 0, 0], Level::Note, "give both lists to the clients that have only"),
            ([1, 2, 0, 0, 1], Level::Note, "give both lists to the clients that have only"),
            ([0, 3, 0, 0, 0], Level::Note, "once 30.0 s (with fences, 2.0 s more) have passed"),
            ([0, 2, 1, 0, 0], Level::Note, "once 30.0 s (with fences, 2.0 s more) have passed"),
            ([0, 3, 0, 1, 0], Level::Note, "it is not known"),
            ([0, 3, 0, 0, 1], Level::Note, "it is not known"),
            ([1, 2, 1, 0, 0], Level::Unsafe, "can hold the same lock"),
            ([0, 0, 3, 0, 0], Level::Note, "may be stopped"),
            ([0, 0, 3, 0, 1], Level::Note, "it is not known"),
        ] {
            let [present, both, next, others, silent] = counts;
            let step = Step { present, both, next, others, silent };
            let check = step.check(Duration::from_secs(30), Duration::from_secs(1));
            assert_eq!(check.level, level, "{check:?}");
            assert!(check.text.contains(said), "{check:?}");
        }
    }
}
