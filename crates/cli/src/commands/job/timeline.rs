//! `corro job timeline`: records the collectives of a running job's ranks for some seconds, as one trace for Perfetto or `chrome://tracing`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use corro_model::batchai::{JobTimeline, TimelineParameters, TimelineState};
use corro_model::ops::{JobsProcesses, JobsRecordTimeline, JobsTimeline};

use crate::error::CliError;
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::text_file::write_error;

#[derive(Args, Debug)]
pub struct TimelineArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// How long to record, in seconds: up to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// Print the last recording instead of making a new one
    #[arg(long)]
    last: bool,
    /// File to write to [default: standard output]
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    global: GlobalArgs,
}

const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub async fn run(args: TimelineArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let client = session.client()?;
    let values = target.values();
    let failed = |error| target.request_error(error);
    let no_engine = || {
        let name = target.name("job");
        CliError::new(format!(
            "no rank of the job \"{name}\" has recorded anything: only ranks that use Corro's Horovod can"
        ))
    };
    if !args.last {
        // Errors are ignored here: the request below reports why it cannot record, for example that the job has ended.
        let found = client.get::<JobsProcesses>(&values).await.ok();
        let mut processes = found.iter().flat_map(|found| &found.nodes).flat_map(|node| &node.processes).peekable();
        if processes.peek().is_some() && processes.all(|process| process.engines.is_empty()) {
            return Err(no_engine().hint("a job that has just started may not have called hvd.init() yet"));
        }
        let wanted = TimelineParameters { seconds: args.seconds };
        client.call::<JobsRecordTimeline>(&values, &[], &wanted).await.map_err(failed)?;
        note(format_args!("Recording for {} s …", args.seconds));
    }
    let timeline = loop {
        let timeline = client.get::<JobsTimeline>(&values).await.map_err(failed)?;
        if timeline.state == TimelineState::Done {
            break timeline;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            // The recording continues on the server.
            _ = tokio::signal::ctrl_c() => return Err(CliError::new("interrupted: get the recording with '--last'")),
        }
    };
    if timeline.ranks == 0 {
        return Err(no_engine());
    }
    let text = serde_json::to_string(&timeline).expect("plain data");
    match &args.file {
        Some(path) => std::fs::write(path, text + "\n").map_err(|error| write_error(path, &error))?,
        None => print(text),
    }
    note(summary(&timeline));
    Ok(())
}

fn summary(timeline: &JobTimeline) -> String {
    let spans = timeline.trace_events.iter().filter(|event| event.ph == "X").count();
    let mut text = format!("{spans} spans of {} ranks in {} s.", timeline.ranks, timeline.seconds);
    if timeline.dropped > 0 {
        text += &format!(" {} events did not fit: record for a shorter time.", timeline.dropped);
    }
    for node in &timeline.silent {
        text += &format!(" Node {node} did not answer in time.");
    }
    text
}
