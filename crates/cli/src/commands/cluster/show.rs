//! `corro cluster show`: a cluster in a few lines.

use clap::Args;
use corro_model::batchai::Cluster;
use corro_model::ops::ClustersGet;

use super::text::{scaling_text, summary, vm_size_text};
use crate::error::CliError;
use crate::job_notes::error_lines;
use crate::output::{Shape, TableKind, escape_controls};
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::ClusterNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    cluster: ClusterNameArgs,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: ShowArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.cluster.find(&session).await?;
    let cluster = session.client()?.get::<ClustersGet>(&target.values()).await;
    let cluster = cluster.map_err(|error| target.show_error(error))?;
    if args.global.is_output_chosen() {
        return session.print(Shape::Cluster, Some(TableKind::Cluster), &cluster);
    }
    for line in describe(&cluster, &target) {
        print(escape_controls(&line));
    }
    Ok(())
}

/// The cluster in lines. Pure.
fn describe(cluster: &Cluster, target: &ResourceRef) -> Vec<String> {
    let spec = &cluster.properties.spec;
    let mut lines = vec![
        summary(cluster),
        format!("  VM size:   {}", vm_size_text(&spec.vm_size)),
        format!("  Scaling:   {}", scaling_text(&spec.scale_settings)),
        format!("  Workspace: {} of resource group {}", target.name("workspace"), target.name("group")),
    ];
    let errors = cluster.properties.status.errors.iter().flat_map(error_lines);
    lines.extend(errors.map(|line| format!("  {line}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::cluster;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cluster_in_words() {
        let target = ResourceRef::from_names(&[("group", "", Some("g")), ("workspace", "", Some("w"))]).expect("names");
        assert_eq!(
            describe(&cluster(json!({"manual": {"targetNodeCount": 4}}), [4, 0, 0, 0, 0]), &target),
            [
                "Cluster nc6cluster: 4 nodes ready",
                "  VM size:   STANDARD_NC6 (6 cores, 56 GiB, 1 GPU)",
                "  Scaling:   4 nodes",
                "  Workspace: w of resource group g",
            ]
        );
    }
}
