//! Warnings about the effects of a request: jobs that lose their nodes, volumes in use. Collected while the request is
//! handled and sent in response headers.

use std::sync::{Arc, Mutex, PoisonError};

use corro_model::batchai::{DeallocationOption, JobSpec, MountVolumes};
use corro_model::ids::arm;
use corro_model::rbac::Right;
use corro_model::validate;
use corro_model::vm_size::{self, VmSize};
use corro_model::{ClusterKey, FileServerKey, GroupKey, JobKey};
use corro_sched::scale::plan_scale;
use corro_store::{ClusterRecord, JobRecord, State};

use crate::app::App;
use crate::app::access::caller::scope_of_key;
use crate::scheduler_view;

/// Warnings of one request. Clones share the list.
#[derive(Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub fn add(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    pub fn drain(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Maximum number of jobs listed by name.
const MAX_NAMED_JOBS: usize = 5;

impl App {
    /// Warns that nodes of a new cluster do not have the resources of their VM size.
    pub fn warn_about_node_size(&self, record: &ClusterRecord) {
        let nodes_are = self.fleet.provider.get().and_then(|provider| provider.node_description());
        if let (Some(nodes_are), Some(size)) = (nodes_are, vm_size::find(&record.spec.vm_size)) {
            let VmSize { name, cores, memory_gib, gpus } = size;
            let gpus = if *gpus > 0 { format!(", GPUs: {gpus}") } else { String::new() };
            self.request.warnings.add(format!(
                "each node is {nodes_are}. {name} (cores: {cores}, memory: {memory_gib} GiB{gpus}) and the image are only declared"
            ));
        }
    }

    /// Warns about a container job where no node can run containers. Asks the provider on a blocking thread, because it
    /// may connect to sockets.
    pub async fn warn_about_containers(&self, spec: &JobSpec) {
        let Some(provider) = self.fleet.provider.get().filter(|_| spec.container_settings.is_some()).cloned() else {
            return;
        };
        let problem = tokio::task::spawn_blocking(move || provider.container_problem()).await;
        if let Ok(Some(problem)) = problem {
            self.request.warnings.add(format!("the job asks for a container: {problem}"));
        }
    }

    /// Warns about paths of a job below a mount root where no volume is mounted.
    pub fn warn_about_unmounted_paths(&self, state: &State, cluster: &ClusterKey, spec: &JobSpec) {
        let cluster = state.clusters.get(cluster);
        let volumes = cluster.and_then(|cluster| cluster.spec.node_setup.as_ref()?.mount_volumes.as_ref());
        validate::unmounted_paths(spec, volumes).into_iter().for_each(|warning| self.request.warnings.add(warning));
    }

    /// Warns about jobs on nodes that leave a cluster after a resize.
    pub fn warn_about_resize(&self, state: &State, key: &ClusterKey, record: &ClusterRecord) {
        let clock = self.timeline();
        let view = scheduler_view::cluster_view(state, key, record, &clock);
        let scaling = plan_scale(&view, clock.now(), &self.config.scheduling.policy);
        let mut jobs: Vec<&JobKey> = Vec::new();
        for node in view.nodes.iter().filter(|node| scaling.leaving.contains(node.id)) {
            if let corro_sched::NodeAvailability::Busy(job) = node.availability
                && !jobs.contains(&job)
            {
                jobs.push(job);
            }
        }
        let option = record.spec.scale_settings.manual.as_ref().map(|manual| manual.node_deallocation_option);
        let becomes = match option.unwrap_or_default() {
            DeallocationOption::Requeue => "stopped and queued again, and restarts when there are nodes for it",
            DeallocationOption::Terminate => "stopped and fails",
            DeallocationOption::WaitForJobCompletion => return,
        };
        if !jobs.is_empty() {
            let names = self.list_job_names(state, &jobs);
            self.request.warnings.add(format!("running on nodes that are removed: {names}; each is {becomes}"));
        }
    }

    /// Warns about clusters that mount a file server which is being deleted.
    pub fn warn_about_file_server(&self, state: &State, key: &FileServerKey) {
        let is_it = |id: &str| {
            let named = arm::parse_file_server(id);
            named.is_some_and(|named| {
                GroupKey::new(named.group).workspace(named.workspace).file_server(named.name) == *key
            })
        };
        for (cluster, record) in state.clusters.iter() {
            let volumes = record.spec.node_setup.as_ref().and_then(|setup| setup.mount_volumes.as_ref());
            let mut mounted = volumes.into_iter().flat_map(|volumes| &volumes.file_servers);
            if mounted.any(|mounted| is_it(&mounted.file_server.id))
                && self.request.caller.may(Right::Read, &scope_of_key(cluster.as_str()))
            {
                let name = &record.name;
                self.request
                    .warnings
                    .add(format!("the cluster \"{name}\" mounts this file server: its jobs lose what is on it"));
            }
        }
    }

    /// Formats job names as `"a", "b" and 3 more`. Jobs that the caller may not read are only counted.
    fn list_job_names(&self, state: &State, jobs: &[&JobKey]) -> String {
        let may_read = |job: &&&JobKey| self.request.caller.may(Right::Read, &scope_of_key(job.as_str()));
        let name = |job: &&JobKey| state.jobs.get(*job).map_or_else(|| job.to_string(), |job| job.name.clone());
        let named = jobs.iter().filter(may_read).take(MAX_NAMED_JOBS);
        let named: Vec<String> = named.map(|job| format!("the job \"{}\"", name(job))).collect();
        match (jobs.len() - named.len(), named.is_empty()) {
            (0, _) => named.join(", "),
            (more, true) => format!("{more} jobs"),
            (more, false) => format!("{} and {more} more", named.join(", ")),
        }
    }
}

/// Warning if running jobs have the share mounted, directly or through their cluster.
pub fn share_in_use_warning(state: &State, account: &str, share: &str) -> Option<String> {
    let has = |volumes: Option<&MountVolumes>| {
        volumes.into_iter().flat_map(|volumes| &volumes.azure_file_shares).any(|mounted| {
            mounted.account().is_some_and(|of| of.eq_ignore_ascii_case(account)) && mounted.share_name() == Some(share)
        })
    };
    let of_cluster = |job: &JobRecord| {
        let cluster = state.clusters.get(&job.cluster);
        has(cluster.and_then(|cluster| cluster.spec.node_setup.as_ref()).and_then(|setup| setup.mount_volumes.as_ref()))
    };
    let jobs = state.active_jobs().filter(|(_, job)| has(job.spec.mount_volumes.as_ref()) || of_cluster(job));
    // Without names: the holder of an account key may not be allowed to read the jobs.
    match jobs.count() {
        0 => None,
        1 => Some("a running job has this share mounted: what it writes there from now on is lost".to_owned()),
        n => Some(format!("{n} running jobs have this share mounted: what they write there from now on is lost")),
    }
}
