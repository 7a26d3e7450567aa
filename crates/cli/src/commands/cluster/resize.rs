//! `corro cluster resize`: sets the number of nodes of a cluster, or the bounds between which it follows its jobs.

use clap::Args;
use corro_model::batchai::{ClusterUpdateParameters, ClusterUpdateProperties, ScaleSettings};
use corro_model::ops::ClustersUpdate;
use corro_model::validate;

use super::text::{scaling_text, summary};
use crate::commands::batchai::cluster::{Clusters, automatic, in_options, manual};
use crate::error::CliError;
use crate::resource::actions;
use crate::resource::short_names::ClusterNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct ResizeArgs {
    #[command(flatten)]
    cluster: ClusterNameArgs,
    /// Number of nodes. A job that loses a node goes back to the queue
    #[arg(long, short = 'N', visible_alias = "target", visible_short_alias = 't', value_name = "N", required_unless_present_any = ["min", "max"], conflicts_with_all = ["min", "max"])]
    nodes: Option<i32>,
    /// Minimum number of nodes of a cluster that follows its jobs [default: 0]
    #[arg(long, value_name = "N", requires = "max")]
    min: Option<i32>,
    /// Maximum number of nodes of a cluster that follows its jobs
    #[arg(long, value_name = "N")]
    max: Option<i32>,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: ResizeArgs) -> Result<(), CliError> {
    let settings = settings(&args);
    validate::check_scale(&settings).map_err(in_options)?;
    let session = Session::open(&args.global)?;
    let target = args.cluster.find(&session).await?;
    let scaling = scaling_text(&settings);
    let parameters = ClusterUpdateParameters { properties: ClusterUpdateProperties { scale_settings: Some(settings) } };
    let cluster = session.client()?.call::<ClustersUpdate>(&target.values(), &[], &parameters).await;
    let cluster = cluster.map_err(|error| target.request_error(error))?;
    if args.global.is_output_chosen() {
        return actions::print::<Clusters>(&session, &cluster);
    }
    print(format_args!("Cluster {} is resized to {scaling}", cluster.name));
    print(summary(&cluster));
    Ok(())
}

fn settings(args: &ResizeArgs) -> ScaleSettings {
    match (args.nodes, args.max) {
        (None, Some(max)) => automatic(args.min.unwrap_or(0), max, 0),
        (nodes, _) => manual(nodes.unwrap_or(0)),
    }
}
