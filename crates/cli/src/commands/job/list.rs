//! `corro job list`: the jobs of all experiments that options and defaults leave, newest first.

use std::time::SystemTime;

use clap::Args;
use corro_model::Timestamp;
use corro_model::batchai::{ExecutionState, JobSummary, parse_states};
use corro_model::ops::ClustersGet;
use corro_model::time::Span;

use crate::defaults::Defaults;
use crate::error::CliError;
use crate::job_notes::state_name;
use crate::output::TableKind;
use crate::output::text_table::{Align, TextTable};
use crate::output::units::format_age;
use crate::resource::args::ResourceNames;
use crate::resource::lookup::{self, JobFilter, find_cluster};
use crate::resource::resolve::Pin;
use crate::resource::short_names::ExperimentPlace;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::terminal;

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List only jobs in these states: queued, running, terminating, succeeded or failed, separated by commas
    #[arg(long, short = 's', value_name = "STATES")]
    state: Option<String>,
    /// List only the jobs of this cluster
    #[arg(long, short = 'c', value_name = "CLUSTER")]
    cluster: Option<String>,
    /// List jobs of all experiments and workspaces, without regard to defaults
    #[arg(long, short = 'a')]
    all: bool,
    /// List at most N jobs
    #[arg(long, short = 'l', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    place: ExperimentPlace,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: ListArgs) -> Result<(), CliError> {
    let states = args.state.unwrap_or_default();
    parse_states(&states).map_err(|error| CliError { exit: 2, ..CliError::from(error) })?;
    let session = Session::open(&args.global)?;
    let client = session.client()?;
    let defaults = if args.all { Defaults::default() } else { Defaults::load()? };
    let options = args.place.names();
    let cluster = match &args.cluster {
        None => String::new(),
        Some(name) => {
            let target = find_cluster(client, &defaults, Some(name), &options[..2]).await?;
            client.get::<ClustersGet>(&target.values()).await.map_err(|error| target.request_error(error))?.id
        }
    };
    let filter = JobFilter { pins: lookup::pins(&options, &defaults), states, cluster };
    let found = lookup::all_jobs(client, &filter, args.limit as usize).await?;
    if args.global.is_output_chosen() {
        return session.print_serialized(&found.jobs, Some(TableKind::JobSummary));
    }
    if found.jobs.is_empty() {
        note(empty_text(&filter));
        return Ok(());
    }
    for line in table(&found.jobs, Timestamp::from(SystemTime::now())).lines(terminal::output_width()) {
        print(line);
    }
    if found.has_more {
        note("There are older jobs: see more with --limit.");
    }
    Ok(())
}

/// Says that there are no jobs, and which names left others out.
fn empty_text(filter: &JobFilter) -> String {
    let filtered = if filter.states.is_empty() { "" } else { " in these states" };
    let pins: Vec<String> = filter.pins.iter().map(Pin::text).collect();
    if pins.is_empty() {
        return format!("There are no jobs{filtered}. Submit one with 'corro submit SCRIPT'.");
    }
    let hint = match filter.pins.iter().any(|pin| pin.source.is_some()) {
        true => " 'corro job list --all' lists the jobs elsewhere too.",
        false => "",
    };
    format!("There are no jobs{filtered} in {}.{hint}", pins.join(", "))
}

/// The table of jobs. Pure.
fn table(jobs: &[JobSummary], now: Timestamp) -> TextTable {
    let mut table = TextTable::new(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("EXPERIMENT", Align::Left),
        ("WORKSPACE", Align::Left),
        ("NODES", Align::Right),
        ("STARTED", Align::Left),
        ("TOOK", Align::Right),
        ("WHY", Align::Left),
    ]);
    let workspace = |job: &JobSummary| format!("{}/{}", job.resource_group, job.workspace);
    let has_several_workspaces = jobs.iter().any(|job| workspace(job) != workspace(&jobs[0]));
    for job in jobs {
        let took = job.start_time.map(|start| Span(job.end_time.unwrap_or(now).since(start)).in_words());
        table.push(vec![
            job.name.clone(),
            state_name(job.state).to_owned(),
            job.experiment.clone(),
            if has_several_workspaces { workspace(job) } else { String::new() },
            job.node_count.to_string(),
            job.start_time.map(|start| format_age(now.since(start))).unwrap_or_default(),
            took.unwrap_or_default(),
            why(job),
        ]);
    }
    table
}

/// What a queued job waits for, and why a job failed.
fn why(job: &JobSummary) -> String {
    let code = job.exit_code.filter(|code| *code != 0).map(|code| format!("exit code {code}"));
    match job.state {
        ExecutionState::Queued => job.waiting_for.clone().unwrap_or_default(),
        ExecutionState::Failed => code.or_else(|| job.error.clone()).unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::Source;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_542_000_000_000 + seconds * 1_000)
    }

    fn job(name: &str, state: &str, more: Value) -> JobSummary {
        let mut job = json!({"id": name, "name": name, "resourceGroup": "g", "workspace": "w", "experiment": "cifar",
            "clusterId": "/c", "toolType": "custom", "priority": "normal", "nodeCount": 2, "state": state,
            "since": at(0), "creationTime": at(0)});
        job.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        serde_json::from_value(job).expect("a job")
    }

    #[test]
    fn the_table_says_since_when_jobs_run_and_why_they_wait() {
        let jobs = [
            job("train-4", "queued", json!({"waitingFor": "2 nodes are busy"})),
            job("train-3", "running", json!({"startTime": at(0)})),
            job(
                "train-2",
                "failed",
                json!({"startTime": at(-7200), "endTime": at(-7110), "exitCode": 7, "error": "x"}),
            ),
            job("train-1", "failed", json!({"error": "the job was terminated"})),
        ];
        let expected = "\
NAME     STATE    EXPERIMENT  NODES  STARTED          TOOK  WHY
train-4  queued   cifar           2                         2 nodes are busy
train-3  running  cifar           2  2 min ago       2 min
train-2  failed   cifar           2  2 h ago    1 min 30 s  exit code 7
train-1  failed   cifar           2                         the job was terminated";
        assert_eq!(table(&jobs, at(120)).lines(None).join("\n"), expected);
    }

    #[test]
    fn workspaces_are_shown_where_they_differ() {
        let jobs = [job("a", "queued", json!({})), job("b", "queued", json!({"workspace": "v"}))];
        let lines = table(&jobs, at(0)).lines(None);
        assert_eq!(lines[0], "NAME  STATE   EXPERIMENT  WORKSPACE  NODES");
        assert!(lines[1].contains("g/w") && lines[2].contains("g/v"), "{lines:?}");
    }

    #[test]
    fn an_empty_list_names_what_left_jobs_out() {
        assert_eq!(empty_text(&JobFilter::default()), "There are no jobs. Submit one with 'corro submit SCRIPT'.");
        let source = Some(Source::ProjectFile("/x/corro.toml".into()));
        let pins = vec![Pin { parameter: "experiment", value: "cifar".to_owned(), source }];
        let filter = JobFilter { pins, states: "failed".to_owned(), ..JobFilter::default() };
        assert_eq!(
            empty_text(&filter),
            "There are no jobs in these states in experiment cifar (from /x/corro.toml). 'corro job list --all' lists the jobs elsewhere too."
        );
    }
}
