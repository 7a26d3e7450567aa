//! The temporary directory that TensorBoard reads: `JOB/PATH` for each event file. If the shares lie on this machine and can be read, the files are links
//! to those on the shares; else they are downloaded, and only what is new each time. Removed on drop.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use corro_client::sas_url::Reading;
use corro_client::{FileLink, Profile, profile};
use corro_hosting::server_record::RunningServer;
use corro_model::batchai::Job;
use corro_model::ops::JobsGet;

use super::event_files::{self, EventFile};
use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;

pub struct Mirror {
    dir: tempfile::TempDir,
    /// Directory of the shares on this machine.
    shares: Option<PathBuf>,
    /// Files in the mirror, and how many bytes of each are downloaded; `None` for a link.
    files: BTreeMap<PathBuf, Option<u64>>,
    /// Jobs that had ended when they were read completely.
    finished: BTreeSet<String>,
}

impl Mirror {
    pub fn create(session: &Session) -> Result<Mirror, CliError> {
        let dir = tempfile::Builder::new().prefix("corro-tensorboard-").tempdir();
        let dir = dir.map_err(|error| CliError::new("cannot make a temporary directory").cause(error))?;
        let shares = shares_on_this_machine(session.client()?.server());
        Ok(Mirror { dir, shares, files: BTreeMap::new(), finished: BTreeSet::new() })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn n_files(&self) -> usize {
        self.files.len()
    }

    /// Whether the files are read where they are.
    pub fn is_local(&self) -> bool {
        self.shares.is_some()
    }

    /// Adds new files and new bytes of the jobs.
    pub async fn refresh(&mut self, session: &Session, jobs: &[Job]) -> Result<(), CliError> {
        for job in jobs {
            if self.finished.contains(&job.id) {
                continue;
            }
            let target = ResourceRef::from_id::<JobsGet>("NAME", &job.id)?;
            for file in event_files::list(session, &target, job).await? {
                self.add(session, &job.name, &file).await?;
            }
            // The state was read before the files, so an ended job has no more of them.
            if job.properties.status.execution_state.is_terminal() {
                self.finished.insert(job.id.clone());
            }
        }
        Ok(())
    }

    async fn add(&mut self, session: &Session, job: &str, file: &EventFile) -> Result<(), CliError> {
        let path = Path::new(job).join(&file.path);
        let local = self.dir.path().join(&path);
        let cannot = |error: std::io::Error| CliError::new(format!("cannot write {}", local.display())).cause(error);
        if !self.files.contains_key(&path) {
            fs::create_dir_all(local.parent().unwrap_or(self.dir.path())).map_err(cannot)?;
            if let Some(on_share) = self.file_on_this_machine(session.client()?.server(), file) {
                std::os::unix::fs::symlink(on_share, &local).map_err(cannot)?;
                self.files.insert(path, None);
                return Ok(());
            }
        }
        let Some(offset) = self.files.entry(path.clone()).or_insert(Some(0)).to_owned() else { return Ok(()) };
        let link = FileLink::new(&file.link)?.trusting(&session.trust()?)?;
        let Reading::Bytes(mut body) = link.read_from(offset).await? else { return Ok(()) };
        let mut out = File::options().append(true).create(true).open(&local).map_err(cannot)?;
        let mut written = offset;
        while let Some(bytes) = body.next().await? {
            out.write_all(&bytes).map_err(cannot)?;
            written += bytes.len() as u64;
            self.files.insert(path.clone(), Some(written));
        }
        Ok(())
    }

    /// The file on the server's disk, if it can be read there.
    fn file_on_this_machine(&self, server: &str, file: &EventFile) -> Option<PathBuf> {
        let (account, share, path) = file.location(server)?;
        let on_share = self.shares.as_ref()?.join(account).join(share).join(path);
        File::open(&on_share).is_ok().then_some(on_share)
    }
}

/// The directory of the shares of a server that runs on this machine with this address.
fn shares_on_this_machine(server: &str) -> Option<PathBuf> {
    let profile = Profile::load(&profile::config_dir().ok()?).ok()?;
    let running = RunningServer::find(Path::new(&profile.data_directory?)).ok()??;
    let shares = running.data.join("shares");
    (running.url.as_deref() == Some(server) && shares.is_dir()).then_some(shares)
}
