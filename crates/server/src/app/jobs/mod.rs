//! Jobs: submit, get, list, terminate, delete. The scheduler decides where and when they run.

mod annotations;
pub mod dependencies;
pub mod expected_ends;
mod explanation;
pub mod log_followers;
pub mod output_files;
pub mod process_stats;
mod project_files;
pub mod queue_status;
pub mod timelines;
pub mod training_curves;
pub mod tunnels;

use std::sync::Arc;

use corro_model::batchai::*;
use corro_model::defaults::fill_job;
use corro_model::ids::arm::{self, WorkspaceResource};
use corro_model::names::{NameKind, check_name};
use corro_model::state::{JobEvent, TransitionError};
use corro_model::validate::{check_job, check_trial_name, unsupported};
use corro_model::{ApiError, ExperimentKey, GroupKey, JobKey, Timestamp};
use corro_store::{JobRecord, NewJob, OperationGoal, State};

use crate::app::access::caller::ClientProgram;
use crate::app::jobs::dependencies::resolve_dependencies;
use crate::app::jobs::queue_status::{QueueStatus, QueueStatuses};
use crate::app::resources::deletion::{mark_job_deleting, terminate_job};
use crate::app::resources::idempotent_put::{Put, is_same_spec, put_conflict};
use crate::app::resources::lookup::{
    JobPath, ensure_not_deleting, find_cluster, find_experiment, find_job, find_workspace, group_name,
};
use crate::app::resources::{operations, spec_secrets};
use crate::app::webhook::WebhookTarget;
use crate::app::{App, guid, provisioning_succeeded};

impl App {
    pub async fn create_job(&self, path: JobPath, body: JobCreateParameters) -> Result<Put<Job>, ApiError> {
        check_name(NameKind::Job, &path.job)?;
        check_job(&body.properties)?;
        check_trial_name(&body.properties, &path.job)?;
        self.check_webhook("properties.notifications", body.properties.notifications.as_ref())?;
        let fingerprint = self.fingerprint(&body);
        let mut spec = body.properties;
        fill_job(&mut spec);
        let unsupported_error = unsupported(&spec);
        let bundle = spec_secrets::extract_job_secrets(&mut spec);
        let webhook = WebhookTarget::extract(&mut spec.notifications);
        self.warn_about_containers(&spec).await;
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit(move |txn| {
            let (experiment_key, experiment) =
                find_experiment(txn.state(), &path.group, &path.workspace, &path.experiment)?;
            ensure_not_deleting(&experiment.provisioning, "experiment", &path.experiment)?;
            let (_, workspace) = find_workspace(txn.state(), &path.group, &path.workspace)?;
            let key = path.key();
            if let Some(old) = txn.get::<JobRecord>(&key) {
                ensure_not_deleting(&old.provisioning, "job", &path.job)?;
                // The cluster may be deleted by now; if not, its id is normalised for the comparison.
                if let Ok((_, cluster_id)) = app.cluster_of(txn.state(), &spec) {
                    spec.cluster = Some(ResourceId { id: cluster_id });
                }
                let old_webhook = old.webhook.as_ref().map(|sealed| app.open_webhook(sealed)).transpose()?;
                let same = is_same_spec(&spec, &old.spec)
                    && app.open_secrets(old.secrets.as_ref())? == bundle
                    && old_webhook == webhook;
                if old.fingerprint != fingerprint && !same {
                    let way_out = "choose another name or delete it first";
                    return Err(put_conflict("job", &path.job, &spec, &old.spec, way_out));
                }
                return Ok(Put::Unchanged(Box::new(app.job_response(txn.state(), &key, &old, now))));
            }
            let (cluster, cluster_id) = app.cluster_of(txn.state(), &spec)?;
            spec.cluster = Some(ResourceId { id: cluster_id });
            app.subnet_of(txn.state(), "properties.mountVolumes", spec.mount_volumes.as_ref())?;
            app.warn_about_unmounted_paths(txn.state(), &cluster, &spec);
            let dependencies = resolve_dependencies(txn.state(), &key, &spec)?;
            let secrets = app.seal_secrets(bundle);
            let webhook = webhook.as_ref().map(|target| app.seal_webhook(target));
            let guid = guid();
            let segment = format!(
                "{}/{}/workspaces/{}/experiments/{}/jobs/{}/{guid}",
                app.installation.subscription,
                group_name(txn.state(), &GroupKey::new(&path.group)),
                workspace.name,
                txn.state().experiments.get(&experiment_key).map_or(path.experiment.as_str(), |e| &e.name),
                path.job,
            );
            let sequence = txn.next_sequence();
            let provisioning = provisioning_succeeded(now);
            let name = path.job.clone();
            #[rustfmt::skip]
            let job = NewJob { name, guid, sequence, cluster, spec, secrets, fingerprint, segment, provisioning };
            let record = JobRecord::queued(job, now).owned_by(&app.request.caller.id);
            txn.put(key.clone(), record.depending_on(dependencies).reporting_to(webhook));
            if let Some(error) = unsupported_error {
                // Accepted as by the Azure service, but failed at once: a queued job that cannot run would only block
                // nodes.
                let event = JobEvent::Failed { exit_code: None, errors: vec![error], at: now };
                txn.job_event(&key, event, now).map_err(|refused| internal(&refused))?;
            }
            let operation =
                operations::begin_operation(&app, txn, OperationGoal::JobCreated(key), app.job_resource_id(&path), now);
            Ok(Put::Begun { operation, location: workspace.location })
        });
        commit.await
    }

    pub fn job(&self, path: &JobPath) -> Result<Job, ApiError> {
        let snapshot = self.snapshot();
        let (key, record) = find_job(&snapshot, path)?;
        Ok(self.job_response(&snapshot, &key, &record, self.now()))
    }

    /// At most `limit` jobs from the name `first` on, and the name that follows them.
    pub fn jobs(
        &self,
        (group, workspace, experiment): (&str, &str, &str),
        first: &str,
        limit: usize,
    ) -> Result<(Vec<Job>, Option<String>), ApiError> {
        let snapshot = self.snapshot();
        let (key, _) = find_experiment(&snapshot, group, workspace, experiment)?;
        let mut rest = snapshot.jobs_from(&key, first);
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let jobs = self.job_responses(&snapshot, &key, &page, self.now());
        Ok((jobs, rest.next().map(|(_, job)| job.name.clone())))
    }

    /// Returns the operation's id and location, or `None` if the job has already ended.
    pub async fn terminate_job(&self, path: JobPath) -> Result<Option<(String, String)>, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let (key, record) = find_job(txn.state(), &path)?;
            if record.state().is_terminal() {
                return Ok(None);
            }
            terminate_job(txn, &key, now);
            let (_, workspace) = find_workspace(txn.state(), &path.group, &path.workspace)?;
            let id = app.job_resource_id(&path);
            Ok(Some((
                operations::begin_operation(&app, txn, OperationGoal::JobEnded(key), id, now),
                workspace.location,
            )))
        });
        commit.await
    }

    /// Returns the operation's id and location, or `None` if there is nothing to delete. Files on shares are kept.
    pub async fn delete_job(&self, path: JobPath) -> Result<Option<(String, String)>, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let Ok((key, _)) = find_job(txn.state(), &path) else { return Ok(None) };
            mark_job_deleting(txn, &key, now);
            let (_, workspace) = find_workspace(txn.state(), &path.group, &path.workspace)?;
            let id = app.job_resource_id(&path);
            Ok(Some((operations::begin_operation(&app, txn, OperationGoal::JobGone(key), id, now), workspace.location)))
        });
        commit.await
    }

    fn job_response(&self, state: &State, key: &JobKey, record: &JobRecord, now: Timestamp) -> Job {
        let answers = self.job_responses(state, &key.experiment(), &[(key, record)], now);
        answers.into_iter().next().expect("as many responses as jobs")
    }

    /// Responses for jobs of one experiment. Common values and each cluster's queue are computed once.
    fn job_responses(
        &self,
        state: &State,
        experiment: &ExperimentKey,
        jobs: &[(&JobKey, &JobRecord)],
        now: Timestamp,
    ) -> Vec<Job> {
        let name = state.experiments.get(experiment).map_or_else(|| experiment.to_string(), |e| e.name.clone());
        let (id, name) = (self.experiment_id(state, experiment, &name), Arc::from(name));
        let mut waits = QueueStatuses::compute(
            state,
            &self.fleet.expected_ends,
            &self.request.caller,
            &self.config.scheduling,
            &self.timeline(),
            jobs.iter().copied(),
        );
        let answer = |(key, record): &(&JobKey, &JobRecord)| {
            let mut job = job_response(&id, &name, record, waits.remove(key));
            if self.is_end_delayed(record, now) {
                show_as_running(&mut job.properties.status);
            }
            job
        };
        jobs.iter().map(answer).collect()
    }

    /// Whether this client would stop at the end of the job and miss the last output.
    fn is_end_delayed(&self, record: &JobRecord, now: Timestamp) -> bool {
        let may_wait = matches!(self.request.client, ClientProgram::Azure(_)) && record.state().is_terminal();
        may_wait && self.telemetry.log_followers.delay_terminal_state(&record.segment, record.since(), now)
    }

    /// Cluster that a job refers to; it may be in another workspace or group.
    fn cluster_of(&self, state: &State, spec: &JobSpec) -> Result<(corro_model::ClusterKey, String), ApiError> {
        let field = "properties.cluster.id";
        let id = spec.cluster.as_ref().map(|cluster| cluster.id.as_str()).unwrap_or_default();
        if id.is_empty() {
            return Err(ApiError::invalid(field, "no cluster is given: name the cluster to run the job on"));
        }
        let Some(named) = arm::in_workspace(id, "clusters") else {
            return Err(ApiError::invalid(field, format!("'{id}' is not the id of a cluster")));
        };
        self.own_subscription(field, named.subscription)?;
        self.authorize_linked_resource(field, &named, "clusters")?;
        let WorkspaceResource { group, workspace, name, .. } = named;
        let (key, record) =
            find_cluster(state, group, workspace, name).map_err(|_| ApiError::cluster_not_found(name).about(field))?;
        ensure_not_deleting(&record.provisioning, "cluster", name)?;
        let id = self.cluster_id(state, &key, &record.name);
        Ok((key, id))
    }

    fn job_resource_id(&self, path: &JobPath) -> String {
        let JobPath { group, workspace, experiment, job } = path;
        format!("{}${group}${workspace}${experiment}${job}", self.installation.subscription)
    }
}

fn job_response(experiment_id: &str, experiment_name: &Arc<str>, record: &JobRecord, wait: Option<QueueStatus>) -> Job {
    let (waiting_for, waiting) = wait.map_or((None, None), |wait| (wait.reason, Some(wait.waiting)));
    Job {
        id: format!("{experiment_id}/jobs/{}", record.name),
        name: record.name.clone(),
        kind: JOB_TYPE.into(),
        properties: JobProperties {
            experiment_name: experiment_name.clone(),
            job_output_directory_path_segment: record.segment.clone(),
            tool_type: record.spec.toolkit().expect("only valid jobs are stored"),
            spec: record.spec.clone(),
            provisioning: record.provisioning.clone(),
            status: JobStatus {
                execution_state: record.state().execution_state(),
                execution_state_transition_time: record.since(),
                execution_info: record.state().execution_info(),
                waiting_for,
                waiting,
                giving_way: record.eviction().filter(|_| !record.state().nodes().is_empty()).map(eviction_notice),
                lost_attempts: record.lost_attempts.iter().map(lost_attempt).collect(),
                size_changes: record.elastic().map(|elastic| elastic.changes.clone()).unwrap_or_default(),
                annotations: record.annotations.clone(),
            },
        },
    }
}

/// Presents an ended job as still running.
fn show_as_running(status: &mut JobStatus) {
    let Some(info) = status.execution_info.take() else { return };
    status.execution_state = ExecutionState::Running;
    status.execution_state_transition_time = info.start_time;
    status.execution_info =
        Some(ExecutionInfo { start_time: info.start_time, end_time: None, exit_code: None, errors: Vec::new() });
}

fn eviction_notice(evicted: &corro_store::EvictionRecord) -> EvictionNotice {
    let until = evicted.at.plus(std::time::Duration::from_millis(evicted.grace_ms));
    EvictionNotice { until, reason: evicted.reason.clone() }
}

pub fn lost_attempt(lost: &corro_store::LostAttempt) -> LostAttempt {
    let corro_store::LostAttempt { number, ended, exit_code, ref reason } = *lost;
    LostAttempt { number, end_time: ended, exit_code, reason: reason.clone() }
}

fn internal(refused: &TransitionError) -> ApiError {
    tracing::error!(%refused, "cannot record the failure of a new job");
    ApiError::new(500, "InternalError", "The server could not record the job. See the server's log.")
}
