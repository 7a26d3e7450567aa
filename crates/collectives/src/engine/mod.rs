//! Named API with Horovod's semantics: operations are submitted by name, in any order and from any thread, and are executed once all ranks
//! have submitted them.
//!
//! One progress engine (`progress`) behind a lock does the work. A thread that waits for a result polls it (`polling`), so a blocking call
//! needs no thread switch. The engine's own thread polls while operations are pending and no other thread waits.
//!
//! `ops` is the public API, `submission` the data of a call, `handle` its result. `in_flight` rejects invalid submissions without the lock of
//! the progress engine. `messaging` exchanges messages with the coordinator, `execute` runs negotiated operations,
//! `execute_host` those on host memory, `execute_device` those on the memory of GPUs, for which `devices` keeps the transports. `instrumentation` and `status_publisher` feed timeline, log and status.

mod devices;
mod execute;
mod execute_device;
mod execute_host;
pub mod handle;
mod in_flight;
mod instrumentation;
mod messaging;
pub mod ops;
mod polling;
mod progress;
mod status_publisher;
pub mod submission;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::bootstrap::LaunchError;
use crate::bootstrap::launch_env::Launch;
use crate::bootstrap::rank_info::RankInfo;
use crate::coordinator::{Config, Coordinator, SetId, StallLimits, Worker, WorkerConfig};
use crate::engine::handle::{Completion, EngineError, Outcome};
use crate::engine::in_flight::SubmissionTable;
use crate::engine::instrumentation::Instrumentation;
use crate::engine::polling::EngineState;
use crate::engine::progress::ProgressEngine;
use crate::engine::submission::Submission;
use crate::observe::shm_step_stats::ShmStepStats;
use crate::observe::timeline::Timeline;
use crate::options::Options;
use crate::settings::{LogLevel, Settings, SettingsError};
use crate::transport::connect::error::ConnectError;
use crate::transport::control::channel::ControlChannel;
use crate::world::World;
use crate::world_state::WorldState;

/// Error of starting an engine.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The launcher's environment variables are invalid or contradict each other.
    #[error("cannot determine the rank of this process from the launcher's environment variables")]
    Launch(#[from] LaunchError),
    /// An environment variable of [`crate::settings`] is invalid.
    #[error("invalid setting of the engine")]
    Settings(#[from] SettingsError),
    /// The ranks did not connect within the launch's timeout.
    #[error("the ranks did not come together")]
    Connect(#[from] ConnectError),
    /// The process sets are invalid or differ between ranks.
    #[error("the process sets could not be registered")]
    Sets(#[source] EngineError),
}

/// Engine of this rank, shared by all its threads. Its operations are in [`ops`].
///
/// Dropping it shuts down the engines of *all* ranks, as in Horovod, and the pending operations of other ranks fail. Call
/// [`Engine::barrier`] on all ranks first if operations may be pending.
pub struct Engine {
    state: Arc<EngineState>,
    /// `None` after shutdown.
    thread: Mutex<Option<JoinHandle<()>>>,
    in_flight: Arc<SubmissionTable>,
    homogeneous: bool,
    rank_info: RankInfo,
    pub(crate) timeline: Arc<Timeline>,
    /// Timeline recorded on request from outside the process.
    pub(crate) recording: Arc<Timeline>,
    pub(crate) shm_steps: Arc<ShmStepStats>,
    pub(crate) world: Arc<WorldState>,
}

impl Engine {
    /// Starts an engine from the environment: rank and peers from the launcher's variables, settings from those of [`crate::settings`].
    /// Collective over all ranks. Without launcher variables the process is the only rank.
    ///
    /// # Errors
    /// If a variable is invalid, or the ranks do not connect within the launch's timeout (30 s, or `HOROVOD_GLOO_TIMEOUT_SECONDS`).
    pub fn start() -> Result<Engine, StartError> {
        Engine::start_with(&Launch::from_environment()?, &Settings::from_environment()?, &[])
    }

    /// As [`Engine::start`], with explicit launch and settings. `sets` are the initial process sets as lists of global ranks, the same on
    /// every rank; they get the ids 1, 2, and so on. Collective over all ranks.
    pub fn start_with(launch: &Launch, settings: &Settings, sets: &[Vec<u32>]) -> Result<Engine, StartError> {
        let engine = Engine::in_world(World::connect(launch, &Options::from_settings(settings)?)?, settings)?;
        if !sets.is_empty() {
            engine.synchronize(&engine.begin_register_sets(sets.to_vec())).map_err(StartError::Sets)?;
        }
        Ok(engine)
    }

    /// Starts an engine on ranks that are already connected. Collective over all ranks.
    pub fn in_world(world: World, settings: &Settings) -> Result<Engine, StartError> {
        let shared = &world.shared;
        let rank_info = shared.rank_info.clone();
        let comm_id = shared.next_comm_id.fetch_add(1, Ordering::Relaxed);
        let control_channel = open_control_channel(shared, comm_id).map_err(ConnectError::SharedMemory)?;
        let mut global = world.communicator()?;
        global.limit_silence(Some(settings.timeout));
        let instrumentation = Instrumentation::new(settings, rank_info.rank);
        let timeline = instrumentation.timeline.clone();
        let shared = shared.clone();
        let RankInfo { size, local_rank, local_size, hostname, .. } = &rank_info;
        let connected =
            format!("connected to all {size} ranks; local rank {local_rank} of {local_size} on host {hostname}");
        instrumentation.log(LogLevel::Info, &connected);
        let worker = Worker::new(WorkerConfig {
            rank: rank_info.rank as u32,
            size: rank_info.size as u32,
            dynamic_sets: settings.dynamic_process_sets,
        });
        let in_flight = Arc::new(SubmissionTable::new(rank_info.rank as u32, rank_info.size as u32));
        let config = config(&world, settings);
        let homogeneous = config.homogeneous;
        let coordinator = (rank_info.rank == 0).then(|| {
            let mut coordinator = Coordinator::new(config);
            // Enabled before the first request, so that no event is missed.
            coordinator.events().set_enabled(timeline.is_on());
            coordinator
        });
        let (waker, recording) = (control_channel.waker().clone(), instrumentation.recorder.timeline.clone());
        let to_wake = waker.clone();
        shared.peer_table.set_on_failure(Box::new(move || to_wake.force()));
        let timeout = settings.timeout;
        let progress = ProgressEngine::new(
            world,
            worker,
            in_flight.clone(),
            coordinator,
            control_channel,
            global,
            instrumentation,
            timeout,
            settings.device_transport,
        );
        let shm_steps = progress.shm_steps.clone();
        let state = Arc::new(EngineState::new(progress, waker, shared.wait_policy.spins));
        let thread = {
            let (state, cores, local_rank) = (state.clone(), settings.thread_affinity.clone(), rank_info.local_rank);
            let work = move || {
                pin(&cores, local_rank);
                state.run_thread();
            };
            std::thread::Builder::new().name("corro-engine".into()).spawn(work).map_err(ConnectError::Thread)?
        };
        let thread = Mutex::new(Some(thread));
        Ok(Engine { state, thread, in_flight, homogeneous, rank_info, timeline, recording, shm_steps, world: shared })
    }

    /// Rank and size of this process in the job and on its host.
    pub fn rank_info(&self) -> &RankInfo {
        &self.rank_info
    }

    /// True if every host has the same number of ranks.
    pub fn is_homogeneous(&self) -> bool {
        self.homogeneous
    }

    /// Registered process sets with their ranks, by id. The first is the global set.
    pub fn sets(&self) -> Vec<(SetId, Arc<[u32]>)> {
        self.in_flight.sets()
    }

    /// Horovod timeline of the job. Rank 0 writes it; it can be started and stopped at any time.
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Queues a submission and makes sure that a thread polls.
    fn enqueue(&self, submission: Submission) {
        self.enqueue_without_wake(submission);
        self.state.ensure_progress();
    }

    /// Queues a submission for a caller that waits next and therefore polls itself.
    fn enqueue_without_wake(&self, submission: Submission) {
        self.state.submissions.lock().unwrap_or_else(PoisonError::into_inner).push(submission);
    }

    fn wait(&self, completion: &Completion) -> Result<Outcome, EngineError> {
        self.state.wait(completion, None);
        completion.take_outcome()
    }

    /// Shuts down the engines of all ranks, not only of this one. Pending and later operations fail on every rank, and waiting threads get
    /// the error. Returns when this rank's engine has stopped; other ranks need not call it. The second call does nothing.
    pub fn shut_down(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else { return };
        self.enqueue_without_wake(Submission::ShutDown);
        self.state.finish_shutdown();
        self.state.is_ending.store(true, Ordering::SeqCst);
        self.state.waker.force();
        let _ = thread.join();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Control channel to the other ranks; ranks of this host use shared memory.
fn open_control_channel(world: &WorldState, comm_id: u64) -> std::io::Result<ControlChannel> {
    let RankInfo { rank, size, .. } = world.rank_info;
    let locals: Vec<usize> = (0..size).filter(|other| world.lowest[*other] == world.lowest[rank]).collect();
    ControlChannel::open(rank, size, &locals, world.segment.as_ref(), world.failure_detector.clone(), comm_id)
}

fn config(world: &World, settings: &Settings) -> Config {
    let shared = &world.shared;
    let hosts: Vec<String> = shared.peer_infos.iter().map(|peer| peer.hostname.clone()).collect();
    let n_on = |host: &String| hosts.iter().filter(|other| *other == host).count();
    Config {
        homogeneous: hosts.iter().all(|host| n_on(host) == n_on(&hosts[0])),
        fusion_threshold: settings.fusion_threshold as u64,
        local_size: shared.rank_info.local_size as u32,
        disable_group_fusion: settings.group_fusion_disabled,
        cache_capacity: settings.cache_capacity,
        stall: settings
            .stall_check
            .map(|warn_after| StallLimits { warn_after, shut_down_after: settings.stall_shutdown }),
        hosts,
    }
}

/// Pins the engine's thread as `HOROVOD_THREAD_AFFINITY` says: one core for each local rank.
fn pin(cores: &[usize], local_rank: usize) {
    if let Some(core) = cores.get(local_rank) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(*core);
        // Affinity is an optimisation: a core that does not exist is not an error.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
