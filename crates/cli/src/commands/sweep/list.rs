//! `corro sweep list`: the sweeps of all experiments that options and defaults leave, newest first.

use std::collections::BTreeMap;
use std::time::SystemTime;

use clap::Args;
use corro_model::Timestamp;
use corro_model::batchai::{JobCounts, JobSummary};
use serde_json::{Value, json};

use crate::defaults::Defaults;
use crate::error::CliError;
use crate::output::text_table::{Align, TextTable};
use crate::output::units::format_age;
use crate::resource::args::ResourceNames;
use crate::resource::lookup::{self, JobFilter};
use crate::resource::short_names::ExperimentPlace;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::terminal;

/// Newest jobs among which sweeps are looked for.
const MAX_LISTED_JOBS: usize = 20_000;

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List the sweeps of all experiments and workspaces, without regard to defaults
    #[arg(long, short = 'a')]
    all: bool,
    #[command(flatten)]
    place: ExperimentPlace,
    #[command(flatten)]
    global: GlobalArgs,
}

/// A sweep in the list, newest submission first.
struct SweepRow {
    name: String,
    workspace: String,
    experiment: String,
    counts: JobCounts,
    submitted: Timestamp,
}

pub async fn run(args: ListArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let defaults = if args.all { Defaults::default() } else { Defaults::load()? };
    let filter = JobFilter { pins: lookup::pins(&args.place.names(), &defaults), ..JobFilter::default() };
    let found = lookup::all_jobs(session.client()?, &filter, MAX_LISTED_JOBS).await?;
    let rows = sweep_rows(&found.jobs);
    if args.global.is_output_chosen() {
        return session.print_value(&rows.iter().map(row_json).collect());
    }
    let now = Timestamp::from(SystemTime::now());
    for line in list_table(&rows, now).lines(terminal::output_width()) {
        print(line);
    }
    if rows.is_empty() {
        note(
            "There are no sweeps here. Start one with 'corro sweep SCRIPT --param NAME=VALUES', or list all with 'corro sweep list --all'.",
        );
    }
    if found.has_more {
        note(format_args!("Only the newest {MAX_LISTED_JOBS} jobs were looked at: name an experiment with -e."));
    }
    Ok(())
}

/// The sweeps of these jobs, in the order of their newest jobs.
fn sweep_rows(jobs: &[JobSummary]) -> Vec<SweepRow> {
    let mut rows: Vec<SweepRow> = Vec::new();
    let mut index: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for job in jobs {
        let Some(sweep) = &job.sweep else { continue };
        let workspace = format!("{}/{}", job.resource_group, job.workspace);
        let key = [&workspace, &job.experiment, sweep].map(|name| name.to_lowercase());
        let at = *index.entry(key.into()).or_insert_with(|| {
            rows.push(SweepRow {
                name: sweep.clone(),
                workspace,
                experiment: job.experiment.clone(),
                counts: JobCounts::default(),
                submitted: job.creation_time,
            });
            rows.len() - 1
        });
        rows[at].counts.count(job.state);
        rows[at].submitted = rows[at].submitted.min(job.creation_time);
    }
    rows
}

fn list_table(rows: &[SweepRow], now: Timestamp) -> TextTable {
    let mut table = TextTable::new(&[
        ("NAME", Align::Left),
        ("EXPERIMENT", Align::Left),
        ("WORKSPACE", Align::Left),
        ("QUEUED", Align::Right),
        ("RUNNING", Align::Right),
        ("ENDED", Align::Right),
        ("SUBMITTED", Align::Left),
    ]);
    let has_several_workspaces = rows.iter().any(|row| row.workspace != rows[0].workspace);
    for row in rows {
        let counts = row.counts;
        table.push(vec![
            row.name.clone(),
            row.experiment.clone(),
            if has_several_workspaces { row.workspace.clone() } else { String::new() },
            counts.queued.to_string(),
            (counts.running + counts.terminating).to_string(),
            (counts.succeeded + counts.failed).to_string(),
            format_age(now.since(row.submitted)),
        ]);
    }
    table
}

fn row_json(row: &SweepRow) -> Value {
    json!({
        "name": row.name, "experiment": row.experiment, "workspace": row.workspace, "submitted": row.submitted,
        "counts": row.counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_sweep() {
        let job = |name: &str, sweep: Value, experiment: &str, state: &str, created: &str| {
            json!({
                "id": "", "name": name, "resourceGroup": "g", "workspace": "w", "experiment": experiment, "clusterId": "",
                "toolType": "custom", "priority": "normal", "nodeCount": 1, "state": state, "since": created,
                "creationTime": created, "sweep": sweep,
            })
        };
        let jobs = json!([
            job("s-002", json!("s"), "e", "queued", "2026-01-01T10:00:02Z"),
            job("plain", Value::Null, "e", "queued", "2026-01-01T10:00:02Z"),
            job("s-001", json!("s"), "e", "failed", "2026-01-01T10:00:01Z"),
            job("s-001", json!("S"), "f", "running", "2026-01-01T10:00:00Z"),
        ]);
        let jobs: Vec<JobSummary> = serde_json::from_value(jobs).expect("jobs");
        let now = Timestamp::parse("2026-01-01T10:00:31Z").expect("a time");
        let expected = [
            "NAME  EXPERIMENT  QUEUED  RUNNING  ENDED  SUBMITTED",
            "s     e                1        0      1  30 s ago",
            "S     f                0        1      0  31 s ago",
        ];
        assert_eq!(list_table(&sweep_rows(&jobs), now).lines(None), expected);
    }
}
