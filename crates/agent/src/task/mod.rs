//! One attempt at a job on this node, from the first directory to the last byte of its logs. Started by the driver, which
//! steers it through [`Control`] and hears of it through events. Always reports an end; never starts a second attempt.

pub mod env_vars;
pub mod exec_target;
pub mod prepare;
pub mod processes;
mod ranks;
pub mod remote_exec;
mod rendezvous_host;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use corro_launch::sweep::{processes_with_tag, sweep, sweep_shown};
use corro_model::NodeId;
use corro_model::layout::Layout;
use corro_model::node::{GangAddress, HostPorts, NodeCredential, TaskFailure, TaskOrder, TaskPhase, Volume};

use crate::config::AgentConfig;
use crate::container::{self, Container};
use crate::events::{Event, Reporter};
use crate::identity::incarnation::{Incarnation, TagPrefix};
use crate::limits::gpus::{self, Gpus};
use crate::limits::{Capacity, Groups, Held};
use crate::output::counters::Counters;
use crate::output::execution_log::ExecutionLog;
use crate::ports::Ports;
use crate::state::attempt_journal::Memory;
use crate::state::lease::LeaseExpiry;
use crate::storage::directories::{Directories, JOBS};
use crate::storage::mounts::{ClusterVolumes, MountCommands, Remotes, Site};
use crate::task::exec_target::Places;
use crate::task::prepare::Ground;
use crate::task::prepare::python_env;
use crate::task::prepare::wheels;
use crate::task::ranks::mpirun;
use crate::task::ranks::tensorflow;
use crate::task::remote_exec::{House, Remote};
use crate::task::rendezvous_host::{Meeting, resolve};
use crate::task_errors;

/// What every task of a node shares.
#[derive(Clone, Debug)]
pub struct Context {
    pub config: Arc<AgentConfig>,
    pub node: NodeId,
    /// Of the node's directory: marks everything that is started from it.
    pub incarnation: Incarnation,
    /// What the tags of the node's processes begin with.
    pub tags: TagPrefix,
    /// At which other nodes reach this one.
    pub address: Arc<str>,
    /// For what is asked of the server beside the connection.
    pub credential: Arc<NodeCredential>,
    pub directories: Arc<Directories>,
    pub memory: Arc<Memory>,
    /// Whether jobs can be isolated on this machine, else why not.
    pub walls: Arc<Result<(), String>>,
    /// Hold the node's processes to its VM size, else say why not.
    pub groups: Arc<Groups>,
    /// Where the processes of the running task stand.
    pub places: Places,
    /// When others may run what this node runs.
    pub lease_expiry: LeaseExpiry,
    /// What is mounted from the server.
    pub remotes: Arc<Remotes>,
    /// The cluster's volumes that are mounted here.
    pub cluster_volumes: ClusterVolumes,
    /// Whether the server orders the cluster's own processes to be isolated strictly.
    pub strict_cluster: Arc<AtomicBool>,
}

impl Context {
    /// Where this node's volumes are mounted.
    pub fn site(&self) -> Site<'_> {
        let commands = MountCommands::OfCluster;
        let (spare, remotes) = (self.directories.spare(), Some(&*self.remotes));
        Site { node: &self.node, tags: &self.tags, spare, remotes, commands }
    }
}

/// What the task is to do beyond preparing. Only ever gains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Control {
    pub gang: Option<GangAddress>,
    /// This node is the whole gang: it need not wait for one.
    pub alone: bool,
    /// Stop, with this much time for a polite end.
    pub stop: Option<Duration>,
    /// The whole gang has ended: nobody needs the meeting point any more.
    pub over: bool,
}

/// Why a task ends before all its ranks have run to their end.
#[derive(Debug)]
pub enum Cut {
    Stopped,
    Failed(Box<TaskFailure>),
}

impl From<TaskFailure> for Cut {
    fn from(failure: TaskFailure) -> Cut {
        Cut::Failed(Box::new(failure))
    }
}

#[derive(Debug)]
pub struct Task {
    pub context: Context,
    pub order: Arc<TaskOrder>,
    /// Of the node, for all its jobs.
    pub cluster_volumes: Arc<[Volume]>,
    pub control: watch::Receiver<Control>,
    pub reporter: Reporter,
    pub log: ExecutionLog,
    /// Open on the master only.
    pub meeting: Option<Meeting>,
    /// Written for clusters that ask for them.
    pub counters: Option<Counters>,
    /// What its processes on this node are held to.
    pub held: Held,
    /// In which the job's processes run, if it has one.
    pub container: Option<Container>,
    /// Where the job's other nodes have commands started on this one, if the job may want that.
    pub remote: Option<Remote>,
    /// For processes that listen by themselves.
    pub ports: Option<Ports>,
    /// A process of it was killed, and perhaps its guard, which would have ended what it left.
    pub was_killed: bool,
}

impl Task {
    /// Lives through the whole attempt. The volumes go whatever happened, and the log is complete before the end is told.
    pub async fn run(mut self) {
        self.log.redact(prepare::secrets_of(&self.order, None));
        self.log.line(self.title());
        self.order.lost_attempts.iter().for_each(|lost| self.log.line(lost));
        let mut end = self.live_or_give_up().await;
        if let Some(remote) = self.remote.take() {
            remote.close(REMOTE_GRACE).await;
        }
        if let Some(counters) = self.counters.take() {
            counters.finish().await;
        }
        if self.was_killed {
            let jobs = self.context.directories.root().join(JOBS);
            let _ = spawn_blocking(move || sweep_shown(&jobs)).await;
        }
        if let Err(left) = self.leave_container().await {
            end = Err(left.into());
        }
        let failure = match end {
            Ok(()) | Err(Cut::Stopped) => None,
            Err(Cut::Failed(failure)) => Some(*failure),
        };
        let last_words = match &failure {
            Some(failure) => format!("Failed: {}: {}", failure.error.code, failure.error.message),
            None => "Finished on this node".to_owned(),
        };
        let (context, order, log) = self.parts();
        // Joining fails only when the runtime ends.
        let _ = spawn_blocking(move || prepare::take_away_volumes(&context, &order, &log, &last_words)).await;
        self.reporter.phase(TaskPhase::Ended { failure }).await;
        if self.meeting.is_some() {
            // Slower ranks on other nodes may still meet. A dropped control says the same.
            let _ = self.control.wait_for(|control| control.over).await;
        }
    }

    /// Everything in it ends, before its volumes go.
    async fn leave_container(&mut self) -> Result<(), TaskFailure> {
        let Some(container) = self.container.take() else { return Ok(()) };
        let Err(left) = container.end(&self.log).await else { return Ok(()) };
        let failure = task_errors::container_left(&self.context.node, &left);
        let _ = self.reporter.events.send(Event::Stuck(Box::new(failure.error.clone()))).await;
        Err(failure)
    }

    /// Names a process of this task. Every one has its own: a sweep for one must not hit its siblings.
    pub fn tag(&self, process: &str) -> String {
        format!("{}{process}", self.context.tags.of_attempt(&self.order.attempt))
    }

    /// A stop comes to its end whatever the processes do: after the guards the agent itself strikes, and then it says that
    /// this node cannot be used any more.
    async fn live_or_give_up(&mut self) -> Result<(), Cut> {
        let (control, tag, node) = (self.control.clone(), self.tag(""), self.context.node.clone());
        let events = self.reporter.events.clone();
        let left = tokio::select! {
            end = self.live() => return end,
            left = stop_overdue(control, tag) => left,
        };
        let failure = task_errors::not_killed(&node, &left);
        let _ = events.send(Event::Stuck(Box::new(failure.error.clone()))).await;
        Err(failure.into())
    }

    async fn live(&mut self) -> Result<(), Cut> {
        let (context, order, log) = self.parts();
        let volumes = Arc::clone(&self.cluster_volumes);
        let ground = spawn_blocking(move || prepare::lay_ground(&context, &order, &volumes, &log)).await;
        let mut ground = ground.map_err(|_| task_errors::agent_panicked(&self.context.node))??;
        self.held = self.hold();
        ground.confinement.processors = self.held.processors();
        self.show_gpus(&mut ground);
        // For the ranks that a launcher starts on this node too, whoever it was that asked for them.
        let ports = self.context.config.ports.map(|ports| ("CORRO_PORTS".to_owned(), ports.to_string()));
        ground.environment.variables.extend(ports);
        if self.order.counters {
            self.counters = Counters::start(&ground.logs, &self.context.node, self.tag(""));
        }
        container::enter(self, &mut ground).await?;
        prepare::add_compatibility(&self.context, &mut ground, &self.log)?;
        self.install_helper(&mut ground)?;
        if self.control.borrow().stop.is_some() {
            return Err(Cut::Stopped);
        }
        if self.order.preparation.is_some() {
            wheels::offer(self, &mut ground).await?;
            if ground.container.is_none() {
                // In a container of its own a job may install what it likes.
                python_env::make_environment(self, &mut ground).await?;
            }
        }
        // From here on somebody who logs in may stand beside the job, until its volumes go.
        let ground = Arc::new(ground);
        let stay = self.context.places.stay(&self.context.tags, &self.order, &ground);
        let end = self.act(&ground).await;
        stay.leave().await;
        end
    }

    /// Whatever runs of the job.
    async fn act(&mut self, ground: &Arc<Ground>) -> Result<(), Cut> {
        if let Some(line) = self.order.preparation.clone() {
            prepare::run_preparation(self, ground, &line).await?;
        }
        let mpirun = mpirun::find(self, ground).await?;
        self.meeting = self.open_meeting().await?;
        self.open_doors(ground).await?;
        let gang = match self.place_to_meet(mpirun.is_some()) {
            Some(gang) if self.control.borrow().alone => gang,
            gang => {
                self.log.line("Prepared: waiting for the other nodes");
                self.reporter.phase(TaskPhase::Prepared { gang: gang.clone() }).await;
                self.gang_is_ready(gang).await?
            }
        };
        if self.control.borrow().stop.is_some() {
            return Err(Cut::Stopped);
        }
        ranks::run(self, ground, &gang, mpirun.as_ref()).await
    }

    fn has_neighbours(&self) -> bool {
        self.order.hosts.len() > 1 && self.order.layout.reaches_out()
    }

    /// Gives the job what starts commands on its other nodes. Before anything of the job runs, so that nothing in its
    /// directories can lead elsewhere.
    fn install_helper(&self, ground: &mut Ground) -> Result<(), TaskFailure> {
        if !self.has_neighbours() {
            return Ok(());
        }
        let (address, node) = (&self.context.address, &self.context.node);
        let job = &ground.directories.layout.job_temp;
        let in_container = self.order.container.is_some() && !self.order.containers_on_host;
        let helper = remote_exec::install(&ground.directories, in_container);
        let helper = helper.map_err(|error| task_errors::directory(job, node, &error))?;
        let variables = &mut ground.environment.variables;
        let path = variables.get("PATH").map(String::as_str);
        let added = remote_exec::variables(&helper, address, &self.order, path);
        for (name, value) in added {
            // What somebody says about their launcher stays.
            match name.contains("_MCA_") {
                true => drop(variables.entry(name).or_insert(value)),
                false => drop(variables.insert(name, value)),
            }
        }
        Ok(())
    }

    /// What other nodes of the job reach here: commands that they start, and processes that listen by themselves.
    async fn open_doors(&mut self, ground: &Arc<Ground>) -> Result<(), TaskFailure> {
        let (address, node) = (self.context.address.clone(), self.context.node.clone());
        let failed = |error: &dyn std::error::Error| task_errors::rendezvous(&address, &node, error);
        let n_listeners = match self.order.layout {
            Layout::TensorFlow(_) => tensorflow::n_listeners(&self.order, self.order.host_idx),
            _ => 0,
        };
        if n_listeners > 0 {
            let at = resolve(&address).await.map_err(|error| failed(&error))?;
            self.ports = Some(Ports::take(at, n_listeners, self.context.config.ports).map_err(|error| failed(&error))?);
        }
        if self.has_neighbours() {
            let (context, order) = (self.context.clone(), Arc::clone(&self.order));
            let house = House { context, order, ground: Arc::clone(ground) };
            self.remote = Some(Remote::open(house).await.map_err(|error| failed(&error))?);
        }
        Ok(())
    }

    /// Container engines hold what they run themselves.
    fn hold(&self) -> Held {
        let on_host = self.order.container.is_none() || self.order.containers_on_host;
        let limits = self.order.limits.as_ref().filter(|_| on_host);
        let (mut held, [memory, processors, processes]) =
            self.context.groups.hold(&self.order, limits, Capacity::here());
        held.gpus = Gpus::claim(self.order.gpus, &gpus::inventory());
        if on_host {
            self.log.line(format_args!("Memory for this job on this node: {memory}"));
            self.log.line(format_args!("Processors for this job on this node: {processors}"));
            self.log.line(format_args!("Processes for this job on this node: {processes}"));
        }
        if let Some(gpus) = held.gpus.words(self.order.gpus).filter(|_| on_host) {
            self.log.line(format_args!("GPUs for this job on this node: {gpus}"));
        }
        held
    }

    /// Processes see the node's own GPUs only, unless the job says itself which it wants; engines show them to containers in their own way.
    fn show_gpus(&self, ground: &mut Ground) {
        let says_itself = self.order.environment.iter().any(|variable| variable.name == gpus::VARIABLE)
            || self.order.secrets.iter().any(|secret| secret.name == gpus::VARIABLE);
        for (name, value) in env_vars::number_of_gpus(self.held.gpus.count(self.order.gpus)) {
            let is_users = self.order.environment.iter().any(|variable| variable.name == name);
            if !is_users {
                ground.environment.variables.insert(name, value);
            }
        }
        if let Some(numbers) = self.held.gpus.variable().filter(|_| !says_itself) {
            ground.environment.variables.insert(gpus::VARIABLE.to_owned(), numbers);
            // The numbers are the machine's, not those of the fastest first.
            ground.environment.variables.entry(gpus::ORDER.to_owned()).or_insert_with(|| "PCI_BUS_ID".to_owned());
        }
    }

    /// Why the kernel killed processes of this job, if it did.
    pub async fn out_of_memory(&self) -> Option<String> {
        let why = match &self.container {
            Some(container) => container.out_of_memory().await?,
            None => self.context.groups.exceeded(&self.held)?,
        };
        self.log.line(format_args!("Out of memory: {why}"));
        Some(why)
    }

    /// The limit of processes, if some were not started because of it.
    pub async fn out_of_processes(&self) -> Option<String> {
        let why = match &self.container {
            Some(container) => container.out_of_processes().await?,
            None => self.context.groups.out_of_processes(&self.held)?,
        };
        self.log.line(format_args!("Out of processes: {why}"));
        Some(why)
    }

    async fn open_meeting(&self) -> Result<Option<Meeting>, TaskFailure> {
        // Without ranks there is nobody who could meet.
        if !self.order.is_master() || self.order.layout.ranks().is_none() {
            return Ok(None);
        }
        let address = &self.context.address;
        let meeting = Meeting::open(address, &self.order, self.context.config.ports).await;
        let meeting = meeting.map_err(|error| task_errors::rendezvous(address, &self.context.node, &error))?;
        let port = meeting.gang.rendezvous_port;
        self.log.line(format_args!("The ranks of this job meet at {address}:{port}"));
        for host in self.order.hosts.iter() {
            self.log.line(format_args!(
                "Node {} at {} runs {} rank{}",
                host.node,
                host.address,
                host.slots,
                if host.slots == 1 { "" } else { "s" }
            ));
        }
        Ok(Some(meeting))
    }

    /// Where the gang meets, which the master says, and what this node has open for it.
    fn place_to_meet(&self, mpirun: bool) -> Option<GangAddress> {
        let remote = self.remote.as_ref().map(|remote| remote.port);
        let tasks = self.ports.as_ref().map(|ports| ports.numbers.clone()).unwrap_or_default();
        let has_doors = remote.is_some() || !tasks.is_empty();
        if !self.order.is_master() && !has_doors {
            return None;
        }
        let nowhere = || GangAddress::new(&*self.context.address, 0, 0);
        let gang = self.meeting.as_ref().map_or_else(nowhere, |meeting| meeting.gang.clone());
        let ports = if has_doors { vec![HostPorts { remote, tasks }] } else { Vec::new() };
        Some(GangAddress { mpirun, ports, ..gang })
    }

    /// The server says where to meet; to a node that is the whole gang it may say that it knows best.
    async fn gang_is_ready(&mut self, own: Option<GangAddress>) -> Result<GangAddress, Cut> {
        let is_decided = |control: &Control| control.gang.is_some() || control.alone || control.stop.is_some();
        let decided = self.control.wait_for(is_decided).await;
        match decided.map(|control| control.clone()) {
            // The driver is gone: so is everything that could still want this task.
            Ok(Control { stop: Some(_), .. }) | Err(_) => Err(Cut::Stopped),
            Ok(Control { gang, .. }) => gang.or(own).ok_or(Cut::Stopped),
        }
    }

    fn parts(&self) -> (Context, Arc<TaskOrder>, ExecutionLog) {
        (self.context.clone(), Arc::clone(&self.order), self.log.clone())
    }

    fn title(&self) -> String {
        let TaskOrder { workspace, experiment, job, hosts, host_idx, .. } = &*self.order;
        let role = if self.order.is_master() { "master".to_owned() } else { format!("node {}", host_idx + 1) };
        format!(
            "Job {workspace}/{experiment}/{job}, attempt {}, on {} ({role} of {})",
            self.order.attempt.number,
            self.context.node,
            hosts.len()
        )
    }
}

/// Resolves when a stop should have been over for long, with the processes that are left.
async fn stop_overdue(mut control: watch::Receiver<Control>, tag: String) -> Vec<u32> {
    let grace = stop_asked(&mut control, None).await;
    sleep(grace + GUARDS_WITHIN).await;
    tracing::warn!(tag, "a task did not end in time: everything that carries its name is killed");
    let swept = tag.clone();
    let _ = spawn_blocking(move || sweep(&swept)).await;
    sleep(SWEEP_WITHIN).await;
    spawn_blocking(move || processes_with_tag(&tag)).await.unwrap_or_default()
}

/// For what other nodes have started here, when the job is over on this one.
const REMOTE_GRACE: Duration = Duration::from_secs(1);
/// Guards give up after ten seconds.
const GUARDS_WITHIN: Duration = Duration::from_secs(12);
const SWEEP_WITHIN: Duration = Duration::from_secs(5);

/// Resolves when a stop is wanted that is more urgent than the one under way. May be cancelled and called again.
pub async fn stop_asked(control: &mut watch::Receiver<Control>, under_way: Option<Duration>) -> Duration {
    loop {
        if let Some(grace) = control.borrow_and_update().stop
            && under_way.is_none_or(|given| grace < given)
        {
            return grace;
        }
        if control.changed().await.is_err() {
            // The driver is gone, and this task is about to be aborted.
            pending::<()>().await;
        }
    }
}
