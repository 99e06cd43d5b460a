//! How far the clients are that exchange one list of nodes for another.

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
}

impl Step {
    /// `None` unless this command has both lists.
    pub(crate) fn of(seen: &Clients) -> Option<Self> {
        let [present, next] = seen.own.lists.as_slice() else { return None };
        let has = |agreement: &Agreement, list: &NodeList| agreement.lists.contains(list);
        let mut step = Self::default();
        for theirs in seen.others.iter().filter_map(|client| client.name.agreement.as_ref()) {
            if theirs.prefix != seen.own.prefix {
                continue;
            }
            match (has(theirs, present), has(theirs, next)) {
                (true, true) => step.both += 1,
                (true, false) => step.present += 1,
                (false, true) => step.next += 1,
                // It differs, which is another check.
                (false, false) => {}
            }
        }
        Some(step)
    }

    /// The step, and when the next one may begin.
    pub(crate) fn check(self, max_ttl: Duration) -> Check {
        let Self { present, both, next } = self;
        let wait = short(max_ttl);
        let (level, advice) = match (present, both, next) {
            (1.., _, 1..) => (
                Level::Unsafe,
                "clients of one list alone and clients of the other alone can hold one lock: give all \
                 both lists"
                    .to_owned(),
            ),
            (1.., _, 0) => (Level::Note, "give those with the present list alone both lists".to_owned()),
            (0, 1.., _) => (
                Level::Note,
                format!(
                    "give them the next list alone, but not before {wait} have passed since the last \
                     client of the present list alone ended"
                ),
            ),
            (0, 0, 1..) => {
                (Level::Note, "the nodes that are in the present list alone may be stopped".to_owned())
            }
            (0, 0, 0) => (Level::Note, "no client with these lists is connected".to_owned()),
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
        for (present, both, next, level, said) in [
            (3, 0, 0, Level::Note, "give those with the present list alone both lists"),
            (1, 2, 0, Level::Note, "give those with the present list alone both lists"),
            (0, 3, 0, Level::Note, "not before 30.0 s have passed"),
            (0, 2, 1, Level::Note, "not before 30.0 s have passed"),
            (1, 2, 1, Level::Unsafe, "can hold one lock"),
            (0, 0, 3, Level::Note, "may be stopped"),
        ] {
            let check = Step { present, both, next }.check(Duration::from_secs(30));
            assert_eq!(check.level, level, "{check:?}");
            assert!(check.text.contains(said), "{check:?}");
        }
    }
}
