//! Follows a sweep until all of its trials have ended: a table that is drawn again on a terminal, else a line for each trial that ends. Ctrl-C leaves the
//! sweep running.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use corro_model::Timestamp;
use corro_model::metrics::format_value;

use super::find::Sweep;
use super::show::{best_line, has_result, headline, note_problems, print_table};
use super::status::{StatusReader, TrialState, TrialStatus};
use super::table::{count_text, parameter_text, status_table};
use crate::commands::batchai::job::wait::INTERRUPTED;
use crate::error::CliError;
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::{note, print};
use crate::terminal;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of a screen that are not rows of the table.
const OTHER_LINES: usize = 4;

/// Follows the sweep. Fails if none of its trials has a result.
pub async fn follow(session: &Session, sweep: &Sweep) -> Result<(), CliError> {
    let trials = tokio::select! {
        trials = until_end(session, sweep) => trials?,
        Ok(()) = tokio::signal::ctrl_c() => {
            note(format_args!(
                "The sweep {0} goes on. See its trials with 'corro sweep show {0}', stop them with 'corro sweep stop {0}'.",
                sweep.name
            ));
            return Err(CliError::silent(INTERRUPTED));
        }
    };
    match has_result(&trials) {
        true => Ok(()),
        false => Err(CliError::new(format!("no trial of the sweep {} succeeded: {}", sweep.name, count_text(&trials)))
            .hint(format!("see why with 'corro sweep show {}'", sweep.name))),
    }
}

async fn until_end(session: &Session, sweep: &Sweep) -> Result<Vec<TrialStatus>, CliError> {
    let (client, reader, mut retry) = (session.client()?, StatusReader::default(), Retry::after_answer());
    let is_terminal = io::stdout().is_terminal();
    let mut seen = BTreeSet::new();
    loop {
        let read = async || {
            let now = Sweep::read(client, &sweep.any_job, &sweep.name).await?;
            let now = now.ok_or_else(|| CliError::new(format!("the sweep {} was deleted", sweep.name)))?;
            let trials = reader.read(client, &now).await?;
            Ok((now, trials))
        };
        let (now, trials) = retry.run(read).await?;
        match is_terminal {
            true => draw(&now, &trials),
            false => trials.iter().filter_map(|trial| end_line(&now, trial, &mut seen)).for_each(note),
        }
        if trials.iter().all(|trial| trial.state.is_terminal()) {
            if !is_terminal {
                print_table(&trials);
            }
            if let Some(line) = best_line(&now, &trials) {
                note(line);
            }
            note_problems(session, &now, &trials).await?;
            return Ok(trials);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Draws the best trials that fit on the screen. Errors are ignored: they must not end the command.
fn draw(sweep: &Sweep, trials: &[TrialStatus]) {
    let (columns, rows) = terminal::size();
    let table = status_table(trials, Timestamp::from(SystemTime::now()));
    let mut lines = table.lines(Some(columns as usize));
    let n_shown = (rows as usize).saturating_sub(OTHER_LINES).max(2);
    lines.truncate(n_shown);
    // Cursor to the top left, clear the screen.
    let _ = io::stdout().write_all(b"\x1b[H\x1b[2J");
    print(headline(sweep));
    for line in lines {
        print(line);
    }
    print(count_text(trials));
}

/// The line of a trial that has ended since the last look.
fn end_line(sweep: &Sweep, trial: &TrialStatus, seen: &mut BTreeSet<u32>) -> Option<String> {
    if !trial.state.is_terminal() || !seen.insert(trial.number) {
        return None;
    }
    let metric = sweep.any_trial().metric.as_deref().unwrap_or_default();
    let value = trial.curve.map(|curve| format!(": {metric} {}", format_value(curve.best.1))).unwrap_or_default();
    let reason = match (trial.state, &trial.reason) {
        (TrialState::Failed, Some(reason)) => format!(": {reason}"),
        _ => String::new(),
    };
    let (number, parameters, state) = (trial.number, parameter_text(&trial.parameters), trial.state.text());
    Some(format!("Trial {number} ({parameters}) {state}{value}{reason}"))
}
