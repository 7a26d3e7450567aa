//! Results per engine and round, and ratios within the same round, so that other load on the machine affects all engines alike.
//! Pure except for printing.

use crate::stats::Samples;

/// Rates of one kind of work, larger is better.
pub struct Turns {
    unit: &'static str,
    /// In the order in which they first took part.
    players: Vec<(String, Vec<f64>)>,
}

impl Turns {
    pub fn new(unit: &'static str) -> Self {
        Self { unit, players: Vec::new() }
    }

    /// Adds a rate; every engine is added once per round.
    pub fn add(&mut self, player: &str, rate: f64) {
        match self.players.iter_mut().find(|(known, _)| known == player) {
            Some((_, rates)) => rates.push(rate),
            None => self.players.push((player.to_owned(), vec![rate])),
        }
    }

    pub fn p50(&self, player: &str) -> f64 {
        Samples::of(player, self.unit, self.rates(player).to_vec()).p50()
    }

    /// Ratio of one to the other, round by round.
    pub fn ratios(&self, player: &str, other: &str) -> Samples {
        let ratios = self.rates(player).iter().zip(self.rates(other)).map(|(one, other)| one / other);
        Samples::of(format!("{player} by {other}"), "times", ratios.collect())
    }

    pub fn print(&self) {
        for (player, rates) in &self.players {
            Samples::of(player.as_str(), self.unit, rates.clone()).row();
        }
    }

    fn rates(&self, player: &str) -> &[f64] {
        self.players.iter().find(|(known, _)| known == player).map(|(_, rates)| rates.as_slice()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let mut turns = Turns::new("1/s");
        // The machine becomes ten times as fast after the first round.
        for (ours, peer) in [(1.0, 2.0), (10.0, 20.0), (30.0, 20.0)] {
            turns.add("ours", ours);
            turns.add("peer", peer);
        }
        let ratios = turns.ratios("ours", "peer");
        assert_eq!((ratios.count(), ratios.p50(), ratios.max()), (3, 0.5, 1.5));
        assert_eq!(turns.p50("peer"), 20.0);
        assert!(turns.ratios("ours", "nobody").p50().is_nan());
    }
}
