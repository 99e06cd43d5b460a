//! Waiting for a held lock: the release wakes the waiters, in order, and meanwhile they cost the
//! servers next to nothing.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use redbolt::{Client, Guard, Lease, LockError, LockOptions, Retry};

use super::common::{
    Clients as _, Cluster, Kind, Looped, PATIENCE, RealServer, TTL, eventually, given_away, ms,
    wait_released,
};

/// So rarely that a test which needs a poll fails.
pub(crate) const SELDOM: Retry = Retry::every(Duration::from_secs(60), Duration::ZERO);

fn waiting_client(cluster: &Cluster) -> Client {
    // On a busy machine a node may answer late; the test is about the order only.
    let config = cluster.config().node_timeout(ms(500)).retry(SELDOM.timeout(PATIENCE));
    Client::connect(config).expect("the nodes are there")
}

/// How often clients sent a command; a script that hands a lock over runs GET and PUBLISH once.
fn sent(cluster: &Cluster, command: &str) -> u64 {
    // A script that runs between the two looks must not count for more than its command.
    let scripts = cluster.calls("eval");
    cluster.calls(command).saturating_sub(scripts)
}

/// How many messages and looks the turns of a holder and a waiter take in all.
fn words_and_looks(cluster: &Cluster, turns: u64) -> (u64, u64) {
    let holder = cluster.client();
    let (mut looks, words) = (0, sent(cluster, "publish"));
    for turn in 0..turns {
        let lease = holder.try_lock("k", TTL).wait().expect("nobody has it");
        let before = cluster.calls("publish");
        let waiter = waiting_client(cluster);
        let polls = thread::scope(|scope| {
            let waits =
                scope.spawn(move || waiter.lock("k", TTL).wait().map(|lease| (waiter, lease)));
            assert!(eventually(PATIENCE, || cluster.calls("publish") > before), "{turn}");
            let polls = sent(cluster, "get");
            lease.unlock().wait().expect("it is held");
            // A blocking holder reads on with its next call.
            assert!(eventually(PATIENCE, || {
                wait_released(&holder, ms(1));
                waits.is_finished()
            }));
            let (_waiter, lease) = waits.join().expect("no panic").expect("its turn comes");
            let polls = sent(cluster, "get").saturating_sub(polls);
            // Where a poll was due, the waiter has the lock before the holder's word comes.
            let is_told = eventually(PATIENCE, || cluster.calls("publish") >= before + 2);
            assert!(is_told, "turn {turn}: one word each way");
            lease.unlock().wait().expect("it is held");
            polls
        });
        looks += polls;
    }
    (sent(cluster, "publish") - words, looks)
}

#[test]
fn a_waiter_is_woken_by_the_release_and_not_by_a_poll() {
    const TURNS: u64 = 20;
    // A script's GET would count like a poll.
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 5], &[]) else { return };
    let mut tries = Vec::new();
    // One look belongs to the announcement. On a busy machine a poll is due now and then. Or a
    // woken waiter comes before the release has reached the other nodes, and gets a second message.
    for _ in 0..3 {
        let (words, looks) = words_and_looks(&cluster, TURNS);
        if words < TURNS * 5 / 2 && looks < TURNS * 3 / 2 {
            return;
        }
        tries.push((words, looks));
    }
    panic!("woken, not polling: {tries:?} words and looks in {TURNS} turns");
}

/// Holds a lock while others come.
trait Holder {
    fn take(&mut self);
    /// Goes on for a moment.
    fn goes_on(&mut self);
    /// A waiter has announced itself.
    fn hears(&mut self) {}
    fn let_go(&mut self);
}

/// It reads each announcement when it comes.
struct Reading(Client, Option<Guard>);

impl Holder for Reading {
    fn take(&mut self) {
        self.1 = Some(self.0.try_lock("k", TTL).wait().expect("nobody has it"));
    }

    fn goes_on(&mut self) {
        wait_released(&self.0, ms(1));
    }

    fn hears(&mut self) {
        self.goes_on();
    }

    fn let_go(&mut self) {
        self.1.take().expect("it is held").unlock().wait().expect("it is held");
    }
}

/// Its loop stands still while it holds the lock, and reads right before the release.
struct Still(Looped, Option<Lease>);

impl Holder for Still {
    fn take(&mut self) {
        self.1 = Some(self.0.try_lock("k", TTL).expect("nobody has it"));
    }

    fn goes_on(&mut self) {
        self.0.drive_for(ms(1));
    }

    fn let_go(&mut self) {
        self.goes_on();
        self.0.unlock(self.1.take().expect("it is held")).expect("it is held");
    }
}

/// How many of the six pairs of four waiters, which came one after the other, get the lock in that
/// order.
/// The waiters get it by transfers or are woken.
fn pairs_in_order(cluster: &Cluster, transfers: bool, holder: &mut dyn Holder) -> u32 {
    let waiting = || {
        let config = cluster.config().node_timeout(ms(500)).retry(SELDOM.timeout(PATIENCE));
        let config = if transfers { config.transfers_in_row(16) } else { config };
        Client::connect(config).expect("the nodes are there")
    };
    holder.take();
    // A waiter that is not heard at one node repeats its announcement at the next, and so comes
    // later.
    assert!(eventually(PATIENCE, || {
        holder.goes_on();
        cluster.nodes().all(|server| {
            let channels = server.command(&["PUBSUB", "CHANNELS", "redbolt:*"]);
            channels.windows(8).any(|word| word == b"redbolt:")
        })
    }));
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for nth in 0..4 {
            let before = cluster.calls("publish");
            let (waiter, order) = (waiting(), &order);
            scope.spawn(move || {
                let lease = waiter.lock("k", TTL).wait().expect("its turn comes");
                order.lock().expect("nobody panics").push(nth);
                lease.unlock().wait().expect("it is held");
                wait_released(&waiter, ms(50));
            });
            assert!(eventually(PATIENCE, || cluster.calls("publish") > before));
            holder.hears();
        }
        holder.let_go();
        let is_over = || order.lock().expect("nobody panics").len() == 4;
        assert!(eventually(PATIENCE, || {
            holder.goes_on();
            is_over()
        }));
    });
    let mut turns = order.into_inner().expect("nobody panics");
    let behind = |(at, nth)| turns.iter().skip(at + 1).filter(|later| *later > nth).count();
    let pairs: usize = turns.iter().enumerate().map(behind).sum();
    turns.sort_unstable();
    assert_eq!(turns, [0, 1, 2, 3], "each has one turn");
    u32::try_from(pairs).expect("at most six")
}

/// A busy machine may keep a waiter for a while between its turn and the test's note of it.
#[test]
fn waiters_have_their_turns_in_the_order_in_which_their_holder_hears_of_them() {
    const ROUNDS: u32 = 16;
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let mut holder = Reading(cluster.client(), None);
    let round = |round| pairs_in_order(&cluster, round % 2 == 0, &mut holder);
    let pairs: u32 = (0..ROUNDS).map(round).sum();
    println!("{pairs} of {} pairs in order", 6 * ROUNDS);
    assert!(pairs * 10 >= 6 * ROUNDS * 9, "{pairs} of {} pairs in order", 6 * ROUNDS);
}

/// The holder finds the messages of several nodes at once. Chance alone would put half of the pairs
/// in order.
#[test]
fn a_holder_that_reads_at_its_release_gives_most_waiters_their_turns_in_order() {
    const ROUNDS: u32 = 40;
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let mut holder = Still(Looped::connect(cluster.config()), None);
    let mut pairs = 0;
    for round in 0..ROUNDS {
        pairs += pairs_in_order(&cluster, round % 2 == 0, &mut holder);
        if pairs * 100 >= 6 * ROUNDS * 65 {
            println!("{pairs} pairs in order in {round} rounds");
            return;
        }
    }
    panic!("{pairs} of {} pairs in order", 6 * ROUNDS);
}

#[test]
fn a_waiter_gives_up_at_its_deadline_and_wakes_nobody_later() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let holder = cluster.client();
    let lease = holder.try_lock("k", TTL).wait().unwrap();
    let waiter = waiting_client(&cluster);
    // The time has room for nodes that answer late: a waiter must have announced itself.
    let wait = LockOptions::new(TTL).retry(SELDOM.timeout(ms(1_000)));
    let error = waiter.lock("k", wait).wait().unwrap_err();
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    assert!(cluster.calls("publish") > 0, "it did not wait");
    lease.unlock().wait().unwrap();
    wait_released(&holder, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
    drop(holder.try_lock("k", TTL).wait().unwrap());
}

#[test]
fn no_turn_is_lost_where_eight_clients_wait_for_one_key() {
    const TURNS: u64 = 100;
    let Some(cluster) = Cluster::mixed(5) else { return };
    let counter = Mutex::new((0_u64, 0_u64));
    thread::scope(|scope| {
        for _ in 0..8 {
            let (client, counter) = (waiting_client(&cluster), &counter);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let lease = client.lock("k", TTL).wait().unwrap();
                    let read = counter.lock().unwrap().0;
                    thread::yield_now();
                    let mut guarded = counter.lock().unwrap();
                    guarded.0 = read + 1;
                    guarded.1 += 1;
                    drop(guarded);
                    assert!(lease.is_valid());
                    lease.unlock().wait().unwrap();
                }
                wait_released(&client, ms(50));
            });
        }
    });
    assert_eq!(*counter.lock().unwrap(), (8 * TURNS, 8 * TURNS));
}

/// Commands that a server has run.
fn commands(server: &RealServer) -> u64 {
    let stats = server.command(&["INFO", "stats"]);
    let stats = String::from_utf8_lossy(&stats).into_owned();
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.map_or(0, |count| count.trim().parse().expect("a number"))
}

#[test]
fn clients_that_wait_cost_the_servers_next_to_nothing() {
    const WAITERS: usize = 32;
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 5], &[]) else { return };
    // No key ends by itself before its waiters give up, so the release has to wake them.
    let ttl = PATIENCE * 4;
    let config = cluster.config().max_ttl(ttl).retry(SELDOM.timeout(PATIENCE * 3));
    let holder = Client::connect(config.clone()).unwrap();
    let lease = holder.try_lock("k", ttl).wait().unwrap();
    let config = config.node_timeout(ms(500));
    let waiting = |_| Client::connect(config.clone()).unwrap();
    let waiters: Vec<_> = (0..WAITERS).map(waiting).collect();
    thread::scope(|scope| {
        let before = cluster.calls("publish");
        for waiter in waiters {
            scope.spawn(move || {
                let lease = waiter.lock("k", ttl).wait().unwrap();
                lease.unlock().wait().unwrap();
                wait_released(&waiter, ms(50));
            });
        }
        let wanted = before + WAITERS as u64;
        assert!(eventually(PATIENCE, || cluster.calls("publish") >= wanted));
        let count = || cluster.nodes().map(commands).sum::<u64>();
        let a_second = |_| {
            let begin = (count(), redbolt::now());
            thread::sleep(ms(1_000));
            (count() - begin.0) as f64 / begin.1.until(redbolt::now()).as_secs_f64()
        };
        // Where nodes answer late, waiters look once more.
        let bound = 1_000.0 * WAITERS as f64 / 64.0;
        let rates: Vec<_> = (0..3).map(a_second).take_while(|rate| *rate >= bound).collect();
        assert!(rates.len() < 3, "commands a second, of which there may be {bound}: {rates:.0?}");
        lease.unlock().wait().unwrap();
        wait_released(&holder, ms(50));
    });
}

#[test]
fn a_waiter_follows_a_holder_that_died_when_its_key_ends() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    for _ in 0..3 {
        let mut dead = Looped::connect(cluster.config());
        let ttl = ms(1_000);
        let begin = redbolt::now();
        // The client goes as if it were killed: its keys stay.
        let lease = dead.try_lock("k", ttl).unwrap();
        drop(dead);
        drop(lease);
        let waiter = waiting_client(&cluster);
        let lease = waiter.lock("k", TTL).wait().unwrap();
        assert!(begin.until(redbolt::now()) + ms(10) >= ttl, "not before its end");
        lease.unlock().wait().unwrap();
        wait_released(&waiter, ms(100));
    }
}

/// The waiter polls at the default pace, several times before the lock ends.
#[test]
fn a_lock_of_another_kind_is_polled_for_and_taken_soon_after_its_end() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    (0..5).for_each(|index| cluster.occupy(index, "plain"));
    cluster.nodes().for_each(|server| {
        server.command(&["HSET", "hash", "owner", "1"]);
    });
    for key in ["plain", "hash"] {
        let retry = Retry::every(ms(20), ms(20)).timeout(PATIENCE);
        let waiter = Client::connect(cluster.config().retry(retry)).unwrap();
        thread::scope(|scope| {
            let before = cluster.calls("get");
            let waits =
                scope.spawn(|| waiter.lock(key, TTL).wait().map(|lease| lease.unlock().wait()));
            assert!(eventually(PATIENCE, || cluster.calls("get") > before + 3), "{key}");
            assert!(!waits.is_finished(), "{key} is held");
            cluster.nodes().for_each(|server| {
                server.command(&["DEL", key]);
            });
            waits.join().unwrap().unwrap().unwrap();
        });
    }
}

#[test]
fn a_key_that_was_left_behind_at_one_node_keeps_nobody_from_a_free_lock() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let retry = Retry::every(ms(20), ms(20)).timeout(PATIENCE);
    for left in 0..5 {
        let key = format!("left:{left}");
        (0..5).for_each(|index| cluster.occupy(index, &key));
        let waiter = Client::connect(cluster.config().retry(retry)).unwrap();
        thread::scope(|scope| {
            let before = cluster.calls("eval");
            let waits =
                scope.spawn(|| waiter.lock(&key, TTL).wait().map(|lease| lease.unlock().wait()));
            assert!(eventually(PATIENCE, || cluster.calls("eval") > before), "{key}");
            (0..5).filter(|&index| index != left).for_each(|index| {
                cluster.node(index).command(&["DEL", &key]);
            });
            waits.join().unwrap().unwrap().unwrap();
        });
    }
}

/// Twenty clients wait for a lock whose holder cannot be told, because it has gone or is of another
/// kind.
#[test]
fn clients_that_no_holder_hears_cost_each_node_four_commands_per_second_each_at_most() {
    const WAITERS: u64 = 20;
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let retry = Retry::every(ms(20), ms(20)).timeout(PATIENCE * 3);
    let config = cluster.config().max_ttl(PATIENCE * 4).node_timeout(ms(500)).retry(retry);
    for key in ["foreign", "gone"] {
        let gone = Client::connect(config.clone()).unwrap();
        if key == "gone" {
            let lease = gone.try_lock(key, PATIENCE * 4).wait().unwrap();
            given_away(lease);
        } else {
            (0..3).for_each(|index| cluster.occupy(index, key));
        }
        drop(gone);
        let connect = |_| Client::connect(config.clone()).unwrap();
        let waiters: Vec<_> = (0..WAITERS).map(connect).collect();
        thread::scope(|scope| {
            let before = cluster.calls("get");
            for waiter in waiters {
                scope.spawn(move || {
                    let lease = waiter.lock(key, TTL).wait().unwrap();
                    lease.unlock().wait().unwrap();
                    wait_released(&waiter, ms(50));
                });
            }
            let polled = before + 3 * WAITERS;
            assert!(eventually(PATIENCE, || cluster.calls("get") >= polled), "{key}: they poll");
            let count = || cluster.nodes().map(commands).sum::<u64>();
            let begin = (count(), redbolt::now());
            thread::sleep(Duration::from_secs(4));
            let (ran, time) = (count() - begin.0, begin.1.until(redbolt::now()));
            let most = 4.0 * 3.0 * WAITERS as f64 * time.as_secs_f64();
            assert!((ran as f64) < most, "{key}: {ran} commands in {time:?}");
            cluster.nodes().for_each(|server| {
                server.command(&["DEL", key]);
            });
        });
    }
}
