//! `corro batchai job wait`: polls a job until it ends, prints state changes to standard error, and exits with the job's exit code.

use std::io;
use std::time::Duration;

use corro_model::batchai::{ExecutionInfo, ExecutionState, Job};
use corro_model::ops::JobsGet;

use crate::error::CliError;
use crate::job_notes::{error_lines, goes_on_line, note_waiting_reason, state_name};
use crate::output::{python_date_time, python_duration};
use crate::resource::resource_ref::ResourceRef;
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::note;

/// Exit code if the job has none; `az` exits with -1.
const NO_EXIT_CODE: u8 = 255;

const MAX_POLL_PAUSE: Duration = Duration::from_secs(15);

/// Exit code after Ctrl-C, as of a process that SIGINT ended.
pub const INTERRUPTED: u8 = 130;

pub async fn wait(session: &Session, target: &ResourceRef, interval: Option<u64>) -> Result<(), CliError> {
    unless_interrupted(poll(session, target, interval), tokio::signal::ctrl_c(), || note(goes_on_line(target))).await
}

/// Waits for the end of a job. Ctrl-C ends only the waiting, which `say` tells the user.
async fn unless_interrupted(
    ended: impl Future<Output = Result<(), CliError>>,
    interrupted: impl Future<Output = io::Result<()>>,
    say: impl FnOnce(),
) -> Result<(), CliError> {
    tokio::select! {
        result = ended => result,
        Ok(()) = interrupted => {
            say();
            Err(CliError::silent(INTERRUPTED))
        }
    }
}

async fn poll(session: &Session, target: &ResourceRef, interval: Option<u64>) -> Result<(), CliError> {
    let mut pause = Duration::from_secs(interval.unwrap_or(1));
    let mut reported = ReportedState::default();
    let (mut retry, mut waiting) = (Retry::default(), None);
    loop {
        let job = match session.client()?.get::<JobsGet>(&target.values()).await {
            Ok(job) => job,
            Err(error) => {
                retry.pause_or_fail(error, target).await?;
                continue;
            }
        };
        retry.reset();
        for line in reported.news(&job) {
            note(line);
        }
        note_waiting_reason(&job, &mut waiting);
        let info = job.properties.status.execution_info.as_ref();
        match job.properties.status.execution_state {
            ExecutionState::Succeeded => return Ok(()),
            ExecutionState::Failed => {
                note(format_args!("The job \"{}\" in resource group \"{}\" failed.", job.name, target.name("group")));
                for line in failure_lines(info) {
                    note(line);
                }
                return Err(CliError::silent(exit_code(info)));
            }
            _ => {
                tokio::time::sleep(pause).await;
                if interval.is_none() {
                    // The end of a short job is seen soon, and a long job is not polled too often.
                    pause = (pause + pause / 4).min(MAX_POLL_PAUSE);
                }
            }
        }
    }
}

/// State that was last printed.
#[derive(Default)]
struct ReportedState {
    submitted: bool,
    started: bool,
    state: Option<ExecutionState>,
}

impl ReportedState {
    /// Lines for the changes since the last poll.
    fn news(&mut self, job: &Job) -> Vec<String> {
        let (properties, status) = (&job.properties, &job.properties.status);
        let mut lines = Vec::new();
        if !std::mem::replace(&mut self.submitted, true) {
            lines.push(format!("Job submitted at {}", python_date_time(properties.provisioning.creation_time)));
        }
        if let Some(info) = &status.execution_info
            && !std::mem::replace(&mut self.started, true)
        {
            lines.push(format!("Job started execution at {}", python_date_time(info.start_time)));
        }
        let state = status.execution_state;
        if self.state.replace(state) != Some(state) {
            lines.push(format!("Job state: {}", state_name(state)));
        }
        if state == ExecutionState::Succeeded
            && let Some(end) = end_text(status.execution_info.as_ref())
        {
            lines.push(format!("Job completed {end}"));
        }
        lines
    }
}

fn failure_lines(info: Option<&ExecutionInfo>) -> Vec<String> {
    let Some(info) = info else { return Vec::new() };
    let code = info.exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
    let end = end_text(Some(info)).map_or_else(String::new, |end| format!(" {end}"));
    let mut lines = vec![format!("Job failed{code}{end}")];
    lines.extend(info.errors.iter().flat_map(error_lines));
    lines
}

/// `at TIME; execution took DURATION`.
fn end_text(info: Option<&ExecutionInfo>) -> Option<String> {
    let info = info?;
    let end = info.end_time?;
    let took = end.since(info.start_time);
    Some(format!("at {}; execution took {}", python_date_time(end), python_duration(took)))
}

pub fn exit_code(info: Option<&ExecutionInfo>) -> u8 {
    // A failed job must not exit with 0, even if its code is 0 or a multiple of 256.
    let code = info.and_then(|info| info.exit_code).map(|code| code as u8);
    code.filter(|code| *code != 0).unwrap_or(NO_EXIT_CODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(state: &str, info: Value) -> Job {
        let mut properties = json!({
            "experimentName": "e", "jobOutputDirectoryPathSegment": "x", "toolType": "custom",
            "nodeCount": 1, "stdOutErrPathPrefix": "p",
            "creationTime": "2018-06-21T17:15:18.288Z", "provisioningState": "succeeded",
            "provisioningStateTransitionTime": "2018-06-21T17:15:18.288Z",
            "executionState": state, "executionStateTransitionTime": "2018-06-21T17:15:18.288Z"
        });
        if !info.is_null() {
            properties["executionInfo"] = info;
        }
        serde_json::from_value(json!({"id": "i", "name": "j", "type": "t", "properties": properties})).expect("a job")
    }

    #[tokio::test]
    async fn ctrl_c_says_that_the_job_goes_on() {
        let mut is_said = false;
        let never = std::future::pending::<Result<(), CliError>>();
        let result = unless_interrupted(never, async { Ok(()) }, || is_said = true).await;
        assert_eq!((result.expect_err("interrupted").exit, is_said), (130, true));
        let never = std::future::pending();
        assert!(unless_interrupted(async { Ok(()) }, never, || panic!("not interrupted")).await.is_ok());
        // Without a handler for the signal the job is still waited for.
        let no_handler = async { Err(io::ErrorKind::Other.into()) };
        assert!(unless_interrupted(async { Ok(()) }, no_handler, || panic!("not interrupted")).await.is_ok());
        let names = [("group", "-g", Some("g")), ("workspace", "-w", Some("w")), ("experiment", "-e", Some("e"))];
        let names: Vec<_> = names.into_iter().chain([("job", "-n", Some("j"))]).collect();
        let target = ResourceRef::from_names(&names).expect("all names");
        assert_eq!(
            goes_on_line(&target),
            "The job \"j\" goes on. Stop it with 'corro batchai job terminate -g g -w w -e e -n j'."
        );
    }

    #[test]
    fn each_change_is_printed_once() {
        let mut reported = ReportedState::default();
        let queued = job("queued", Value::Null);
        assert_eq!(reported.news(&queued), ["Job submitted at 2018-06-21 17:15:18.288000+00:00", "Job state: queued"]);
        assert!(reported.news(&queued).is_empty());
        let info = json!({"startTime": "2018-06-21T17:16:00Z"});
        assert_eq!(
            reported.news(&job("running", info)),
            ["Job started execution at 2018-06-21 17:16:00+00:00", "Job state: running"]
        );
        let info = json!({"startTime": "2018-06-21T17:16:00Z", "endTime": "2018-06-21T18:17:01Z", "exitCode": 0});
        assert_eq!(
            reported.news(&job("succeeded", info)),
            ["Job state: succeeded", "Job completed at 2018-06-21 18:17:01+00:00; execution took 1:01:01"]
        );
    }

    #[test]
    fn a_failure_is_printed_and_becomes_the_exit_code() {
        let info = json!({"startTime": "2018-06-21T17:16:00Z", "endTime": "2018-06-21T17:16:02Z", "exitCode": 3,
            "errors": [{"code": "JobFailed", "message": "Job failed with non-zero exit code",
                        "details": [{"name": "Rank", "value": "2"}, {"name": "StdErr", "value": "a\n\x1b[2Jb"}]}]});
        let failed = job("failed", info);
        let info = failed.properties.status.execution_info.as_ref();
        assert_eq!(
            failure_lines(info),
            [
                "Job failed with exit code 3 at 2018-06-21 17:16:02+00:00; execution took 0:00:02",
                "Error message: Job failed with non-zero exit code",
                "Details:",
                "    Rank: 2",
                "    StdErr: a",
                "        \\x1b[2Jb"
            ]
        );
        assert_eq!(exit_code(info), 3);
        assert_eq!(exit_code(None), 255);
    }
}
