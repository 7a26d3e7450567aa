//! References to jobs in `dependsOn`: `JOB` of the same experiment or `EXPERIMENT/JOB` of the same workspace. Pure.

use crate::names::{NameKind, check_name};
use crate::{ExperimentKey, JobKey};

/// Job that another one depends on. The names are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobReference<'a> {
    /// `None` for the experiment of the job that refers to it.
    pub experiment: Option<&'a str>,
    pub job: &'a str,
}

impl<'a> JobReference<'a> {
    /// Parses a reference; the error says what is wrong with it.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let (experiment, job) = match text.split_once('/') {
            Some((experiment, job)) => (Some(experiment), job),
            None => (None, text),
        };
        if job.contains('/') {
            return Err(format!("'{text}' is not a job: write JOB, or EXPERIMENT/JOB for a job of another experiment"));
        }
        if let Some(experiment) = experiment {
            check_name(NameKind::Experiment, experiment).map_err(|error| error.message)?;
        }
        check_name(NameKind::Job, job).map_err(|error| error.message)?;
        Ok(Self { experiment, job })
    }

    /// Key of the job, for a reference by a job of the experiment `own`.
    pub fn key(&self, own: &ExperimentKey) -> JobKey {
        match self.experiment {
            Some(experiment) => own.workspace().experiment(experiment).job(self.job),
            None => own.job(self.job),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupKey;

    #[test]
    fn references_are_relative_to_the_experiment_of_the_job() {
        let own = GroupKey::new("g").workspace("w").experiment("e");
        let check = |text: &str, expected: Result<&str, &str>| match (JobReference::parse(text), expected) {
            (Ok(reference), Ok(key)) => assert_eq!(reference.key(&own).as_str(), key, "{text}"),
            (Err(problem), Err(part)) => assert!(problem.contains(part), "{text}: {problem}"),
            (found, _) => panic!("{text}: {found:?}"),
        };
        check("train-1", Ok("g/w/e/train-1"));
        check("Prep/Data", Ok("g/w/prep/data"));
        check("e/train-1", Ok("g/w/e/train-1"));
        check("", Err("'' is not a valid job name"));
        check("/train", Err("'' is not a valid experiment name"));
        check("prep/", Err("'' is not a valid job name"));
        check("a b", Err("'a b' is not a valid job name"));
        check("w/e/j", Err("'w/e/j' is not a job: write JOB, or EXPERIMENT/JOB"));
        check("..", Err("'..' is not a valid job name"));
    }
}
