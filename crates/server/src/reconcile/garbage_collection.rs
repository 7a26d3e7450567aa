//! Removal of deleted resources, from the leaves up: each goes when nothing is inside it any more. Ended operations are removed
//! after a day.

use std::collections::BTreeSet;

use corro_store::{AccountRecord, State, Timeline};

use super::steps::Step;
use crate::app::resources::operations::OPERATION_RETENTION;

/// Steps that remove what is no longer used. `emptied` are the accounts whose files are removed.
pub fn decide(state: &State, emptied: &BTreeSet<String>, clock: &Timeline) -> Vec<Step> {
    let mut steps = Vec::new();
    let ended = state.deleting_jobs().filter(|(_, job)| job.state().is_terminal());
    steps.extend(ended.map(|(key, _)| Step::RemoveJob(key.clone())));

    let empty = state
        .experiments
        .iter()
        .filter(|(key, experiment)| experiment.provisioning.is_deleting() && state.jobs_of(key).next().is_none());
    steps.extend(empty.map(|(key, _)| Step::RemoveExperiment(key.clone())));

    let empty = state.clusters.iter().filter(|(key, cluster)| {
        let has_queued = || state.queue_length(key) > 0 || state.dependent_jobs_of(key).next().is_some();
        let in_use = || has_queued() || state.active_jobs_of(key).next().is_some();
        cluster.provisioning.is_deleting() && state.nodes_of(key).next().is_none() && !in_use()
    });
    steps.extend(empty.map(|(key, _)| Step::RemoveCluster(key.clone())));

    let leaving = state.file_servers.iter().filter(|(_, file_server)| file_server.provisioning.is_deleting());
    steps.extend(leaving.map(|(key, _)| Step::RemoveFileServer(key.clone())));

    let empty = state.workspaces.iter().filter(|(key, workspace)| {
        workspace.provisioning.is_deleting()
            && state.experiments_of(key).next().is_none()
            && state.clusters_of(key).next().is_none()
            && state.file_servers_of(key).next().is_none()
    });
    steps.extend(empty.map(|(key, _)| Step::RemoveWorkspace(key.clone())));

    let gone = removable_accounts(state).filter(|name| emptied.contains(*name));
    steps.extend(gone.map(|name| Step::RemoveAccount(name.clone())));

    let empty = state.groups.iter().filter(|(key, group)| {
        group.deleting
            && state.workspaces_of(key).next().is_none()
            && !state.accounts.values().any(|account| account.group == **key)
    });
    steps.extend(empty.map(|(key, _)| Step::RemoveGroup(key.clone())));

    // All are examined: timestamps from before a clock jump are not in the order of their ages.
    let old = state.ended_operations().filter(|(ended, _)| clock.age(*ended) > OPERATION_RETENTION);
    steps.extend(old.map(|(_, id)| Step::ForgetOperation(id.clone())));
    steps
}

/// Deleted accounts whose files may be removed. Jobs of the group may still write to a share, so they end first.
pub fn removable_accounts(state: &State) -> impl Iterator<Item = &String> {
    let in_use = |account: &AccountRecord| {
        state.workspaces_of(&account.group).any(|(_, workspace)| workspace.provisioning.is_deleting())
    };
    state.accounts.iter().filter(move |(_, account)| account.deleting && !in_use(account)).map(|(name, _)| name)
}
