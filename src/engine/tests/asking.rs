//! Questions that people put: an answer counts for what the node was as it was read.

use super::*;
use crate::resp::Reply;

impl Rig {
    /// Asks one node what `k` holds; it has no such key.
    fn is_without_key(&mut self) -> NodeReplies {
        self.engine.query(&[&[b"GET", b"k"]], self.now).unwrap();
        self.answer(0, "_\r\n");
        let Some(Event::Query { mut replies, .. }) = self.engine.poll_event(self.now) else {
            panic!("no answer")
        };
        let answer = replies.swap_remove(0);
        let mut decoder = crate::resp::Decoder::new(crate::resp::Limits::default());
        let frame = decoder.frame(&answer.replies[0]).unwrap().unwrap();
        assert_eq!((frame.reply(), answer.cause), (Reply::Null, Cause::None));
        answer
    }
}

#[test]
fn what_a_node_without_a_vote_does_not_hold_is_doubted() {
    let rig = |hello: &str, uptime: u32| {
        let guard = |config: Config| config.restart_guard(RestartGuard::On).max_ttl(TTL);
        let mut rig = Rig::unconnected(1, guard);
        rig.greet(0, hello, &format!("run_id:x\r\nuptime_in_seconds:{uptime}\r\n"));
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
    rig.engine.query(&[&[b"GET", b"k"]], rig.now).unwrap();
    rig.answer(0, "-READONLY You can't write against a read only replica.\r\n");
    rig.refused();
    rig.answer(0, "_\r\n");
    let Some(Event::Query { replies, .. }) = rig.engine.poll_event(rig.now) else {
        panic!("no answer")
    };
    assert_eq!(replies[0].doubt, Cause::Quarantined);
}
