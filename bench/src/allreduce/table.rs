//! Collected measurements and their tables: one table per placement, one row per size. Pure except for `print`.

use serde_json::{Value, json};

use super::cases::{Case, Measurement, RESNET_STEP};
use crate::stats::Samples;

/// Name of our own engine.
pub const OURS: &str = "ours";
/// Variants of our engine: the ordered API (`Communicator`) and the named API (`Engine`).
pub const ORDERED: &str = "ordered";
pub const NAMED: &str = "named";

/// All samples of one engine for one case at one placement, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Row {
    pub placement: String,
    pub ranks: usize,
    pub engine: String,
    pub variant: String,
    pub case: String,
    pub bytes: usize,
    pub samples: Samples,
}

#[derive(Default)]
pub struct Results(Vec<Row>);

impl Results {
    /// Adds the samples of a further round to existing rows.
    pub fn add(&mut self, placement: &str, ranks: usize, engine: &str, cases: &[Case], measured: Vec<Measurement>) {
        for Measurement { case, variant, ns } in measured {
            let bytes = cases.iter().find(|other| other.name == case).map_or(0, Case::bytes);
            let is_same = |row: &&mut Row| {
                row.placement == placement && row.engine == engine && row.case == case && row.variant == variant
            };
            match self.0.iter_mut().find(is_same) {
                Some(row) => ns.into_iter().for_each(|ns| row.samples.add(ns)),
                None => self.0.push(Row {
                    placement: placement.to_owned(),
                    ranks,
                    engine: engine.to_owned(),
                    variant,
                    case,
                    bytes,
                    samples: Samples::from_values("", "ns", ns),
                }),
            }
        }
    }

    pub fn rows(&self) -> &[Row] {
        &self.0
    }

    /// Placements in the order in which they were measured.
    pub fn placements(&self) -> Vec<&str> {
        let mut placements: Vec<&str> = Vec::new();
        for row in &self.0 {
            if !placements.contains(&row.placement.as_str()) {
                placements.push(&row.placement);
            }
        }
        placements
    }

    pub fn ours(&self, placement: &str, case: &str, variant: &str) -> Option<&Row> {
        self.rows_at(placement, case).find(|row| row.engine == OURS && row.variant == variant)
    }

    /// An engine in its fastest variant.
    pub fn fastest_variant(&self, placement: &str, case: &str, engine: &str) -> Option<&Row> {
        fastest(self.rows_at(placement, case).filter(|row| row.engine == engine))
    }

    pub fn fastest_peer(&self, placement: &str, case: &str) -> Option<&Row> {
        fastest(self.rows_at(placement, case).filter(|row| row.engine != OURS))
    }

    /// Every measured placement and case.
    pub fn cases(&self) -> Vec<(&str, &str)> {
        let mut cases: Vec<(&str, &str)> = Vec::new();
        for row in &self.0 {
            if !cases.contains(&(&row.placement, &row.case)) {
                cases.push((&row.placement, &row.case));
            }
        }
        cases
    }

    fn rows_at(&self, placement: &str, case: &str) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.placement == placement && row.case == case)
    }

    /// The table of one placement. `peers` are its last columns.
    pub fn print(&self, placement: &str, peers: &[&str]) {
        println!("\n{placement} (p50 of the batches; ratio: time of the fastest peer to that of our ordered API)");
        print!("{:<10}{:>11}{:>11}{:>11}{:>11}", "size", "ordered", "min", "max", "named");
        peers.iter().for_each(|peer| print!("{peer:>11}"));
        println!("{:>8}{:>10}", "ratio", "bus GB/s");
        for (_, case) in
            self.cases().into_iter().filter(|(row_placement, case)| *row_placement == placement && *case != RESNET_STEP)
        {
            self.print_row(placement, case, peers);
        }
        println!();
    }

    pub fn print_step(&self) {
        println!("\na step of ResNet-50: 161 gradients, 25,557,032 floats (p50)");
        for placement in self.placements() {
            for row in self.rows_at(placement, RESNET_STEP) {
                println!(
                    "{placement:<30}{:<12}{:<14}{:>11}",
                    row.engine,
                    row.variant,
                    format_duration(row.samples.p50())
                );
            }
        }
    }

    fn print_row(&self, placement: &str, case: &str, peers: &[&str]) {
        let format_time = |row: Option<&Row>, percent: f64| {
            row.map_or("-".to_owned(), |row| format_duration(row.samples.percentile(percent)))
        };
        let ordered = self.ours(placement, case, ORDERED);
        print!(
            "{case:<10}{:>11}{:>11}{:>11}",
            format_time(ordered, 50.0),
            format_time(ordered, 0.0),
            format_time(ordered, 100.0)
        );
        print!("{:>11}", format_time(self.ours(placement, case, NAMED), 50.0));
        peers.iter().for_each(|peer| print!("{:>11}", format_time(self.fastest_variant(placement, case, peer), 50.0)));
        let ratio =
            ordered.zip(self.fastest_peer(placement, case)).map(|(ours, peer)| peer.samples.p50() / ours.samples.p50());
        let bus = ordered.map_or("-".to_owned(), |row| format!("{:.2}", row.bus_gb_per_s()));
        println!("{:>8}{:>10}", ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")), bus);
    }

    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let [min, p50, p99, max] = [0.0, 50.0, 99.0, 100.0].map(|percent| row.samples.percentile(percent));
            json!({
                "place": row.placement, "ranks": row.ranks, "engine": row.engine, "way": row.variant, "case": row.case, "bytes": row.bytes,
                "samples": row.samples.count(), "minNs": min, "p50Ns": p50, "p99Ns": p99, "maxNs": max,
            })
        };
        self.0.iter().map(row).collect()
    }
}

impl Row {
    /// Bus bandwidth: bytes that each rank sends in a ring, in GB/s; comparable across rank counts.
    pub fn bus_gb_per_s(&self) -> f64 {
        let ranks = self.ranks as f64;
        2.0 * (ranks - 1.0) / ranks * self.bytes as f64 / self.samples.p50()
    }
}

fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.min_by(|one, other| one.samples.p50().total_cmp(&other.samples.p50()))
}

/// Nanoseconds in a readable unit.
pub fn format_duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e4 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e7 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_counts_in_its_fastest_variant() {
        let mut results = Results::default();
        let cases = [Case::of_bytes(4, 1)];
        let measurement =
            |variant: &str, ns: f64| vec![Measurement { case: "4B".into(), variant: variant.into(), ns: vec![ns] }];
        results.add("here", 2, "mpich", &cases, measurement("a", 9.0));
        results.add("here", 2, "openmpi", &cases, measurement("a", 5.0));
        results.add("here", 2, "openmpi", &cases, measurement("b", 4.0));
        results.add("here", 2, OURS, &cases, measurement(ORDERED, 2.0));
        results.add("here", 2, OURS, &cases, measurement(ORDERED, 8.0));
        let fastest = results.fastest_peer("here", "4B").expect("there are peers");
        assert_eq!((fastest.engine.as_str(), fastest.variant.as_str()), ("openmpi", "b"));
        let ours = results.ours("here", "4B", ORDERED).expect("measured");
        assert_eq!((ours.samples.count(), ours.samples.p50(), ours.bus_gb_per_s()), (2, 2.0, 2.0));
        assert!(results.fastest_peer("there", "4B").is_none());
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [421.0, 59_000.0, 1.234e6, 1.37e8].map(format_duration),
            ["0.42 us", "59 us", "1.23 ms", "137.0 ms"]
        );
    }
}
