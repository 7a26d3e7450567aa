//! The requests that make a job out of a submission: resources, the job's directory with its files, the job. Each step is idempotent and repeated while
//! the server is away, so a restart of the server neither loses nor doubles a job. Ctrl-C before the job exists removes its directory again.

use std::path::PathBuf;
use std::sync::OnceLock;

use corro_client::files::FileSettings;
use corro_client::{Client, FileService};
use corro_model::batchai::{Job, JobCreateParameters, JobSpec, ResourceId};
use corro_model::ops::{JobsCreate, JobsGet, JobsList};

use super::names;
use super::resources;
use super::submission::{Submission, check_job};
use crate::commands::batchai::job::wait::INTERRUPTED;
use crate::commands::batchai::volumes::{self, MountArgs};
use crate::error::CliError;
use crate::output::units::{format_bytes, format_count};
use crate::progress::{Spinner, TransferBar};
use crate::project_upload::files::ProjectFiles;
use crate::project_upload::job_directory::{
    self, JobDirectory, OWN_DIRECTORY, REQUIREMENTS_FILE, SENT_FILES, SentFiles,
};
use crate::project_upload::send::{self, Destination};
use crate::resource::resource_ref::ResourceRef;
use crate::retry::Retry;
use crate::session::Session;
use crate::stdio::note;

/// Attempts to find a free name for a job while others submit too.
const MAX_NAME_ATTEMPTS: u32 = 100;

/// The creation of one job.
pub struct Creation<'a> {
    session: &'a Session,
    submission: &'a Submission,
    files: &'a ProjectFiles,
    /// The directory that was made for the job, until the job is requested.
    claimed: OnceLock<Claim>,
}

/// A job's name and the directory that belongs to it.
struct Claim {
    target: ResourceRef,
    share_files: FileService,
    directory: JobDirectory,
}

impl<'a> Creation<'a> {
    pub fn new(session: &'a Session, submission: &'a Submission, files: &'a ProjectFiles) -> Creation<'a> {
        Creation { session, submission, files, claimed: OnceLock::new() }
    }

    /// Creates the job. On a failure, and on Ctrl-C, nothing is left but resources that the next submission uses.
    pub async fn run(self, name: Option<&str>) -> Result<ResourceRef, CliError> {
        let created = tokio::select! {
            created = self.create(name) => created,
            Ok(()) = tokio::signal::ctrl_c() => Err(CliError { exit: INTERRUPTED, ..CliError::new("interrupted") }),
        };
        let error = match created {
            Ok(target) => return Ok(target),
            Err(error) => error,
        };
        let Some(claim) = self.claimed.get() else { return Err(error) };
        let job = self.session.client()?.find::<JobsGet>(&claim.target.values()).await;
        match job {
            Ok(None) => {
                let to = Destination {
                    files: &claim.share_files,
                    share: &claim.directory.share,
                    directory: &claim.directory.path,
                    store: "",
                };
                // What remains is only space on the share.
                let own = own_file_paths();
                let _ = send::discard(&to, self.files.paths().chain(own.iter().map(String::as_str))).await;
                Err(error)
            }
            Ok(Some(job)) if error.exit == INTERRUPTED => {
                note(format_args!(
                    "The job {} was submitted and goes on. Stop it with 'corro job stop {0}'.",
                    job.name
                ));
                Err(CliError::silent(INTERRUPTED))
            }
            // The server did not come back: whether the job exists is not known.
            _ => Err(error),
        }
    }

    async fn create(&self, name: Option<&str>) -> Result<ResourceRef, CliError> {
        let client = self.session.client()?;
        let (names, request) = (&self.submission.names, &self.submission.request);
        let mut retry = Retry::default();
        let JobResources { cluster_id, cluster, account, share_files } =
            JobResources::ensure(self.session, self.submission, request.nodes, &mut retry).await?;
        let (target, path) = retry.run(async || self.claim(name, &share_files).await).await?;
        let plan = self.submission.job_plan(&account, &path);
        let directory = plan.directory.clone();
        let claim = self.claimed.get_or_init(|| Claim { target, share_files, directory });
        let mut spec = check_job(&plan.job_file())?;
        let send = async || send_project(self.submission, self.files, &claim.share_files, &claim.directory).await;
        retry.run(send).await?;
        spec.cluster = Some(ResourceId { id: cluster_id });
        fill_volumes(client, &mut spec, &claim.target, &mut retry).await?;
        let job = request_job(client, &claim.target, spec, &mut retry).await?;
        note(format_args!(
            "Submitted job {} of experiment {} to cluster {cluster}: {}",
            job.name,
            names.experiment,
            format_count(request.nodes.into(), "node")
        ));
        Ok(claim.target.clone())
    }

    /// Chooses the job's name and creates its directory. A directory belongs to the submission that created it, so two submissions never share one.
    async fn claim(&self, name: Option<&str>, share: &FileService) -> Result<(ResourceRef, String), CliError> {
        let (client, names) = (self.session.client()?, &self.submission.names);
        let base = self.submission.experiment_directory();
        for directory in [names.workspace.as_str(), base.as_str()] {
            share.create_directory(&names.share, directory, &Default::default()).await?;
        }
        if let Some(name) = name {
            let target = self.submission.job_ref(name)?;
            if client.find::<JobsGet>(&target.values()).await?.is_some() {
                let message = format!("the experiment {} has a job {name} already", names.experiment);
                return Err(CliError::new(message).hint("choose another --name, or leave it out"));
            }
            // A deleted job of this name leaves its directory, with its results.
            for number in 1..=MAX_NAME_ATTEMPTS {
                let path = if number == 1 { format!("{base}/{name}") } else { format!("{base}/{name}.{number}") };
                if share.create_directory(&names.share, &path, &Default::default()).await? {
                    return Ok((target, path));
                }
            }
        } else {
            let stem = self.submission.stem();
            let any = self.submission.job_ref("any")?;
            let jobs: Vec<Job> = client.list::<JobsList, _>(&any.values(), &[]).await?;
            let first = names::next_number(&stem, jobs.iter().map(|job| job.name.as_str()));
            for number in first..first.saturating_add(MAX_NAME_ATTEMPTS) {
                let name = names::numbered(&stem, number);
                let path = format!("{base}/{name}");
                if share.create_directory(&names.share, &path, &Default::default()).await? {
                    return Ok((self.submission.job_ref(&name)?, path));
                }
            }
        }
        Err(CliError::new(format!("no directory in {base} of the share {} is free for the job", names.share))
            .hint("give the job another --name"))
    }
}

/// The resources that a job uses.
pub struct JobResources {
    pub cluster_id: String,
    /// Name of the cluster.
    pub cluster: String,
    pub account: String,
    pub share_files: FileService,
}

impl JobResources {
    /// Finds the resources of a submission, or makes them. The cluster can have `n_nodes`.
    pub async fn ensure(
        session: &Session,
        submission: &Submission,
        n_nodes: u32,
        retry: &mut Retry,
    ) -> Result<JobResources, CliError> {
        let (client, names, wanted) = (session.client()?, &submission.names, &submission.request.resources);
        retry.run(async || resources::ensure_experiment(client, names).await).await?;
        let (cluster_id, cluster) =
            retry.run(async || resources::ensure_cluster(client, names, n_nodes, wanted).await).await?;
        let (account, share_files) = retry.run(async || resources::ensure_share(session, names).await).await?;
        Ok(JobResources { cluster_id, cluster, account, share_files })
    }
}

/// Completes the volumes of a job with the keys of their accounts.
pub async fn fill_volumes(
    client: &Client,
    spec: &mut JobSpec,
    target: &ResourceRef,
    retry: &mut Retry,
) -> Result<(), CliError> {
    let volumes = spec.mount_volumes.take();
    let fill = async || volumes::fill(client, volumes.clone(), &MountArgs::default(), target).await;
    spec.mount_volumes = retry.run(fill).await?;
    Ok(())
}

/// The same request again changes nothing, so it is repeated until the server has answered.
pub async fn request_job(
    client: &Client,
    target: &ResourceRef,
    spec: JobSpec,
    retry: &mut Retry,
) -> Result<Job, CliError> {
    let _spinner = Spinner::start("Submitting");
    let parameters = JobCreateParameters { properties: spec };
    let request = async || {
        let created = client.run::<JobsCreate>(&target.values(), &parameters).await;
        created.map_err(|error| {
            let is_transient = error.is_transient();
            CliError { is_transient, ..target.request_error(error) }
        })
    };
    retry.run(request).await
}

/// Sends the project and Corro's own files to the directory of a job.
pub async fn send_project(
    submission: &Submission,
    files: &ProjectFiles,
    share: &FileService,
    directory: &JobDirectory,
) -> Result<(), CliError> {
    let names = &submission.names;
    let store = job_directory::store_directory(&names.workspace, &names.experiment);
    let to = Destination { files: share, share: &directory.share, directory: &directory.path, store: &store };
    let made = MadeFiles::write(submission.requirements.as_deref(), &SentFiles::of(files))?;
    let bar = TransferBar::new(true);
    let progress = |done, total| bar.update(done, total);
    let sent = send::send(&to, files, &progress).await;
    bar.abandon();
    let sent = sent?;
    share.create_directory(&directory.share, &directory.own_directory(), &Default::default()).await?;
    for (path, source) in made.files() {
        let path = format!("{}/{path}", directory.path);
        share.upload(&directory.share, &path, &source, &FileSettings::default(), 1, &|_, _| ()).await?;
    }
    let unchanged = match sent.copied_files {
        0 => String::new(),
        n => format!(", {n} unchanged"),
    };
    note(format_args!(
        "Sent {} of {} ({}{unchanged})",
        format_count(sent.files as i64, "file"),
        submission.project.dir.display(),
        format_bytes(sent.bytes)
    ));
    Ok(())
}

/// Files of Corro in the job's directory, written to a temporary directory before they are sent.
struct MadeFiles {
    dir: tempfile::TempDir,
    names: Vec<&'static str>,
}

impl MadeFiles {
    fn write(requirements: Option<&str>, sent: &SentFiles) -> Result<MadeFiles, CliError> {
        let failed = |error: std::io::Error| CliError::new("cannot write a temporary file").cause(error);
        let dir = tempfile::tempdir().map_err(failed)?;
        let list = serde_json::to_string(sent).map_err(|error| CliError::from_error(&error))?;
        let contents = [(SENT_FILES, Some(list.as_str())), (REQUIREMENTS_FILE, requirements)];
        let mut names = Vec::new();
        for (name, text) in contents {
            if let Some(text) = text {
                std::fs::write(dir.path().join(name), text).map_err(failed)?;
                names.push(name);
            }
        }
        Ok(MadeFiles { dir, names })
    }

    /// Paths below the job's directory, and sources.
    fn files(&self) -> impl Iterator<Item = (String, PathBuf)> {
        self.names.iter().map(|name| (format!("{OWN_DIRECTORY}/{name}"), self.dir.path().join(name)))
    }
}

/// Paths below a job's directory of Corro's own files that may have been sent.
pub fn own_file_paths() -> [String; 2] {
    [SENT_FILES, REQUIREMENTS_FILE].map(|name| format!("{OWN_DIRECTORY}/{name}"))
}
