//! Why a queued job waits, in plain words, from the same planner that places it.

use corro_model::JobKey;
use corro_sched::Wait;
use corro_store::{JobRecord, State};

use crate::reconcile::scaling;

/// `None` for a job that does not wait, or that is about to start.
pub fn waiting_for(state: &State, key: &JobKey, job: &JobRecord) -> Option<String> {
    if job.state().name() != "queued" {
        return None;
    }
    let cluster = state.clusters.get(&job.cluster)?;
    let plan = corro_sched::plan(&scaling::view_of(state, &job.cluster));
    Some(words(plan.waits.get(key)?, &cluster.name))
}

fn words(wait: &Wait, cluster: &str) -> String {
    match wait {
        Wait::ClusterTooSmall { needs, most } => format!(
            "the job needs {needs} nodes and cluster {cluster} has at most {most}: resize it with 'cluster resize --target {needs}', or delete the job"
        ),
        Wait::NodesBusy { needs, idle } => {
            format!("the job is next and needs {needs} nodes: {idle} of cluster {cluster} are idle now")
        }
        Wait::Behind { position, first } => {
            let first = first.as_str().rsplit('/').next().unwrap_or_default();
            format!("{position} jobs of cluster {cluster} come first, the first of them is {first}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_can_never_run_says_what_to_do() {
        let text = words(&Wait::ClusterTooSmall { needs: 8, most: 4 }, "nc6");
        assert!(text.contains("needs 8 nodes") && text.contains("cluster resize --target 8"), "{text}");
    }
}
