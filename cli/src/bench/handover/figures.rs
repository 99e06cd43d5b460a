//! What the turns of all clients together say.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::said::Turn;
use crate::exit::{Failure, SYSTEM};
use crate::times::{histogram, record};

#[derive(Debug)]
pub(super) struct Figures {
    pub(super) turns: u64,
    /// From the moment a holder begins its release until another client has the lock.
    pub(super) handovers: Histogram<u64>,
    /// The turns that came by each way of [`Way::ALL`](crate::way::Way::ALL), and the hand-overs among them.
    pub(super) by: [(u64, Histogram<u64>); 4],
    /// The turns of the client that had the fewest, relative to the mean.
    pub(super) least_served: f64,
    pub(super) elapsed: Duration,
    /// Of a lock that nobody contends.
    pub(super) round_trip: Option<Duration>,
    pub(super) failures: u64,
    /// Why the last call failed that did.
    pub(super) why: Option<String>,
}

impl Figures {
    /// `turns` are those of each client, in their order.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub(super) fn of(turns: &[Vec<Turn>], elapsed: Duration) -> Result<Self, Failure> {
        let mut all: Vec<(usize, Turn)> = Vec::new();
        for (client, turns) in turns.iter().enumerate() {
            all.extend(turns.iter().map(|turn| (client, *turn)));
        }
        all.sort_by_key(|(_, turn)| turn.got);
        let mut handovers = histogram()?;
        let mut by = [(0, histogram()?), (0, histogram()?), (0, histogram()?), (0, histogram()?)];
        let mut last: Option<(usize, Turn)> = None;
        for (client, turn) in all {
            let Some((turns, times)) = by.get_mut(turn.by.place()) else { continue };
            *turns += 1;
            if let Some((holder, before)) = last.filter(|(holder, _)| *holder != client) {
                if turn.got < before.released {
                    let message = format!(
                        "clients {holder} and {client} held the lock at once: please report this"
                    );
                    return Err(Failure::new(SYSTEM, "system", message));
                }
                let took = before.released.until(turn.got);
                record(&mut handovers, took);
                record(times, took);
            }
            last = Some((client, turn));
        }
        let each = || turns.iter().map(Vec::len);
        let total: usize = each().sum();
        let mean = total as f64 / turns.len().max(1) as f64;
        let least = each().min().unwrap_or(0) as f64;
        Ok(Self {
            turns: total as u64,
            handovers,
            by,
            least_served: if total > 0 { least / mean } else { 0.0 },
            elapsed,
            round_trip: None,
            failures: 0,
            why: None,
        })
    }

    /// Hand-overs per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(super) fn rate(&self) -> f64 {
        self.handovers.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// A quantile of the hand-overs in round trips.
    pub(super) fn round_trips(&self, quantile: f64) -> Option<f64> {
        let round_trip = self.round_trip.filter(|time| !time.is_zero())?;
        let time = Duration::from_nanos(self.handovers.value_at_quantile(quantile));
        (!self.handovers.is_empty()).then(|| time.as_secs_f64() / round_trip.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use redbolt::Instant;

    use super::*;
    use crate::way::Way;

    fn turn(got: u64, released: u64, by: Way) -> Turn {
        let at = |us| Instant::from_nanos(us * 1_000);
        Turn { got: at(got), released: at(released), by }
    }

    #[test]
    fn a_hand_over_is_from_one_clients_release_to_anothers_turn() {
        let a = vec![turn(0, 10, Way::First), turn(15, 20, Way::First), turn(90, 95, Way::Wake)];
        let b = vec![turn(50, 60, Way::Transfer)];
        let mut figures = Figures::of(&[a, b], Duration::from_millis(1)).unwrap();
        assert_eq!((figures.turns, figures.handovers.len()), (4, 2));
        assert_eq!((figures.handovers.min(), figures.handovers.max() / 100), (30_000, 300));
        assert_eq!(figures.by.each_ref().map(|(turns, _)| *turns), [1, 1, 0, 2]);
        assert_eq!(figures.by.each_ref().map(|(_, times)| times.len()), [1, 1, 0, 0]);
        assert_eq!((figures.least_served, figures.rate()), (0.5, 2_000.0));
        assert_eq!(figures.round_trips(0.5), None);
        figures.round_trip = Some(Duration::from_micros(15));
        assert!((figures.round_trips(0.5).unwrap() - 2.0).abs() < 0.01);
    }

    #[test]
    fn two_clients_that_hold_the_lock_at_once_are_a_failure() {
        let (a, b) = (vec![turn(0, 10, Way::First)], vec![turn(9, 20, Way::Wake)]);
        let failure = Figures::of(&[a, b], Duration::from_secs(1)).unwrap_err();
        assert!(failure.message.contains("at once"), "{failure:?}");
    }

    #[test]
    fn without_a_turn_nothing_is_served() {
        let figures = Figures::of(&[Vec::new(), Vec::new()], Duration::ZERO).unwrap();
        assert_eq!((figures.turns, figures.least_served), (0, 0.0));
    }
}
