//! Results per engine and round, and ratios within the same round, so that other load on the machine affects all engines alike.
//! Pure except for printing.

use crate::stats::Samples;

/// Rates of one kind of work, larger is better.
pub struct RoundRates {
    unit: &'static str,
    /// In the order in which they first took part.
    engines: Vec<(String, Vec<f64>)>,
}

impl RoundRates {
    pub fn new(unit: &'static str) -> Self {
        Self { unit, engines: Vec::new() }
    }

    /// Adds a rate; every engine is added once per round.
    pub fn add(&mut self, engine: &str, rate: f64) {
        match self.engines.iter_mut().find(|(name, _)| name == engine) {
            Some((_, rates)) => rates.push(rate),
            None => self.engines.push((engine.to_owned(), vec![rate])),
        }
    }

    pub fn p50(&self, engine: &str) -> f64 {
        Samples::from_values(engine, self.unit, self.rates(engine).to_vec()).p50()
    }

    /// Ratios of one engine to another, one per round.
    pub fn ratios(&self, engine: &str, other: &str) -> Samples {
        let ratios = self.rates(engine).iter().zip(self.rates(other)).map(|(one, other)| one / other);
        Samples::from_values(format!("{engine} by {other}"), "times", ratios.collect())
    }

    pub fn print(&self) {
        for (engine, rates) in &self.engines {
            Samples::from_values(engine.as_str(), self.unit, rates.clone()).print_row();
        }
    }

    fn rates(&self, engine: &str) -> &[f64] {
        self.engines.iter().find(|(name, _)| name == engine).map(|(_, rates)| rates.as_slice()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let mut round_rates = RoundRates::new("1/s");
        // The machine becomes ten times as fast after the first round.
        for (ours, peer) in [(1.0, 2.0), (10.0, 20.0), (30.0, 20.0)] {
            round_rates.add("ours", ours);
            round_rates.add("peer", peer);
        }
        let ratios = round_rates.ratios("ours", "peer");
        assert_eq!((ratios.count(), ratios.p50(), ratios.max()), (3, 0.5, 1.5));
        assert_eq!(round_rates.p50("peer"), 20.0);
        assert!(round_rates.ratios("ours", "unknown").p50().is_nan());
    }
}
