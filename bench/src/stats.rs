//! Samples of one quantity, and their count, minimum, median, 99th percentile and maximum. Pure except for `print_row` and
//! `print_heading`.

/// Samples of one quantity, in one unit.
#[derive(Clone, Debug)]
pub struct Samples {
    name: String,
    unit: &'static str,
    sorted: Vec<f64>,
}

impl Samples {
    pub fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Self { name: name.into(), unit, sorted: Vec::new() }
    }

    /// Sorts many values at once.
    pub fn from_values(name: impl Into<String>, unit: &'static str, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { name: name.into(), unit, sorted: samples }
    }

    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    pub fn add(&mut self, value: f64) {
        let idx = self.sorted.partition_point(|other| *other <= value);
        self.sorted.insert(idx, value);
    }

    /// The smallest value that at least `percent` of the samples do not exceed.
    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    pub fn p50(&self) -> f64 {
        self.percentile(50.0)
    }

    pub fn p99(&self) -> f64 {
        self.percentile(99.0)
    }

    pub fn max(&self) -> f64 {
        self.percentile(100.0)
    }

    /// Prints one line of a table; `print_heading` prints its column titles.
    pub fn print_row(&self) {
        let Self { name, unit, sorted } = self;
        let [min, p50, p99, max] = [0.0, 50.0, 99.0, 100.0].map(|percent| format_value(self.percentile(percent)));
        println!("{name:<44}{:>5}{min:>10}{p50:>10}{p99:>10}{max:>10}  {unit}", sorted.len());
    }
}

/// Prints the column titles of a table.
pub fn print_heading() {
    println!("{:<44}{:>5}{:>10}{:>10}{:>10}{:>10}", "measure", "n", "min", "p50", "p99", "max");
}

/// Formats with at least three significant digits.
fn format_value(value: f64) -> String {
    let digits = if value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let check = |count: u32, percent: f64, expected: f64| {
            let mut samples = Samples::new("x", "ms");
            (1..=count).rev().for_each(|value| samples.add(f64::from(value)));
            assert_eq!(samples.percentile(percent), expected, "{percent} % of {count}");
        };
        check(1, 50.0, 1.0);
        check(1, 99.0, 1.0);
        check(4, 50.0, 2.0);
        check(100, 99.0, 99.0);
        check(50, 99.0, 50.0);
        check(300, 99.0, 297.0);
        check(300, 0.0, 1.0);
        check(300, 100.0, 300.0);
        assert!(Samples::new("none", "ms").p50().is_nan());
    }
}
