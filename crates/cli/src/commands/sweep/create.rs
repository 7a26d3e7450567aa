//! `corro sweep SCRIPT`: starts a sweep. The first trial is made like a job of `corro submit`; the others, and those that are missing after an
//! interruption, are made from one that exists ([`super::complete`]). The same command with the same name completes the sweep.

use std::sync::OnceLock;

use corro_client::FileService;
use corro_model::batchai::{Job, ResourceId};
use corro_model::ops::JobsList;
use corro_model::validate;

use super::args::{CreateArgs, check_sweep_name};
use super::arguments::{arguments_of, variables_of};
use super::complete::{Completion, GivenSecrets};
use super::definition::SweepDefinition;
use super::find::{Sweep, trial_of};
use super::table::trial_table;
use super::trial_job::trial_directory;
use super::watch;
use crate::background_server::ensure_server;
use crate::commands::batchai::job::wait::INTERRUPTED;
use crate::commands::submit::create::{JobResources, fill_volumes, own_file_paths, request_job, send_project};
use crate::commands::submit::job_spec::{JobPlan, Program};
use crate::commands::submit::names;
use crate::commands::submit::options::JobRequest;
use crate::commands::submit::submission::{Submission, check_job};
use crate::commands::submit::values::Variable;
use crate::error::CliError;
use crate::output::units::format_count;
use crate::project_upload::files::ProjectFiles;
use crate::project_upload::job_directory::{JobDirectory, SentFiles};
use crate::project_upload::send::{self, Destination};
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::{note, print};
use corro_model::batchai::{SweepSearch, SweepTrial, trial_job_name};

/// Attempts to find a free name for a sweep while others start sweeps too.
const MAX_NAME_ATTEMPTS: u32 = 100;

pub async fn run(args: CreateArgs) -> Result<(), CliError> {
    let submission = Submission::plan(args.script.as_deref(), &args.arguments, &args.job, &args.place)?;
    let arguments = program_arguments(&submission.program);
    let mut definition = args.sweep.definition(arguments, random_seed()?)?;
    if let Some(name) = &args.name {
        check_sweep_name(name)?;
    }
    if args.dry_run {
        return print_trials(&submission, &definition, args.name.as_deref());
    }
    ensure_server(args.yes).await?;
    let session = Session::open(&args.global)?;
    let existing = match &args.name {
        Some(name) => Sweep::read(session.client()?, &submission.job_ref("any")?, name).await?,
        None => None,
    };
    let sweep = match existing {
        Some(sweep) => {
            let there = sweep.definition()?;
            if args.sweep.seed.is_none() {
                definition = args.sweep.definition(arguments, there.seed)?;
            }
            if let Some(difference) = definition.difference(&there) {
                let message = format!("there is a sweep {} already, and it is another one: {difference}", sweep.name);
                let hint = format!(
                    "choose another --name, or submit what is missing with 'corro sweep resume {}'",
                    sweep.name
                );
                return Err(CliError::new(message).hint(hint));
            }
            let JobRequest { secrets, webhook, .. } = &submission.request;
            let secrets = GivenSecrets { variables: secrets, webhook: webhook.as_ref() };
            super::complete::resume(&session, &sweep, secrets).await?;
            sweep
        }
        None => {
            let files = submission.collect_files()?;
            let parallel = args.sweep.parallel.unwrap_or(1);
            let new = NewSweep {
                session: &session,
                submission: &submission,
                files: &files,
                definition,
                claim: OnceLock::new(),
            };
            new.run(args.name.as_deref(), submission.request.nodes.saturating_mul(parallel)).await?
        }
    };
    if args.detach {
        note(format_args!("See its trials with 'corro sweep show {}'.", sweep.name));
        print(&sweep.name);
        return Ok(());
    }
    watch::follow(&session, &sweep).await
}

fn random_seed() -> Result<u32, CliError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| CliError::from_error(&error))?;
    Ok(u32::from_ne_bytes(bytes))
}

fn program_arguments(program: &Program) -> &[String] {
    match program {
        Program::Script { arguments, .. } => arguments,
        Program::Command(words) => words,
    }
}

/// `--dry-run`: the trials as a table.
fn print_trials(submission: &Submission, definition: &SweepDefinition, name: Option<&str>) -> Result<(), CliError> {
    let name = name.map_or_else(|| names::numbered(&name_stem(submission), 1), str::to_owned);
    note(format_args!("Sweep {name} of experiment {}: {}", submission.names.experiment, search_text(definition)));
    for line in trial_table(&definition.trials, |number| trial_job_name(&name, number)).lines(None) {
        print(line);
    }
    Ok(())
}

/// Sweeps are named after the script.
fn name_stem(submission: &Submission) -> String {
    format!("{}-sweep", submission.stem())
}

/// `24 trials (random, seed 7)`.
fn search_text(definition: &SweepDefinition) -> String {
    let search = match definition.search {
        SweepSearch::Grid => "every combination".to_owned(),
        SweepSearch::Random => format!("random, seed {}", definition.seed),
    };
    format!("{} ({search})", format_count(definition.n_trials().into(), "trial"))
}

/// A sweep of which nothing exists.
struct NewSweep<'a> {
    session: &'a Session,
    submission: &'a Submission,
    files: &'a ProjectFiles,
    definition: SweepDefinition,
    /// The directory that was made for the sweep.
    claim: OnceLock<Claim>,
}

/// The name of a sweep and the directory that belongs to it.
struct Claim {
    name: String,
    share_files: FileService,
    /// Directory of the first trial.
    directory: JobDirectory,
    sweep_directory: String,
}

impl NewSweep<'_> {
    /// Creates all trials. Ctrl-C and failures leave those that were created, or nothing.
    async fn run(self, name: Option<&str>, n_nodes: u32) -> Result<Sweep, CliError> {
        let created = tokio::select! {
            created = self.create(name, n_nodes) => created,
            Ok(()) = tokio::signal::ctrl_c() => Err(CliError { exit: INTERRUPTED, ..CliError::new("interrupted") }),
        };
        let error = match created {
            Ok(sweep) => return Ok(sweep),
            Err(error) => error,
        };
        let Some(claim) = self.claim.get() else { return Err(error) };
        match Sweep::read(self.session.client()?, &self.submission.job_ref("any")?, &claim.name).await {
            Ok(None) => {
                self.discard(claim).await;
                Err(error)
            }
            Ok(Some(sweep)) => Err(super::complete::interrupted(&sweep, error)),
            // The server did not come back: which trials exist is not known.
            Err(_) => Err(error),
        }
    }

    async fn create(&self, name: Option<&str>, n_nodes: u32) -> Result<Sweep, CliError> {
        let client = self.session.client()?;
        let mut retry = Retry::default();
        let resources = JobResources::ensure(self.session, self.submission, n_nodes, &mut retry).await;
        let n_needed = self.submission.request.nodes;
        let JobResources { cluster_id, cluster, account, share_files } = match resources {
            // A cluster of a fixed size, which was named, runs as many trials as it has room for.
            Err(error) if !error.is_transient && n_nodes > n_needed && self.submission.names.cluster.is_some() => {
                JobResources::ensure(self.session, self.submission, n_needed, &mut retry).await?
            }
            resources => resources?,
        };
        let (name, sweep_directory) = retry.run(async || self.claim_directory(name, &share_files).await).await?;
        let trial = self.definition.trial(&name, 1);
        let plan = self.first_plan(&account, &trial_directory(&sweep_directory, 1, 1), &trial);
        let directory = plan.directory.clone();
        let claim = self.claim.get_or_init(|| Claim { name, share_files, directory, sweep_directory });
        let target = self.submission.job_ref(&trial.job_name())?;
        let mut spec = check_job(&plan.job_file())?;
        spec.sweep = Some(Box::new(trial));
        validate::check_job(&spec)?;
        let share = &self.submission.names.share;
        let send = async || {
            claim.share_files.create_directory(share, &claim.directory.path, &Default::default()).await?;
            send_project(self.submission, self.files, &claim.share_files, &claim.directory).await
        };
        retry.run(send).await?;
        spec.cluster = Some(ResourceId { id: cluster_id });
        fill_volumes(client, &mut spec, &target, &mut retry).await?;
        request_job(client, &target, spec.clone(), &mut retry).await?;
        let completion = Completion {
            session: self.session,
            name: claim.name.clone(),
            definition: self.definition.clone(),
            any_job: target.clone(),
            reference: spec,
            directory: claim.directory.clone(),
            share_files: claim.share_files.clone(),
            sent: SentFiles::of(self.files),
            changed: Default::default(),
        };
        completion.create(&(2..=self.definition.n_trials()).collect::<Vec<_>>()).await?;
        note(format_args!(
            "Submitted {} of the sweep {} to cluster {cluster}",
            search_text(&self.definition),
            claim.name
        ));
        let sweep = retry.run(async || Sweep::read(client, &target, &claim.name).await).await?;
        sweep.ok_or_else(|| CliError::new(format!("the sweep {} was deleted", claim.name)))
    }

    fn first_plan(&self, account: &str, path: &str, trial: &SweepTrial) -> JobPlan {
        let arguments = arguments_of(&trial.arguments, &trial.parameters);
        let mut plan = self.submission.job_plan(account, path);
        plan.program = match plan.program {
            Program::Script { path, .. } => Program::Script { path, arguments },
            Program::Command(_) => Program::Command(arguments),
        };
        let variables = variables_of(&trial.parameters);
        plan.environment.extend(variables.map(|variable| Variable { name: variable.name, value: variable.value }));
        plan
    }

    /// Chooses the name of the sweep and creates its directory, which belongs to the sweep that created it.
    async fn claim_directory(
        &self,
        name: Option<&str>,
        share_files: &FileService,
    ) -> Result<(String, String), CliError> {
        let (client, names) = (self.session.client()?, &self.submission.names);
        let base = self.submission.experiment_directory();
        for directory in [names.workspace.as_str(), base.as_str()] {
            share_files.create_directory(&names.share, directory, &Default::default()).await?;
        }
        let stem = name_stem(self.submission);
        let first = match name {
            Some(_) => 1,
            None => {
                let jobs: Vec<Job> = client.list::<JobsList, _>(&self.submission.job_ref("any")?.values(), &[]).await?;
                names::next_number(&stem, jobs.iter().filter_map(trial_of).map(|trial| trial.name.as_str()))
            }
        };
        for number in first..first.saturating_add(MAX_NAME_ATTEMPTS) {
            let (sweep, directory) = match name {
                Some(name) if number == 1 => (name.to_owned(), name.to_owned()),
                // A deleted sweep of this name leaves its directory, with its results.
                Some(name) => (name.to_owned(), format!("{name}.{number}")),
                None => (names::numbered(&stem, number), names::numbered(&stem, number)),
            };
            let path = format!("{base}/{directory}");
            if share_files.create_directory(&names.share, &path, &Default::default()).await? {
                return Ok((sweep, path));
            }
        }
        Err(CliError::new(format!("no directory in {base} of the share {} is free for the sweep", names.share))
            .hint("give the sweep another --name"))
    }

    /// Removes the directory of a sweep without trials. What remains is only space on the share.
    async fn discard(&self, claim: &Claim) {
        let to = Destination {
            files: &claim.share_files,
            share: &claim.directory.share,
            directory: &claim.directory.path,
            store: "",
        };
        let own = own_file_paths();
        let _ = send::discard(&to, self.files.paths().chain(own.iter().map(String::as_str))).await;
        let _ = claim.share_files.delete_directory(&claim.directory.share, &claim.sweep_directory).await;
    }
}
