//! Dependencies of jobs (`dependsOn`): resolves those of a new job, and describes the wait for them. When they end is decided
//! by `reconcile::dependencies`.

use corro_model::batchai::{JobReference, JobSpec};
use corro_model::state::JobState;
use corro_model::{ApiError, JobKey};
use corro_store::{JobRecord, State};

/// Dependencies that a description names at most.
const MAX_NAMED: usize = 3;

/// The jobs that the new job `key` has to wait for: those of its `dependsOn` that have not succeeded. One that failed is
/// among them; the next pass fails the job with its cause, however the two requests and the failure fell in time.
pub fn resolve_dependencies(state: &State, key: &JobKey, spec: &JobSpec) -> Result<Vec<JobKey>, ApiError> {
    let (mut all, mut unmet) = (Vec::new(), Vec::new());
    for (i, text) in spec.depends_on.iter().enumerate() {
        let refuse = |message: String| Err(ApiError::invalid(&format!("properties.dependsOn[{i}]"), message));
        let reference = match JobReference::parse(text) {
            Ok(reference) => reference,
            Err(problem) => return refuse(problem),
        };
        let dependency = reference.key(&key.experiment());
        if dependency == *key {
            return refuse(format!("the job '{text}' is the job itself: a job cannot wait for its own end"));
        }
        if all.contains(&dependency) {
            return refuse(format!("the job '{text}' is given twice: give each job once"));
        }
        let Some(job) = state.jobs.get(&dependency) else {
            let experiment = experiment_name(state, &dependency);
            return refuse(format!(
                "there is no job '{}' in experiment '{experiment}': submit it first, or write EXPERIMENT/JOB for a job of another experiment",
                reference.job
            ));
        };
        if job.provisioning.is_deleting() {
            return refuse(format!("the job '{text}' is being deleted: name another one, or submit it again first"));
        }
        if !has_succeeded(job) {
            unmet.push(dependency.clone());
        }
        all.push(dependency);
    }
    Ok(unmet)
}

fn has_succeeded(job: &JobRecord) -> bool {
    matches!(job.state(), JobState::Succeeded { .. })
}

/// Name of a job as `dependsOn` of `beside` refers to it: with its experiment if that is another one.
pub fn reference_name(state: &State, beside: &JobKey, key: &JobKey) -> String {
    let name = state.jobs.get(key).map_or_else(|| last_name(key.as_str()).to_owned(), |job| job.name.clone());
    match key.experiment() == beside.experiment() {
        true => name,
        false => format!("{}/{name}", experiment_name(state, key)),
    }
}

fn experiment_name(state: &State, job: &JobKey) -> String {
    let key = job.experiment();
    let record = state.experiments.get(&key);
    record.map_or_else(|| last_name(key.as_str()).to_owned(), |experiment| experiment.name.clone())
}

fn last_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// Wait of a job with unmet dependencies, in plain words.
pub struct DependencyWait {
    /// `job train-1 must succeed first`
    pub reason: String,
    /// What lets the job continue: `the success of train-1, which is running`.
    pub unblocked_by: String,
}

/// Describes the wait; `None` for a job without unmet dependencies.
pub fn dependency_wait(state: &State, key: &JobKey, job: &JobRecord) -> Option<DependencyWait> {
    let unmet = job.unmet_dependencies();
    let named = || unmet.iter().take(MAX_NAMED).map(|dependency| (dependency, reference_name(state, key, dependency)));
    let predicate =
        |dependency: &JobKey| state.jobs.get(dependency).map_or("was deleted", |job| job.state().predicate());
    let with_states = |(dependency, name): (&JobKey, String)| {
        let predicate = predicate(dependency);
        format!("{name} ({})", predicate.strip_prefix("is ").unwrap_or(predicate))
    };
    match unmet {
        [] => None,
        [only] => {
            let name = reference_name(state, key, only);
            Some(DependencyWait {
                reason: format!("job {name} must succeed first"),
                unblocked_by: format!("the success of {name}, which {}", predicate(only)),
            })
        }
        several => Some(DependencyWait {
            reason: format!("the jobs {} must succeed first", enumerate(named().map(|(_, name)| name), several.len())),
            unblocked_by: format!("the success of {}", enumerate(named().map(with_states), several.len())),
        }),
    }
}

/// `a, b and c`, or `a, b, c and 4 more`.
fn enumerate(names: impl Iterator<Item = String>, count: usize) -> String {
    let mut names: Vec<String> = names.collect();
    let last = match count - names.len() {
        0 => names.pop().unwrap_or_default(),
        more => format!("{more} more"),
    };
    format!("{} and {last}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use serde_json::json;

    fn resolve(state: &State, job: &str, depends_on: &[&str]) -> Result<Vec<JobKey>, (String, String)> {
        let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "dependsOn": depends_on});
        let spec = serde_json::from_value(spec).expect("a literal");
        resolve_dependencies(state, &key(job), &spec).map_err(|error| (error.target.unwrap_or_default(), error.message))
    }

    #[test]
    fn dependencies_exist_and_are_others() {
        let mut state = state(manual(1), 1);
        for name in ["a", "b", "done"] {
            submit(&mut state, name, 1, "PT1H");
        }
        start(&mut state, "done", &[1]);
        end(&mut state, "done", NOW);
        assert_eq!(resolve(&state, "j", &["A", "done", "cifar/b"]), Ok(vec![key("a"), key("b")]));
        let check = |depends_on: &[&str], field: &str, part: &str| {
            let (target, message) = resolve(&state, "j", depends_on).expect_err("it is refused");
            assert_eq!(target, field);
            assert!(message.contains(part), "{message}");
        };
        check(&["a", "c"], "properties.dependsOn[1]", "there is no job 'c' in experiment 'Cifar'");
        check(&["other/a"], "properties.dependsOn[0]", "there is no job 'a' in experiment 'other'");
        check(&["J"], "properties.dependsOn[0]", "the job itself");
        check(&["a", "Cifar/A"], "properties.dependsOn[1]", "given twice");
    }

    #[test]
    fn the_wait_names_the_first_jobs() {
        let mut state = state(manual(1), 1);
        for name in ["a", "b", "c", "d", "e"] {
            submit(&mut state, name, 1, "PT1H");
        }
        start(&mut state, "a", &[1]);
        let check = |dependencies: &[&str], reason: &str, unblocked_by: &str| {
            let mut state = state.clone();
            submit_after(&mut state, "j", dependencies);
            let wait = dependency_wait(&state, &key("j"), &state.jobs[&key("j")]).expect("it waits");
            assert_eq!((wait.reason.as_str(), wait.unblocked_by.as_str()), (reason, unblocked_by));
        };
        check(&["a"], "job A must succeed first", "the success of A, which is running");
        check(&["a", "b"], "the jobs A and B must succeed first", "the success of A (running) and B (queued)");
        check(
            &["a", "b", "c", "d", "e"],
            "the jobs A, B, C and 2 more must succeed first",
            "the success of A (running), B (queued), C (queued) and 2 more",
        );
        assert!(dependency_wait(&state, &key("b"), &state.jobs[&key("b")]).is_none());
    }
}
