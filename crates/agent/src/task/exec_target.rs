//! Where the processes of the running task stand, for somebody who logs in and wants to stand beside them: directory,
//! variables, how a process is started there. Told by `task` while there is such a place; asked by `door`. Whoever came in
//! is out again before the place is cleared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use corro_launch::confinement::Confinement;
use corro_launch::process::ProcessSpec;
use corro_launch::{procfs, sweep};
use corro_model::node::TaskOrder;

use crate::container::exec_relay::PREFIX;
use crate::identity::incarnation::TagPrefix;
use crate::stats::process_stats;
use crate::task::job_env::Ground;

/// For visitors whose place is about to be cleared.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);

/// The place of the task that runs, if one does. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Mutex<Option<Arc<Place>>>>);

#[derive(Debug)]
pub struct Place {
    /// `WORKSPACE/EXPERIMENT/JOB`
    job: String,
    /// What the tags of its processes begin with.
    tag: String,
    secrets: BTreeSet<String>,
    cwd: PathBuf,
    ground: Arc<Ground>,
    /// Held by those who came in.
    visitors: mpsc::Sender<()>,
    clearing: watch::Receiver<bool>,
}

/// As long as the task holds it, others may come in.
#[derive(Debug)]
pub struct Stay {
    places: Places,
    visitors: mpsc::Receiver<()>,
    clear: watch::Sender<bool>,
}

/// What somebody wants to stand beside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub job: String,
    pub rank: Option<usize>,
    pub with_secrets: bool,
}

/// Somebody who came in; they are out when this is dropped.
#[derive(Debug)]
pub struct Visit {
    _inside: mpsc::Sender<()>,
    clearing: watch::Receiver<bool>,
}

impl Places {
    pub fn stay(&self, tags: &TagPrefix, order: &TaskOrder, ground: &Arc<Ground>) -> Stay {
        let (inside, visitors) = mpsc::channel(1);
        let (clear, clearing) = watch::channel(false);
        let TaskOrder { workspace, experiment, job, .. } = order;
        let place = Place {
            job: format!("{workspace}/{experiment}/{job}"),
            tag: tags.of_attempt(&order.attempt),
            secrets: order.secrets.iter().map(|secret| secret.name.clone()).collect(),
            cwd: ground.directories.layout.job_temp.clone(),
            ground: Arc::clone(ground),
            visitors: inside,
            clearing,
        };
        *self.lock() = Some(Arc::new(place));
        Stay { places: self.clone(), visitors, clear }
    }

    /// The place of the job, if it is the one that runs here; otherwise what to say.
    pub fn of(&self, wanted: &Wanted) -> Result<Arc<Place>, String> {
        match &*self.lock() {
            Some(place) if place.job.eq_ignore_ascii_case(&wanted.job) => Ok(Arc::clone(place)),
            _ => Err(format!("the job {} does not run here now", wanted.job)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Place>>> {
        self.0.lock().expect("no one panics while holding the place")
    }
}

impl Place {
    pub fn enter(&self) -> Visit {
        Visit { _inside: self.visitors.clone(), clearing: self.clearing.clone() }
    }

    /// A command line as a process of the job would run it. Blocks on the process table.
    pub fn process(
        &self,
        wanted: &Wanted,
        argv: impl FnOnce(Option<&str>) -> Vec<String>,
        tag: String,
    ) -> Result<ProcessSpec, String> {
        let mut env = match wanted.rank {
            None => self.ground.environment.variables.clone(),
            Some(rank) => self.variables_of(rank)?,
        };
        if !wanted.with_secrets {
            env.retain(|name, _| !self.secrets.contains(name));
        }
        let argv = argv(env.get("PATH").map(String::as_str));
        Ok(ProcessSpec { argv, env, cwd: self.cwd.clone(), tag, confinement: Confinement::default() })
    }

    /// The same, started as every process of the job is: in its container, if it has one.
    pub fn wrapped(&self, spec: ProcessSpec, wanted: &Wanted) -> ProcessSpec {
        let mut spec = self.ground.process(spec);
        if wanted.with_secrets {
            // Whoever asks for them may read them.
            spec.confinement.secrets = Default::default();
        }
        spec
    }

    /// As the rank itself was started with them.
    fn variables_of(&self, rank: usize) -> Result<BTreeMap<String, String>, String> {
        let tag = format!("{}rank-{rank}", self.tag);
        let mut of_rank = sweep::tags().into_iter().filter(|(_, found)| *found == tag).map(|(pid, _)| pid);
        // Its guard and its children carry the same tag.
        let own = of_rank.find(|pid| process_stats::is_guarded(*pid));
        let variables = own.and_then(procfs::variables_of);
        let mut variables = variables.ok_or_else(|| format!("rank {rank} does not run on this node now"))?;
        if self.ground.container.is_some() {
            // The process on this side carries those of the one inside.
            let inside = variables.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)));
            variables = inside.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        }
        variables.remove(sweep::TAG_VARIABLE);
        Ok(variables)
    }
}

impl Visit {
    /// Resolves when the place is about to be cleared.
    pub async fn over(&mut self) {
        // An error means that it is.
        let _ = self.clearing.wait_for(|clearing| *clearing).await;
    }
}

impl Stay {
    /// Nobody comes in any more, and whoever is in is asked out and waited for.
    pub async fn leave(mut self) {
        *self.places.lock() = None;
        self.clear.send_replace(true);
        let left = timeout(LEAVE_WITHIN, async { while self.visitors.recv().await.is_some() {} }).await;
        if left.is_err() {
            tracing::warn!("somebody who logged in does not leave the job's directory");
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        *self.places.lock() = None;
    }
}
