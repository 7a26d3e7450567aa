//! Finds a sweep by its name, and its trials: the jobs that carry its definition. Reads only.

use clap::Args;
use corro_client::Client;
use corro_model::batchai::{Job, SearchResultKind, SweepTrial, trial_job_name, trial_job_prefix};
use corro_model::ops::{JobsGet, JobsList, NoBody, Search};

use super::definition::SweepDefinition;
use crate::defaults::Defaults;
use crate::error::CliError;
use crate::resource::args::ResourceNames;
use crate::resource::lookup::pins;
use crate::resource::resolve::NameQuery;
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::ExperimentPlace;
use crate::session::{GlobalArgs, Session};

pub const LIST_COMMAND: &str = "corro sweep list --all";
/// Matches of one search request. The server sorts exact matches first.
const MAX_MATCHES: &str = "100";
/// Parameter of a reference that holds the name of a sweep.
const SWEEP: &str = "sweep";

/// Arguments that name a sweep.
#[derive(Args, Debug)]
pub struct SweepNameArgs {
    /// Name of the sweep
    #[arg(value_name = "NAME")]
    pub sweep: String,
    #[command(flatten)]
    place: ExperimentPlace,
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// A sweep and those of its trials that exist.
pub struct Sweep {
    /// Name as its jobs have it.
    pub name: String,
    /// A job of the same experiment.
    pub any_job: ResourceRef,
    /// Jobs of the trials, by number.
    pub trials: Vec<Job>,
}

impl SweepNameArgs {
    /// Looks the sweep up. It has at least one trial.
    pub async fn find(&self, session: &Session) -> Result<Sweep, CliError> {
        let (client, defaults, options) = (session.client()?, Defaults::load()?, self.place.names());
        let project = defaults.project_experiment();
        let query = NameQuery {
            kind: SWEEP,
            name: &self.sweep,
            pins: pins(&options, &defaults),
            preferred_experiment: project.as_deref(),
            list_command: LIST_COMMAND,
        };
        let candidates = match options.iter().all(|(_, _, given)| given.is_some()) {
            true => vec![ResourceRef::from_names(&[&options[..], &[(SWEEP, "NAME", Some(&self.sweep))]].concat())?],
            false => search(client, &self.sweep).await?,
        };
        let missing = |unresolved| query.error(&unresolved, []);
        let found = query.choose(&candidates).map_err(missing)?;
        let sweep = Sweep::read(client, &job_in(&found, "any")?, &self.sweep).await?;
        sweep.ok_or_else(|| missing(crate::resource::resolve::Unresolved::Missing))
    }
}

/// References to the experiments that have a sweep of this name.
async fn search(client: &Client, sweep: &str) -> Result<Vec<ResourceRef>, CliError> {
    // The first trial is rarely deleted, and finding it needs one request.
    for text in [trial_job_name(sweep, 1), trial_job_prefix(sweep)] {
        let query = [("text", text.as_str()), ("maxresults", MAX_MATCHES)];
        let matches = client.call::<Search>(&[], &query, &NoBody {}).await?.value;
        let mut found: Vec<ResourceRef> = Vec::new();
        for job in
            matches.iter().filter(|found| found.kind == SearchResultKind::Job && is_trial_name(&found.name, sweep))
        {
            let job = ResourceRef::from_id::<JobsGet>("NAME", &job.id)?;
            let reference = named_in(&job, (SWEEP, sweep))?;
            if !found.contains(&reference) {
                found.push(reference);
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Whether a trial of the sweep can have this name.
fn is_trial_name(job: &str, sweep: &str) -> bool {
    let (job, prefix) = (job.to_lowercase(), trial_job_prefix(sweep).to_lowercase());
    job.strip_prefix(&prefix)
        .is_some_and(|number| number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Sweep {
    /// Reads the trials of a sweep in the experiment of `any_job`; `None` if there are none, or no experiment.
    pub async fn read(client: &Client, any_job: &ResourceRef, name: &str) -> Result<Option<Sweep>, CliError> {
        let jobs: Vec<Job> = match client.list::<JobsList, _>(&any_job.values(), &[]).await {
            Ok(jobs) => jobs,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => {
                let is_transient = error.is_transient();
                return Err(CliError { is_transient, ..any_job.request_error(error) });
            }
        };
        let is_own = |job: &Job| {
            let trial = job.properties.spec.sweep.as_ref();
            !job.properties.provisioning.is_deleting()
                && trial.is_some_and(|trial| trial.name.eq_ignore_ascii_case(name))
        };
        let mut trials: Vec<Job> = jobs.into_iter().filter(is_own).collect();
        trials.sort_by_key(|job| trial_of(job).map(|trial| trial.trial));
        let Some(first) = trials.first().and_then(trial_of) else { return Ok(None) };
        Ok(Some(Sweep { name: first.name.clone(), any_job: any_job.clone(), trials }))
    }

    /// The definition that the trials carry.
    pub fn definition(&self) -> Result<SweepDefinition, CliError> {
        let trial = self.trials.first().and_then(trial_of).expect("a sweep has a trial");
        SweepDefinition::from_trial(trial)
            .map_err(|error| CliError::new(format!("the sweep {} cannot be completed: {error}", self.name)))
    }

    /// What all trials have in common.
    pub fn any_trial(&self) -> &SweepTrial {
        self.trials.first().and_then(trial_of).expect("a sweep has a trial")
    }

    /// Numbers of the trials that do not exist.
    pub fn missing_trials(&self) -> Vec<u32> {
        let exists =
            |number: &u32| self.trials.iter().any(|job| trial_of(job).is_some_and(|trial| trial.trial == *number));
        (1..=self.any_trial().trial_count).filter(|number| !exists(number)).collect()
    }

    /// The reference to a job of the sweep's experiment.
    pub fn job(&self, name: &str) -> Result<ResourceRef, CliError> {
        job_in(&self.any_job, name)
    }
}

/// The part of a job in its sweep.
pub fn trial_of(job: &Job) -> Option<&SweepTrial> {
    job.properties.spec.sweep.as_deref()
}

/// The reference to a job of the same experiment.
pub fn job_in(reference: &ResourceRef, job: &str) -> Result<ResourceRef, CliError> {
    named_in(reference, ("job", job))
}

fn named_in(reference: &ResourceRef, (parameter, name): (&'static str, &str)) -> Result<ResourceRef, CliError> {
    let parents = ["group", "workspace", "experiment"].map(|parent| (parent, "", Some(reference.name(parent))));
    ResourceRef::from_names(&[&parents[..], &[(parameter, "NAME", Some(name))]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_recognized_by_their_names() {
        for name in ["s-001", "S-999", "s-1000"] {
            assert!(is_trial_name(name, "s"), "{name}");
        }
        for name in ["s-1", "s-x01", "s-2-001", "ss-001", "s-"] {
            assert!(!is_trial_name(name, "s"), "{name}");
        }
    }
}
