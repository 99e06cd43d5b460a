//! The names on which programs outside rely: this file uses each of them as they do.

use std::time::Duration;

use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Driver, Outcome};
use redbolt::{
    Admission, Call, Client, Config, ConnectError, Guard, IdleStrategy, Lease, LockError,
    LockOptions, LockToken, Quorum, RestartGuard, Retry, UnlockError, Unlocked, wait_all,
};
use redbolt_embedded::Nodes;
use redbolt_rig::uninterrupted;

const TTL: Duration = Duration::from_secs(10);

/// The nodes are threads of this process, which other tests keep busy.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

type Anything = Result<(), Box<dyn std::error::Error>>;

#[test]
fn the_client_is_used_by_its_names() -> Anything {
    let nodes = Nodes::start(3)?;
    let config = Config::new(nodes.urls())?
        .quorum(Quorum::Majority)
        .quorum(Quorum::AtLeast(2))
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(Duration::from_secs(1))
        .drift_factor(0.01)
        .max_ttl(Duration::from_secs(30))
        .restart_guard(RestartGuard::Off)
        .restart_guard(RestartGuard::On)
        .admission(Admission::Lenient)
        .admission(Admission::Strict)
        .retry(Retry::every(Duration::from_millis(5), Duration::from_millis(5)).timeout(TTL))
        .idle_strategy(IdleStrategy::Spin)
        .idle_strategy(IdleStrategy::SpinThenPark(Duration::from_micros(50)))
        .idle_strategy(IdleStrategy::Park)
        .in_flight_max(16)
        .client_name("names");
    let client = Client::connect(config)?;

    let mut lease = client.try_lock("sku:42", TTL).wait()?;
    assert!(lease.remaining() > Duration::ZERO && lease.deadline() > redbolt::now());
    assert!(lease.votes().count() >= 2 && lease.key() == b"sku:42");
    let token: LockToken = lease.token().unwrap();
    assert_eq!(token.to_string().len(), 40);
    lease.extend(TTL).wait()?;
    let error = client.try_lock("sku:42", TTL).wait().unwrap_err();
    assert!(error.is_taken() && error.is_transient(), "{error}");
    assert!(matches!(client.try_lock("sku:42", TTL).wait(), Err(LockError::Taken(_))));
    assert_eq!(lease.unlock().wait()?, Unlocked::Released);
    assert_eq!(client.unlock_token("sku:42", &token).wait(), Err(UnlockError::NotHeld));

    let sold = client.with_lock("sku:44", TTL, |held: &mut Guard| {
        held.extend_if_due().wait()?;
        Ok::<_, Box<dyn std::error::Error>>(held.remaining() > Duration::ZERO)
    })?;
    assert!(sold);

    let acquire = LockOptions::new(TTL).min_validity(Duration::from_secs(1)).timeout(TTL);
    let mut lease = client.try_lock("sku:45", acquire).wait()?;
    let token = lease.detach().wait()?;
    let adopted = client.adopt("sku:45", &token, TTL).wait()?;
    drop(adopted);
    let lease = client.lock("sku:45", TTL).wait()?;
    assert_eq!(lease.key(), b"sku:45");

    let pairs = wait_all(["b1", "b2"].map(|key| client.try_lock(key, TTL)));
    assert!(pairs.iter().all(Result::is_ok));
    let mut call: Call<'_, _> = client.try_lock("b3", TTL);
    let guard: Option<Result<Guard, LockError>> = call.wait_for(TTL);
    drop(guard);
    let error = client.try_lock("k", Duration::from_millis(1)).wait().unwrap_err();
    assert!(matches!(error, LockError::InvalidTtl { .. }) && !error.is_transient(), "{error}");
    Ok(())
}

#[test]
fn the_driver_is_used_by_its_names() -> Anything {
    let nodes = Nodes::start(3)?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    let config = Config::new(nodes.urls())?.node_timeout(NODE_TIMEOUT).in_flight_max(1);
    let mut driver = Driver::new(config, poll.registry(), 100..132)?;
    let id = driver.try_lock("a", TTL)?;
    assert!(matches!(driver.try_lock("b", TTL), Err(LockError::Full)));
    let lease = 'held: loop {
        driver.drive();
        while let Some(done) = driver.completion() {
            assert_eq!(done.id, id);
            if let Outcome::Lock(result) = done.result {
                break 'held result?;
            }
        }
        let wait = driver.next_deadline().map(|at| redbolt::now().until(at));
        uninterrupted(|| poll.poll(&mut events, wait))?;
        for event in &events {
            assert!(driver.ready(event), "no other sockets are registered");
        }
    };
    assert!(lease.votes().count() >= 2);
    assert_eq!(driver.quorum(), 2);
    assert!((2..=3).contains(&driver.voters().count()) && driver.voters().count() <= 3);
    assert!(driver.is_settled() || driver.voters().count() < 3);
    assert!(driver.notice().is_none(), "all nodes are fit");
    let id = driver.unlock(lease)?;
    driver.cancel(id);
    driver.shutdown(Duration::from_secs(1));
    assert_eq!(nodes.key_count(0)?, 0);
    let fd: &dyn std::os::fd::AsFd = &driver;
    let _ = fd.as_fd();
    Ok(())
}

#[test]
fn too_few_tokens_are_refused() -> Anything {
    let poll = Poll::new()?;
    let result = Driver::new(Config::new(["h:1", "h:2"])?, poll.registry(), 0..2);
    assert!(matches!(result, Err(ConnectError::Config(_))));
    Ok(())
}

#[test]
fn handles_go_where_they_may() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Client>();
    send::<Driver>();
    send::<Lease>();
    sync::<Lease>();
    assert!(size_of::<LockError>() < 128, "{}", size_of::<LockError>());
    assert!(size_of::<Lease>() <= 16);
}

#[test]
fn a_client_has_from_one_to_thirty_two_nodes() -> Anything {
    for count in [1, 2, 4, 32] {
        let nodes = Nodes::start(count)?;
        let client = Client::connect(Config::new(nodes.urls())?.node_timeout(NODE_TIMEOUT))?;
        let lease = client.try_lock("wide", TTL).wait()?;
        assert!(usize::try_from(lease.votes().count())? > count / 2, "{count} nodes");
        assert!(matches!(client.try_lock("wide", TTL).wait(), Err(LockError::Taken(_))));
        assert_eq!(lease.unlock().wait()?, Unlocked::Released);
    }
    Ok(())
}
