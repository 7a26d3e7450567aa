//! Collected measurements in images per second of all ranks together, and their tables. Pure except for `print`.

use serde_json::{Value, json};

use super::cpu_placement::CpuPlacement;
use super::turn::{Case, Exchange};
use crate::stats::{self, Samples};

/// Name of our own engine.
pub const OURS: &str = "ours";
pub const TENSORFLOW: &str = "tensorflow";
pub const PYTORCH: &str = "pytorch";

/// All samples of one engine for one case at one placement.
#[derive(Clone, Debug)]
pub struct Row {
    pub placement: CpuPlacement,
    pub engine: &'static str,
    pub exchange: Exchange,
    pub case: Case,
    pub samples: Samples,
}

#[derive(Default)]
pub struct Results(Vec<Row>);

impl Row {
    pub fn new(placement: CpuPlacement, engine: &'static str, exchange: Exchange, case: Case) -> Self {
        let suffix = match exchange {
            Exchange::Disabled if placement.ranks > 1 || engine == OURS => ", no exchange",
            _ => "",
        };
        let samples = Samples::new(format!("{case}: {engine}{suffix}"), "images/s");
        Self { placement, engine, exchange, case, samples }
    }

    fn has_key_of(&self, other: &Row) -> bool {
        (self.placement, self.engine, self.exchange, self.case)
            == (other.placement, other.engine, other.exchange, other.case)
    }
}

impl Results {
    pub fn add(&mut self, row: Row, rate: f64) {
        let idx = match self.0.iter().position(|other| other.has_key_of(&row)) {
            Some(idx) => idx,
            None => {
                self.0.push(row);
                self.0.len() - 1
            }
        };
        self.0[idx].samples.add(rate);
    }

    /// Every measured placement and case, in that order.
    pub fn cases(&self) -> Vec<(CpuPlacement, Case)> {
        let mut cases: Vec<(CpuPlacement, Case)> = Vec::new();
        for row in &self.0 {
            if !cases.contains(&(row.placement, row.case)) {
                cases.push((row.placement, row.case));
            }
        }
        cases
    }

    pub fn p50(&self, placement: CpuPlacement, case: Case, engine: &str, exchange: Exchange) -> Option<f64> {
        self.rows_at(placement, case)
            .find(|row| row.engine == engine && row.exchange == exchange)
            .map(|row| row.samples.p50())
    }

    /// Rate of an engine in its fastest variant, which for a peer may be the one without exchange.
    pub fn fastest(&self, placement: CpuPlacement, case: Case, engine: &str) -> Option<f64> {
        let rates = self.rows_at(placement, case).filter(|row| row.engine == engine).map(|row| row.samples.p50());
        rates.max_by(f64::total_cmp)
    }

    /// Ratio of ours, which always exchanges, to the fastest variant of a peer.
    pub fn ratio(&self, placement: CpuPlacement, case: Case, peer: &str) -> Option<f64> {
        Some(self.p50(placement, case, OURS, Exchange::Enabled)? / self.fastest(placement, case, peer)?)
    }

    fn rows_at(&self, placement: CpuPlacement, case: Case) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.placement == placement && row.case == case)
    }

    /// The table of one placement.
    pub fn print(&self, placement: CpuPlacement) {
        println!("\n{} (images/s of all ranks together; a batch is a rank's)", placement.name());
        stats::print_heading();
        for (_, case) in self.cases().into_iter().filter(|(row_placement, _)| *row_placement == placement) {
            self.rows_at(placement, case).for_each(|row| row.samples.print_row());
            for peer in [TENSORFLOW, PYTORCH] {
                if let Some(ratio) = self.ratio(placement, case, peer) {
                    println!("{:<44}{ratio:>25.2}", format!("{case}: ours by {peer}"));
                }
            }
        }
    }

    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let [min, p50, p99, max] = [0.0, 50.0, 99.0, 100.0].map(|percent| row.samples.percentile(percent));
            json!({
                "ranks": row.placement.ranks, "cores": row.placement.cores, "engine": row.engine, "way": row.exchange.as_str(),
                "precision": row.case.precision.as_str(), "batch": row.case.batch, "samples": row.samples.count(),
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
    fn a_peer_counts_in_its_fastest_variant_and_ours_with_exchange() {
        let (placement, case) = (CpuPlacement { ranks: 2, cores: 2 }, Case { precision: Precision::F32, batch: 32 });
        let mut results = Results::default();
        let rates = [
            (OURS, Exchange::Disabled, 900.0),
            (OURS, Exchange::Enabled, 800.0),
            (TENSORFLOW, Exchange::Disabled, 400.0),
            (TENSORFLOW, Exchange::Enabled, 100.0),
        ];
        for (engine, exchange, rate) in rates {
            results.add(Row::new(placement, engine, exchange, case), rate);
        }
        results.add(Row::new(placement, OURS, Exchange::Enabled, case), 1000.0);
        assert_eq!(results.ratio(placement, case, TENSORFLOW), Some(2.0));
        assert_eq!(results.ratio(placement, case, PYTORCH), None);
        assert_eq!(results.cases(), [(placement, case)]);
    }
}
