//! What there is in all workspaces together: ours, beside the service's operations. Only the table in `arm` leads here.

use corro_model::ApiError;
use corro_model::batchai::*;
use corro_model::ops::NoBody;

use super::{Answer, Call, Result};
use crate::app::App;
use crate::app::overview::{JobOrder, JobsWanted};

/// Marks of pages are numbers of jobs in the order of their submission.
const NO_MARKER: i64 = i64::MAX;

pub async fn clusters(app: App, call: Call<NoBody>) -> Result<Page<Cluster>> {
    Ok(Answer::Ok(call.page(app.all_clusters(), |cluster| &cluster.id)?))
}

pub async fn jobs(app: App, call: Call<NoBody>) -> Result<JobSummaries> {
    let wanted = JobsWanted {
        states: parse_states(call.query("state").unwrap_or_default())?,
        cluster: call.query("cluster").filter(|id| !id.is_empty()).map(str::to_owned),
        text: call.query("text").unwrap_or_default().to_lowercase(),
        order: match call.query("order").unwrap_or_default() {
            "" | "newest" => JobOrder::NewestBefore(call.number("marker", NO_MARKER, 0..=NO_MARKER)? as u64),
            "queue" => JobOrder::Queue,
            other => {
                let message = format!("'{other}' is not an order of jobs: use newest or queue");
                return Err(ApiError::invalid("order", message));
            }
        },
        limit: call.number("maxresults", 100, 1..=1000)? as usize,
    };
    let (mut page, more) = app.all_jobs(&wanted);
    page.next_link = more.map(|last| call.next_link(&last.to_string()));
    Ok(Answer::Ok(page))
}

/// What reads directories or the history has a thread of its own.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, ApiError> + Send + 'static,
) -> std::result::Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiError::new(503, "ServerStopping", "The server is stopping"))?
}

pub async fn search(app: App, call: Call<NoBody>) -> Result<Page<Found>> {
    let text = call.query("text").unwrap_or_default().trim().to_lowercase();
    let limit = call.number("maxresults", 20, 1..=100)? as usize;
    Ok(Answer::Ok(Page::whole(apart(move || Ok(app.search(&text, limit))).await?)))
}

pub async fn shares(app: App, _call: Call<NoBody>) -> Result<Page<ShareSummary>> {
    let shares = apart(move || Ok(app.all_shares())).await?;
    Ok(Answer::Ok(Page::whole(shares)))
}

pub async fn share_link(app: App, call: Call<NoBody>) -> Result<ShareLink> {
    let (group, account, share) = (call.param("group"), call.param("account"), call.param("share"));
    Ok(Answer::Ok(apart(move || app.share_link(&group, &account, &share)).await?))
}

pub async fn cluster_history(app: App, call: Call<NoBody>) -> Result<ClusterHistory> {
    let hours = call.number("hours", 24, 1..=24 * 30)?;
    let (group, workspace, cluster) = (call.param("group"), call.param("workspace"), call.param("cluster"));
    Ok(Answer::Ok(apart(move || app.cluster_history((&group, &workspace, &cluster), hours)).await?))
}
