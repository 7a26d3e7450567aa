//! The running task as a target of `job exec` and of tunnels: working directory, variables, and how a process is
//! started there. Registered by the task while its environment exists. Sessions have ended before the environment is
//! removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use corro_base::procfs;
use corro_launch::confinement::Confinement;
use corro_launch::kill_tagged;
use corro_launch::process_spec::ProcessSpec;
use corro_model::AttemptId;
use corro_model::node::TaskOrder;

use crate::container::exec_relay::INSIDE_ENV_PREFIX;
use crate::identity::incarnation::TagPrefix;
use crate::stats::process_stats;
use crate::task::job_env::JobEnv;

/// How long the end of the registration waits for sessions.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);

/// The running task's environment for further processes, if a task runs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ExecTargets(Arc<Mutex<Option<Arc<ExecTarget>>>>);

#[derive(Debug)]
pub struct ExecTarget {
    attempt: AttemptId,
    /// `WORKSPACE/EXPERIMENT/JOB`
    job: String,
    /// Tag prefix of the task's processes.
    tag: String,
    secrets: BTreeSet<String>,
    cwd: PathBuf,
    job_env: Arc<JobEnv>,
    /// Cloned by each [`ExecGuard`].
    guards: mpsc::Sender<()>,
    closing: watch::Receiver<bool>,
}

/// Registration of a task; sessions can start while it exists.
#[derive(Debug)]
pub struct Registration {
    targets: ExecTargets,
    guards: mpsc::Receiver<()>,
    close: watch::Sender<bool>,
}

/// The job, and optionally the rank, whose environment is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    pub job: String,
    pub rank: Option<usize>,
    pub with_secrets: bool,
}

/// Held by a session; dropping it marks the session as ended.
#[derive(Debug)]
pub struct ExecGuard {
    _guard: mpsc::Sender<()>,
    closing: watch::Receiver<bool>,
}

impl ExecTargets {
    pub fn register(&self, tags: &TagPrefix, order: &TaskOrder, job_env: &Arc<JobEnv>) -> Registration {
        let (guard_sender, guards) = mpsc::channel(1);
        let (close, closing) = watch::channel(false);
        let TaskOrder { workspace, experiment, job, .. } = order;
        let target = ExecTarget {
            attempt: order.attempt.clone(),
            job: format!("{workspace}/{experiment}/{job}"),
            tag: tags.attempt_prefix(&order.attempt),
            secrets: order.secrets.iter().map(|secret| secret.name.clone()).collect(),
            cwd: job_env.environment.working_directory.clone(),
            job_env: Arc::clone(job_env),
            guards: guard_sender,
            closing,
        };
        *self.lock() = Some(Arc::new(target));
        Registration { targets: self.clone(), guards, close }
    }

    /// The target if this job runs here, else an error text.
    pub fn find(&self, request: &ExecRequest) -> Result<Arc<ExecTarget>, String> {
        match &*self.lock() {
            Some(target) if target.job.eq_ignore_ascii_case(&request.job) => Ok(Arc::clone(target)),
            _ => Err(format!("the job {} is not running on this node", request.job)),
        }
    }

    /// The target if this attempt runs here.
    pub fn find_attempt(&self, attempt: &AttemptId) -> Option<Arc<ExecTarget>> {
        self.lock().as_ref().filter(|target| target.attempt == *attempt).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<ExecTarget>>> {
        self.0.lock().expect("no one panics while holding the exec target")
    }
}

impl ExecTarget {
    pub fn guard(&self) -> ExecGuard {
        ExecGuard { _guard: self.guards.clone(), closing: self.closing.clone() }
    }

    /// Resolves when the target is about to be removed. Does not keep it.
    pub fn closing(&self) -> impl Future<Output = ()> + use<> {
        let mut closing = self.closing.clone();
        async move {
            // An error means that the registration is gone.
            let _ = closing.wait_for(|closing| *closing).await;
        }
    }

    /// A command line as a process of the job would run it. Blocks on `/proc`.
    pub fn process_spec(
        &self,
        request: &ExecRequest,
        argv: impl FnOnce(Option<&str>) -> Vec<String>,
        tag: String,
    ) -> Result<ProcessSpec, String> {
        let mut env = match request.rank {
            None => self.job_env.environment.variables.clone(),
            Some(rank) => self.rank_variables(rank)?,
        };
        if !request.with_secrets {
            env.retain(|name, _| !self.secrets.contains(name));
        }
        let argv = argv(env.get("PATH").map(String::as_str));
        Ok(ProcessSpec { argv, env, cwd: self.cwd.clone(), tag, confinement: Confinement::default() })
    }

    /// The process as started for the job: in its container, if it has one.
    pub fn wrap(&self, spec: ProcessSpec, request: &ExecRequest) -> ProcessSpec {
        let mut spec = self.job_env.wrap(spec);
        if request.with_secrets {
            // The caller asked for the secrets, so they are not masked.
            spec.confinement.secrets = Default::default();
        }
        spec
    }

    /// The variables with which the rank was started.
    fn rank_variables(&self, rank: usize) -> Result<BTreeMap<String, String>, String> {
        let tag = format!("{}rank-{rank}", self.tag);
        let mut rank_pids =
            kill_tagged::tagged_processes().into_iter().filter(|(_, found)| *found == tag).map(|(pid, _)| pid);
        // Its guard and its children carry the same tag.
        let rank_pid = rank_pids.find(|pid| process_stats::is_guarded(*pid));
        let variables = rank_pid.and_then(procfs::environment);
        let mut variables = variables.ok_or_else(|| format!("rank {rank} is not running on this node"))?;
        if self.job_env.container.is_some() {
            // The relay outside carries the variables of the process inside under prefixed names.
            let inside =
                variables.iter().filter_map(|(name, value)| Some((name.strip_prefix(INSIDE_ENV_PREFIX)?, value)));
            variables = inside.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        }
        variables.remove(kill_tagged::TAG_VARIABLE);
        Ok(variables)
    }
}

impl ExecGuard {
    /// Resolves when the target is about to be removed.
    pub async fn closing(&mut self) {
        // An error means that the registration is gone.
        let _ = self.closing.wait_for(|closing| *closing).await;
    }
}

impl Registration {
    /// Refuses new sessions, asks the current ones to end and waits for them.
    pub async fn close(mut self) {
        *self.targets.lock() = None;
        self.close.send_replace(true);
        let left = timeout(CLOSE_TIMEOUT, async { while self.guards.recv().await.is_some() {} }).await;
        if left.is_err() {
            tracing::warn!("an exec session did not end before the job's directory is removed");
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        *self.targets.lock() = None;
    }
}
