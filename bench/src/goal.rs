//! One goal of a benchmark that has several, decided by its worst measurement. Pure.

/// Worst measured ratio, its case, and whether it is sufficient.
#[derive(Debug, PartialEq)]
pub struct Goal {
    pub met: bool,
    pub figures: String,
}

/// The smallest ratio decides. A goal that could not be measured is not met.
pub fn worst(ratios: impl Iterator<Item = (f64, String)>, wanted: f64, what: &str) -> Goal {
    match ratios.min_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((ratio, at)) => {
            Goal { met: ratio >= wanted, figures: format!("at worst {ratio:.2} {what} ({at}; wanted {wanted})") }
        }
        None => Goal { met: false, figures: format!("nothing to compare: {what}") },
    }
}
