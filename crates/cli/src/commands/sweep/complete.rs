//! Creates trials of a sweep from one that exists: the same job with other parameters, and the same files, copied on the server. Trial by trial in order.
//! A directory belongs to the client that created it, and the name of the job decides between clients that make the same trial, so every trial is created
//! once and no client writes to the directory of a job that runs.

use std::collections::BTreeSet;
use std::sync::Mutex;

use corro_client::FileService;
use corro_model::Secret;
use corro_model::batchai::{JobSpec, Webhook, trial_job_name};
use corro_model::ops::JobsGet;
use futures_util::{StreamExt, stream};

use super::definition::SweepDefinition;
use super::find::{Sweep, SweepNameArgs, job_in, trial_of};
use super::trial_job::{job_of_trial, sweep_directory, trial_directory};
use super::watch;
use crate::commands::batchai::job::wait::INTERRUPTED;
use crate::commands::fetch::read_sent_files;
use crate::commands::storage::auth;
use crate::commands::submit::create::{fill_volumes, own_file_paths, request_job};
use crate::commands::submit::values::Variable;
use crate::error::CliError;
use crate::output::units::format_count;
use crate::progress::Spinner;
use crate::project_upload::job_directory::{JobDirectory, SentFiles, store_in};
use crate::project_upload::replicate::{SentFile, replicate};
use crate::project_upload::send::{self, Destination};
use crate::resource::resource_ref::ResourceRef;
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::{note, print};

/// Trials whose files are copied at the same time.
const PARALLEL_TRIALS: usize = 4;
/// Attempts to find a directory for a trial that no other client has begun.
const MAX_DIRECTORY_ATTEMPTS: u32 = 100;

/// `corro sweep resume`.
pub async fn run(args: SweepNameArgs, detach: bool) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let sweep = args.find(&session).await?;
    resume(&session, &sweep, GivenSecrets::default()).await?;
    if detach {
        print(&sweep.name);
        return Ok(());
    }
    watch::follow(&session, &sweep).await
}

/// Values of the command line that the server does not give out.
#[derive(Clone, Copy, Default)]
pub struct GivenSecrets<'a> {
    pub variables: &'a [Variable],
    pub webhook: Option<&'a Webhook>,
}

/// Creates the trials that are missing.
pub async fn resume(session: &Session, sweep: &Sweep, secrets: GivenSecrets<'_>) -> Result<(), CliError> {
    let missing = sweep.missing_trials();
    let n_trials = format_count(sweep.any_trial().trial_count.into(), "trial");
    if missing.is_empty() {
        note(format_args!("The sweep {} has all of its {n_trials}.", sweep.name));
        return Ok(());
    }
    let created = tokio::select! {
        created = create_missing(session, sweep, secrets, &missing) => created,
        Ok(()) = tokio::signal::ctrl_c() => Err(CliError { exit: INTERRUPTED, ..CliError::new("interrupted") }),
    };
    created.map_err(|error| interrupted(sweep, error))?;
    note(format_args!("Submitted {} of {n_trials} of the sweep {}", missing.len(), sweep.name));
    Ok(())
}

async fn create_missing(
    session: &Session,
    sweep: &Sweep,
    secrets: GivenSecrets<'_>,
    missing: &[u32],
) -> Result<(), CliError> {
    Completion::of(session, sweep, secrets).await?.create(missing).await
}

/// The error of a command that created only some trials.
pub fn interrupted(sweep: &Sweep, error: CliError) -> CliError {
    let text = format!(
        "submit the missing trials with 'corro sweep resume {0}', or stop the others with 'corro sweep stop {0}'",
        sweep.name
    );
    if error.exit == INTERRUPTED {
        note(format_args!("Interrupted: not all trials of the sweep {} are submitted. You can {text}.", sweep.name));
        return CliError::silent(INTERRUPTED);
    }
    match error.hint {
        Some(_) => error,
        None => error.hint(text),
    }
}

/// What trials are made from.
pub struct Completion<'a> {
    pub session: &'a Session,
    pub name: String,
    pub definition: SweepDefinition,
    /// A job of the same experiment.
    pub any_job: ResourceRef,
    /// The job of a trial, with secrets and keys.
    pub reference: JobSpec,
    pub directory: JobDirectory,
    pub share_files: FileService,
    pub sent: SentFiles,
    /// Files that were changed since they were sent, which is said once.
    pub changed: Mutex<BTreeSet<String>>,
}

impl<'a> Completion<'a> {
    /// Takes a trial that exists as the reference.
    async fn of(session: &'a Session, sweep: &Sweep, secrets: GivenSecrets<'_>) -> Result<Completion<'a>, CliError> {
        let definition = sweep.definition()?;
        let job = sweep.trials.first().expect("a sweep has a trial");
        let mut reference = JobSpec::clone(&job.properties.spec);
        let directory = JobDirectory::of(&reference).ok_or_else(|| foreign(&job.name))?;
        insert_secrets(&mut reference, secrets, &sweep.name)?;
        // The server answers without the keys of accounts.
        for share in reference.mount_volumes.iter_mut().flat_map(|volumes| &mut volumes.azure_file_shares) {
            share.credentials = None;
        }
        let client = session.client()?;
        fill_volumes(client, &mut reference, &sweep.any_job, &mut Retry::default()).await?;
        let share_files = auth::open_named(session, &directory.account, None).await?;
        let sent = read_sent_files(&share_files, &directory).await?.ok_or_else(|| {
            CliError::new(format!(
                "the list of files of the trial {} is gone from its directory {}",
                job.name, directory.path
            ))
            .hint("start a new sweep from the directory of the project")
        })?;
        let (name, any_job) = (sweep.name.clone(), sweep.any_job.clone());
        let changed = Mutex::default();
        Ok(Completion { session, name, definition, any_job, reference, directory, share_files, sent, changed })
    }

    /// Creates these trials in order.
    pub async fn create(&self, numbers: &[u32]) -> Result<(), CliError> {
        let _spinner = Spinner::start("Submitting trials");
        let mut prepared = stream::iter(numbers).map(|number| self.prepare(*number)).buffered(PARALLEL_TRIALS);
        let mut retry = Retry::after_answer();
        while let Some(job) = prepared.next().await {
            self.request(job?, &mut retry).await?;
        }
        Ok(())
    }

    /// Makes the directory of a trial and its job's specification.
    async fn prepare(&self, number: u32) -> Result<PreparedTrial, CliError> {
        let mut retry = Retry::after_answer();
        let path = retry.run(async || self.claim_directory(number).await).await?;
        let spec = job_of_trial(&self.reference, self.definition.trial(&self.name, number), path.clone())
            .ok_or_else(|| foreign(self.any_job.name("job")))?;
        let digest = |path: &String| self.sent.digests.get(path).map(String::as_str);
        let files: Vec<SentFile> =
            self.sent.files.iter().map(|(path, size)| SentFile { path, size: *size, digest: digest(path) }).collect();
        let store = self.store();
        let to = self.destination(&path, &store);
        let copy = async || replicate(&to, &self.directory.path, &files, &own_file_paths()).await;
        for path in retry.run(copy).await? {
            let is_new = self.changed.lock().expect("no one panics while holding the lock").insert(path.clone());
            if is_new {
                note(format_args!(
                    "warning: {path} was changed since it was sent; the trials get it as it is in {}",
                    self.directory.path
                ));
            }
        }
        let target = job_in(&self.any_job, &trial_job_name(&self.name, number))?;
        Ok(PreparedTrial { target, spec, path })
    }

    /// Creates a directory for a trial. One that exists belongs to another client, which may be gone.
    async fn claim_directory(&self, number: u32) -> Result<String, CliError> {
        let share = &self.directory.share;
        for attempt in 1..=MAX_DIRECTORY_ATTEMPTS {
            let path = trial_directory(sweep_directory(&self.directory), number, attempt);
            if self.share_files.create_directory(share, &path, &Default::default()).await? {
                return Ok(path);
            }
        }
        Err(CliError::new(format!(
            "no directory in {} of the share {share} is free for trial {number}",
            sweep_directory(&self.directory)
        ))
        .hint("delete those of trials that have no job"))
    }

    /// Creates a job. One that another client created meanwhile is as good.
    async fn request(&self, prepared: PreparedTrial, retry: &mut Retry) -> Result<(), CliError> {
        let PreparedTrial { target, spec, path } = prepared;
        let client = self.session.client()?;
        let trial = spec.sweep.clone();
        let Err(error) = request_job(client, &target, spec, retry).await else { return Ok(()) };
        match client.find::<JobsGet>(&target.values()).await {
            Ok(Some(job)) if trial_of(&job) == trial.as_deref() => {
                let own = own_file_paths();
                let paths = self.sent.files.keys().chain(own.iter()).map(String::as_str);
                // What remains is only space on the share.
                let _ = send::discard(&self.destination(&path, ""), paths).await;
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn destination<'p>(&'p self, path: &'p str, store: &'p str) -> Destination<'p> {
        Destination { files: &self.share_files, share: &self.directory.share, directory: path, store }
    }

    /// The store of contents of the experiment.
    fn store(&self) -> String {
        let experiment = sweep_directory(&self.directory).rsplit_once('/').map_or("", |(parent, _)| parent);
        store_in(experiment)
    }
}

/// A trial whose directory is complete and belongs to this client.
struct PreparedTrial {
    target: ResourceRef,
    spec: JobSpec,
    path: String,
}

fn foreign(job: &str) -> CliError {
    CliError::new(format!("the job {job} was not made by 'corro sweep', so other trials cannot be made from it"))
}

/// Completes the secrets and the webhook of a job with their values.
fn insert_secrets(spec: &mut JobSpec, given: GivenSecrets<'_>, sweep: &str) -> Result<(), CliError> {
    let mut missing = Vec::new();
    for secret in &mut spec.secrets {
        match given.variables.iter().find(|variable| variable.name == secret.name) {
            Some(variable) => secret.value = Some(Secret::new(variable.value.clone())),
            None => missing.push(format!("--secret {}", secret.name)),
        }
    }
    if let Some(webhook) = spec.notifications.as_mut().and_then(|notifications| notifications.webhook.as_mut()) {
        match given.webhook {
            Some(given) => *webhook = given.clone(),
            None => missing.push("--webhook".to_owned()),
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(CliError::new(format!(
            "the trials of the sweep {sweep} have secrets, which the server does not give out: {}",
            missing.join(" ")
        ))
        .hint(format!("run the command that started the sweep again, with --name {sweep}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What the server does not give out has to be given again.
    #[test]
    fn secrets_and_the_webhook_are_completed_or_named() {
        let answer = json!({
            "nodeCount": 1, "stdOutErrPathPrefix": "x", "secrets": [{"name": "TOKEN"}],
            "notifications": {"webhook": {"url": "https://h/***", "events": ["failed"]}},
        });
        let answer: JobSpec = serde_json::from_value(answer).expect("a job");
        let error = insert_secrets(&mut answer.clone(), GivenSecrets::default(), "s").expect_err("nothing is given");
        assert!(error.message.ends_with("does not give out: --secret TOKEN --webhook"), "{}", error.message);
        let variables = [Variable { name: "TOKEN".to_owned(), value: "t".to_owned() }];
        let webhook = Webhook { url: Secret::new("https://h/x"), events: None, secret: None };
        let given = GivenSecrets { variables: &variables, webhook: Some(&webhook) };
        let mut completed = answer;
        insert_secrets(&mut completed, given, "s").expect("complete");
        assert_eq!(completed.notifications.and_then(|notifications| notifications.webhook), Some(webhook.clone()));
        // Nothing is added to a job that has neither.
        let mut plain: JobSpec =
            serde_json::from_value(json!({"nodeCount": 1, "stdOutErrPathPrefix": "x"})).expect("a job");
        insert_secrets(&mut plain, given, "s").expect("nothing to complete");
        assert!(plain.notifications.is_none() && plain.secrets.is_empty());
    }
}
