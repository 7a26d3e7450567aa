//! The dashboard in a real browser, on a real server with real nodes: what people see, type and click. Passed over, with a word,
//! where there is no Chromium. Any error in the browser's console fails a test.

#[path = "dashboard/experiment.rs"]
mod experiment;
mod harness;
#[path = "dashboard/job.rs"]
mod job;
#[path = "dashboard/texts.rs"]
mod texts;
