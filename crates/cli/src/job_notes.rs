//! Texts about the state of a job that several commands print.

use corro_model::batchai::{BatchAiError, ExecutionState, Job};
use corro_model::ops::JobsWhy;

use crate::output::escape_controls;
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;
use crate::stdio::note;

/// The state of a job as the API writes it.
pub fn state_name(state: ExecutionState) -> &'static str {
    match state {
        ExecutionState::Queued => "queued",
        ExecutionState::Running => "running",
        ExecutionState::Terminating => "terminating",
        ExecutionState::Succeeded => "succeeded",
        ExecutionState::Failed => "failed",
    }
}

/// Prints why a queued job waits, if the reason differs from the one in `last_reason`.
pub fn note_waiting_reason(job: &Job, last_reason: &mut Option<String>) {
    let now = &job.properties.status.waiting_for;
    if now != last_reason
        && let Some(why) = now
    {
        note(format_args!("The job \"{}\" waits: {why}", job.name));
    }
    last_reason.clone_from(now);
}

/// An error of a job as lines for the terminal.
pub fn error_lines(error: &BatchAiError) -> Vec<String> {
    let mut lines = vec![format!("Error message: {}", escape_controls(&error.message))];
    if !error.details.is_empty() {
        lines.push("Details:".to_owned());
    }
    for detail in &error.details {
        // A detail may hold the last output of a rank, which can contain control characters.
        let mut values = detail.value.lines().map(escape_controls);
        lines.push(format!("    {}: {}", escape_controls(&detail.name), values.next().unwrap_or_default()));
        lines.extend(values.map(|line| format!("        {line}")));
    }
    lines
}

/// Prints the causes of a job's failure and what to do, in the words of `corro job why`. The reader has seen its output.
pub async fn note_failure(session: &Session, target: &ResourceRef, job: &Job) {
    let explanation = match session.client() {
        Ok(client) => client.get::<JobsWhy>(&target.values()).await.ok(),
        Err(_) => None,
    };
    let lines = explanation.map(|explanation| explanation.failure_lines()).filter(|lines| !lines.is_empty());
    if let Some(lines) = lines {
        lines.iter().for_each(|line| note(format_args!("  {}", escape_controls(line))));
        return;
    }
    // The server has gone, or has another version.
    let errors = job.properties.status.execution_info.iter().flat_map(|info| &info.errors);
    errors.flat_map(error_lines).for_each(|line| note(format_args!("  {line}")));
    note(format_args!("See 'corro job why {}' for what to do.", job.name));
}

/// Line for a user who stops watching a job with Ctrl-C.
pub fn goes_on_line(job: &ResourceRef) -> String {
    let (name, arguments) = (job.name("job"), job.arguments());
    format!("The job \"{name}\" goes on. Stop it with 'corro batchai job terminate {arguments}'.")
}

/// The command line of `corro job why` for a job.
pub fn why_command(job: &ResourceRef) -> String {
    format!("corro job why {} {}", job.name("job"), experiment_arguments(job))
}

/// The arguments that name the experiment of a job.
pub fn experiment_arguments(job: &ResourceRef) -> String {
    format!("-g {} -w {} -e {}", job.name("group"), job.name("workspace"), job.name("experiment"))
}
