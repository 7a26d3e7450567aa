//! Early stopping of the trials of a sweep by asynchronous successive halving. Trials pass rungs, at `min_steps` times powers of `reduction` steps of
//! their metric. A running trial is compared at the highest rung that it and enough other trials have reached, by the best value that each had up to
//! there. It stops unless it is among the best 1/`reduction` of them. Pure: the same curves give the same decisions, however often and whenever it
//! decides, so nothing has to be remembered between two looks.

use corro_model::batchai::{EarlyStopping, SweepGoal};

/// What is compared, and by which rule.
#[derive(Clone, Copy, Debug)]
pub struct HalvingRule<'a> {
    pub goal: SweepGoal,
    pub stopping: &'a EarlyStopping,
}

/// A trial that has reached at least the first step.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialProgress {
    pub is_running: bool,
    /// Best value up to each rung that the trial has reached; NaN if all values were.
    pub rungs: Vec<f64>,
}

/// The decision to stop a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStop {
    /// Index of the trial.
    pub trial: usize,
    pub step: u64,
    pub value: f64,
    /// Number of trials that go on from this rung.
    pub n_best: usize,
    /// Number of trials that have reached this rung, with those that ended.
    pub n_trials: usize,
}

impl HalvingRule<'_> {
    /// Steps of the rungs, ascending.
    pub fn rung_steps(self) -> impl Iterator<Item = u64> {
        let (first, reduction) = (u64::from(self.stopping.min_steps.max(1)), u64::from(self.stopping.reduction.max(2)));
        let end = self.stopping.max_steps.map_or(u64::MAX, u64::from);
        std::iter::successors(Some(first), move |step| step.checked_mul(reduction)).take_while(move |step| *step < end)
    }

    /// Best value up to each rung that a curve has reached. `points` are steps and values, sorted by step.
    pub fn rung_values(self, points: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
        let mut values = Vec::new();
        let mut rungs = self.rung_steps().map(|step| step as f64).peekable();
        let mut best = f64::NAN;
        for (step, value) in points {
            // Rungs between two points are reached by the later one, with the values of the earlier ones.
            while rungs.next_if(|rung| *rung < step).is_some() {
                values.push(best);
            }
            best = self.goal.best(best, value);
            if rungs.next_if(|rung| *rung == step).is_some() {
                values.push(best);
            }
        }
        values
    }

    /// Decides which running trials stop.
    pub fn choose_stops(self, trials: &[TrialProgress]) -> Vec<EarlyStop> {
        let reduction = self.stopping.reduction.max(2) as usize;
        let n_trials_at = |rung: usize| trials.iter().filter(|trial| trial.rungs.len() > rung).count();
        let steps: Vec<u64> =
            self.rung_steps().take(trials.iter().map(|trial| trial.rungs.len()).max().unwrap_or(0)).collect();
        let counts: Vec<usize> = (0..steps.len()).map(n_trials_at).collect();
        let stop_of = |(index, trial): (usize, &TrialProgress)| {
            let rung = (0..trial.rungs.len().min(steps.len())).rev().find(|rung| counts[*rung] >= reduction)?;
            let value = trial.rungs[rung];
            let others = trials.iter().filter_map(|other| other.rungs.get(rung));
            let n_better = others.filter(|other| self.goal.is_better(**other, value)).count();
            let (n_trials, n_best) = (counts[rung], counts[rung] / reduction);
            let stops = trial.is_running && n_better >= n_best;
            stops.then_some(EarlyStop { trial: index, step: steps[rung], value, n_best, n_trials })
        };
        trials.iter().enumerate().filter_map(stop_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::batchai::StoppingKind;
    use proptest::prelude::*;

    fn stopping(reduction: u32, min_steps: u32, max_steps: Option<u32>) -> EarlyStopping {
        EarlyStopping { kind: StoppingKind::Asha, reduction, min_steps, max_steps }
    }

    fn running(rungs: &[f64]) -> TrialProgress {
        TrialProgress { is_running: true, rungs: rungs.to_vec() }
    }

    fn ended(rungs: &[f64]) -> TrialProgress {
        TrialProgress { is_running: false, rungs: rungs.to_vec() }
    }

    #[test]
    fn rungs_are_powers_of_the_reduction() {
        let check = |reduction, min_steps, max_steps, expected: &[u64]| {
            let stopping = stopping(reduction, min_steps, max_steps);
            let rule = HalvingRule { goal: SweepGoal::Max, stopping: &stopping };
            assert_eq!(rule.rung_steps().take(5).collect::<Vec<_>>(), expected);
        };
        check(3, 1, None, &[1, 3, 9, 27, 81]);
        check(2, 5, Some(40), &[5, 10, 20]);
        check(3, 1, Some(10), &[1, 3, 9]);
    }

    #[test]
    fn a_rung_has_the_best_value_up_to_there() {
        let check = |goal, points: &[(f64, f64)], expected: &[f64]| {
            let stopping = stopping(3, 1, None);
            let values = HalvingRule { goal, stopping: &stopping }.rung_values(points.iter().copied());
            // NaN is equal to NaN here.
            assert_eq!(format!("{values:?}"), format!("{expected:?}"));
        };
        let points = [(1.0, 0.5), (2.0, 0.7), (3.0, 0.6), (4.0, 0.9)];
        check(SweepGoal::Max, &points, &[0.5, 0.7]);
        check(SweepGoal::Min, &points, &[0.5, 0.5]);
        // Epochs from 0; steps that jump over rungs; a curve that has not reached one.
        check(SweepGoal::Max, &[(0.0, 0.9), (1.0, 0.5)], &[0.9]);
        check(SweepGoal::Max, &[(2.0, 0.1), (10.0, 0.5)], &[f64::NAN, 0.1, 0.1]);
        check(SweepGoal::Max, &[(0.0, 0.9)], &[]);
        check(SweepGoal::Min, &[(1.0, f64::NAN), (3.0, 0.2)], &[f64::NAN, 0.2]);
        check(SweepGoal::Min, &[], &[]);
    }

    /// Indices of the trials that stop, with the step at which they were compared.
    fn stops(reduction: u32, goal: SweepGoal, trials: &[TrialProgress]) -> Vec<(usize, u64)> {
        let stopping = stopping(reduction, 1, None);
        let stops = HalvingRule { goal, stopping: &stopping }.choose_stops(trials);
        stops.into_iter().map(|stop| (stop.trial, stop.step)).collect()
    }

    #[test]
    fn only_the_best_of_enough_trials_go_on() {
        let max = SweepGoal::Max;
        // Two trials are not enough for a third.
        assert_eq!(stops(3, max, &[running(&[0.1]), running(&[0.9])]), []);
        assert_eq!(stops(3, max, &[running(&[0.1]), running(&[0.9]), running(&[0.5])]), [(0, 1), (2, 1)]);
        assert_eq!(stops(3, SweepGoal::Min, &[running(&[0.1]), running(&[0.9]), running(&[0.5])]), [(1, 1), (2, 1)]);
        // Ended trials count, and do not stop again.
        assert_eq!(stops(3, max, &[ended(&[0.9]), ended(&[0.1]), running(&[0.5])]), [(2, 1)]);
        assert_eq!(stops(3, max, &[ended(&[0.3]), ended(&[0.1]), running(&[0.5])]), []);
        // The best two of seven.
        let seven = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7].map(|value| running(&[value]));
        assert_eq!(stops(3, max, &seven), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]);
        // Equal trials go on together.
        assert_eq!(stops(2, max, &[running(&[0.5]), running(&[0.5]), running(&[0.5]), running(&[0.4])]), [(3, 1)]);
        // A trial without numbers is worst; if all are, they go on.
        assert_eq!(stops(2, max, &[running(&[f64::NAN]), running(&[0.1])]), [(0, 1)]);
        assert_eq!(stops(2, max, &[running(&[f64::NAN]), running(&[f64::NAN])]), []);
        assert_eq!(stops(2, max, &[running(&[]), running(&[]), running(&[])]), []);
    }

    #[test]
    fn a_trial_is_compared_at_the_highest_rung_with_enough_trials() {
        let max = SweepGoal::Max;
        // The first trial leads at the second rung, so that it was behind at the first does not matter.
        let trials = [running(&[0.1, 0.9]), ended(&[0.5, 0.6]), running(&[0.4, 0.5]), running(&[0.6])];
        assert_eq!(stops(3, max, &trials), [(2, 3)]);
        // It is alone at the second rung, so the first decides.
        assert_eq!(stops(3, max, &[running(&[0.1, 0.9]), ended(&[0.5]), ended(&[0.4])]), [(0, 1)]);
    }

    #[test]
    fn a_stop_says_how_the_trial_compared() {
        let stopping = stopping(3, 1, None);
        let rule = HalvingRule { goal: SweepGoal::Max, stopping: &stopping };
        let seven: Vec<TrialProgress> = (0..7).map(|n| ended(&[0.5, 0.5 + f64::from(n)])).collect();
        let stops = rule.choose_stops(&[seven, vec![running(&[0.1, 0.2])]].concat());
        assert_eq!(stops, [EarlyStop { trial: 7, step: 3, value: 0.2, n_best: 2, n_trials: 8 }]);
    }

    proptest! {
        #[test]
        fn the_best_trial_of_a_rung_never_stops_there(values in proptest::collection::vec(-1.0..1.0f64, 1..40), reduction in 2u32..6) {
            let trials: Vec<TrialProgress> = values.iter().map(|value| running(&[*value])).collect();
            let stopped = stops(reduction, SweepGoal::Min, &trials);
            let best = (0..values.len()).min_by(|a, b| values[*a].total_cmp(&values[*b])).expect("values");
            prop_assert!(stopped.iter().all(|(trial, _)| *trial != best));
            let n_left = trials.len() - stopped.len();
            prop_assert!(trials.len() < reduction as usize || n_left == trials.len() / reduction as usize);
        }
    }
}
