//! Elections: the leader is the holder of a lock, and its name stands beside that lock.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use redbolt::inspect::{Leader, Led};
use redbolt::{Client, Config, LockError, LockOptions, Unlocked};

use super::common::{
    Clients as _, Cluster, PATIENCE, TTL, eventually, given_away, ms, on_each_kind, wait_released,
};

/// The key beside the lock `jobs`.
const CLAIM: &str = "jobs:elected";

fn named(cluster: &Cluster, name: &str) -> Config {
    cluster.config().client_name(name)
}

fn wall() -> SystemTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    SystemTime::UNIX_EPOCH + Duration::try_from(time).expect("after 1970")
}

#[track_caller]
fn leader(led: Led) -> Leader {
    let Led::By(leader) = led else { panic!("{led:?}") };
    *leader
}

fn program(led: &Led) -> Option<&str> {
    led.leader()?.name.as_ref()?.program.as_deref()
}

#[test]
fn everybody_can_read_who_leads_and_since_when() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let candidate = cluster.whole(named(&cluster, "stock-1"));
    let other = cluster.whole(named(&cluster, "reader"));
    assert!(matches!(other.leader("jobs").wait().unwrap(), Led::Nobody));
    let before = wall();
    let term = candidate.campaign("jobs", TTL).wait().unwrap();
    let shared = Client::connect(named(&cluster, "third")).unwrap();
    assert!(eventually(PATIENCE, || program(&other.leader("jobs").wait().unwrap()).is_some()));
    let seen = [
        other.leader("jobs").wait().unwrap(),
        shared.leader("jobs").wait().unwrap(),
        smol::block_on(shared.leader("jobs")).unwrap(),
    ];
    for leader in seen.map(leader) {
        let name = leader.name.as_ref().expect("it has said it");
        assert_eq!(name.program.as_deref(), Some("stock-1"));
        assert_eq!((name.pid, Some(name.client)), (Some(std::process::id()), leader.client));
        assert!(name.host.is_some() && leader.ends_in.unwrap() <= TTL, "{leader:?}");
        assert_eq!(Some(leader.token.clone()), term.token());
        // A claim's time has whole milliseconds.
        let since = leader.since.expect("it has a clock");
        assert!(since + ms(1) > before && since <= wall(), "{leader:?}");
        assert!(!format!("{leader:?}").contains(&term.token().unwrap().to_string()));
    }
    assert_eq!(term.unlock().wait().unwrap(), Unlocked::Released);
    assert!(matches!(other.leader("jobs").wait().unwrap(), Led::Nobody));
    wait_released(&candidate, PATIENCE);
    let left = || ["jobs", CLAIM].iter().map(|key| cluster.holders(key)).sum::<usize>();
    assert!(eventually(PATIENCE, || left() == 0), "keys are left behind");
}

#[test]
fn a_leader_that_resigns_is_followed_by_the_next_candidate() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let first = Client::connect(named(&cluster, "first")).unwrap();
    let second = Client::connect(named(&cluster, "second")).unwrap();
    let term = first.campaign("jobs", TTL).wait().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| second.campaign("jobs", TTL).wait());
        assert!(
            eventually(PATIENCE, || cluster.calls("publish") > 0),
            "the candidate introduces itself"
        );
        assert!(term.is_valid() && !next.is_finished());
        term.unlock().wait().unwrap();
        let next = next.join().unwrap().unwrap();
        assert!(next.is_valid());
        // From the first moment of the new term, clients no longer believe the name of the leader
        // before.
        let named = || program(&first.leader("jobs").wait().unwrap()).map(str::to_owned);
        assert_ne!(named().as_deref(), Some("first"));
        assert!(eventually(PATIENCE, || named().as_deref() == Some("second")));
        next.unlock().wait().unwrap();
    });
}

#[test]
fn a_name_is_believed_only_with_the_token_of_the_lock() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let candidate = cluster.whole(named(&cluster, "honest"));
    let other = cluster.whole(named(&cluster, "reader"));
    let term = candidate.campaign("jobs", TTL).wait().unwrap();
    let id = leader(other.leader("jobs").wait().unwrap()).client.unwrap();
    // The claim goes to a node behind its vote.
    wait_released(&candidate, PATIENCE);
    let forge = |token: &str| {
        let value = format!("1763866800123 redbolt:1:{id}:nowhere:1:forged {token}");
        for node in cluster.nodes() {
            assert_eq!(node.command(&["SET", CLAIM, &value, "PX", "60000"]), b"+OK\r\n");
        }
    };
    forge("0123456789abcdef0123456789abcdef01234567");
    let seen = leader(other.leader("jobs").wait().unwrap());
    assert_eq!((seen.name, seen.since), (None, None));
    assert_eq!(Some(seen.token), term.token());
    // Of the claims with the token, the observer believes the one that most nodes have: here one of
    // five is forged.
    let claim = |text: &str| format!("7 redbolt:1:{id}:h:1:{text} {}", term.token().unwrap());
    for (node, text) in cluster.nodes().zip(["forged", "true", "true", "true", "true"]) {
        assert_eq!(node.command(&["SET", CLAIM, &claim(text), "PX", "60000"]), b"+OK\r\n");
    }
    assert_eq!(program(&other.leader("jobs").wait().unwrap()), Some("true"));
    // Without the lock, the claim says nothing.
    drop(term);
    wait_released(&candidate, PATIENCE);
    assert!(cluster.holders(CLAIM) > 0, "what others wrote is not deleted");
    assert!(matches!(other.leader("jobs").wait().unwrap(), Led::Nobody));
}

#[test]
fn the_name_is_renewed_with_the_term_and_ends_with_it() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(named(&cluster, "steady")).unwrap();
    let ttl = ms(1_500);
    let term = shared.campaign("jobs", ttl).wait().unwrap();
    // The client writes the claim after the answers by which it won the term.
    assert!(eventually(PATIENCE, || cluster.holders(CLAIM) == 3));
    let first = cluster.values(CLAIM);
    // After three extensions, a key that had not been renewed would be gone.
    let end = redbolt::now() + ttl * 2;
    while redbolt::now() < end {
        assert!(term.lost().wait_for(ms(20)).is_none());
        assert!(cluster.nodes().all(|node| node.pttl(CLAIM) <= 1_500));
        assert_eq!(program(&shared.leader("jobs").wait().unwrap()), Some("steady"));
    }
    assert!(term.is_valid());
    assert_eq!(cluster.values(CLAIM), first, "the term is the same");
    // The client does not renew the claim of a lock that was given away.
    given_away(term);
    assert!(eventually(PATIENCE, || cluster.holders(CLAIM) == 0));
}

#[test]
fn a_leader_that_may_not_write_its_name_leads_without_one() {
    on_each_kind(|kind| {
        let Some(cluster) = Cluster::start(&[kind; 3], &[]) else { return };
        for node in cluster.nodes() {
            let line = ["ACL", "SETUSER", "u", "on", ">pw", "~jobs", "~seen:*", "&*", "+@all"];
            assert_eq!(node.command(&line), b"+OK\r\n");
        }
        let client = cluster.whole(cluster.config().username("u").password("pw"));
        let term = client.campaign("jobs", ms(1_500)).wait().unwrap();
        let reader = cluster.client();
        for _ in 0..5 {
            assert!(term.lost().wait_for(ms(400)).is_none());
            let seen = leader(reader.leader("jobs").wait().unwrap());
            assert_eq!((seen.name, seen.since), (None, None), "{}", kind.name());
        }
        assert_eq!(term.unlock().wait().unwrap(), Unlocked::Released);
        assert_eq!(client.voters().count(), 3, "no node was given up for that");
    });
}

#[test]
fn a_name_is_no_lock() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.whole(cluster.config().key_prefix("p:"));
    let _term = client.campaign("jobs", TTL).wait().unwrap();
    let is_everywhere = |_client: &Client| cluster.holders("p:jobs:elected") == 3;
    assert!(eventually(PATIENCE, || is_everywhere(&client)));
    assert!(matches!(client.try_lock(CLAIM, TTL).wait(), Err(LockError::ReservedKey)));
    assert!(matches!(client.leader(CLAIM).wait(), Err(LockError::ReservedKey)));
}

#[test]
fn each_term_has_a_token_of_its_own_also_inside_one_process() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::connect(named(&cluster, "many")).unwrap();
    let tokens = thread::scope(|scope| {
        let candidates: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let term = shared.campaign("jobs", LockOptions::new(TTL)).wait().unwrap();
                    // The test reads the token from the nodes; asking the guard for it would keep
                    // the lock from going on.
                    let token = leader(shared.leader("jobs").wait().unwrap()).token;
                    term.unlock().wait().unwrap();
                    token.to_string()
                })
            })
            .collect();
        candidates.into_iter().map(|one| one.join().unwrap()).collect::<BTreeSet<_>>()
    });
    assert_eq!(tokens.len(), 4);
}

#[test]
fn an_observer_is_told_each_change_and_nothing_else() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let observer = Client::connect(cluster.config()).unwrap();
    let (sender, news) = mpsc::channel();
    let mut sight = observer.observe("jobs", ms(5));
    let watching = {
        let mut observer = observer.observe("jobs", ms(5));
        thread::spawn(move || {
            while let Ok(seen) = smol::block_on(observer.next_change()) {
                if sender.send(seen).is_err() {
                    return;
                }
            }
        })
    };
    let mut blocking = client.observe("jobs", ms(5));
    let mut changes = |wanted: Option<&str>| {
        // An observer first reports a leader without its name where the name is not there yet.
        let is_wanted = |led: &Led| program(led) == wanted;
        while !is_wanted(&news.recv_timeout(PATIENCE).expect("news")) {}
        while !is_wanted(&blocking.next_change().wait_for(PATIENCE).expect("news").unwrap()) {}
        while !is_wanted(&sight.next_change().wait_for(PATIENCE).expect("news").unwrap()) {}
        assert!(blocking.next_change().wait_for(ms(50)).is_none(), "nothing has changed");
        assert!(sight.next_change().wait_for(ms(50)).is_none(), "nothing has changed");
        assert!(news.try_recv().is_err(), "nothing has changed");
    };
    changes(None);
    for name in ["one", "two"] {
        let candidate = cluster.whole(named(&cluster, name));
        let term = candidate.campaign("jobs", TTL).wait().unwrap();
        changes(Some(name));
        term.unlock().wait().unwrap();
        wait_released(&candidate, PATIENCE);
        changes(None);
    }
    // A look that is still to come does not keep the client from ending.
    let mut late = observer.observe("jobs", Duration::from_secs(3_600));
    smol::block_on(late.next_change()).unwrap();
    let dropped =
        smol::block_on(smol::future::or(async { Some(late.next_change().await) }, async { None }));
    assert!(dropped.is_none());
    observer.shutdown(PATIENCE).wait();
    watching.join().unwrap();
    assert!(matches!(smol::block_on(late.next_change()), Err(LockError::Closed)));
}

#[test]
fn a_campaign_waits_beyond_the_time_of_a_lock_unless_the_options_end_it() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let retry = redbolt::Retry::every(ms(20), ms(20)).timeout(ms(100));
    let leading = cluster.client();
    let term = leading.campaign("jobs", TTL).wait().unwrap();
    let client = Client::connect(cluster.config().retry(retry)).unwrap();
    // The time has room for nodes that answer late.
    let brief = LockOptions::new(TTL).timeout(ms(1_000));
    assert!(matches!(client.campaign("jobs", brief).wait(), Err(LockError::Taken(_))));
    let shared = Client::connect(cluster.config().retry(retry)).unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| shared.campaign("jobs", TTL).wait());
        assert!(term.lost().wait_for(ms(500)).is_none() && !next.is_finished());
        term.unlock().wait().unwrap();
        assert!(next.join().unwrap().is_ok());
    });
}
