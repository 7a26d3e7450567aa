//! `corro node`: lists the nodes of all clusters, and preempts one. Batch AI had no such commands.

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
    /// List the nodes of all clusters that you can read, with state, priority and job
    #[command(after_help = "Example:\n  corro node list -o table")]
    List,
    /// Preempt a node of a low-priority cluster
    ///
    /// The job on the node is stopped on all its nodes: its processes get SIGTERM, then SIGKILL after a grace period. The job
    /// goes back to the queue and starts again with the same output directory, so scripts should save checkpoints there. A
    /// preemption does not count as one of the three lost nodes after which a job fails. The node leaves the cluster and is
    /// replaced if there is capacity.
    #[command(
        after_help = "Examples:\n  corro node preempt tvm-257509324_2-20180718t174802z-p\n  corro node preempt tvm-257509324_2-20180718t174802z-p --grace 5"
    )]
    Preempt(PreemptArgs),
}

#[derive(Args, Debug)]
struct PreemptArgs {
    /// Id of the node, as listed by 'corro node list'
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
            let nodes =
                serde_json::to_value(list_nodes(&session).await?).map_err(|error| CliError::from_error(&error))?;
            session.print_shaped(&nodes, Some(TableKind::Node))
        }
        NodesCommand::Preempt(args) => preempt(&session, args).await,
    }
}

async fn list_nodes(session: &Session) -> Result<Vec<NodeSummary>, CliError> {
    let mut nodes = session.client()?.list::<NodesList, _>(&[], &[]).await?;
    // Oldest first: a longer id has a higher number.
    nodes.sort_by_key(|node| (node.cluster_id.clone(), node.node_id.as_str().len(), node.node_id.to_string()));
    Ok(nodes)
}

async fn preempt(session: &Session, args: PreemptArgs) -> Result<(), CliError> {
    let nodes = list_nodes(session).await?;
    let Some(node) = nodes.iter().find(|node| node.node_id.as_str() == args.node) else {
        let error = CliError { exit: 3, ..CliError::new(format!("there is no node {}", escape_controls(&args.node))) };
        return Err(error.hint("see the ids with 'corro node list -o table'"));
    };
    let values = [
        ("group", node.resource_group.as_str()),
        ("workspace", node.workspace.as_str()),
        ("cluster", node.cluster.as_str()),
        ("node", node.node_id.as_str()),
    ];
    let body = PreemptParameters { grace_seconds: args.grace };
    let preempted = session.client()?.call::<NodesPreempt>(&values, &[], &body).await?;
    let grace = preempted.preempted.map_or(0.0, |preemption| preemption.grace_ms as f64 / 1_000.0);
    match &preempted.job {
        Some(job) => note(format_args!(
            "The processes of {} get SIGTERM now and SIGKILL after {grace} s. The job is queued again; the node leaves.",
            escape_controls(job)
        )),
        None => {
            note("The node runs no job that you may read; it leaves its cluster, and is replaced if there is capacity.")
        }
    }
    let preempted = serde_json::to_value(preempted).map_err(|error| CliError::from_error(&error))?;
    session.print_value(&preempted)
}
