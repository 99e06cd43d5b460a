//! What a lease is worth: the preconditions, the promises, and the test behind each.
//!
//! # The argument
//!
//! A client holds a key from the moment a quorum `q > N/2` has granted it until `t0 + ttl - drift`.
//! It read `t0` before it sent the first byte. Each granting node executed its SET at or
//! after `t0`, so it keeps the key at least until then. Another attempt needs `q` grants too and
//! shares a node with this one; that node can only grant after this client's key there has expired.
//! So no two holders overlap, under the preconditions below.
//!
//! A lock that a holder hands over to a waiter is held by the same argument. The waiter draws a
//! token, reads its clock as `t0`, and only then tells any other client of it. A node writes the
//! token to the key, in the place of the holder's and in one step. It does so after `t0`, with the
//! waiter's TTL, and tells the waiter itself. A quorum of such nodes is as good as a quorum of
//! grants; neither the holder's clock nor its word enters the argument.
//!
//! Several keys under one lease need no argument of their own. Each is held as above, with its own
//! token, quorum, `t0` and fence, and the lease ends with the first of them to end. Where one command
//! asks a node for all of them, its answer is a vote for each.
//!
//! Locks with slots need no argument of their own either. Each slot is a key of its own, so it has at
//! most one holder. A node that takes the first free slot for a call grants that key and no other. The
//! call holds a slot once a quorum has granted the same one. The client never adds up grants of
//! different slots. Otherwise five masters that each admit five callers could together admit eight. A
//! writer holds the key of each slot, so no reader holds one. The gate, one more key, keeps two
//! writers from waiting for each other; no exclusion rests on it.
//!
//! # Two lists of nodes
//!
//! A client with two lists needs a quorum of each, in one round: for a lock, an extension, a
//! release and a fence. So it shares a node with each quorum of a client that has either list. A
//! client with only the old list and a client with only the new list need not share a node. So
//! start no client of the new list alone while a lease of the old list alone may live. Such leases
//! end `max_ttl` after the last client with only the old list has ended. Fences need twice
//! `max_clock_skew` on top. A client with two lists neither hands a lock over nor takes one over:
//! it cannot tell by which lists another client counts.
//!
//! # Nodes that forget
//!
//! An extension gives the token again, by `SET NX`, to a node that has forgotten it. That node has
//! restarted, was a replica meanwhile, or was silent for the key's whole TTL. It must be admitted:
//! a restarted node gives no client a vote until all that it may have granted before is over. Its
//! grant counts like an extension. A node that never granted the token gets it in the same way. In
//! a lease of several keys each key has its own quorum, so the client gives each key again on its
//! own.
//!
//! A node that may not vote may still extend a key that it granted, if it has kept the key. A
//! master that may fail over is an exception: after a failover, the old master may grant the key to
//! another client. So its extension counts only while it votes.
//!
//! The round must be decided before the old deadline. Until that decision, the old votes keep
//! everybody else from a quorum. From then on, the new votes do. The yes of a node counts for the
//! round that asked it, and for no other: the client never adds up votes of several rounds.
//!
//! If a node lost the key for none of these reasons, a client told it to delete the key. This client
//! never gives it the token again. The lease is lost once so many nodes lack the key that no quorum is
//! left. The client also keeps the token from a node that may still run its delete. An adoption gives
//! the token to no node: the client does not yet know of a quorum.
//!
//! A node may run an extension late, after its connection has ended. That creates no key. It
//! shortens no key either, unless the client sent a longer extension later. So with a longer
//! extension, the client asks no node that may still run a shorter one. A process that surely began
//! after its predecessor's last answer runs none of the extensions sent to the predecessor. If the
//! address then leads back to an older process, that process may still run a SET or an extension of
//! any lease. The client then deletes each key there twice, and counts the node in no adoption
//! until another new process is there.
//!
//! # The rule of ownership
//!
//! A client deletes a token only while it knows what the token is. It may be the token of its own
//! failed attempt, of its own ended offer, or of its own lease that it releases. It may also be a
//! token that its caller named. A client never deletes a token that it does not know, and never one
//! that it has given away. A key whose token no client knows stays until its TTL ends.
//!
//! | a token is | from | until | the client that drew it |
//! |---|---|---|---|
//! | drawn | an attempt begins | the attempt has won or failed | deletes it behind the SET if the attempt failed |
//! | offered | a waiting call announces it | nodes hand a lock over to it, or the call ends | deletes it where it was handed over in part, or too late |
//! | handed over | a node has written it for a holder | a quorum has | counts each such node as a vote |
//! | held | a quorum has granted it or handed it over | the lease is released, given away or lost | extends and deletes it |
//! | given away | `detach` returns it | a client adopts or releases it, or its TTL ends | forgets it: writes no command that changes a key by it |
//! | adopted | another client has extended it on a quorum | that lease is released, given away or lost | as given away |
//! | over | its lease, attempt or offer has ended | every node has answered the delete | deletes it, also when a late script writes it again |
//!
//! The client refuses `detach` while a node may still run a delete or an extension that names the
//! token. A client that adopts the token could not know of that command. A client remembers ended
//! offers for `max_ttl` and its drift, at most the last 4,096 of them. A forgotten offer can leave
//! keys behind, in the worst case on every node. They last for one TTL after the last late command
//! that names the token. No lock is lost.
//!
//! Two processes may have one client id after a fork, a checkpoint, or a machine's snapshot that is
//! resumed twice. When both have connected again, each has drawn fresh randomness, and neither
//! deletes the other's tokens. Do not copy a process that holds a lease, lingering ones included,
//! or that waits for one: both copies would believe that they hold it.
//!
//! A fork releases nothing by itself. In the child, dropping guards, leases, clients and drivers
//! sends nothing. A client there begins no call, and gives no lease to another call.
//! `tests/it/forks.rs` shows both.
//!
//! # Preconditions
//!
//! | # | precondition | ensured by |
//! |---|---|---|
//! | 1 | all clients have the same six settings ([`Config`](crate::Config)); while nodes are exchanged, lists of two neighbouring steps ([`Config::next_nodes`](crate::Config::next_nodes)) | you |
//! | 2 | N distinct processes | Redbolt: equal `run_id`s are refused |
//! | 3 | a value unique to the attempt, written with NX | Redbolt: a new token per attempt (you must keep a token of your own unique) |
//! | 3a | nobody else publishes on the channels `redbolt:*`: what a quorum of nodes publishes there is a lock | you, by the rights of the nodes' users |
//! | 3b | no process is copied while it holds a lease or waits for one | you |
//! | 4 | a granted key stays for its TTL: no eviction, no FLUSHALL, no other writer | Redbolt refuses nodes that may evict; the rest is you |
//! | 5 | a node that restarts empty does not vote until every lock it may have lost has expired | Redbolt: the restart guard. It rests on `uptime_in_seconds`, so a young node's wall clock must not jump forward. For a node that was a replica, it rests on a marker that the first client writes there. A client whose user may not write `redbolt:since:*` waits each time |
//! | 5a | a node that was a replica shows it to clients that meet it later | Redbolt, where the server keeps `master_replid2`: `repl-backlog-ttl` is longer than `max_ttl` and 13 s (an hour by default) |
//! | 5b | a master that was cut off from its replicas grants for at most 13 s after one of them is promoted | Redbolt refuses a master whose writes do not need all its replicas ([`FailoverGuard`](crate::FailoverGuard)). You ensure that the master knows all its replicas, and set `min-replicas-max-lag` where the client may not read it |
//! | 5c | no node fails over and back within two seconds | you |
//! | 6 | no node is a replica or of a cluster, and a connection stays with its server | Redbolt refuses nodes that say they are one; a proxy does not say so |
//! | 7 | clock rates differ by less than `drift_factor` | you (1 % is a thousand times what a quartz does) |
//! | 8 | the work ends before the deadline | you: check [`Lease::remaining`](crate::Lease::remaining) before each effect, and let the resource refuse it by its fence ([`crate::fence`], [`crate::guide::fencing`]) |
//!
//! # How many nodes may forget
//!
//! With `v` votes of `N` nodes, a lock survives `v + q - N - 1` nodes that lose its key unnoticed.
//! A bare majority of five survives none; five votes survive two. A larger
//! [`Quorum`](crate::Quorum) buys more. [`Lease::votes`](crate::Lease::votes) says which nodes
//! granted.
//!
//! # Promises, and where they are shown
//!
//! Run `tests/run`; one step alone is `tests/run STEP`.
//!
//! | promise | shown by |
//! |---|---|
//! | no two holders of one key; no key left behind; every operation ends | the simulation: production engines against models of masters, with faults by seed (`tests/run simulation`; `REDBOLT_SEED=N` replays a seed). Its mutants: each breaks a rule on purpose, and the simulation must notice it (`tests/run mutants`) |
//! | a waiter wins a handed-over lock only by a quorum of nodes that wrote it; clients delete a handed-over key that no call takes | `src/engine/tests/transfers.rs`, and the simulation, where locks are handed over in most seeds |
//! | the same on real servers that are killed, frozen, emptied, filled and demoted | eight processes that count under locks (`tests/run chaos`) |
//! | several keys are held together or not at all, and no calls deadlock | `src/engine/tests/sets.rs`, `tests/it/sets.rs`, the simulation; eight processes that move money between accounts (`tests/run chaos`) |
//! | clients of two lists exclude those of either, and clients go from one list to the next while they run | `src/engine/tests/{joint,exchange}.rs`, `tests/it/exchange.rs`, `cli/tests/it/exchange.rs`, the simulation |
//! | a lock with slots has no more holders than slots; a writer is alone | `src/engine/tests/slots.rs`, `tests/it/slots.rs`, the simulation and its mutant `SlotsCountedTogether`, servers that die and freeze (`tests/run chaos`) |
//! | an answer counts for the request it answers, on its connection, and for nothing else | `src/engine/tests`, `tests/it/faulty_nodes.rs` |
//! | a lease's remaining time is checked again just before the caller gets it | `src/engine/tests/acquiring.rs` |
//! | the client learns of the loss of a lease that is kept alive at the latest at its deadline, and a lost lease stays lost | `src/engine/tests/keeping.rs`, `tests/it/hold.rs` |
//! | every key that a failed attempt may have written is deleted, also on a node that was frozen or unreachable | `src/engine/tests/releasing.rs`, `tests/it/drops.rs` |
//! | no other client's key is ever deleted or extended | `src/engine/tests/ownership.rs`, `tests/it/given_away.rs`, `tests/it/unlock.rs`, `tests/it/extend.rs` |
//! | a lease that is extended was held all the time | `src/engine/tests/extending.rs` |
//! | a lease that is kept alive outlives its nodes, and is given to none that was told to delete it | `src/engine/tests/healing.rs`, `outliving.rs`: a day with 500 restarts; five real servers that forget it in turn (`tests/run chaos`) |
//! | a restarted node, or one that was a replica for a moment, does not vote before its time | `src/node/tests.rs`, `tests/it/greeting.rs`, `tests/it/promoted.rs` |
//! | two masters of one node, at a failover, give no lock to two holders | `src/node/failing_over.rs`, `tests/it/promoted.rs`; masters that fail over and back unseen, or go on, in the simulation (`src/sim/fault.rs`); three pairs that fail over (`tests/run chaos`) |
//! | every call ends by its own deadline | `tests/it/faulty_nodes.rs`, `tests/it/retry.rs` |
//! | no bytes make the client panic, hang, or use unbounded memory | `src/resp/tests`, `tests/run fuzz` |
//! | memory is bounded whatever a node does | `src/engine/tests/waiting.rs`, `releasing.rs` |
//!
//! # Not promised
//!
//! - Exclusion for a process that acts after its deadline because it was paused, or because the
//!   network delayed its request. Only the resource can refuse it ([`crate::guide::fencing`]).
//! - Anything while a precondition from 1 to 7 does not hold.
//! - That a lock can be taken while fewer than `q` nodes are admitted: after a majority restarts,
//!   that lasts as long as the guard.
