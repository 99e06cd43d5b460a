//! What a run met: faults by kind, ways that operations ended, bytes as they were cut.

use crate::witness::Sight;

use std::fmt;

/// Makes an enum whose variants can be counted and named.
macro_rules! counted {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }
    };
}

counted! {
    /// Something that went wrong on purpose.
    Fault {
        /// A connection was reset and lost what had not arrived.
        Reset,
        /// A link delivered nothing for a while.
        LinkStall,
        /// A link became slow for a while.
        SlowLink,
        /// A server received, but ran nothing for a while.
        Freeze,
        /// A server crashed; its port refused until it came back with its keys.
        RestartKept,
        /// A server crashed; its port refused until it came back without its keys.
        RestartLost,
        /// A server that runs refused new connections for a while.
        Refuse,
        /// A server's wall clock was set back.
        ClockBack,
        /// A server's wall clock was set forward, where the quorum has votes to spare.
        ClockForward,
        /// A server dropped a key, where the quorum has votes to spare.
        Evicted,
        /// A server became a replica, and later a master without its keys.
        RoleChange,
        /// An address leads to another server.
        Moved,
        /// A server failed over to its replica and back, and told no client. It may have granted beside
        /// its replica.
        Failover,
        /// A server's memory was full for a while.
        OutOfMemory,
        /// A server could not persist, and refused writes for a while.
        Misconf,
        /// A server ran a script for long, and nothing else, for a while.
        Busy,
        /// A server had too few replicas, and refused writes for a while.
        NoReplicas,
        /// A server came back and was loading for a while.
        Loading,
        /// A server no longer permitted some commands for a while.
        Denied,
        /// A server said for a while that it is in a cluster.
        Cluster,
        /// A server had an eviction policy for a while.
        Policy,
        /// A client ended in good order, and another took its place.
        Close,
        /// A server pushed messages that no client had asked for.
        Push,
        /// A client was stopped for up to some node timeouts.
        Pause,
        /// A client's machine was suspended for longer than a TTL.
        Suspend,
        /// A client stopped between two steps of its own.
        PauseWithin,
        /// A client died and another took its place, without history.
        Death,
        /// A write arrived in pieces.
        SplitWrite,
        /// Several deliveries were read as one.
        MergedRead,
        /// A delivery was read byte by byte.
        OneByteRead,
        /// A socket took only a part of a write.
        ShortWrite,
        /// A published message was lost.
        MessageLost,
        /// A published message came late.
        MessageLate,
        /// A forger published garbage for a client.
        ForgedGarbage,
        /// A forger published that other calls wait for a key.
        ForgedAnnouncement,
        /// A forger published that a key is free.
        ForgedWake,
        /// A forger published that another call no longer waits.
        ForgedGiveUp,
        /// A forger published a list of the greatest allowed length, or a longer one.
        ForgedGiant,
        /// A forger published that a node has written a token for a client.
        ForgedTransfer,
        /// A node told a client twice that it has written a token.
        TransferRepeated,
    }
}

counted! {
    /// The subject of a seed, beside what all seeds test.
    Setting {
        /// Nothing special.
        Common,
        /// Masters become replicas and masters again.
        Roles,
        /// Masters become replicas that take writes, and that load or miss their master.
        Syncing,
        /// Masters fail over to their replicas and back, and go on for a while with the connections
        /// that they have.
        Failovers,
        /// Addresses lead to other servers than before.
        Addresses,
        /// Requests that closed connections left behind run late.
        Ghosts,
        /// Servers freeze.
        Ice,
        /// Users lose rights, and get them back.
        Rights,
        /// Locks go from one waiter to the next.
        HandOver,
        /// Clients stand still after they read their clock, while restarted servers report their
        /// age.
        OldClocks,
        /// Leases are given away and adopted, or held for long while calls wait.
        GivenAway,
        /// Clients campaign, and leaders say who they are.
        Elections,
        /// Clients have different limits for TTLs; no node loses its memory.
        MaxTtls,
        /// Clients have different prefixes.
        Prefixes,
        /// Some clients need a quorum of a second list of nodes, too.
        Lists,
        /// All clients go from one list of nodes to two, and then to the next one alone.
        Exchange,
        /// Servers restart without their keys, and clients without their memory.
        Restarts,
        /// One or two nodes.
        FewNodes,
        /// Six, eight or nine nodes.
        ManyNodes,
        /// Servers that do not know HELLO.
        OldProtocol,
        /// Servers that want a password, of the default user or another.
        Login,
        /// Some nodes deny INFO: they are refused.
        InfoDenied,
        /// Some nodes deny INFO, and are believed; none loses its memory.
        Lenient,
        /// The restart guard is off; no node loses its memory.
        NoGuard,
        /// Two addresses are one server.
        Duplicate,
        /// Nodes say that they are in a cluster.
        ClusterMode,
        /// Nodes say that they may evict keys.
        Evicting,
        /// Leases may be extended a limited number of times, or for a limited time.
        BoundedLeases,
        /// Tasks put questions to all nodes.
        Queries,
        /// Clients end in good order.
        Closing,
        /// Buffers are small, and few debts are remembered.
        SmallRoom,
    }
}

counted! {
    /// Something that the clients met on their way.
    Path {
        /// Several keys were won at once.
        SetLocked,
        /// A slot was won.
        SlotLocked,
        /// All slots of a lock were won at once.
        AllSlotsLocked,
        /// A lock was won.
        Locked,
        /// A lock was won with a fence.
        Fenced,
        /// A fenced attempt needed a second round.
        SecondRound,
        /// A lease lingered behind its unlock.
        Lingers,
        /// A lease that lingered was taken again.
        Retaken,
        /// A lease went from one call of its client to the next.
        PassedOn,
        /// A lock was won at a later attempt than the first.
        LockedByRetry,
        /// `LockError::Taken`.
        Taken,
        /// `LockError::NoQuorum`.
        NoQuorum,
        /// `LockError::Expired`.
        Expired,
        /// `LockError::Cancelled`.
        Cancelled,
        /// `LockError::Full`.
        Full,
        /// `LockError::InvalidTtl`.
        InvalidTtl,
        /// A lease got a vote from a late answer.
        LateVote,
        /// All clients were told other lists of nodes.
        ListsChanged,
        /// An extension won.
        Extended,
        /// An extension won that made a lease shorter.
        Shortened,
        /// `ExtendError::Lost`.
        ExtendLost,
        /// `ExtendError::NoQuorum`.
        ExtendNoQuorum,
        /// `ExtendError::Expired`, from the call itself.
        ExtendRefused,
        /// `ExtendError::Expired`, from the result.
        ExtendExpired,
        /// `ExtendError::Busy`.
        ExtendBusy,
        /// `ExtendError::Cancelled`: the release ended it, or the caller.
        ExtendCancelled,
        /// An extension that an engine began by itself ended, with its quorum or without, or the
        /// lease was lost.
        KeptAlive,
        /// An engine began to extend a lease by itself.
        KeepAliveBegun,
        /// `Event::Lost`, at the deadline.
        LostExpired,
        /// `Event::Lost`, before the deadline.
        LostGone,
        /// `Unlocked::Released`.
        Released,
        /// `UnlockError::NotHeld`.
        NotHeld,
        /// `Unlocked::Unknown`.
        UnlockUnknown,
        /// A question was answered.
        Queried,
        /// `ExtendError::LimitReached`.
        LimitReached,
        /// A client ended with nothing left to be released.
        Closed,
        /// A client dropped a debt, because a node had too many.
        DebtDropped,
        /// A server answered `-MASTERDOWN`.
        MasterDownReply,
        /// A lease was dropped and released without a report.
        Dropped,
        /// A lease was given away.
        Detached,
        /// A lease was not given away: an earlier command may still run.
        DetachRefused,
        /// A client wrote while its calls only waited, and nothing had changed for a second.
        WaitedStill,
        /// A lease was taken over by another client.
        Adopted,
        /// A lease could not be taken over.
        AdoptFailed,
        /// Key and token of another client were unlocked.
        TokenUnlocked,
        /// A client unlocked a token of its own that stood at a node.
        OwnUnlocked,
        /// A client took the lease of another client by force.
        Forced,
        /// A connection was lost.
        Lost,
        /// A connection was refused.
        Refused,
        /// A connection was given up by the engine.
        GivenUp,
        /// A server ran requests that a closed connection had left behind.
        GhostRan,
        /// A node was seen in quarantine.
        Quarantined,
        /// A node was seen stalled.
        Stalled,
        /// A node was seen refused.
        NodeRefused,
        /// A node was owed releases.
        Indebted,
        /// A server answered `-READONLY`.
        ReadOnly,
        /// A server answered `-OOM`.
        Oom,
        /// A server answered `-MISCONF`.
        MisconfReply,
        /// A server answered `-BUSY`.
        BusyReply,
        /// A server answered `-NOREPLICAS`.
        NoReplicasReply,
        /// A server answered `-LOADING`.
        LoadingReply,
        /// A server answered `-NOPERM`.
        NoPermission,
        /// A waiter was woken by a message.
        Woken,
        /// A waiter was woken, and others wait behind it.
        HandedOn,
        /// No client received an announcement.
        Unheard,
        /// A safety poll found the key gone.
        PollFoundGone,
        /// A client queued behind the call that it had woken itself.
        QueuedBehind,
        /// A call got its turn from another call of the same client.
        PassedWithin,
        /// One node was asked before the others.
        Gated,
        /// A waiter told the holder that it no longer waits.
        GaveUp,
        /// A node announced a call to the holder while the call's first attempt was under way.
        Introduced,
        /// A lock was handed over to a waiter.
        HandedOver,
        /// A waiter took a lock over.
        TakenOver,
        /// A lock was handed over, and no call took it.
        TransferUnwanted,
        /// A node that had forgotten a lease got its token again.
        Healed,
        /// A lock was handed over in part, and the other nodes never told of it.
        TransferPartly,
        /// Too few nodes told the waiter of a lock that was handed over.
        TransferFailed,
        /// The deadline of a call ended its wait.
        WaitEnded,
        /// The claim of a leader was written.
        Claimed,
        /// The claim of a leader was deleted.
        ClaimDeleted,
    }
}

/// Counts of one run, or of many together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    settings: [u64; Setting::ALL.len()],
    faults: [u64; Fault::ALL.len()],
    paths: [u64; Path::ALL.len()],
    /// Acquisitions that were begun.
    pub attempts: u64,
    /// Leases that callers got.
    pub leases: u64,
    /// Steps of the simulation.
    pub steps: u64,
    /// Virtual time, in milliseconds.
    pub virtual_ms: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            settings: [0; Setting::ALL.len()],
            faults: [0; Fault::ALL.len()],
            paths: [0; Path::ALL.len()],
            attempts: 0,
            leases: 0,
            steps: 0,
            virtual_ms: 0,
        }
    }
}

impl Counts {
    pub(super) fn setting(&mut self, setting: Setting) {
        self.settings[setting as usize] += 1;
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub(super) fn path(&mut self, path: Path) {
        self.paths[path as usize] += 1;
    }

    /// Adds the events that only the engines see.
    pub(super) fn take_sights(&mut self) {
        for (sight, path) in [
            (Sight::Woken, Path::Woken),
            (Sight::HandedOn, Path::HandedOn),
            (Sight::Unheard, Path::Unheard),
            (Sight::PollFoundGone, Path::PollFoundGone),
            (Sight::QueuedBehind, Path::QueuedBehind),
            (Sight::PassedWithin, Path::PassedWithin),
            (Sight::Gated, Path::Gated),
            (Sight::GaveUp, Path::GaveUp),
            (Sight::SecondRound, Path::SecondRound),
            (Sight::Introduced, Path::Introduced),
            (Sight::HandedOver, Path::HandedOver),
            (Sight::TakenOver, Path::TakenOver),
            (Sight::TransferUnwanted, Path::TransferUnwanted),
            (Sight::Healed, Path::Healed),
            (Sight::TransferPartly, Path::TransferPartly),
            (Sight::TransferFailed, Path::TransferFailed),
            (Sight::WaitEnded, Path::WaitEnded),
        ] {
            self.paths[path as usize] += crate::witness::take(sight);
        }
    }

    /// How many seeds had this subject.
    #[must_use]
    pub fn of_setting(&self, setting: Setting) -> u64 {
        self.settings[setting as usize]
    }

    /// How often a kind of fault was met.
    #[must_use]
    pub fn of_fault(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// How often a path was taken.
    #[must_use]
    pub fn of_path(&self, path: Path) -> u64 {
        self.paths[path as usize]
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.settings.iter_mut().zip(other.settings) {
            *sum += count;
        }
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
        for (sum, count) in self.paths.iter_mut().zip(other.paths) {
            *sum += count;
        }
        self.attempts += other.attempts;
        self.leases += other.leases;
        self.steps += other.steps;
        self.virtual_ms += other.virtual_ms;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempts, leases, steps, virtual_ms, .. } = self;
        let seconds = virtual_ms / 1000;
        writeln!(f, "{attempts} attempts, {leases} leases, {steps} steps, {seconds} virtual s")?;
        table(f, "seeds", Setting::ALL.iter().map(|it| (format!("{it:?}"), self.of_setting(*it))))?;
        table(f, "faults", Fault::ALL.iter().map(|it| (format!("{it:?}"), self.of_fault(*it))))?;
        table(f, "paths", Path::ALL.iter().map(|it| (format!("{it:?}"), self.of_path(*it))))
    }
}

/// Names with their counts, four on a line.
fn table(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    counts: impl Iterator<Item = (String, u64)>,
) -> fmt::Result {
    write!(f, "{title}:")?;
    for (nth, (name, count)) in counts.enumerate() {
        let start = if nth % 4 == 0 { "\n " } else { "" };
        write!(f, "{start} {name:<19}{count:>9}")?;
    }
    writeln!(f)
}
