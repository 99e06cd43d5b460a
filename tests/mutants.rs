//! The simulation finds each [`Mutant`] within a number of seeds, by the kind of violation that the
//! broken rule prevents. Tests beside the code find the mutants of `Kind::ByTest` and
//! `Kind::ByClientTest`.
//!
//! `REDBOLT_MUTANT=NAME` hunts for that mutant alone; `REDBOLT_SEEDS=N` gives each mutant N seeds.

#![expect(clippy::print_stdout, reason = "the table of seeds is what the test is for")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use redbolt::sim::{self, Kind, Mutant};

/// The number of seeds within which a mutant must be found.
const SEEDS: u64 = 6_000;

/// Seeds that have caught a mutant which few seeds catch. A hunt begins with them. Where a seed is
/// out of date, the hunt takes longer.
const CAUGHT_BY: &[(Mutant, u64)] = &[
    (Mutant::AnnouncementUnheard, 129),
    (Mutant::AttemptLeftBesideTransfer, 1081),
    (Mutant::AwaitedSetMovesT0, 1330),
    (Mutant::BlipEndsQuarantine, 52),
    (Mutant::ClaimKept, 386),
    (Mutant::ClockReadAfterWrite, 125),
    (Mutant::DebtEndsBeforeSet, 645),
    (Mutant::DebtPaidOnce, 308),
    (Mutant::DeletedTokenHandedOver, 839),
    (Mutant::DistrustedGrantCounts, 3150),
    (Mutant::ExtendedByOneList, 688),
    (Mutant::ExtensionsOverlap, 469),
    (Mutant::FailoverAndBackUnseen, 2521),
    (Mutant::GivenAwayRemembered, 74),
    (Mutant::GivenAwayToldAgain, 410),
    (Mutant::HandedTtlNotBounded, 95),
    (Mutant::KeepAliveAfterRelease, 109),
    (Mutant::KeysBehindKept, 81),
    (Mutant::LateReplyMisattributed, 83),
    (Mutant::LingersWhileWaitedFor, 267),
    (Mutant::ListLost, 56),
    (Mutant::ListsByArrival, 1260),
    (Mutant::MessageDeletesLease, 638),
    (Mutant::MessageForAnyKey, 56),
    (Mutant::MissedExtensionKeepsDeadline, 44),
    (Mutant::NobodyWoken, 50),
    (Mutant::OldMasterForgotten, 199),
    (Mutant::OverOfferNotOwed, 209),
    (Mutant::PartOfSetKept, 3460),
    (Mutant::PollLate, 33),
    (Mutant::PromotedExtends, 199),
    (Mutant::PushCountsAsReply, 73),
    (Mutant::RecreatedKeyCountsAsExtended, 74),
    (Mutant::RefusalAccepted, 76),
    (Mutant::ReleaserBarges, 37),
    (Mutant::SecondAddressVotes, 618),
    (Mutant::SecondListForgottenInChange, 135),
    (Mutant::SetEndsWithLastKey, 40),
    (Mutant::SiblingNotWoken, 105),
    (Mutant::SiblingsStruck, 206),
    (Mutant::SlotsCountedTogether, 68),
    (Mutant::TaintedNodeExtended, 316),
    (Mutant::TokenReusedByRetry, 180),
    (Mutant::TransferCountsFromReceipt, 836),
    (Mutant::TransferWithoutList, 94),
    (Mutant::UnfinishedReplyDropped, 56),
    (Mutant::UnguardedBelieved, 4277),
    (Mutant::UnwantedListLost, 105),
    (Mutant::ValidityWithoutDrift, 109),
    (Mutant::WakeIgnored, 37),
];

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Goal: the test notices when the code forgets a rule. Method: the code forgets it. A seed whose
/// judge complains of the violation that the rule prevents has caught the mutant. No other
/// complaint counts, because it does not show that the judge of this violation can see.
#[test]
fn every_mutant_is_caught() {
    let seeds = variable("REDBOLT_SEEDS").map_or(SEEDS, |text| text.parse().unwrap());
    let chosen = variable("REDBOLT_MUTANT");
    let is_chosen = |mutant: &Mutant| {
        let is_named = chosen.as_ref().is_none_or(|name| *name == format!("{mutant:?}"));
        is_named && !matches!(mutant.kind(), Kind::ByTest | Kind::ByClientTest)
    };
    let mutants: Vec<Mutant> = Mutant::all().filter(is_chosen).collect();
    assert!(!mutants.is_empty(), "no such mutant");
    // A mutant may trip an assertion; the test reports that below, without a backtrace.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(&mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match hunt(mutant, seeds) {
                        Ok((seed, how)) => {
                            println!("mutant {mutant:?} caught at seed {seed}: {how}");
                        }
                        Err(others) => survivors.lock().unwrap().push((mutant, others)),
                    }
                }
            });
        }
    });
    std::panic::set_hook(hook);
    let survivors = survivors.into_inner().unwrap();
    for (mutant, others) in &survivors {
        let kind = mutant.kind();
        println!("mutant {mutant:?} survived {seeds} seeds: no {kind:?}; others: {others:?}");
    }
    assert!(survivors.is_empty(), "{} mutants survived {seeds} seeds", survivors.len());
}

/// A seed that catches the mutant, and its complaint; or the other complaints, with their
/// numbers.
fn hunt(mutant: Mutant, seeds: u64) -> Result<(u64, String), Vec<(Kind, u64)>> {
    let mut others: Vec<(Kind, u64)> = Vec::new();
    let known = CAUGHT_BY.iter().filter(|(caught, _)| *caught == mutant).map(|(_, seed)| *seed);
    for seed in known.chain(0..seeds) {
        let Some(violation) = sim::run(seed, Some(mutant), None).violation else { continue };
        if violation.kind == mutant.kind() {
            let text = violation.to_string();
            return Ok((seed, text.lines().next().unwrap_or_default().to_owned()));
        }
        match others.iter_mut().find(|(kind, _)| *kind == violation.kind) {
            Some((_, count)) => *count += 1,
            None => others.push((violation.kind, 1)),
        }
    }
    Err(others)
}

/// The judge complains of mutants, and not of the code itself.
#[test]
fn the_first_seeds_are_clean_without_a_mutant() {
    let failed = AtomicU64::new(0);
    for seed in 0..20 {
        if sim::run(seed, None, None).violation.is_some() {
            failed.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert_eq!(failed.into_inner(), 0);
}
