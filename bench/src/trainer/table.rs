//! Collected measurements in images per second of all ranks together, and their tables. Pure except for `print`.

use serde_json::{Value, json};

use super::place::Place;
use super::turn::{Case, Way};
use crate::stats::{self, Samples};

/// Name of our own engine.
pub const OURS: &str = "ours";
pub const TENSORFLOW: &str = "tensorflow";
pub const PYTORCH: &str = "pytorch";

/// All samples of one engine for one case at one placement.
#[derive(Clone, Debug)]
pub struct Row {
    pub place: Place,
    pub engine: &'static str,
    pub way: Way,
    pub case: Case,
    pub samples: Samples,
}

#[derive(Default)]
pub struct Results(Vec<Row>);

impl Row {
    pub fn new(place: Place, engine: &'static str, way: Way, case: Case) -> Self {
        let with = match way {
            Way::Alone if place.ranks > 1 || engine == OURS => ", no exchange",
            _ => "",
        };
        let samples = Samples::new(format!("{case}: {engine}{with}"), "images/s");
        Self { place, engine, way, case, samples }
    }

    fn is(&self, other: &Row) -> bool {
        (self.place, self.engine, self.way, self.case) == (other.place, other.engine, other.way, other.case)
    }
}

impl Results {
    pub fn add(&mut self, row: Row, rate: f64) {
        let known = match self.0.iter().position(|known| known.is(&row)) {
            Some(known) => known,
            None => {
                self.0.push(row);
                self.0.len() - 1
            }
        };
        self.0[known].samples.add(rate);
    }

    /// Every measured placement and case, in that order.
    pub fn cases(&self) -> Vec<(Place, Case)> {
        let mut cases: Vec<(Place, Case)> = Vec::new();
        for row in &self.0 {
            if !cases.contains(&(row.place, row.case)) {
                cases.push((row.place, row.case));
            }
        }
        cases
    }

    pub fn of(&self, place: Place, case: Case, engine: &str, way: Way) -> Option<f64> {
        self.at(place, case).find(|row| row.engine == engine && row.way == way).map(|row| row.samples.p50())
    }

    /// Rate of an engine in its fastest variant, which for a peer may be the one without exchange.
    pub fn fastest(&self, place: Place, case: Case, engine: &str) -> Option<f64> {
        let rates = self.at(place, case).filter(|row| row.engine == engine).map(|row| row.samples.p50());
        rates.max_by(f64::total_cmp)
    }

    /// Ratio of ours, which always exchanges, to the fastest variant of a peer.
    pub fn ratio(&self, place: Place, case: Case, peer: &str) -> Option<f64> {
        Some(self.of(place, case, OURS, Way::Together)? / self.fastest(place, case, peer)?)
    }

    fn at(&self, place: Place, case: Case) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.place == place && row.case == case)
    }

    /// The table of one placement.
    pub fn print(&self, place: Place) {
        println!("\n{} (images/s of all ranks together; a batch is a rank's)", place.name());
        stats::heading();
        for (_, case) in self.cases().into_iter().filter(|(at, _)| *at == place) {
            self.at(place, case).for_each(|row| row.samples.row());
            for peer in [TENSORFLOW, PYTORCH] {
                if let Some(ratio) = self.ratio(place, case, peer) {
                    println!("{:<44}{ratio:>25.2}", format!("{case}: ours by {peer}"));
                }
            }
        }
    }

    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let [min, p50, p99, max] = [0.0, 50.0, 99.0, 100.0].map(|percent| row.samples.percentile(percent));
            json!({
                "ranks": row.place.ranks, "cores": row.place.cores, "engine": row.engine, "way": row.way.word(),
                "precision": row.case.precision.word(), "batch": row.case.batch, "samples": row.samples.count(),
                "minImagesPerSecond": min, "p50ImagesPerSecond": p50, "p99ImagesPerSecond": p99, "maxImagesPerSecond": max,
            })
        };
        self.0.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::turn::Precision;

    #[test]
    fn a_peer_counts_in_its_fastest_way_and_we_with_our_exchange() {
        let (place, case) = (Place { ranks: 2, cores: 2 }, Case { precision: Precision::F32, batch: 32 });
        let mut results = Results::default();
        let rates = [
            (OURS, Way::Alone, 900.0),
            (OURS, Way::Together, 800.0),
            (TENSORFLOW, Way::Alone, 400.0),
            (TENSORFLOW, Way::Together, 100.0),
        ];
        for (engine, way, rate) in rates {
            results.add(Row::new(place, engine, way, case), rate);
        }
        results.add(Row::new(place, OURS, Way::Together, case), 1000.0);
        assert_eq!(results.ratio(place, case, TENSORFLOW), Some(2.0));
        assert_eq!(results.ratio(place, case, PYTORCH), None);
        assert_eq!(results.cases(), [(place, case)]);
    }
}
