//! Replacing a node by the steps of `docs/servers.md`: at no time do two clients hold a lock. One
//! more test leaves a step out, and shows why the steps need it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use redbolt::Instant;
use redbolt::{Client, Config, Guard, LockError, RestartGuard, now};
use serde_json::Value;

use super::cli::{MAX_TTL, MAX_TTL_TEXT, on_urls};
use redbolt_rig::{Kind, PATIENCE, RealServer, StopAtEnd, eventually, kind_or_skip, ms};

/// The node that is replaced.
const OLD: usize = 2;

fn config(urls: &[String]) -> Config {
    Config::new(urls).expect("addresses").max_ttl(MAX_TTL).node_timeout(ms(500))
}

/// Five servers that keep nothing over a restart. All of them are past the guard.
fn five() -> Option<Vec<RealServer>> {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70, Kind::Valkey81, Kind::Redis80];
    let kinds: Option<Vec<Kind>> = kinds.into_iter().map(kind_or_skip).collect();
    let servers: Vec<RealServer> =
        kinds?.into_iter().map(|kind| RealServer::start(kind, &[])).collect();
    assert!(eventually(PATIENCE, || doctor_is_content(&urls(&servers))));
    Some(servers)
}

fn urls(servers: &[RealServer]) -> Vec<String> {
    servers.iter().map(RealServer::url).collect()
}

/// Whether every node votes, according to the doctor.
fn doctor_is_content(urls: &[String]) -> bool {
    let ended = on_urls(urls, &["doctor", "--max-ttl", MAX_TTL_TEXT, "--json"]);
    let report = if ended.code == Some(0) { ended.json() } else { return false };
    let notes = report.get("notes").and_then(Value::as_array).expect("notes");
    // The clients have another list for a while.
    notes.iter().all(|note| note.as_str().is_some_and(|note| note.contains(" in lists ")))
}

/// A service that takes one lock again and again, and that the test restarts with another list.
struct Service {
    urls: Mutex<Vec<String>>,
    is_new: AtomicBool,
    locks: AtomicUsize,
}

impl Service {
    fn locks(&self) -> usize {
        self.locks.load(Ordering::SeqCst)
    }

    /// Waits until the service has had more locks.
    fn goes_on(&self) {
        let before = self.locks();
        assert!(eventually(PATIENCE * 2, || self.locks() > before + 2), "no lock can be had");
    }

    /// Takes locks until `end`, and notes from when to when it held each.
    fn work(&self, held: &Mutex<Vec<(Instant, Instant)>>, end: &AtomicBool) {
        while !end.load(Ordering::SeqCst) {
            let urls = self.urls.lock().expect("no thread panics with it").clone();
            self.is_new.store(false, Ordering::SeqCst);
            let client = Client::open(config(&urls)).expect("addresses");
            while !end.load(Ordering::SeqCst) && !self.is_new.load(Ordering::SeqCst) {
                let Ok(mut lease) = client.lock("replaced", MAX_TTL).wait() else { continue };
                let begin = now();
                std::thread::sleep(ms(2));
                let until = now().min(lease.deadline());
                let hold = |begin, until| {
                    held.lock().expect("no thread panics with it").push((begin, until));
                };
                hold(begin, until);
                self.locks.fetch_add(1, Ordering::SeqCst);
                // The service leaves some locks to their TTL, as a crash does.
                if self.locks().is_multiple_of(16) {
                    // A lease that cannot be given away is released when it is dropped.
                    let deadline = lease.deadline();
                    if lease.detach().wait().is_ok() {
                        hold(until, deadline);
                    }
                } else {
                    let _ = lease.unlock().wait();
                }
            }
        }
    }
}

#[test]
fn a_node_that_is_replaced_by_the_steps_leaves_one_holder_at_a_time() {
    let Some(mut servers) = five() else { return };
    let new_service = || Service {
        urls: Mutex::new(urls(&servers)),
        is_new: AtomicBool::new(false),
        locks: AtomicUsize::new(0),
    };
    let services: Vec<Service> = (0..3).map(|_| new_service()).collect();
    let (held, end) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for service in &services {
            let (held, end) = (&held, &end);
            scope.spawn(move || service.work(held, end));
        }
        let stop = StopAtEnd(&end);
        services.iter().for_each(Service::goes_on);
        // 1: stop the old node for good; the others go on.
        servers[OLD].kill9();
        services.iter().for_each(Service::goes_on);
        // 2: start the new node, empty, after that.
        let new = RealServer::start(Kind::Valkey91, &[]);
        let mut new_urls = urls(&servers);
        new_urls[OLD] = new.url();
        // 3: wait until the doctor is content with the new list.
        assert!(eventually(PATIENCE, || doctor_is_content(&new_urls)));
        // 4: give the services the new list, one after the other.
        for service in &services {
            new_urls.clone_into(&mut service.urls.lock().unwrap());
            service.is_new.store(true, Ordering::SeqCst);
            services.iter().for_each(Service::goes_on);
        }
        assert!(new.command(&["INFO", "commandstats"]).windows(11).any(|w| w == b"cmdstat_set"));
        drop(stop);
    });
    let mut held = held.into_inner().unwrap();
    held.sort_unstable();
    assert!(held.len() > 30);
    for pair in held.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two hold the lock: {pair:?}");
    }
}

/// A lock on the bare quorum of the first three nodes, the last of which is then lost. The five
/// nodes of the new list have an empty one in its place that has just started.
fn lock_and_replace() -> Option<(Vec<RealServer>, Client, Guard)> {
    let mut servers = five()?;
    let away = |servers: &[RealServer], act: fn(&RealServer)| {
        servers.iter().skip(OLD + 1).for_each(act);
    };
    away(&servers, RealServer::freeze);
    let client = Client::open(config(&urls(&servers))).expect("addresses");
    // Servers count their age in whole seconds: a server that was old enough for the doctor may
    // seem too young for a moment more.
    let lease = client.lock("k", MAX_TTL).wait().expect("three of five grant");
    assert_eq!(lease.votes().count(), 3);
    let old = servers.get_mut(OLD)?;
    old.kill9();
    *old = RealServer::start(Kind::Valkey91, &[]);
    away(&servers, RealServer::thaw);
    Some((servers, client, lease))
}

#[test]
fn a_new_node_does_not_vote_while_a_lock_of_the_old_one_lives() {
    let Some((servers, _client, lease)) = lock_and_replace() else { return };
    let other = Client::open(config(&urls(&servers))).expect("addresses");
    // To another client, the servers may seem too young for a moment more.
    assert!(eventually(PATIENCE, || other.is_ready()), "four nodes vote");
    let (mut denied, mut was_early) = (0, None);
    let second = loop {
        let result = other.try_lock("k", MAX_TTL).wait();
        // On a busy machine the lock may be over before another client asks for it.
        was_early.get_or_insert_with(|| lease.is_valid());
        match result {
            Ok(second) => break second,
            Err(LockError::Taken(_) | LockError::NoQuorum(_)) => denied += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(now() < lease.deadline() + PATIENCE, "the lock does not end");
        std::thread::sleep(ms(5));
    };
    assert!(!lease.is_valid(), "two hold the lock");
    assert!(second.is_valid());
    assert!(denied > 0 || was_early == Some(false));
}

/// So the step cannot be left out, and the test above can fail.
#[test]
fn without_the_guard_a_new_node_would_give_the_lock_to_a_second_holder() {
    // On a busy machine the lock may be over before, and a node may answer too late.
    let is_shown = (0..3).any(|_| {
        let Some((servers, _client, lease)) = lock_and_replace() else { return true };
        let config = config(&urls(&servers)).restart_guard(RestartGuard::Off);
        let other = Client::connect(config).expect("five nodes vote");
        assert!(eventually(PATIENCE, || other.voters().count() == 5), "five nodes vote");
        let second = other.try_lock("k", MAX_TTL).wait();
        second.is_ok_and(|second| second.is_valid()) && lease.is_valid()
    });
    assert!(is_shown, "the empty node decides");
}
