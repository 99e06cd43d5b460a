//! Retries: each comes in the time asked for, behind the release of the attempt before. None goes
//! on after the call.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::{Client, LockError, LockOptions, Retry, Unlocked};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, RealServer, TTL, Wire, ends_within, eventually, ms,
    taken, timed, wait_released,
};

/// A client that tries again and again.
fn polling(cluster: &Cluster) -> Client {
    Client::connect(cluster.config().direct_wake(false)).expect("the nodes are there")
}

fn occupy_all(cluster: &Cluster, key: &str) {
    (0..cluster.len()).for_each(|index| cluster.occupy(index, key));
}

/// The SETs of one server as it runs them: the time of each, and its token.
struct Monitor {
    wire: Wire,
}

impl Monitor {
    fn new(server: &RealServer) -> Self {
        let mut wire = server.connect();
        assert_eq!(wire.ask(&["MONITOR"]).expect("the server answers"), b"+OK\r\n");
        Self { wire }
    }

    /// The next SET of a key that the test itself does not occupy: seconds and token.
    fn next_set(&mut self) -> (f64, String) {
        loop {
            let line = self.wire.reply().expect("the server goes on");
            let line = String::from_utf8(line).expect("a line of text");
            let words: Vec<_> = line.trim_start_matches('+').split_whitespace().collect();
            if words.contains(&"\"SET\"") && words.contains(&"\"NX\"") {
                let time = words.first().and_then(|time| time.parse().ok());
                let token = words.get(5).map(|token| token.trim_matches('"').to_owned());
                return (time.expect("a time"), token.expect("a token"));
            }
        }
    }
}

/// The majority is taken: the client gives the minority that it won back at once, after each
/// attempt.
#[test]
fn a_failure_after_several_attempts_leaves_no_key_on_the_free_minority() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for index in 0..3 {
        cluster.occupy(index, "k");
    }
    let client = polling(&cluster);
    let mut monitor = Monitor::new(cluster.node(4));
    // On a busy machine too the call has time for several attempts.
    let retry = Retry::every(ms(5), ms(5)).timeout(ms(1_000));
    let ballot = taken(client.lock("k", LockOptions::new(TTL).retry(retry)).wait());
    assert_eq!(ballot.denied(), 3);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 3));
    let mut tokens: Vec<_> = (0..4).map(|_| monitor.next_set().1).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 4, "a token for each attempt");
    // Each token has its client's id, and nothing else in them is alike.
    assert!(tokens.iter().all(|token| token.get(..16) == tokens[0].get(..16)), "{tokens:?}");
}

/// By the clock of the server, the next attempt comes no earlier than `delay` after the last.
#[test]
fn the_wait_between_attempts_is_at_least_the_delay_and_the_jitter_varies_it() {
    let Some(cluster) = Cluster::mixed(1) else { return };
    cluster.occupy(0, "k");
    let client = polling(&cluster);
    let mut monitor = Monitor::new(cluster.node(0));
    let (delay, jitter, attempts) = (ms(30), ms(60), 9);
    let options = LockOptions::new(TTL).retry(Retry::every(delay, jitter).timeout(PATIENCE));
    let times: Vec<_> = thread::scope(|scope| {
        let call = scope.spawn(|| client.lock("k", options).wait());
        let times = (0..attempts).map(|_| monitor.next_set().0).collect();
        cluster.node(0).command(&["DEL", "k"]);
        drop(call.join().unwrap().expect("it is free"));
        times
    });
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The monitor's clock is the wall clock in microseconds; the test allows half a millisecond for
    // its rounding.
    assert!(waits.iter().all(|&wait| wait >= delay.as_secs_f64() - 0.000_5), "{waits:?}");
    let (least, most) = waits
        .iter()
        .fold((f64::MAX, 0_f64), |(least, most), &wait| (least.min(wait), most.max(wait)));
    assert!(most - least > 0.001, "eight waits of one length: {waits:?}");
}

#[test]
fn a_wait_that_would_end_beyond_the_calls_own_end_is_not_begun() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    occupy_all(&cluster, "k");
    let client = polling(&cluster);
    let delay = ms(4_000);
    let hopeless = LockOptions::new(TTL).retry(Retry::every(delay, delay).timeout(delay));
    ends_within(Duration::ZERO, || taken(client.lock("k", hopeless).wait()));
}

#[test]
fn a_blocking_call_ends_by_its_deadline() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    occupy_all(&cluster, "k");
    let client = cluster.client();
    let busy = Retry::every(ms(10), ms(10));
    for deadline in [ms(1), ms(50), ms(400)] {
        for acquire in [
            LockOptions::new(TTL).retry(busy.timeout(deadline)),
            LockOptions::new(TTL).retry(busy).timeout(deadline),
            LockOptions::new(TTL).retry(busy.timeout(deadline * 100)).timeout(deadline),
            LockOptions::new(TTL).retry(busy.timeout(deadline)).timeout(deadline * 100),
        ] {
            let (result, elapsed) = timed(|| client.lock("k", acquire).wait());
            assert!(matches!(result, Err(LockError::Taken(_) | LockError::NoQuorum(_))));
            assert!(elapsed <= deadline + super::common::SLACK, "{deadline:?}: {elapsed:?}");
        }
    }
    // The same holds where the nodes hang, and the call's end comes before the `node_timeout`.
    let patient = Client::connect(cluster.config().node_timeout(ms(4_000))).unwrap();
    (0..3).for_each(|index| cluster.node(index).freeze());
    for deadline in [ms(1), ms(100)] {
        let acquire = LockOptions::new(TTL).retry(busy).timeout(deadline);
        let error = ends_within(deadline, || patient.lock("k", acquire).wait()).unwrap_err();
        assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    }
    (0..3).for_each(|index| cluster.node(index).thaw());
}

#[test]
fn a_deadline_of_zero_is_one_attempt() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let zero = || LockOptions::new(TTL).retry(Retry::every(ms(1), ms(1))).timeout(Duration::ZERO);
    let lease = client.lock("free", zero()).wait().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    occupy_all(&cluster, "k");
    let before = cluster.set_count(0);
    taken(client.lock("k", zero()).wait());
    let lease = client.try_lock("another", TTL).wait().unwrap();
    drop(lease);
    // Other nodes decide both calls where this one is late.
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.set_count(0) - before, 2, "one for each of the two calls");
}

#[test]
fn a_call_without_end_waits_until_the_lock_is_released() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let (holder, waiter) = (cluster.client(), polling(&cluster));
    let lease = holder.try_lock("k", TTL).wait().unwrap();
    let before = cluster.set_count(0);
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let forever = Retry::every(ms(5), ms(5));
            let lease = waiter.lock("k", LockOptions::new(TTL).retry(forever)).wait();
            sender.send(lease).unwrap();
        });
        assert!(eventually(PATIENCE, || cluster.set_count(0) >= before + 10));
        assert!(receiver.try_recv().is_err(), "two clients hold one lock");
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        let lease = receiver.recv_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(lease.key(), b"k");
    });
}

#[test]
fn what_a_call_says_of_retries_wins_over_the_configuration() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    occupy_all(&cluster, "k");
    let endless = Retry::every(ms(1), ms(1));
    let client = Client::connect(cluster.config().retry(endless)).unwrap();
    let once = endless.timeout(Duration::ZERO);
    let acquire = LockOptions::new(TTL).retry(once);
    ends_within(Duration::ZERO, || taken(client.lock("k", acquire).wait()));
    let client = Client::connect(cluster.config().retry(once).direct_wake(false)).unwrap();
    // On a busy machine one call may have time for few attempts.
    assert!(eventually(PATIENCE, || {
        let before = cluster.set_count(0);
        let acquire = LockOptions::new(TTL).retry(endless.timeout(ms(500)));
        let ended = client.lock("k", acquire).wait();
        // The call's time may end in the midst of an attempt.
        assert!(matches!(ended, Err(LockError::Taken(_) | LockError::NoQuorum(_))), "{ended:?}");
        cluster.set_count(0) >= before + 7
    }));
}

/// Node A is free, B becomes free, and C is taken meanwhile. The client's own key of the first
/// attempt on A must not stand in the way of the second attempt.
#[test]
fn a_partial_lock_is_released_before_the_next_attempt() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for round in 0..20 {
        let key = format!("k{round}");
        let client = polling(&cluster);
        let mut monitor = Monitor::new(cluster.node(0));
        cluster.occupy(1, &key);
        cluster.occupy(2, &key);
        let lease = thread::scope(|scope| {
            let call = scope.spawn(|| {
                let retry = Retry::every(ms(30), Duration::ZERO).timeout(PATIENCE);
                client.lock(&key, LockOptions::new(TTL).retry(retry)).wait().unwrap()
            });
            monitor.next_set();
            cluster.node(1).command(&["DEL", &key]);
            call.join().unwrap()
        });
        assert_eq!(lease.votes().bits(), 0b011, "{lease:?}");
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    }
}

#[test]
fn a_foreign_key_that_goes_between_two_attempts_lets_the_second_win() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91, Kind::Redis70, Kind::Redis86], &[]) else {
        return;
    };
    let client = cluster.client();
    for deadline in [None, Some(PATIENCE)] {
        occupy_all(&cluster, "k");
        let before = cluster.set_count(0);
        let lease = thread::scope(|scope| {
            let call = scope.spawn(|| {
                let mut retry = Retry::every(ms(40), ms(10));
                retry.timeout = deadline;
                client.lock("k", LockOptions::new(TTL).retry(retry)).wait()
            });
            assert!(eventually(PATIENCE, || cluster.set_count(0) > before));
            for node in cluster.nodes() {
                node.command(&["DEL", "k"]);
            }
            call.join().unwrap().unwrap()
        });
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        wait_released(&client, PATIENCE);
    }
}

/// The call is cancelled while it waits for its next attempt, and while an attempt is won but not
/// handed over.
#[test]
fn a_cancelled_acquisition_says_so_and_leaves_no_key_anywhere() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut driver = Driver::standalone(cluster.config().direct_wake(false)).unwrap();
    cluster.occupy(0, "k");
    cluster.occupy(1, "k");
    let retry = Retry::every(ms(20), ms(20));
    let id = driver.lock("k", LockOptions::new(TTL).retry(retry)).unwrap();
    let settled = eventually(PATIENCE, || {
        driver.drive();
        assert!(driver.completion().is_none());
        cluster.set_count(2) >= 3
    });
    assert!(settled);
    driver.cancel(id);
    let done = driver.completion().unwrap();
    assert_eq!(done.id, id);
    assert!(matches!(done.result, Outcome::Lock(Err(LockError::Cancelled))), "{done:?}");
    assert_eq!(LockError::Cancelled.to_string(), "cancelled");
    assert!(eventually(PATIENCE, || {
        driver.drive();
        cluster.holders("k") == 2
    }));

    let id = driver.try_lock("won", TTL).unwrap();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        cluster.holders("won") == 3
    }));
    driver.drive();
    driver.cancel(id);
    let done = driver.completion().unwrap();
    assert!(matches!(done.result, Outcome::Lock(Err(LockError::Cancelled))), "{done:?}");
    driver.shutdown(PATIENCE);
    assert_eq!(cluster.holders("won"), 0);
    assert_eq!(driver.in_flight(), 0);
}
