//! Index of the dependencies of queued jobs: who waits for a job, and which of the jobs waited for have ended. Its cost does
//! not depend on jobs without dependencies.

use std::sync::Arc;

use corro_model::JobKey;
use imbl::{OrdMap, OrdSet};

use crate::records::{JobRecord, Table};

#[derive(Clone, Debug, Default)]
pub struct DependencyIndex {
    /// Queued jobs by the job that they wait for.
    pub dependents: OrdMap<JobKey, OrdSet<JobKey>>,
    /// Keys of `dependents` whose job has ended or does not exist.
    pub ended: OrdSet<JobKey>,
}

impl DependencyIndex {
    /// Applies the change of one job, which `jobs` includes. Records may be loaded in any order: a dependency that is not
    /// there yet counts as ended until it is.
    pub fn update(
        &mut self,
        key: &JobKey,
        old: Option<&Arc<JobRecord>>,
        new: Option<&Arc<JobRecord>>,
        jobs: &Table<JobKey, JobRecord>,
    ) {
        let [before, after] = [old, new].map(|job| job.map_or(&[][..], |job| job.unmet_dependencies()));
        for dependency in before.iter().filter(|dependency| !after.contains(dependency)) {
            self.remove(key, dependency);
        }
        for dependency in after.iter().filter(|dependency| !before.contains(dependency)) {
            self.dependents.entry(dependency.clone()).or_default().insert(key.clone());
            if has_ended(jobs.get(dependency)) {
                self.ended.insert(dependency.clone());
            }
        }
        if self.dependents.contains_key(key) {
            match has_ended(new) {
                true => _ = self.ended.insert(key.clone()),
                false => _ = self.ended.remove(key),
            }
        }
    }

    fn remove(&mut self, job: &JobKey, dependency: &JobKey) {
        let Some(dependents) = self.dependents.get_mut(dependency) else { return };
        dependents.remove(job);
        if dependents.is_empty() {
            self.dependents.remove(dependency);
            self.ended.remove(dependency);
        }
    }
}

fn has_ended(job: Option<&Arc<JobRecord>>) -> bool {
    job.is_none_or(|job| job.state().is_terminal())
}
