//! Single nodes and what runs on them: ours, beside the service's operations.

use corro_model::batchai::*;
use corro_model::explain::Explanation;
use corro_model::ops::NoBody;

use super::{Answer, Call, Result, job_path};
use crate::app::App;

pub async fn list(app: App, call: Call<NoBody>) -> Result<Page<NodeSummary>> {
    let nodes = app.readable(app.nodes(), |node| &node.cluster_id);
    Ok(Answer::Ok(call.page(nodes, |node| node.node_id.as_str())?))
}

pub async fn preempt(app: App, call: Call<PreemptParameters>) -> Result<NodeSummary> {
    let cluster = (call.param("group"), call.param("workspace"), call.param("cluster"));
    Ok(Answer::Ok(app.preempt_node(cluster, call.param("node"), call.body).await?))
}

pub async fn processes(app: App, call: Call<NoBody>) -> Result<JobProcesses> {
    // For those who look again and again: that it has ended is no error to them.
    let or_none = call.query("orNone") == Some("true");
    Ok(Answer::Ok(app.job_processes(&job_path(&call), or_none).await?))
}

pub async fn record_timeline(app: App, call: Call<TimelineParameters>) -> Result<JobTimeline> {
    let path = job_path(&call);
    Ok(Answer::Ok(app.record_timeline(&path, call.body).await?))
}

pub async fn timeline(app: App, call: Call<NoBody>) -> Result<JobTimeline> {
    Ok(Answer::Ok((*app.job_timeline(&job_path(&call))?).clone()))
}

pub async fn why(app: App, call: Call<NoBody>) -> Result<Explanation> {
    Ok(Answer::Ok(app.job_why(&job_path(&call)).await?))
}
