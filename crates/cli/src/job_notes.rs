//! Texts about the state of a job that several commands print.

use corro_model::batchai::{BatchAiError, Job};

use crate::output::escape_controls;
use crate::resource::resource_ref::ResourceRef;
use crate::stdio::note;

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
