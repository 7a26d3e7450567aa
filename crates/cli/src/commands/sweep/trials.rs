//! The trials of a sweep: every combination of values, or a random choice of them. Pure: the same space and seed give the same trials on every machine
//! and in every version, so that a sweep can be completed later.

use std::collections::BTreeSet;

use corro_model::batchai::{SweepParameter, SweepSearch};
use corro_model::validate::MAX_TRIALS;

use super::space::{Parameter, Scale, Values, format_number};

/// Significant digits of random numbers.
const RANDOM_DIGITS: usize = 6;

/// The way to search, and the number of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchPlan {
    pub search: SweepSearch,
    pub n_trials: u32,
}

impl SearchPlan {
    /// Combines `--search` and `--trials` with the space: a grid if every parameter has a list and all combinations are wanted, else a random search.
    pub fn choose(space: &[Parameter], search: Option<SweepSearch>, trials: Option<u32>) -> Result<SearchPlan, String> {
        let range = space.iter().find(|parameter| !matches!(parameter.values, Values::List(_)));
        let n_combinations = combination_count(space);
        let is_grid = match search {
            Some(search) => search == SweepSearch::Grid,
            None => {
                range.is_none() && trials.is_none_or(|trials| n_combinations.is_some_and(|n| n <= u64::from(trials)))
            }
        };
        if let (true, Some(range)) = (is_grid, range) {
            return Err(format!(
                "--search grid needs a list of values for every parameter, and '{0}' has a range: give steps, such as {0}=0..1:0.1, or use --search random",
                range.name
            ));
        }
        if is_grid {
            let n = n_combinations.unwrap_or(u64::MAX);
            if let Some(trials) = trials.filter(|trials| u64::from(*trials) < n) {
                return Err(format!(
                    "the grid has {n} trials, more than --trials {trials}: leave --trials out, or use --search random"
                ));
            }
            return match u32::try_from(n) {
                Ok(n) if n <= MAX_TRIALS => Ok(SearchPlan { search: SweepSearch::Grid, n_trials: n }),
                _ => Err(format!(
                    "the grid has {n} trials, more than {MAX_TRIALS}: choose some at random with --trials N"
                )),
            };
        }
        let wanted = match (trials, n_combinations) {
            (Some(trials), _) => u64::from(trials),
            (None, Some(n)) if range.is_none() && n <= u64::from(MAX_TRIALS) => n,
            _ => return Err("--trials is missing: say how many trials to make, such as --trials 20".to_owned()),
        };
        // There are no more trials than combinations.
        let n_trials = n_combinations.map_or(wanted, |n| n.min(wanted));
        match u32::try_from(n_trials) {
            Ok(n) if (1..=MAX_TRIALS).contains(&n) => Ok(SearchPlan { search: SweepSearch::Random, n_trials: n }),
            _ => Err(format!("--trials {wanted} is not between 1 and {MAX_TRIALS}")),
        }
    }

    /// The parameters of all trials, in order.
    pub fn trials(self, space: &[Parameter], seed: u32) -> Vec<Vec<SweepParameter>> {
        let rows = match self.search {
            SweepSearch::Grid => grid(space).take(self.n_trials as usize).collect(),
            SweepSearch::Random => random(space, self.n_trials as usize, seed),
        };
        let named = |row: Vec<String>| {
            let named =
                space.iter().zip(row).map(|(parameter, value)| SweepParameter { name: parameter.name.clone(), value });
            named.collect()
        };
        rows.into_iter().map(named).collect()
    }
}

/// Number of combinations of values; `None` without a bound.
fn combination_count(space: &[Parameter]) -> Option<u64> {
    space.iter().try_fold(1u64, |product, parameter| Some(product.saturating_mul(parameter.values.count()?)))
}

/// Every combination; the last parameter changes first.
fn grid(space: &[Parameter]) -> impl Iterator<Item = Vec<String>> {
    let n = combination_count(space).unwrap_or(0);
    (0..n).map(move |number| {
        let mut rest = number;
        let value = |parameter: &Parameter| match &parameter.values {
            Values::List(values) => {
                let index = rest % values.len() as u64;
                rest /= values.len() as u64;
                values[index as usize].clone()
            }
            // A grid has lists only.
            Values::Integers { low, .. } => low.to_string(),
            Values::Numbers { low, .. } => low.to_string(),
        };
        let mut row: Vec<String> = space.iter().rev().map(value).collect();
        row.reverse();
        row
    })
}

/// Random combinations. Where their number has a bound, all are different.
fn random(space: &[Parameter], n_trials: usize, seed: u32) -> Vec<Vec<String>> {
    let mut random = SplitMix64(u64::from(seed));
    let n_combinations = combination_count(space);
    let are_distinct = n_combinations.is_some();
    let n_trials = n_combinations.map_or(n_trials, |n| n_trials.min(n as usize));
    let (mut seen, mut rows) = (BTreeSet::new(), Vec::new());
    while rows.len() < n_trials {
        let row: Vec<String> = space.iter().map(|parameter| random.value(&parameter.values)).collect();
        if !are_distinct || seen.insert(row.clone()) {
            rows.push(row);
        }
    }
    rows
}

/// Sebastiano Vigna's SplitMix64. Its sequence is part of the format of a sweep and never changes.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 (included) to 1 (excluded).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn value(&mut self, values: &Values) -> String {
        let unit = self.unit();
        match values {
            Values::List(values) => values[((unit * values.len() as f64) as usize).min(values.len() - 1)].clone(),
            Values::Integers { low, high, scale: Scale::Linear } => {
                let count = high.abs_diff(*low) + 1;
                (low + ((unit * count as f64) as u64).min(count - 1) as i64).to_string()
            }
            // Each integer has the range around it, so that the ends are as likely as the others.
            Values::Integers { low, high, scale: Scale::Logarithmic } => {
                let drawn = logarithmic(*low as f64 - 0.5, *high as f64 + 0.5, unit);
                (drawn.round() as i64).clamp(*low, *high).to_string()
            }
            Values::Numbers { low, high, scale: Scale::Linear } => {
                format_number(low + unit * (high - low), RANDOM_DIGITS)
            }
            Values::Numbers { low, high, scale: Scale::Logarithmic } => {
                format_number(logarithmic(*low, *high, unit).clamp(*low, *high), RANDOM_DIGITS)
            }
        }
    }
}

fn logarithmic(low: f64, high: f64, unit: f64) -> f64 {
    (low.ln() + unit * (high.ln() - low.ln())).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::space::parse_space;

    fn space(texts: &[&str]) -> Vec<Parameter> {
        parse_space(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).expect("a space")
    }

    fn values(plan: SearchPlan, space: &[Parameter], seed: u32) -> Vec<String> {
        let row =
            |row: Vec<SweepParameter>| row.into_iter().map(|parameter| parameter.value).collect::<Vec<_>>().join(" ");
        plan.trials(space, seed).into_iter().map(row).collect()
    }

    fn random_plan(n_trials: u32) -> SearchPlan {
        SearchPlan { search: SweepSearch::Random, n_trials }
    }

    #[test]
    fn the_search_is_a_grid_where_it_can_be() {
        let check = |texts: &[&str], search, trials, expected: Result<(SweepSearch, u32), &str>| {
            let plan = SearchPlan::choose(&space(texts), search, trials);
            let plan = plan.as_ref().map(|plan| (plan.search, plan.n_trials)).map_err(String::as_str);
            assert_eq!(plan, expected, "{texts:?}");
        };
        let (grid, random) = (SweepSearch::Grid, SweepSearch::Random);
        let lists = ["a=1,2,3", "b=x,y"];
        check(&lists, None, None, Ok((grid, 6)));
        check(&lists, None, Some(100), Ok((grid, 6)));
        check(&lists, None, Some(5), Ok((random, 5)));
        check(&lists, Some(random), None, Ok((random, 6)));
        check(&lists, Some(random), Some(100), Ok((random, 6)));
        check(&["a=1..3"], None, Some(100), Ok((random, 3)));
        check(&["a=0..1.0"], None, Some(24), Ok((random, 24)));
        let missing = "--trials is missing: say how many trials to make, such as --trials 20";
        check(&["a=0..1.0"], None, None, Err(missing));
        check(&["a=1..3"], None, None, Err(missing));
        let range = "--search grid needs a list of values for every parameter, and 'b' has a range: give steps, such as b=0..1:0.1, or use --search random";
        check(&["a=1,2", "b=0..1.0"], Some(grid), None, Err(range));
        let fewer = "the grid has 6 trials, more than --trials 5: leave --trials out, or use --search random";
        check(&lists, Some(grid), Some(5), Err(fewer));
        let many = "the grid has 8000 trials, more than 1000: choose some at random with --trials N";
        check(&["a=1..20:1", "b=1..20:1", "c=1..20:1"], None, None, Err(many));
        check(&["a=1..20:1", "b=1..20:1", "c=1..20:1"], None, Some(7), Ok((random, 7)));
        check(&["a=0..1.0"], None, Some(1001), Err("--trials 1001 is not between 1 and 1000"));
        check(&["a=0..1.0"], None, Some(0), Err("--trials 0 is not between 1 and 1000"));
    }

    #[test]
    fn in_a_grid_the_last_parameter_changes_first() {
        let space = space(&["a=1,2", "b=x", "c=0..1:0.5"]);
        let plan = SearchPlan::choose(&space, None, None).expect("a grid");
        assert_eq!(values(plan, &space, 9), ["1 x 0", "1 x 0.5", "1 x 1", "2 x 0", "2 x 0.5", "2 x 1"]);
    }

    /// Stored sweeps depend on these values.
    #[test]
    fn a_seed_always_gives_the_same_trials() {
        let space = space(&["lr=log:1e-4..1e-1", "batch=32,64,128", "layers=1..8", "width=log:16..1024", "p=0..0.5"]);
        let four = values(random_plan(4), &space, 7);
        assert_eq!(four, GOLDEN);
        // More trials begin with the same ones.
        assert_eq!(values(random_plan(30), &space, 7)[..4], four);
        assert_ne!(values(random_plan(4), &space, 8), four);
    }

    const GOLDEN: [&str; 4] = [
        "0.00147737 32 8 178 0.226221",
        "0.000560137 64 3 27 0.206571",
        "0.000204494 128 8 597 0.432004",
        "0.0044143 128 3 208 0.378661",
    ];

    #[test]
    fn random_values_are_in_their_range() {
        let space = space(&["lr=log:1e-4..1e-1", "n=log:2..9", "x=-5..5"]);
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        for row in random_plan(1000).trials(&space, 3) {
            let number = |index: usize| row[index].value.parse::<f64>().expect("a number");
            assert!((1e-4..=1e-1).contains(&number(0)) && (2.0..=9.0).contains(&number(1)), "{row:?}");
            seen[0].insert(number(1) as i64);
            seen[1].insert(number(2) as i64);
        }
        assert_eq!(seen[0].len(), 8);
        assert_eq!(seen[1].len(), 11);
    }

    #[test]
    fn random_trials_of_a_bounded_space_are_distinct() {
        let space = space(&["a=1..30", "b=x,y"]);
        let all = values(random_plan(60), &space, 1);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 60);
    }
}
