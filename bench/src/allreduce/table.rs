//! Collected measurements and their tables: one table per placement, one row per size. Pure except for `print`.

use serde_json::{Value, json};

use super::cases::{Case, Measured, STEP};
use crate::stats::Samples;

/// Name of our own engine.
pub const OURS: &str = "ours";
/// Our API variants.
pub const DIRECT: &str = "direct";
pub const NEGOTIATED: &str = "negotiated";

/// All samples of one engine for one case at one placement, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Row {
    pub place: String,
    pub ranks: usize,
    pub engine: String,
    pub way: String,
    pub case: String,
    pub bytes: usize,
    pub samples: Samples,
}

#[derive(Default)]
pub struct Results(Vec<Row>);

impl Results {
    /// Adds the samples of a further round to existing rows.
    pub fn add(&mut self, place: &str, ranks: usize, engine: &str, cases: &[Case], measured: Vec<Measured>) {
        for Measured { case, way, ns } in measured {
            let bytes = cases.iter().find(|known| known.name == case).map_or(0, Case::bytes);
            let same =
                |row: &&mut Row| row.place == place && row.engine == engine && row.case == case && row.way == way;
            match self.0.iter_mut().find(same) {
                Some(row) => ns.into_iter().for_each(|ns| row.samples.add(ns)),
                None => self.0.push(Row {
                    place: place.to_owned(),
                    ranks,
                    engine: engine.to_owned(),
                    way,
                    case,
                    bytes,
                    samples: Samples::of("", "ns", ns),
                }),
            }
        }
    }

    pub fn rows(&self) -> &[Row] {
        &self.0
    }

    /// Placements in the order in which they were measured.
    pub fn places(&self) -> Vec<&str> {
        let mut places: Vec<&str> = Vec::new();
        for row in &self.0 {
            if !places.contains(&row.place.as_str()) {
                places.push(&row.place);
            }
        }
        places
    }

    pub fn ours(&self, place: &str, case: &str, way: &str) -> Option<&Row> {
        self.at(place, case).find(|row| row.engine == OURS && row.way == way)
    }

    /// An engine in its fastest variant.
    pub fn of(&self, place: &str, case: &str, engine: &str) -> Option<&Row> {
        fastest(self.at(place, case).filter(|row| row.engine == engine))
    }

    pub fn fastest_peer(&self, place: &str, case: &str) -> Option<&Row> {
        fastest(self.at(place, case).filter(|row| row.engine != OURS))
    }

    /// Every measured placement and case.
    pub fn cases(&self) -> Vec<(&str, &str)> {
        let mut cases: Vec<(&str, &str)> = Vec::new();
        for row in &self.0 {
            if !cases.contains(&(&row.place, &row.case)) {
                cases.push((&row.place, &row.case));
            }
        }
        cases
    }

    fn at(&self, place: &str, case: &str) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.place == place && row.case == case)
    }

    /// The table of one placement. `peers` are its last columns.
    pub fn print(&self, place: &str, peers: &[&str]) {
        println!("\n{place} (p50 of the batches; ratio: the fastest peer's time by our direct door's)");
        print!("{:<10}{:>11}{:>11}{:>11}{:>11}", "size", "direct", "min", "max", "negotiated");
        peers.iter().for_each(|peer| print!("{peer:>11}"));
        println!("{:>8}{:>10}", "ratio", "bus GB/s");
        for (_, case) in self.cases().into_iter().filter(|(at, case)| *at == place && *case != STEP) {
            self.print_row(place, case, peers);
        }
        println!();
    }

    pub fn print_step(&self) {
        println!("\na step of ResNet-50: 161 gradients, 25,557,032 floats (p50)");
        for place in self.places() {
            for row in self.at(place, STEP) {
                println!("{place:<30}{:<12}{:<14}{:>11}", row.engine, row.way, time(row.samples.p50()));
            }
        }
    }

    fn print_row(&self, place: &str, case: &str, peers: &[&str]) {
        let shown =
            |row: Option<&Row>, percent: f64| row.map_or("-".to_owned(), |row| time(row.samples.percentile(percent)));
        let direct = self.ours(place, case, DIRECT);
        print!("{case:<10}{:>11}{:>11}{:>11}", shown(direct, 50.0), shown(direct, 0.0), shown(direct, 100.0));
        print!("{:>11}", shown(self.ours(place, case, NEGOTIATED), 50.0));
        peers.iter().for_each(|peer| print!("{:>11}", shown(self.of(place, case, peer), 50.0)));
        let ratio =
            direct.zip(self.fastest_peer(place, case)).map(|(ours, peer)| peer.samples.p50() / ours.samples.p50());
        let bus = direct.map_or("-".to_owned(), |row| format!("{:.2}", row.bus()));
        println!("{:>8}{:>10}", ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")), bus);
    }

    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let [min, p50, p99, max] = [0.0, 50.0, 99.0, 100.0].map(|percent| row.samples.percentile(percent));
            json!({
                "place": row.place, "ranks": row.ranks, "engine": row.engine, "way": row.way, "case": row.case, "bytes": row.bytes,
                "samples": row.samples.count(), "minNs": min, "p50Ns": p50, "p99Ns": p99, "maxNs": max,
            })
        };
        self.0.iter().map(row).collect()
    }
}

impl Row {
    /// Bus bandwidth: bytes that each rank sends in a ring, in GB/s; comparable across rank counts.
    pub fn bus(&self) -> f64 {
        let ranks = self.ranks as f64;
        2.0 * (ranks - 1.0) / ranks * self.bytes as f64 / self.samples.p50()
    }
}

fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.min_by(|one, other| one.samples.p50().total_cmp(&other.samples.p50()))
}

/// Nanoseconds in a readable unit.
pub fn time(ns: f64) -> String {
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
    fn an_engine_is_taken_in_its_fastest_way() {
        let mut results = Results::default();
        let cases = [Case::of_bytes(4, 1)];
        let said = |way: &str, ns: f64| vec![Measured { case: "4B".into(), way: way.into(), ns: vec![ns] }];
        results.add("here", 2, "mpich", &cases, said("a", 9.0));
        results.add("here", 2, "openmpi", &cases, said("a", 5.0));
        results.add("here", 2, "openmpi", &cases, said("b", 4.0));
        results.add("here", 2, OURS, &cases, said(DIRECT, 2.0));
        results.add("here", 2, OURS, &cases, said(DIRECT, 8.0));
        let fastest = results.fastest_peer("here", "4B").expect("there are peers");
        assert_eq!((fastest.engine.as_str(), fastest.way.as_str()), ("openmpi", "b"));
        let ours = results.ours("here", "4B", DIRECT).expect("measured");
        assert_eq!((ours.samples.count(), ours.samples.p50(), ours.bus()), (2, 2.0, 2.0));
        assert!(results.fastest_peer("there", "4B").is_none());
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!([421.0, 59_000.0, 1.234e6, 1.37e8].map(time), ["0.42 us", "59 us", "1.23 ms", "137.0 ms"]);
    }
}
