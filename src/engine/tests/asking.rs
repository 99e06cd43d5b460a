//! People's questions: an answer counts for the state of the node when it was read.

use super::*;
use crate::query::{NodeAnswers, Query, Reply};

impl Rig {
    /// Asks one node for the value of `k`; it has no such key.
    fn is_without_key(&mut self) -> NodeAnswers {
        self.engine.query(&Query::new().all(&[b"GET", b"k"]), self.now).unwrap();
        self.answer(0, "_\r\n");
        let Some(Event::Query { mut answers, .. }) = self.engine.poll_event(self.now) else {
            panic!("no answer")
        };
        let answer = answers.swap_remove(0);
        assert_eq!((&answer.replies[..], answer.cause), (&[Reply::Nil][..], Cause::None));
        answer
    }
}

#[test]
fn what_a_node_without_a_vote_does_not_hold_is_doubted() {
    let rig = |hello: &str, uptime: u32| {
        let guard = |config: Config| config.restart_guard(RestartGuard::On).max_ttl(TTL);
        let mut rig = Rig::unconnected(1, guard);
        rig.greet(
            0,
            hello,
            &format!("run_id:x\r\nconnected_slaves:0\r\nuptime_in_seconds:{uptime}\r\n"),
        );
        rig
    };
    assert_eq!(rig(HELLO, 9999).is_without_key().doubt, Cause::None);
    assert_eq!(rig(HELLO, 3).is_without_key().doubt, Cause::Quarantined);
    let replica = HELLO.replace("%3", "%4") + "+role\r\n+replica\r\n";
    assert_eq!(rig(&replica, 9999).is_without_key().doubt, Cause::Replica);
}

#[test]
fn an_answer_behind_the_word_of_a_replica_is_doubted() {
    let mut rig = Rig::with(1, |config| config.restart_guard(RestartGuard::On).max_ttl(TTL));
    rig.acquire("a");
    rig.engine.query(&Query::new().all(&[b"GET", b"k"]), rig.now).unwrap();
    rig.answer(0, "-READONLY You can't write against a read only replica.\r\n");
    rig.refused();
    rig.answer(0, "_\r\n");
    let Some(Event::Query { answers, .. }) = rig.engine.poll_event(rig.now) else {
        panic!("no answer")
    };
    assert_eq!(answers[0].doubt, Cause::Quarantined);
}

#[test]
fn a_query_of_more_commands_than_a_node_takes_at_once_is_refused() {
    let mut rig = Rig::new(1);
    let query = |count| (0..count).fold(Query::new(), |query, _| query.all(&[b"TIME"]));
    assert!(matches!(rig.engine.query(&query(256), rig.now), Err(LockError::Full)));
    rig.engine.query(&query(255), rig.now).unwrap();
}
