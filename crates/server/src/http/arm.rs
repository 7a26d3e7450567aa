//! The resource manager's operations, each translated into a call of `app` and back. A flat table of small functions: those
//! of Batch AI are here, the others in rooms of their own.

mod governance;
mod groups;
mod hosts;
mod metrics;
mod nodes;
mod overview;
mod storage;
mod subscription;

use std::time::Duration;

use corro_model::ApiError;
use corro_model::arm::*;
use corro_model::batchai::*;
use corro_model::ops::*;

use super::answer::{Answer, Poll};
use super::call::Call;
use super::router::Router;
use crate::app::App;
use crate::app::conflict::Put;
use crate::app::jobs::JobPath;
use crate::app::output_files::Listing;

/// A poll is held for so long while the operation goes on: clients that ask again at once neither spin nor come late.
const POLL_PATIENCE: Duration = Duration::from_secs(1);

type Result<T> = std::result::Result<Answer<T>, ApiError>;

pub fn routes() -> Router {
    Router::default()
        .on(TenantsList, subscription::tenants)
        .on(SubscriptionsList, subscription::list)
        .on(SubscriptionsGet, subscription::get)
        .on(LocationsList, subscription::locations)
        .on(ProvidersList, subscription::providers)
        .on(ProvidersGet, subscription::provider)
        .on(ProvidersRegister, subscription::provider)
        .on(ProvidersUnregister, subscription::unregister_provider)
        .on(ResourcesList, subscription::resources)
        .on(ResourcesListByGroup, subscription::resources)
        .on(GroupsCreate, groups::create_group)
        .on(GroupsUpdate, groups::update_group)
        .on(GroupsGet, groups::get_group)
        .on(GroupsCheck, groups::check_group)
        .on(GroupsList, groups::list_groups)
        .on(GroupsDelete, groups::delete_group)
        .on(GroupOperation, groups::group_operation)
        .on(AccountsCreate, storage::create_account)
        .on(AccountsUpdate, storage::update_account)
        .on(AccountsGet, storage::get_account)
        .on(AccountsListByGroup, storage::list_accounts)
        .on(AccountsList, storage::list_accounts)
        .on(AccountsListKeys, storage::list_keys)
        .on(AccountsRegenerateKey, storage::regenerate_key)
        .on(AccountsDelete, storage::delete_account)
        .on(AccountsCheckName, storage::check_account_name)
        .on(StorageUsages, storage::usages)
        .on(StorageUsagesEverywhere, storage::usages)
        .on(WorkspacesCreate, create_workspace)
        .on(WorkspacesUpdate, update_workspace)
        .on(WorkspacesGet, get_workspace)
        .on(WorkspacesDelete, delete_workspace)
        .on(WorkspacesListByGroup, list_workspaces)
        .on(WorkspacesList, list_workspaces)
        .on(ExperimentsCreate, create_experiment)
        .on(ExperimentsGet, get_experiment)
        .on(ExperimentsList, list_experiments)
        .on(ExperimentsDelete, delete_experiment)
        .on(ClustersCreate, create_cluster)
        .on(ClustersGet, get_cluster)
        .on(ClustersUpdate, update_cluster)
        .on(ClustersList, list_clusters)
        .on(ClustersDelete, delete_cluster)
        .on(ClustersListRemoteLogin, cluster_logins)
        .on(FileServersCreate, create_file_server)
        .on(FileServersGet, get_file_server)
        .on(FileServersList, list_file_servers)
        .on(FileServersDelete, delete_file_server)
        .on(JobsCreate, create_job)
        .on(JobsGet, get_job)
        .on(JobsList, list_jobs)
        .on(JobsDelete, delete_job)
        .on(JobsTerminate, terminate_job)
        .on(JobsListOutputFiles, list_output_files)
        .on(JobsListRemoteLogin, job_logins)
        .on(OperationsList, provider_actions)
        .on(UsagesList, list_usages)
        .on(OperationResult, operation_result)
        .on(OperationStatus, operation_status)
        .on(PrincipalsCreate, governance::create_principal)
        .on(PrincipalsList, governance::list_principals)
        .on(PrincipalsGet, governance::get_principal)
        .on(PrincipalsDelete, governance::delete_principal)
        .on(PrincipalsReset, governance::reset_principal)
        .on(PrincipalsRevokeTokens, governance::revoke_tokens)
        .on(HistoryList, governance::history)
        .on(UsageGet, governance::usage)
        .on(ClustersListAll, overview::clusters)
        .on(JobsListAll, overview::jobs)
        .on(Search, overview::search)
        .on(SharesListAll, overview::shares)
        .on(SharesLink, overview::share_link)
        .on(ClustersHistory, overview::cluster_history)
        .on(HostTokensCreate, hosts::create_token)
        .on(HostTokensList, hosts::list_tokens)
        .on(HostTokensDelete, hosts::revoke_token)
        .on(HostsList, hosts::list)
        .on(HostsGet, hosts::get)
        .on(HostsCordon, hosts::cordon)
        .on(HostsUncordon, hosts::uncordon)
        .on(HostsDrain, hosts::drain)
        .on(HostsRemove, hosts::remove)
        .on(NodesList, nodes::list)
        .on(NodesPreempt, nodes::preempt)
        .on(JobsProcesses, nodes::processes)
        .on(JobsRecordTimeline, nodes::record_timeline)
        .on(JobsTimeline, nodes::timeline)
        .on(JobsWhy, nodes::why)
        .on(JobsMetrics, metrics::metrics)
}

// Workspaces

async fn create_workspace(app: App, call: Call<WorkspaceCreateParameters>) -> Result<Workspace> {
    Ok(Answer::Ok(app.create_workspace(call.param("group"), call.param("workspace"), call.body).await?))
}

async fn update_workspace(app: App, call: Call<WorkspaceUpdateParameters>) -> Result<Workspace> {
    Ok(Answer::Ok(app.update_workspace(call.param("group"), call.param("workspace"), call.body).await?))
}

async fn get_workspace(app: App, call: Call<NoBody>) -> Result<Workspace> {
    Ok(Answer::Ok(app.workspace(&call.param("group"), &call.param("workspace"))?))
}

async fn list_workspaces(app: App, call: Call<NoBody>) -> Result<Page<Workspace>> {
    let group = call.param("group");
    let group = (!group.is_empty()).then_some(group.as_str());
    Ok(Answer::Ok(call.page(app.readable(app.workspaces(group)?, |w| &w.id), |workspace| &workspace.id)?))
}

async fn delete_workspace(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let begun = app.delete_workspace(call.param("group"), call.param("workspace")).await?;
    Ok(begun_or(&app, &call, begun, Answer::Nothing))
}

// Experiments

async fn create_experiment(app: App, call: Call<NoBody>) -> Result<Experiment> {
    let (group, workspace, experiment) = (call.param("group"), call.param("workspace"), call.param("experiment"));
    Ok(Answer::Ok(app.create_experiment(group, workspace, experiment).await?))
}

async fn get_experiment(app: App, call: Call<NoBody>) -> Result<Experiment> {
    Ok(Answer::Ok(app.experiment(&call.param("group"), &call.param("workspace"), &call.param("experiment"))?))
}

async fn list_experiments(app: App, call: Call<NoBody>) -> Result<Page<Experiment>> {
    let experiments = app.experiments(&call.param("group"), &call.param("workspace"))?;
    Ok(Answer::Ok(call.page(experiments, |experiment| &experiment.name)?))
}

async fn delete_experiment(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let (group, workspace, experiment) = (call.param("group"), call.param("workspace"), call.param("experiment"));
    let begun = app.delete_experiment(group, workspace, experiment).await?;
    Ok(begun_or(&app, &call, begun, Answer::Nothing))
}

// Clusters

async fn create_cluster(app: App, call: Call<ClusterCreateParameters>) -> Result<Cluster> {
    let (group, workspace, cluster) = (call.param("group"), call.param("workspace"), call.param("cluster"));
    let base_url = call.base_url;
    let put = app.create_cluster(group, workspace, cluster, call.body).await?;
    Ok(put_answer(&app, &base_url, put))
}

async fn get_cluster(app: App, call: Call<NoBody>) -> Result<Cluster> {
    Ok(Answer::Ok(app.cluster(&call.param("group"), &call.param("workspace"), &call.param("cluster"))?))
}

async fn update_cluster(app: App, call: Call<ClusterUpdateParameters>) -> Result<Cluster> {
    let (group, workspace, cluster) = (call.param("group"), call.param("workspace"), call.param("cluster"));
    Ok(Answer::Ok(app.update_cluster(group, workspace, cluster, call.body).await?))
}

async fn list_clusters(app: App, call: Call<NoBody>) -> Result<Page<Cluster>> {
    let clusters = app.clusters(&call.param("group"), &call.param("workspace"))?;
    Ok(Answer::Ok(call.page(clusters, |cluster| &cluster.name)?))
}

async fn delete_cluster(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let begun = app.delete_cluster(call.param("group"), call.param("workspace"), call.param("cluster")).await?;
    Ok(begun_or(&app, &call, begun, Answer::Nothing))
}

async fn cluster_logins(app: App, call: Call<NoBody>) -> Result<Page<RemoteLoginInformation>> {
    let logins = app.cluster_logins(&call.param("group"), &call.param("workspace"), &call.param("cluster"))?;
    Ok(Answer::Ok(Page::whole(logins)))
}

// File servers

async fn create_file_server(app: App, call: Call<FileServerCreateParameters>) -> Result<FileServer> {
    let (group, workspace, name) = (call.param("group"), call.param("workspace"), call.param("fileServer"));
    let base_url = call.base_url;
    let put = app.create_file_server(group, workspace, name, call.body).await?;
    Ok(put_answer(&app, &base_url, put))
}

async fn get_file_server(app: App, call: Call<NoBody>) -> Result<FileServer> {
    let (group, workspace, name) = (call.param("group"), call.param("workspace"), call.param("fileServer"));
    // Not in the service's document, so only who asks for it gets it.
    Ok(Answer::Ok(match call.query("$expand") == Some("nfs") {
        true => app.file_server_with_export(&group, &workspace, &name).await?,
        false => app.file_server(&group, &workspace, &name)?,
    }))
}

async fn list_file_servers(app: App, call: Call<NoBody>) -> Result<Page<FileServer>> {
    let file_servers = app.file_servers(&call.param("group"), &call.param("workspace"))?;
    Ok(Answer::Ok(call.page(file_servers, |file_server| &file_server.name)?))
}

async fn delete_file_server(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let (group, workspace, name) = (call.param("group"), call.param("workspace"), call.param("fileServer"));
    let begun = app.delete_file_server(group, workspace, name).await?;
    Ok(begun_or(&app, &call, begun, Answer::Nothing))
}

// Jobs

fn job_path<R>(call: &Call<R>) -> JobPath {
    JobPath {
        group: call.param("group"),
        workspace: call.param("workspace"),
        experiment: call.param("experiment"),
        job: call.param("job"),
    }
}

async fn create_job(app: App, call: Call<JobCreateParameters>) -> Result<Job> {
    let (path, base_url) = (job_path(&call), call.base_url);
    let put = app.create_job(path, call.body).await?;
    Ok(put_answer(&app, &base_url, put))
}

async fn get_job(app: App, call: Call<NoBody>) -> Result<Job> {
    Ok(Answer::Ok(app.job(&job_path(&call))?))
}

async fn list_jobs(app: App, call: Call<NoBody>) -> Result<Page<Job>> {
    let (group, workspace, experiment) = (call.param("group"), call.param("workspace"), call.param("experiment"));
    let (first, limit) = call.page_wanted()?;
    let (value, next) = app.jobs((&group, &workspace, &experiment), &first, limit)?;
    let next_link = next.map(|name| call.next_link(&name.to_lowercase()));
    Ok(Answer::Ok(Page { value, next_link }))
}

async fn delete_job(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let begun = app.delete_job(job_path(&call)).await?;
    Ok(begun_or(&app, &call, begun, Answer::Nothing))
}

async fn terminate_job(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let begun = app.terminate_job(job_path(&call)).await?;
    Ok(begun_or(&app, &call, begun, Answer::Done))
}

async fn list_output_files(app: App, call: Call<NoBody>) -> Result<Page<OutputFile>> {
    let Some(id) = call.query("outputdirectoryid") else {
        let message =
            "The query parameter outputdirectoryid is missing: use stdouterr or the id of an output directory";
        return Err(ApiError::new(400, "MissingRequiredQueryParameter", message).about("outputdirectoryid"));
    };
    let listing = Listing {
        output_directory_id: id.to_owned(),
        directory: call.query("directory").unwrap_or(".").to_owned(),
        link_expiry_minutes: call.number("linkexpiryinminutes", 60, 5..=600)?,
        max_results: call.number("maxresults", 1000, 1..=1000)? as usize,
        from: call.query("marker").unwrap_or_default().to_owned(),
    };
    let path = job_path(&call);
    let base_url = call.base_url.clone();
    let listed = tokio::task::spawn_blocking(move || app.output_files(&path, &listing, &base_url)).await;
    let (value, next) =
        listed.map_err(|_| ApiError::new(500, "InternalError", "Listing the job's files was cut short"))??;
    Ok(Answer::Ok(Page { value, next_link: next.map(|name| call.next_link(&name)) }))
}

async fn job_logins(app: App, call: Call<NoBody>) -> Result<Page<RemoteLoginInformation>> {
    Ok(Answer::Ok(Page::whole(app.job_logins(&job_path(&call))?)))
}

// The provider itself

async fn provider_actions(_app: App, _call: Call<NoBody>) -> Result<Page<ProviderOperation>> {
    Ok(Answer::Ok(Page::whole(provider_operations())))
}

async fn list_usages(app: App, call: Call<NoBody>) -> Result<Page<Usage>> {
    Ok(Answer::Ok(Page::whole(app.usages(&call.param("location")))))
}

// Long-running operations

async fn operation_result(app: App, call: Call<NoBody>) -> Result<AsyncOperation> {
    let url = format!("{}{}", call.base_url, call.path);
    app.operation_ends(&call.param("operation"), POLL_PATIENCE).await;
    Ok(Answer::Polled(app.operation(&call.param("operation"), url)?))
}

async fn operation_status(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let poll = Some(call.param("location"));
    app.operation_ends(&call.param("operation"), POLL_PATIENCE).await;
    operation_by_location(&app, &call, poll)
}

/// 202 with the same address while busy, then 200, or the error that ended it.
fn operation_by_location(app: &App, call: &Call<NoBody>, region: Option<String>) -> Result<NoBody> {
    let id = call.param("operation");
    let operation = app.operation(&id, String::new())?;
    match (operation.status, operation.error) {
        (AsyncStatus::Succeeded, _) => return Ok(Answer::Done),
        (AsyncStatus::Failed, Some(error)) => return Err(ApiError::conflict(&error.code, error.message)),
        _ => {}
    }
    Ok(Answer::Accepted(match region {
        Some(region) => poll(app, &call.base_url, &id, &region),
        None => {
            let location = format!("{}{}?api-version={GROUPS_VERSION}", call.base_url, call.path);
            Poll { async_operation: None, location }
        }
    }))
}

fn poll(app: &App, base_url: &str, operation: &str, region: &str) -> Poll {
    let values = [("subscription", &*app.subscription), ("location", region), ("operation", operation)];
    let url = |path: String| format!("{base_url}{path}?api-version={BATCHAI_VERSION}");
    Poll {
        async_operation: Some(url(path_of::<OperationResult>(&values))),
        location: url(path_of::<OperationStatus>(&values)),
    }
}

fn put_answer<T>(app: &App, base_url: &str, put: Put<T>) -> Answer<T> {
    match put {
        Put::Begun { operation, location } => Answer::Accepted(poll(app, base_url, &operation, &location)),
        Put::Unchanged(resource) => Answer::Ok(*resource),
    }
}

fn begun_or<T>(app: &App, call: &Call<NoBody>, begun: Option<(String, String)>, otherwise: Answer<T>) -> Answer<T> {
    match begun {
        Some((operation, region)) => Answer::Accepted(poll(app, &call.base_url, &operation, &region)),
        None => otherwise,
    }
}
