//! `corro cluster list`: the clusters that options and defaults leave.

use clap::Args;
use corro_model::batchai::Cluster;
use corro_model::ops::{ClustersGet, ClustersListAll};

use super::text::{nodes_text, scaling_text};
use crate::defaults::Defaults;
use crate::error::CliError;
use crate::output::text_table::{Align, TextTable};
use crate::output::{Shape, TableKind};
use crate::resource::args::ResourceNames;
use crate::resource::lookup;
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::WorkspacePlace;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::terminal;

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List the clusters of all workspaces, without regard to defaults
    #[arg(long, short = 'a')]
    all: bool,
    #[command(flatten)]
    place: WorkspacePlace,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: ListArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let defaults = if args.all { Defaults::default() } else { Defaults::load()? };
    let pins = lookup::pins(&args.place.names(), &defaults);
    let clusters: Vec<Cluster> = session.client()?.list::<ClustersListAll, _>(&[], &[]).await?;
    let mut listed = Vec::new();
    for cluster in clusters {
        let target = ResourceRef::from_id::<ClustersGet>("NAME", &cluster.id)?;
        if pins.iter().all(|pin| pin.fits(&target)) {
            listed.push((target, cluster));
        }
    }
    if args.global.is_output_chosen() {
        let clusters: Vec<&Cluster> = listed.iter().map(|(_, cluster)| cluster).collect();
        return session.print(Shape::Cluster, Some(TableKind::Cluster), &clusters);
    }
    if listed.is_empty() {
        let pins: Vec<String> = pins.iter().map(|pin| pin.text()).collect();
        let place = if pins.is_empty() { String::new() } else { format!(" in {}", pins.join(", ")) };
        note(format_args!("There are no clusters{place}. Make one with 'corro cluster create NAME --nodes N'."));
    } else {
        table(&listed).lines(terminal::output_width()).iter().for_each(print);
    }
    Ok(())
}

fn table(clusters: &[(ResourceRef, Cluster)]) -> TextTable {
    let columns = ["NAME", "NODES", "VM SIZE", "SCALING", "WORKSPACE"].map(|name| (name, Align::Left));
    let mut table = TextTable::new(&columns);
    let workspace = |target: &ResourceRef| format!("{}/{}", target.name("group"), target.name("workspace"));
    let has_several_workspaces = clusters.iter().any(|(target, _)| workspace(target) != workspace(&clusters[0].0));
    for (target, cluster) in clusters {
        let spec = &cluster.properties.spec;
        table.push(vec![
            cluster.name.clone(),
            nodes_text(cluster),
            spec.vm_size.clone(),
            scaling_text(&spec.scale_settings),
            if has_several_workspaces { workspace(target) } else { String::new() },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::cluster;
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_says_what_the_nodes_do() {
        let target = ResourceRef::from_names(&[("group", "", Some("g")), ("workspace", "", Some("w"))]).expect("names");
        let listed = [(target, cluster(json!({"manual": {"targetNodeCount": 4}}), [3, 1, 0, 0, 0]))];
        assert_eq!(
            table(&listed).lines(None),
            [
                "NAME        NODES                  VM SIZE       SCALING",
                "nc6cluster  3 nodes ready, 1 busy  STANDARD_NC6  4 nodes"
            ]
        );
    }
}
