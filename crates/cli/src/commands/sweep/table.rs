//! Tables of trials for people. Pure.

use corro_model::Timestamp;
use corro_model::batchai::SweepParameter;
use corro_model::metrics::format_value;
use corro_model::time::Span;

use super::status::{TrialState, TrialStatus};
use crate::output::escape_controls;
use crate::output::text_table::{Align, TextTable};

/// The table of `corro sweep show`.
pub fn status_table(trials: &[TrialStatus], now: Timestamp) -> TextTable {
    let parameters = trials.first().map_or(&[][..], |trial| &trial.parameters);
    let names = parameter_headers(parameters);
    let mut columns = vec![("TRIAL", Align::Right), ("STATE", Align::Left)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Left)));
    columns.extend([
        ("BEST", Align::Left),
        ("AT", Align::Right),
        ("LAST", Align::Left),
        ("STEP", Align::Right),
        ("TOOK", Align::Right),
        ("WHY", Align::Left),
    ]);
    let mut table = TextTable::new(&columns);
    for trial in trials {
        let curve = trial.curve;
        let value = |value: Option<f64>| value.map(format_value).unwrap_or_default();
        let step = |step: Option<f64>| step.map(|step| step.to_string()).unwrap_or_default();
        let mut cells = vec![trial.number.to_string(), trial.state.text().to_owned()];
        cells.extend(trial.parameters.iter().map(|parameter| parameter.value.clone()));
        cells.extend([
            value(curve.map(|curve| curve.best.1)),
            step(curve.map(|curve| curve.best.0)),
            value(curve.map(|curve| curve.last.1)),
            step(curve.map(|curve| curve.last.0)),
            took(trial, now).map(Span::in_words).unwrap_or_default(),
            why(trial),
        ]);
        table.push(cells);
    }
    table
}

/// The table of `--dry-run`.
pub fn trial_table(trials: &[Vec<SweepParameter>], job_name: impl Fn(u32) -> String) -> TextTable {
    let names = parameter_headers(trials.first().map_or(&[][..], |trial| trial));
    let mut columns = vec![("TRIAL", Align::Right), ("JOB", Align::Left)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Left)));
    let mut table = TextTable::new(&columns);
    for (number, parameters) in (1..).zip(trials) {
        let mut cells = vec![number.to_string(), job_name(number)];
        cells.extend(parameters.iter().map(|parameter| parameter.value.clone()));
        table.push(cells);
    }
    table
}

/// `5 running, 12 queued, 7 stopped early`.
pub fn count_text(trials: &[TrialStatus]) -> String {
    use TrialState as S;
    let states = [S::Running, S::Stopping, S::Queued, S::Succeeded, S::StoppedEarly, S::Stopped, S::Failed];
    let count = |state: S| (trials.iter().filter(|trial| trial.state == state).count(), state.text());
    let parts: Vec<String> =
        states.into_iter().map(count).filter(|(n, _)| *n > 0).map(|(n, text)| format!("{n} {text}")).collect();
    parts.join(", ")
}

/// Parameters in one line: `lr 0.01, batch 64`.
pub fn parameter_text(parameters: &[SweepParameter]) -> String {
    let text = |parameter: &SweepParameter| format!("{} {}", parameter.name, parameter.value);
    parameters.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn parameter_headers(parameters: &[SweepParameter]) -> Vec<String> {
    parameters.iter().map(|parameter| escape_controls(&parameter.name.to_uppercase())).collect()
}

fn took(trial: &TrialStatus, now: Timestamp) -> Option<Span> {
    trial.start.map(|start| Span(trial.end.unwrap_or(now).since(start)))
}

/// Why a queued trial waits, and why one failed. A rule that stopped a trial needs no words in its row.
fn why(trial: &TrialStatus) -> String {
    match trial.state {
        TrialState::Queued | TrialState::Failed => trial.reason.clone().unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::status::tests::trial;
    use corro_model::batchai::SweepGoal;

    #[test]
    fn every_trial_has_a_row() {
        let goal = SweepGoal::Max;
        let mut trials =
            vec![trial(2, &[(1.0, 0.25), (2.0, 0.123456)], goal), trial(1, &[], goal), trial(3, &[(1.0, 0.1)], goal)];
        (trials[1].state, trials[1].start) = (TrialState::Queued, None);
        trials[1].reason = Some("2 nodes are busy".to_owned());
        (trials[2].state, trials[2].reason) = (TrialState::StoppedEarly, Some("stopped by the sweep".to_owned()));
        let lines = status_table(&trials, Timestamp::from_millis(0)).lines(None);
        let expected = [
            "TRIAL  STATE          LR   BEST  AT  LAST    STEP        TOOK  WHY",
            "    2  succeeded      0.2  0.25   1  0.1235     2  1 min 30 s",
            "    1  queued         0.1                                      2 nodes are busy",
            "    3  stopped early  0.3  0.1    1  0.1        1  1 min 30 s",
        ];
        assert_eq!(lines, expected);
        assert_eq!(count_text(&trials), "1 queued, 1 succeeded, 1 stopped early");
        assert_eq!(parameter_text(&trials[0].parameters), "lr 0.2");
    }

    #[test]
    fn a_dry_run_lists_the_jobs() {
        let row = |value: &str| vec![SweepParameter { name: "lr".to_owned(), value: value.to_owned() }];
        let lines = trial_table(&[row("0.1"), row("0.01")], |number| format!("s-{number:03}")).lines(None);
        assert_eq!(lines, ["TRIAL  JOB    LR", "    1  s-001  0.1", "    2  s-002  0.01"]);
    }
}
