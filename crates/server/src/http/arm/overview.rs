//! What there is in all workspaces together: ours, beside the service's operations. Only the table in `arm` leads here.

use corro_model::batchai::*;
use corro_model::ops::NoBody;

use super::{Answer, Call, Result};
use crate::app::App;
use crate::app::overview::JobsWanted;

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
        before: call.number("marker", NO_MARKER, 0..=NO_MARKER)? as u64,
        limit: call.number("maxresults", 100, 1..=1000)? as usize,
    };
    let (mut page, more) = app.all_jobs(&wanted);
    page.next_link = more.map(|last| call.next_link(&last.to_string()));
    Ok(Answer::Ok(page))
}
