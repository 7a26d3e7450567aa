//! Rates per round, and comparisons of two engines: the ratio within each round, and the median of the ratios. Pure except for
//! `print`.

use super::contest::Case;
use crate::stats::{self, Samples};
use crate::trainer::place::Place;

/// Results of one engine with one case at one placement.
#[derive(Clone, Debug)]
pub struct Row {
    pub place: Place,
    pub engine: &'static str,
    pub case: String,
    /// Images per second, with the number of the round.
    rates: Vec<(usize, f64)>,
}

#[derive(Default)]
pub struct Results(Vec<Row>);

/// Engine, case and placement of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub place: Place,
    pub case: &'a str,
    pub engine: &'a str,
}

impl Row {
    pub fn new(place: Place, engine: &'static str, case: &Case) -> Self {
        Self { place, engine, case: case.name.clone(), rates: Vec::new() }
    }

    fn samples(&self) -> Samples {
        let name = format!("{}: {}", self.case, self.engine);
        Samples::of(name, "images/s", self.rates.iter().map(|(_, rate)| *rate).collect())
    }
}

impl Results {
    pub fn add(&mut self, row: Row, round: usize, rate: f64) {
        let key = |row: &Row| (row.place, row.engine, row.case.clone());
        let known = match self.0.iter().position(|known| key(known) == key(&row)) {
            Some(known) => known,
            None => {
                self.0.push(row);
                self.0.len() - 1
            }
        };
        self.0[known].rates.push((round, rate));
    }

    /// Ratio of one to the other, from the rounds in which both were measured. `None` when there are none.
    pub fn ratios(&self, one: At<'_>, other: At<'_>) -> Option<Samples> {
        let (rates, others) = (&self.row(one)?.rates, &self.row(other)?.rates);
        let ratio = |(round, rate): &(usize, f64)| {
            let (_, other) = others.iter().find(|(known, _)| known == round)?;
            Some(rate / other)
        };
        let name = format!("{}: {} by {}", one.case, one.engine, other.engine);
        let ratios = Samples::of(name, "times", rates.iter().filter_map(ratio).collect());
        (ratios.count() > 0).then_some(ratios)
    }

    fn row(&self, at: At<'_>) -> Option<&Row> {
        self.0.iter().find(|row| (row.place, row.engine, &*row.case) == (at.place, at.engine, at.case))
    }

    /// Prints a table for each placement.
    pub fn print(&self) {
        let mut places: Vec<Place> = Vec::new();
        for row in &self.0 {
            if !places.contains(&row.place) {
                places.push(row.place);
            }
        }
        for place in places {
            println!("\n{} (images/s of all ranks together; a batch is a rank's)", place.name());
            stats::heading();
            self.0.iter().filter(|row| row.place == place).for_each(|row| row.samples().row());
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
        let place = Place { ranks: 2, cores: 2 };
        let case = Case { name: "net".to_owned(), words: String::new(), batch: 1 };
        let mut results = Results::default();
        // The machine becomes ten times as fast after the first round.
        for (engine, rates) in [("ours", [2.0, 20.0, 30.0]), ("peer", [1.0, 10.0, 10.0])] {
            rates.into_iter().enumerate().for_each(|(n, rate)| results.add(Row::new(place, engine, &case), n, rate));
        }
        results.add(Row::new(place, "ours", &case), 3, 1000.0);
        let at = |engine| At { place, case: "net", engine };
        let ratios = results.ratios(at("ours"), at("peer")).expect("both were measured");
        assert_eq!((ratios.count(), ratios.p50(), ratios.max()), (3, 2.0, 3.0));
        assert!(results.ratios(at("ours"), at("nobody")).is_none());
    }
}
