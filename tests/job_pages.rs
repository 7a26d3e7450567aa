//! The job pages of the dashboard in a real browser, on a real server with real nodes. Skipped with a notice without Chromium.
//! Any error in the browser's console fails a test.

#[path = "job_pages/details.rs"]
mod details;
#[path = "job_pages/engines.rs"]
mod engines;
#[path = "job_pages/experiment.rs"]
mod experiment;
mod harness;
#[path = "job_pages/job.rs"]
mod job;
#[path = "job_pages/notes.rs"]
mod notes;
#[path = "job_pages/notifications.rs"]
mod notifications;
#[path = "job_pages/plots.rs"]
mod plots;
#[path = "job_pages/resources.rs"]
mod resources;
#[path = "job_pages/runs.rs"]
mod runs;
#[path = "job_pages/texts.rs"]
mod texts;
#[path = "job_pages/usage.rs"]
mod usage;
