//! Rates per round, and comparisons of two engines: the ratio within each round, and the median of the ratios. Pure except for
//! `print`.

use super::interleaved::Case;
use crate::stats::{self, Samples};
use crate::trainer::cpu_placement::CpuPlacement;

/// Results of one engine with one case at one placement.
#[derive(Clone, Debug)]
pub struct Row {
    pub placement: CpuPlacement,
    pub engine: &'static str,
    pub case: String,
    /// Images per second, with the number of the round.
    rates: Vec<(usize, f64)>,
}

#[derive(Default)]
pub struct Results(Vec<Row>);

/// Identifies a series of measurements.
#[derive(Clone, Copy, Debug)]
pub struct MeasurementKey<'a> {
    pub placement: CpuPlacement,
    pub case: &'a str,
    pub engine: &'a str,
}

impl Row {
    pub fn new(placement: CpuPlacement, engine: &'static str, case: &Case) -> Self {
        Self { placement, engine, case: case.name.clone(), rates: Vec::new() }
    }

    fn samples(&self) -> Samples {
        let name = format!("{}: {}", self.case, self.engine);
        Samples::from_values(name, "images/s", self.rates.iter().map(|(_, rate)| *rate).collect())
    }
}

impl Results {
    pub fn add(&mut self, row: Row, round: usize, rate: f64) {
        let key = |row: &Row| (row.placement, row.engine, row.case.clone());
        let idx = match self.0.iter().position(|other| key(other) == key(&row)) {
            Some(idx) => idx,
            None => {
                self.0.push(row);
                self.0.len() - 1
            }
        };
        self.0[idx].rates.push((round, rate));
    }

    /// Ratios of one to the other, from the rounds in which both were measured. `None` when there are none.
    pub fn ratios(&self, one: MeasurementKey<'_>, other: MeasurementKey<'_>) -> Option<Samples> {
        let (rates, others) = (&self.row(one)?.rates, &self.row(other)?.rates);
        let ratio = |(round, rate): &(usize, f64)| {
            let (_, other) = others.iter().find(|(other, _)| other == round)?;
            Some(rate / other)
        };
        let name = format!("{}: {} by {}", one.case, one.engine, other.engine);
        let ratios = Samples::from_values(name, "times", rates.iter().filter_map(ratio).collect());
        (ratios.count() > 0).then_some(ratios)
    }

    fn row(&self, key: MeasurementKey<'_>) -> Option<&Row> {
        self.0.iter().find(|row| (row.placement, row.engine, &*row.case) == (key.placement, key.engine, key.case))
    }

    /// Prints a table for each placement.
    pub fn print(&self) {
        let mut placements: Vec<CpuPlacement> = Vec::new();
        for row in &self.0 {
            if !placements.contains(&row.placement) {
                placements.push(row.placement);
            }
        }
        for placement in placements {
            println!("\n{} (images/s of all ranks together; a batch is a rank's)", placement.name());
            stats::print_heading();
            self.0.iter().filter(|row| row.placement == placement).for_each(|row| row.samples().print_row());
        }
    }
}

/// Prints ratios as a line of a table, with sufficient digits.
pub fn print_ratio(name: &str, ratios: &Samples) {
    let [min, p50, p99, max] = [0.0, 50.0, 99.0, 100.0].map(|percent| ratios.percentile(percent));
    println!("{name:<44}{:>5}{min:>10.3}{p50:>10.3}{p99:>10.3}{max:>10.3}  times, in the same round", ratios.count());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let placement = CpuPlacement { ranks: 2, cores: 2 };
        let case = Case { name: "net".to_owned(), request: String::new(), batch: 1 };
        let mut results = Results::default();
        // The machine becomes ten times as fast after the first round.
        for (engine, rates) in [("ours", [2.0, 20.0, 30.0]), ("peer", [1.0, 10.0, 10.0])] {
            rates
                .into_iter()
                .enumerate()
                .for_each(|(n, rate)| results.add(Row::new(placement, engine, &case), n, rate));
        }
        results.add(Row::new(placement, "ours", &case), 3, 1000.0);
        let at = |engine| MeasurementKey { placement, case: "net", engine };
        let ratios = results.ratios(at("ours"), at("peer")).expect("both were measured");
        assert_eq!((ratios.count(), ratios.p50(), ratios.max()), (3, 2.0, 3.0));
        assert!(results.ratios(at("ours"), at("unknown")).is_none());
    }
}
