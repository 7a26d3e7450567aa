//! `corro node`: single nodes of all clusters, and taking one back. Batch AI showed nodes by their numbers only; these stand
//! beside the compatible commands. How a node is reached is in `node`.

use clap::{Args, Subcommand};
use corro_model::batchai::{NodeSummary, PreemptParameters};
use corro_model::ops::{NodesList, NodesPreempt};

use crate::error::CliError;
use crate::output::{TableKind, escape_controls};
use crate::session::{GlobalArgs, Session};
use crate::stdio::note;

#[derive(Args, Debug)]
pub struct NodesArgs {
    #[command(subcommand)]
    command: NodesCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum NodesCommand {
    /// List the nodes of every cluster that you may read: state, priority, and what each runs
    #[command(after_help = "Example:\n  corro node list -o table")]
    List,
    /// Take a node of a low-priority cluster back, as the owner of the machine may at any time
    ///
    /// The processes of its job get SIGTERM, on all the job's nodes, and SIGKILL after a grace period. The job then waits
    /// again and starts from its beginning, with the same output directory: scripts should save their work there. This
    /// does not count against the three lost nodes that end a job. The node leaves, and is replaced where there is room.
    #[command(
        after_help = "Examples:\n  corro node preempt tvm-257509324_2-20180718t174802z-p\n  corro node preempt tvm-257509324_2-20180718t174802z-p --grace 5"
    )]
    Preempt(PreemptArgs),
}

#[derive(Args, Debug)]
struct PreemptArgs {
    /// Id of the node, as 'corro node list' shows it
    #[arg(value_name = "NODE")]
    node: String,
    /// Seconds between SIGTERM and SIGKILL [default: the server's --preemption-grace]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<f64>,
}

pub async fn run(args: NodesArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    match args.command {
        NodesCommand::List => {
            let nodes = serde_json::to_value(nodes(&session).await?).map_err(|error| CliError::from_error(&error))?;
            session.print_shaped(&nodes, Some(TableKind::Node))
        }
        NodesCommand::Preempt(args) => preempt(&session, args).await,
    }
}

async fn nodes(session: &Session) -> Result<Vec<NodeSummary>, CliError> {
    let mut nodes = session.client()?.list::<NodesList, _>(&[], &[]).await?;
    // Older ones first: an id ends with the time, and its number grows.
    nodes.sort_by_key(|node| (node.cluster_id.clone(), node.node_id.as_str().len(), node.node_id.to_string()));
    Ok(nodes)
}

async fn preempt(session: &Session, args: PreemptArgs) -> Result<(), CliError> {
    let known = nodes(session).await?;
    let Some(node) = known.iter().find(|node| node.node_id.as_str() == args.node) else {
        let failure =
            CliError { exit: 3, ..CliError::new(format!("there is no node {}", escape_controls(&args.node))) };
        return Err(failure.hint("see the ids with 'corro node list -o table'"));
    };
    let values = [
        ("group", node.resource_group.as_str()),
        ("workspace", node.workspace.as_str()),
        ("cluster", node.cluster.as_str()),
        ("node", node.node_id.as_str()),
    ];
    let body = PreemptParameters { grace_seconds: args.grace };
    let taken = session.client()?.call::<NodesPreempt>(&values, &[], &body).await?;
    let grace = taken.preempted.map_or(0.0, |preemption| preemption.grace_ms as f64 / 1_000.0);
    match &taken.job {
        Some(job) => note(format_args!(
            "The processes of {} get SIGTERM now and SIGKILL after {grace} s. The job then waits again; the node leaves.",
            escape_controls(job)
        )),
        None => {
            note("The node runs nothing that you may read; it leaves its cluster, and is replaced where there is room.")
        }
    }
    let taken = serde_json::to_value(taken).map_err(|error| CliError::from_error(&error))?;
    session.print_value(&taken)
}
