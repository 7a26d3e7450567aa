//! Single nodes and their processes (Corro's extension of the API).

use corro_model::batchai::*;
use corro_model::explain::Explanation;
use corro_model::ops::NoBody;

use super::{ArmRequest, ArmResponse, Result, job_path};
use crate::app::App;

pub async fn list(app: App, request: ArmRequest<NoBody>) -> Result<Page<NodeSummary>> {
    let nodes = app.filter_readable(app.nodes(), |node| &node.cluster_id);
    Ok(ArmResponse::Ok(request.page(nodes, |node| node.node_id.as_str())?))
}

pub async fn preempt(app: App, request: ArmRequest<PreemptParameters>) -> Result<NodeSummary> {
    let cluster = (request.param("group"), request.param("workspace"), request.param("cluster"));
    Ok(ArmResponse::Ok(app.preempt_node(cluster, request.param("node"), request.body).await?))
}

pub async fn node_resources(app: App, request: ArmRequest<NoBody>) -> Result<NodeResources> {
    let (group, workspace, cluster) = (request.param("group"), request.param("workspace"), request.param("cluster"));
    Ok(ArmResponse::Ok(app.node_resources((&group, &workspace, &cluster), &request.param("node"))?))
}

pub async fn job_resources(app: App, request: ArmRequest<NoBody>) -> Result<JobResources> {
    Ok(ArmResponse::Ok(app.job_resources(&job_path(&request))?))
}

pub async fn processes(app: App, request: ArmRequest<NoBody>) -> Result<JobProcesses> {
    // For pages that poll: an ended job is not an error to them.
    let or_none = request.query("orNone") == Some("true");
    Ok(ArmResponse::Ok(app.job_processes(&job_path(&request), or_none).await?))
}

pub async fn record_timeline(app: App, request: ArmRequest<TimelineParameters>) -> Result<JobTimeline> {
    let path = job_path(&request);
    Ok(ArmResponse::Ok(app.record_timeline(&path, request.body).await?))
}

pub async fn timeline(app: App, request: ArmRequest<NoBody>) -> Result<JobTimeline> {
    Ok(ArmResponse::Ok((*app.job_timeline(&job_path(&request))?).clone()))
}

pub async fn why(app: App, request: ArmRequest<NoBody>) -> Result<Explanation> {
    Ok(ArmResponse::Ok(app.job_explanation(&job_path(&request)).await?))
}
