//! `corro cluster delete`: deletes a cluster and its nodes after a confirmation that names the jobs it would fail.

use clap::Args;
use corro_model::ops::ClustersDelete;

use crate::commands::batchai::cluster::Clusters;
use crate::error::CliError;
use crate::resource::actions::{self, EndAction, EndOptions};
use crate::resource::short_names::ClusterNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    cluster: ClusterNameArgs,
    /// Return at once, without waiting until the cluster is deleted
    #[arg(long)]
    no_wait: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: DeleteArgs) -> Result<(), CliError> {
    if !args.cluster.is_named() {
        return Err(CliError::usage("the name of the cluster is required").hint("list them with 'corro cluster list'"));
    }
    let session = Session::open(&args.global)?;
    let target = args.cluster.find(&session).await?;
    let name = target.name("cluster").to_owned();
    let action = EndAction {
        progress_text: "Deleting",
        is_deletion: true,
        warning: Some(|targets| {
            let name = |parameter| targets.first().map_or("", |target| target.name(parameter));
            format!("This deletes the cluster {} of workspace {} and its nodes.", name("cluster"), name("workspace"))
        }),
    };
    let options = EndOptions { is_confirmed: args.yes, no_wait: args.no_wait };
    actions::end_targets::<Clusters, ClustersDelete>(&session, &[target], action, options).await?;
    print(format_args!("Cluster {name} is {}", if args.no_wait { "being deleted" } else { "deleted" }));
    Ok(())
}
