//! Handlers of the resource manager's operations: each translates a request into a call of `app` and back. Batch AI's are here, the
//! others in submodules.

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

use super::arm_request::ArmRequest;
use super::response::{ArmResponse, PollUrls};
use super::router::Router;
use super::tunnels;
use crate::app::App;
use crate::app::jobs::output_files::Listing;
use crate::app::resources::idempotent_put::Put;
use crate::app::resources::lookup::JobPath;
use crate::gateway::Gateway;

/// A poll of an unfinished operation is held for this long, so that clients that poll at once neither spin nor lag.
const POLL_HOLD_TIME: Duration = Duration::from_secs(1);

type Result<T> = std::result::Result<ArmResponse<T>, ApiError>;

pub fn routes(gateway: &Gateway) -> Router {
    let gateway = gateway.clone();
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
        .on(ExperimentsNotify, set_experiment_notifications)
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
        .on(ExperimentsListAll, overview::experiments)
        .on(CallerGet, governance::caller)
        .on(ServerGet, governance::server)
        .on(Search, overview::search)
        .on(SharesListAll, overview::shares)
        .on(SharesCreate, overview::create_share)
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
        .on(NodesResources, nodes::node_resources)
        .on(JobsResources, nodes::job_resources)
        .on(JobsProcesses, nodes::processes)
        .on(JobsRecordTimeline, nodes::record_timeline)
        .on(JobsTimeline, nodes::timeline)
        .on(JobsWhy, nodes::why)
        .on(JobsMetrics, metrics::metrics)
        .on(JobsAnnotate, annotate_job)
        .on_upgrade(JobsTunnel, move |app, request, upgrade| tunnels::open(gateway.clone(), app, request, upgrade))
}

// Workspaces

async fn create_workspace(app: App, request: ArmRequest<WorkspaceCreateParameters>) -> Result<Workspace> {
    Ok(ArmResponse::Ok(app.create_workspace(request.param("group"), request.param("workspace"), request.body).await?))
}

async fn update_workspace(app: App, request: ArmRequest<WorkspaceUpdateParameters>) -> Result<Workspace> {
    Ok(ArmResponse::Ok(app.update_workspace(request.param("group"), request.param("workspace"), request.body).await?))
}

async fn get_workspace(app: App, request: ArmRequest<NoBody>) -> Result<Workspace> {
    Ok(ArmResponse::Ok(app.workspace(&request.param("group"), &request.param("workspace"))?))
}

async fn list_workspaces(app: App, request: ArmRequest<NoBody>) -> Result<Page<Workspace>> {
    let group = request.param("group");
    let group = (!group.is_empty()).then_some(group.as_str());
    Ok(ArmResponse::Ok(
        request.page(app.filter_readable(app.workspaces(group)?, |w| &w.id), |workspace| &workspace.id)?,
    ))
}

async fn delete_workspace(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let operation_started = app.delete_workspace(request.param("group"), request.param("workspace")).await?;
    Ok(accepted_or(&app, &request, operation_started, ArmResponse::NoContent))
}

// Experiments

async fn create_experiment(app: App, request: ArmRequest<NoBody>) -> Result<Experiment> {
    let (group, workspace, experiment) =
        (request.param("group"), request.param("workspace"), request.param("experiment"));
    Ok(ArmResponse::Ok(app.create_experiment(group, workspace, experiment).await?))
}

async fn set_experiment_notifications(app: App, request: ArmRequest<Notifications>) -> Result<Experiment> {
    let path = (request.param("group"), request.param("workspace"), request.param("experiment"));
    Ok(ArmResponse::Ok(app.set_experiment_notifications(path, request.body).await?))
}

async fn get_experiment(app: App, request: ArmRequest<NoBody>) -> Result<Experiment> {
    Ok(ArmResponse::Ok(app.experiment(
        &request.param("group"),
        &request.param("workspace"),
        &request.param("experiment"),
    )?))
}

async fn list_experiments(app: App, request: ArmRequest<NoBody>) -> Result<Page<Experiment>> {
    let experiments = app.experiments(&request.param("group"), &request.param("workspace"))?;
    Ok(ArmResponse::Ok(request.page(experiments, |experiment| &experiment.name)?))
}

async fn delete_experiment(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let (group, workspace, experiment) =
        (request.param("group"), request.param("workspace"), request.param("experiment"));
    let operation_started = app.delete_experiment(group, workspace, experiment).await?;
    Ok(accepted_or(&app, &request, operation_started, ArmResponse::NoContent))
}

// Clusters

async fn create_cluster(app: App, request: ArmRequest<ClusterCreateParameters>) -> Result<Cluster> {
    let (group, workspace, cluster) = (request.param("group"), request.param("workspace"), request.param("cluster"));
    let base_url = request.base_url;
    let put = app.create_cluster(group, workspace, cluster, request.body).await?;
    Ok(put_response(&app, &base_url, put))
}

async fn get_cluster(app: App, request: ArmRequest<NoBody>) -> Result<Cluster> {
    Ok(ArmResponse::Ok(app.cluster(&request.param("group"), &request.param("workspace"), &request.param("cluster"))?))
}

async fn update_cluster(app: App, request: ArmRequest<ClusterUpdateParameters>) -> Result<Cluster> {
    let (group, workspace, cluster) = (request.param("group"), request.param("workspace"), request.param("cluster"));
    Ok(ArmResponse::Ok(app.update_cluster(group, workspace, cluster, request.body).await?))
}

async fn list_clusters(app: App, request: ArmRequest<NoBody>) -> Result<Page<Cluster>> {
    let clusters = app.clusters(&request.param("group"), &request.param("workspace"))?;
    Ok(ArmResponse::Ok(request.page(clusters, |cluster| &cluster.name)?))
}

async fn delete_cluster(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let operation_started =
        app.delete_cluster(request.param("group"), request.param("workspace"), request.param("cluster")).await?;
    Ok(accepted_or(&app, &request, operation_started, ArmResponse::NoContent))
}

async fn cluster_logins(app: App, request: ArmRequest<NoBody>) -> Result<Page<RemoteLoginInformation>> {
    let logins = app.cluster_logins(&request.param("group"), &request.param("workspace"), &request.param("cluster"))?;
    Ok(ArmResponse::Ok(Page::whole(logins)))
}

// File servers

async fn create_file_server(app: App, request: ArmRequest<FileServerCreateParameters>) -> Result<FileServer> {
    let (group, workspace, name) = (request.param("group"), request.param("workspace"), request.param("fileServer"));
    let base_url = request.base_url;
    let put = app.create_file_server(group, workspace, name, request.body).await?;
    Ok(put_response(&app, &base_url, put))
}

async fn get_file_server(app: App, request: ArmRequest<NoBody>) -> Result<FileServer> {
    let (group, workspace, name) = (request.param("group"), request.param("workspace"), request.param("fileServer"));
    // An extension of the service's API, so returned on request only.
    Ok(ArmResponse::Ok(match request.query("$expand") == Some("nfs") {
        true => app.file_server_with_export(&group, &workspace, &name).await?,
        false => app.file_server(&group, &workspace, &name)?,
    }))
}

async fn list_file_servers(app: App, request: ArmRequest<NoBody>) -> Result<Page<FileServer>> {
    let file_servers = app.file_servers(&request.param("group"), &request.param("workspace"))?;
    Ok(ArmResponse::Ok(request.page(file_servers, |file_server| &file_server.name)?))
}

async fn delete_file_server(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let (group, workspace, name) = (request.param("group"), request.param("workspace"), request.param("fileServer"));
    let operation_started = app.delete_file_server(group, workspace, name).await?;
    Ok(accepted_or(&app, &request, operation_started, ArmResponse::NoContent))
}

// Jobs

fn job_path<R>(request: &ArmRequest<R>) -> JobPath {
    JobPath {
        group: request.param("group"),
        workspace: request.param("workspace"),
        experiment: request.param("experiment"),
        job: request.param("job"),
    }
}

async fn create_job(app: App, request: ArmRequest<JobCreateParameters>) -> Result<Job> {
    let (path, base_url) = (job_path(&request), request.base_url);
    let put = app.create_job(path, request.body).await?;
    Ok(put_response(&app, &base_url, put))
}

async fn get_job(app: App, request: ArmRequest<NoBody>) -> Result<Job> {
    Ok(ArmResponse::Ok(app.job(&job_path(&request))?))
}

async fn list_jobs(app: App, request: ArmRequest<NoBody>) -> Result<Page<Job>> {
    let (group, workspace, experiment) =
        (request.param("group"), request.param("workspace"), request.param("experiment"));
    let (first, limit) = request.page_params()?;
    let (value, next) = app.jobs((&group, &workspace, &experiment), &first, limit)?;
    let next_link = next.map(|name| request.next_link(&name.to_lowercase()));
    Ok(ArmResponse::Ok(Page { value, next_link }))
}

async fn delete_job(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let operation_started = app.delete_job(job_path(&request)).await?;
    Ok(accepted_or(&app, &request, operation_started, ArmResponse::NoContent))
}

async fn terminate_job(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let operation_started = app.terminate_job(job_path(&request)).await?;
    Ok(accepted_or(&app, &request, operation_started, ArmResponse::OkEmpty))
}

async fn annotate_job(app: App, request: ArmRequest<AnnotationChanges>) -> Result<JobAnnotations> {
    let path = job_path(&request);
    Ok(ArmResponse::Ok(app.annotate_job(path, request.body).await?))
}

async fn list_output_files(app: App, request: ArmRequest<NoBody>) -> Result<Page<OutputFile>> {
    let Some(id) = request.query("outputdirectoryid") else {
        let message =
            "The query parameter outputdirectoryid is missing: use stdouterr or the id of an output directory";
        return Err(ApiError::new(400, "MissingRequiredQueryParameter", message).about("outputdirectoryid"));
    };
    let listing = Listing {
        output_directory_id: id.to_owned(),
        directory: request.query("directory").unwrap_or(".").to_owned(),
        link_expiry_minutes: request.int_param("linkexpiryinminutes", 60, 5..=600)?,
        max_results: request.int_param("maxresults", 1000, 1..=1000)? as usize,
        from: request.query("marker").unwrap_or_default().to_owned(),
    };
    let path = job_path(&request);
    let base_url = request.base_url.clone();
    let listed = tokio::task::spawn_blocking(move || app.output_files(&path, &listing, &base_url)).await;
    let (value, next) =
        listed.map_err(|_| ApiError::new(500, "InternalError", "Listing the job's files was interrupted"))??;
    Ok(ArmResponse::Ok(Page { value, next_link: next.map(|name| request.next_link(&name)) }))
}

async fn job_logins(app: App, request: ArmRequest<NoBody>) -> Result<Page<RemoteLoginInformation>> {
    Ok(ArmResponse::Ok(Page::whole(app.job_logins(&job_path(&request))?)))
}

// The provider itself

async fn provider_actions(_app: App, _request: ArmRequest<NoBody>) -> Result<Page<ProviderOperation>> {
    Ok(ArmResponse::Ok(Page::whole(provider_operations())))
}

async fn list_usages(app: App, request: ArmRequest<NoBody>) -> Result<Page<Usage>> {
    Ok(ArmResponse::Ok(Page::whole(app.usages(&request.param("location")))))
}

// Long-running operations

async fn operation_result(app: App, request: ArmRequest<NoBody>) -> Result<AsyncOperation> {
    let url = format!("{}{}", request.base_url, request.path);
    app.wait_for_operation(&request.param("operation"), POLL_HOLD_TIME).await;
    Ok(ArmResponse::Polled(app.operation(&request.param("operation"), url)?))
}

async fn operation_status(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let poll = Some(request.param("location"));
    app.wait_for_operation(&request.param("operation"), POLL_HOLD_TIME).await;
    operation_by_location(&app, &request, poll)
}

/// 202 with the same URL while in progress, then 200 or the operation's error.
fn operation_by_location(app: &App, request: &ArmRequest<NoBody>, region: Option<String>) -> Result<NoBody> {
    let id = request.param("operation");
    let operation = app.operation(&id, String::new())?;
    match (operation.status, operation.error) {
        (AsyncStatus::Succeeded, _) => return Ok(ArmResponse::OkEmpty),
        (AsyncStatus::Failed, Some(error)) => return Err(ApiError::conflict(&error.code, error.message)),
        _ => {}
    }
    Ok(ArmResponse::Accepted(match region {
        Some(region) => poll(app, &request.base_url, &id, &region),
        None => {
            let location = format!("{}{}?api-version={GROUPS_VERSION}", request.base_url, request.path);
            PollUrls { async_operation: None, location }
        }
    }))
}

fn poll(app: &App, base_url: &str, operation: &str, region: &str) -> PollUrls {
    let values = [("subscription", &*app.installation.subscription), ("location", region), ("operation", operation)];
    let url = |path: String| format!("{base_url}{path}?api-version={BATCHAI_VERSION}");
    PollUrls {
        async_operation: Some(url(path_of::<OperationResult>(&values))),
        location: url(path_of::<OperationStatus>(&values)),
    }
}

fn put_response<T>(app: &App, base_url: &str, put: Put<T>) -> ArmResponse<T> {
    match put {
        Put::Begun { operation, location } => ArmResponse::Accepted(poll(app, base_url, &operation, &location)),
        Put::Unchanged(resource) => ArmResponse::Ok(*resource),
    }
}

fn accepted_or<T>(
    app: &App,
    request: &ArmRequest<NoBody>,
    operation_started: Option<(String, String)>,
    otherwise: ArmResponse<T>,
) -> ArmResponse<T> {
    match operation_started {
        Some((operation, region)) => ArmResponse::Accepted(poll(app, &request.base_url, &operation, &region)),
        None => otherwise,
    }
}
