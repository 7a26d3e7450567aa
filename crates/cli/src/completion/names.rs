//! Names of the server for completion. One request within a short deadline; whatever goes wrong, there are no names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use corro_client::Client;
use corro_model::arm::{Group, StorageAccount};
use corro_model::batchai::{Cluster, JobSummary, NodeSummary, ShareSummary, Workspace};
use corro_model::ops::{
    AccountsList, ClustersGet, ClustersListAll, ExperimentsListAll, GroupsList, NodesList, SharesListAll,
    WorkspacesGet, WorkspacesList,
};
use tokio::runtime::{Builder, Runtime};

use super::value_kind::NameKind;
use super::words::option_value;
use crate::defaults::Defaults;
use crate::error::CliError;
use crate::job_notes::state_name;
use crate::resource::lookup::{JobFilter, all_jobs, pins};
use crate::resource::resolve::Pin;
use crate::resource::resource_ref::ResourceRef;
use crate::session::{GlobalArgs, Session};

/// A user who presses Tab does not wait longer.
const DEADLINE: Duration = Duration::from_millis(300);
/// Newest jobs that are offered.
const MAX_JOBS: usize = 200;

/// A name to offer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub value: String,
    /// Shown beside it, where the shell shows descriptions.
    pub help: String,
}

/// Fetches names. The options of the command line restrict them.
pub struct NameSource {
    runtime: Runtime,
    words: Vec<OsString>,
}

impl NameSource {
    pub fn new(words: &[OsString]) -> Option<NameSource> {
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        Some(NameSource { runtime, words: words.to_vec() })
    }

    /// The names of a kind for an argument of the command `path`, of which `typed` is written.
    pub fn names(&self, kind: NameKind, path: &[String], typed: &str) -> Vec<Name> {
        let is_short = path.first().is_none_or(|group| !["batchai", "storage", "group"].contains(&group.as_str()));
        let fetched = self.runtime.block_on(async {
            tokio::time::timeout(DEADLINE, async {
                let session = Session::open(&GlobalArgs::default())?;
                fetch(session.client()?, kind, &self.place(is_short), typed).await
            })
            .await
        });
        fetched.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// Names above the resource that the options fix, and for a short command the defaults.
    fn place(&self, is_short: bool) -> Vec<Pin> {
        let value = |long, short| option_value(&self.words, long, short);
        let options = [
            ("group", "", value("--resource-group", "-g")),
            ("workspace", "", value("--workspace", "-w")),
            ("experiment", "", value("--experiment", "-e")),
            ("account", "", value("--account-name", "")),
        ];
        let defaults = if is_short { Defaults::load_silently() } else { Defaults::default() };
        pins(&options, &defaults)
    }
}

async fn fetch(client: &Client, kind: NameKind, place: &[Pin], typed: &str) -> Result<Vec<Name>, CliError> {
    // An option does not restrict its own values.
    let fits = |parameter: &str, value: &str| {
        place.iter().filter(|pin| pin.parameter == parameter).all(|pin| pin.value.eq_ignore_ascii_case(value))
    };
    let name = |value: &str, help: &str| Name { value: value.to_owned(), help: help.to_owned() };
    let mut names = BTreeSet::new();
    match kind {
        NameKind::Group => {
            let groups: Vec<Group> = client.list::<GroupsList, _>(&[], &[]).await?;
            names.extend(groups.iter().map(|group| name(&group.name, "")));
        }
        NameKind::Workspace => {
            let workspaces: Vec<Workspace> = client.list::<WorkspacesList, _>(&[], &[]).await?;
            for workspace in workspaces {
                let group = ResourceRef::from_id::<WorkspacesGet>("", &workspace.id)?.name("group").to_owned();
                if fits("group", &group) {
                    names.insert(name(&workspace.name, &format!("of group {group}")));
                }
            }
        }
        NameKind::Experiment => {
            let experiments = client.list::<ExperimentsListAll, _>(&[], &[]).await?;
            let fitting = experiments
                .iter()
                .filter(|found| fits("group", &found.resource_group) && fits("workspace", &found.workspace));
            names.extend(fitting.map(|found| name(&found.name, &format!("of workspace {}", found.workspace))));
        }
        NameKind::Cluster => {
            let clusters: Vec<Cluster> = client.list::<ClustersListAll, _>(&[], &[]).await?;
            for cluster in clusters {
                let target = ResourceRef::from_id::<ClustersGet>("", &cluster.id)?;
                if fits("group", target.name("group")) && fits("workspace", target.name("workspace")) {
                    names.insert(name(&cluster.name, &format!("of workspace {}", target.name("workspace"))));
                }
            }
        }
        NameKind::Job | NameKind::ActiveJob => {
            let states = if kind == NameKind::ActiveJob { "queued,running,terminating" } else { "" };
            let pins: Vec<Pin> = place.iter().filter(|pin| pin.parameter != "account").cloned().collect();
            let filter = JobFilter { pins, states: states.to_owned(), ..JobFilter::default() };
            // Newest first, as they are most often meant.
            return Ok(job_names(&all_jobs(client, &filter, MAX_JOBS).await?.jobs, typed.contains('/')));
        }
        NameKind::Share | NameKind::SharePath => {
            let shares: Vec<ShareSummary> = client.list::<SharesListAll, _>(&[], &[]).await?;
            let end = if kind == NameKind::SharePath { ":" } else { "" };
            let fitting = shares.iter().filter(|share| fits("account", &share.account));
            names.extend(
                fitting.map(|share| name(&format!("{}{end}", share.name), &format!("of account {}", share.account))),
            );
        }
        NameKind::Account => {
            let accounts: Vec<StorageAccount> = client.list::<AccountsList, _>(&[], &[]).await?;
            names.extend(accounts.iter().map(|account| name(&account.name, "")));
        }
        NameKind::Node => {
            let nodes: Vec<NodeSummary> = client.list::<NodesList, _>(&[], &[]).await?;
            names.extend(nodes.iter().map(|node| name(node.node_id.as_str(), &format!("of cluster {}", node.cluster))));
        }
    }
    let mut values = BTreeSet::new();
    Ok(names.into_iter().filter(|name| values.insert(name.value.clone())).collect())
}

/// Names of jobs, each once, or as `EXPERIMENT/JOB`. Pure.
fn job_names(jobs: &[JobSummary], with_experiment: bool) -> Vec<Name> {
    let mut values = BTreeSet::new();
    let name = |job: &JobSummary| Name {
        value: if with_experiment { format!("{}/{}", job.experiment, job.name) } else { job.name.clone() },
        help: format!("{}, of experiment {}", state_name(job.state), job.experiment),
    };
    jobs.iter().map(name).filter(|name| values.insert(name.value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_is_offered_once_and_the_newest_first() {
        let job = |name: &str, experiment: &str| -> JobSummary {
            let job = json!({"id": "i", "name": name, "resourceGroup": "g", "workspace": "w", "experiment": experiment,
                "clusterId": "/c", "toolType": "custom", "priority": "normal", "nodeCount": 1, "state": "running",
                "since": "2018-06-21T17:15:18Z", "creationTime": "2018-06-21T17:15:18Z"});
            serde_json::from_value(job).expect("a job")
        };
        let jobs = [job("b", "e"), job("a", "e"), job("a", "f")];
        let values =
            |with_experiment| job_names(&jobs, with_experiment).into_iter().map(|name| name.value).collect::<Vec<_>>();
        assert_eq!(values(false), ["b", "a"]);
        assert_eq!(values(true), ["e/b", "e/a", "f/a"]);
        assert_eq!(job_names(&jobs, false)[0].help, "running, of experiment e");
    }
}
