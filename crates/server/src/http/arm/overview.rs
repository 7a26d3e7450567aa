//! Lists over all workspaces, and search (Corro's extension of the API).

use corro_model::ApiError;
use corro_model::batchai::*;
use corro_model::ops::NoBody;

use super::{ArmRequest, ArmResponse, Result};
use crate::app::App;
use crate::app::overview::JobOrder;
use crate::app::overview::JobQuery;

/// Page markers are sequence numbers of jobs by submission; this one is above all.
const NO_MARKER: i64 = i64::MAX;

pub async fn clusters(app: App, request: ArmRequest<NoBody>) -> Result<Page<Cluster>> {
    Ok(ArmResponse::Ok(request.page(app.all_clusters(), |cluster| &cluster.id)?))
}

pub async fn jobs(app: App, request: ArmRequest<NoBody>) -> Result<JobSummaries> {
    let wanted = JobQuery {
        states: parse_states(request.query("state").unwrap_or_default())?,
        cluster: request.query("cluster").filter(|id| !id.is_empty()).map(str::to_owned),
        text: request.query("text").unwrap_or_default().to_lowercase(),
        order: match request.query("order").unwrap_or_default() {
            "" | "newest" => JobOrder::NewestBefore(request.int_param("marker", NO_MARKER, 0..=NO_MARKER)? as u64),
            "queue" => JobOrder::Queue,
            other => {
                let message = format!("'{other}' is not an order of jobs: use newest or queue");
                return Err(ApiError::invalid("order", message));
            }
        },
        limit: request.int_param("maxresults", 100, 1..=1000)? as usize,
    };
    let (mut page, more) = app.all_jobs(&wanted);
    page.next_link = more.map(|last| request.next_link(&last.to_string()));
    Ok(ArmResponse::Ok(page))
}

pub async fn experiments(app: App, request: ArmRequest<NoBody>) -> Result<Page<ExperimentSummary>> {
    Ok(ArmResponse::Ok(request.page(app.all_experiments(), |experiment| &experiment.id)?))
}

/// Runs work that reads directories or the history on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, ApiError> + Send + 'static,
) -> std::result::Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiError::new(503, "ServerStopping", "The server is stopping"))?
}

pub async fn search(app: App, request: ArmRequest<NoBody>) -> Result<Page<SearchResult>> {
    let text = request.query("text").unwrap_or_default().trim().to_lowercase();
    let limit = request.int_param("maxresults", 20, 1..=100)? as usize;
    Ok(ArmResponse::Ok(Page::whole(run_blocking(move || Ok(app.search(&text, limit))).await?)))
}

pub async fn shares(app: App, _request: ArmRequest<NoBody>) -> Result<Page<ShareSummary>> {
    let shares = run_blocking(move || Ok(app.all_shares())).await?;
    Ok(ArmResponse::Ok(Page::whole(shares)))
}

pub async fn create_share(app: App, request: ArmRequest<NoBody>) -> Result<ShareSummary> {
    let (group, account, share) = (request.param("group"), request.param("account"), request.param("share"));
    let creating = app.clone();
    let created = run_blocking(move || creating.create_share(&group, &account, &share)).await?;
    app.record_new_share(&created).await?;
    Ok(ArmResponse::Ok(created))
}

pub async fn share_link(app: App, request: ArmRequest<NoBody>) -> Result<ShareLink> {
    let (group, account, share) = (request.param("group"), request.param("account"), request.param("share"));
    Ok(ArmResponse::Ok(run_blocking(move || app.share_link(&group, &account, &share)).await?))
}

pub async fn cluster_history(app: App, request: ArmRequest<NoBody>) -> Result<ClusterHistory> {
    let hours = request.int_param("hours", 24, 1..=24 * 30)?;
    let (group, workspace, cluster) = (request.param("group"), request.param("workspace"), request.param("cluster"));
    Ok(ArmResponse::Ok(run_blocking(move || app.cluster_history((&group, &workspace, &cluster), hours)).await?))
}
