//! One goal of a benchmark that has several, decided by its worst measurement. Pure.

/// Whether the goal is met, and a text with the worst measured ratio and its case.
#[derive(Debug, PartialEq)]
pub struct Goal {
    pub met: bool,
    pub figures: String,
}

/// The smallest ratio decides. A goal that could not be measured is not met.
pub fn worst_ratio(ratios: impl Iterator<Item = (f64, String)>, required: f64, quantity: &str) -> Goal {
    match ratios.min_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((ratio, case)) => Goal {
            met: ratio >= required,
            figures: format!("at worst {ratio:.2} {quantity} ({case}; goal {required})"),
        },
        None => Goal { met: false, figures: format!("not measured: {quantity}") },
    }
}
