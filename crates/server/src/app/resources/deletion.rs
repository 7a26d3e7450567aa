//! Marks resources and everything inside them as being deleted. The garbage collector of `reconcile` removes the records once
//! nothing of them runs.

use corro_model::batchai::ProvisioningState;
use corro_model::state::{JobEvent, Termination};
use corro_model::{ApiError, ExperimentKey, JobKey, Timestamp, WorkspaceKey};
use corro_store::{ClusterRecord, ExperimentRecord, FileServerRecord, JobRecord, Txn, WorkspaceRecord};

/// Marks the workspace and its contents. The garbage collector removes the records when their nodes are gone.
pub fn mark_workspace_deleting(txn: &mut Txn, key: &WorkspaceKey, now: Timestamp) -> Result<(), ApiError> {
    txn.update::<WorkspaceRecord>(key, |w| w.provisioning.set_state(ProvisioningState::Deleting, now));
    let experiments: Vec<_> = txn.state().experiments_of(key).map(|(key, _)| key.clone()).collect();
    for experiment in experiments {
        mark_experiment_deleting(txn, &experiment, now)?;
    }
    let clusters: Vec<_> = txn.state().clusters_of(key).map(|(key, _)| key.clone()).collect();
    for cluster in clusters {
        txn.update::<ClusterRecord>(&cluster, |c| c.provisioning.set_state(ProvisioningState::Deleting, now));
    }
    let file_servers: Vec<_> = txn.state().file_servers_of(key).map(|(key, _)| key.clone()).collect();
    for file_server in file_servers {
        txn.update::<FileServerRecord>(&file_server, |f| f.provisioning.set_state(ProvisioningState::Deleting, now));
    }
    Ok(())
}

/// Marks the experiment; terminates and marks its jobs.
pub fn mark_experiment_deleting(txn: &mut Txn, key: &ExperimentKey, now: Timestamp) -> Result<(), ApiError> {
    txn.update::<ExperimentRecord>(key, |e| e.provisioning.set_state(ProvisioningState::Deleting, now));
    let own: Vec<_> = txn.state().jobs_of(key).map(|(key, _)| key.clone()).collect();
    for job in own {
        mark_job_deleting(txn, &job, now);
    }
    Ok(())
}

/// Terminates the job if it has not ended, and marks it. The garbage collector removes the record.
pub fn mark_job_deleting(txn: &mut Txn, key: &JobKey, now: Timestamp) {
    terminate_job(txn, key, now);
    txn.update::<JobRecord>(key, |job| job.provisioning.set_state(ProvisioningState::Deleting, now));
}

/// Requests the termination of a job. No effect on a job that has ended.
pub fn terminate_job(txn: &mut Txn, key: &JobKey, now: Timestamp) {
    let _ = txn.job_event(key, JobEvent::TerminateRequested { cause: Termination::User, at: now }, now);
}
