//! The negotiated door: operations by name, in any order, from any thread; the ranks agree on what is ready everywhere. Horovod's semantics.
//!
//! There is one driver, which takes turns (`driver`), and whoever waits for a result drives: a call that waits for its own result
//! needs no change of thread. The engine's own thread drives when nobody waits. `perform` does what is agreed, `handle`
//! carries outcomes, `calls` is what people call, `desk` refuses what needs no driver to be refused, `observed` and `shown` show what happens.

mod execute;
pub mod handle;
mod in_flight;
mod instrumentation;
pub mod ops;
mod progress;
mod status_publisher;
pub mod submission;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bootstrap::LaunchError;
use crate::bootstrap::launch_env::Launch;
use crate::bootstrap::rank_info::RankInfo;
use crate::coordinator::{Config, Coordinator, SHUTDOWN_MESSAGE, SetId, StallLimits, Worker, WorkerConfig};
use crate::engine::handle::{Completion, CompletionEvent, EngineError, Outcome};
use crate::engine::in_flight::SubmissionTable;
use crate::engine::instrumentation::Instrumentation;
use crate::engine::progress::ProgressEngine;
use crate::engine::submission::Submission;
use crate::observe::shm_step_stats::ShmStepStats;
use crate::observe::timeline::Timeline;
use crate::options::Options;
use crate::settings::{LogLevel, Settings, SettingsError};
use crate::transport::connect::error::ConnectError;
use crate::transport::control::channel::{ControlChannel, Waker};
use crate::world::World;
use crate::world_state::WorldState;

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The launcher's variables are wrong or contradict each other.
    #[error("the place of this process in the job is not clear")]
    Launch(#[from] LaunchError),
    /// One of [`crate::settings`]' variables.
    #[error("a setting of the engine cannot be used")]
    Settings(#[from] SettingsError),
    /// Within the launch's timeout.
    #[error("the ranks did not come together")]
    Connect(#[from] ConnectError),
    /// The ranks were given different sets, or impossible ones.
    #[error("the process sets could not be registered")]
    Sets(#[source] EngineError),
}

/// The negotiated door of this rank, for all its threads. What it can do is in [`calls`].
///
/// Dropping it shuts down the engines of *all* ranks, as in Horovod: whatever others still wait for fails. Let all ranks pass a
/// [barrier](Engine::barrier) before if they may be in the midst of something.
pub struct Engine {
    state: Arc<EngineState>,
    /// Gone after the end.
    thread: Mutex<Option<JoinHandle<()>>>,
    in_flight: Arc<SubmissionTable>,
    homogeneous: bool,
    place: RankInfo,
    pub(crate) timeline: Arc<Timeline>,
    /// What is recorded on request from outside.
    pub(crate) recorded: Arc<Timeline>,
    pub(crate) shm_steps: Arc<ShmStepStats>,
    pub(crate) world: Arc<WorldState>,
}

struct EngineState {
    progress: Mutex<ProgressEngine>,
    submissions: Mutex<Vec<Submission>>,
    waker: Arc<Waker>,
    /// Somebody drives and is awake.
    is_progressing: AtomicBool,
    is_ending: AtomicBool,
    max_idle_polls: u32,
}

/// The longest sleep of whoever drives.
const MAX_SLEEP: Duration = Duration::from_millis(50);
/// How long somebody sleeps who waits while another drives; it is woken when its result is there.
const WAITER_SLEEP: Duration = Duration::from_millis(5);
const YIELDS_BEFORE_SLEEP: u32 = 100;
/// A turn takes as long as so many looks at a flag. The rank that is waited for may share this core until the kernel moves one of them:
/// what is spent before the first yield is then added to every call.
const SPINS_PER_POLL: u32 = 8;
/// How long the end is asked for of a coordinator that does not answer, before this rank ends alone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

impl Engine {
    /// From the environment: the place from the launcher's variables, the settings from those in [`crate::settings`]. Collective over
    /// all ranks; alone when no launcher has set any.
    ///
    /// # Errors
    /// When a variable cannot be used, or the ranks do not come together within the launch's timeout (30 s unless
    /// `HOROVOD_GLOO_TIMEOUT_SECONDS` says otherwise).
    pub fn start() -> Result<Engine, StartError> {
        Engine::start_with(&Launch::from_environment()?, &Settings::from_environment()?, &[])
    }

    /// As [`Engine::start`], from what is given. `sets`: process sets to begin with, as global ranks, the same on every rank; their ids
    /// count from 1. Collective over all ranks.
    pub fn start_with(launch: &Launch, settings: &Settings, sets: &[Vec<u32>]) -> Result<Engine, StartError> {
        let engine = Engine::in_world(World::connect(launch, &Options::from_settings(settings)?)?, settings)?;
        if !sets.is_empty() {
            engine.synchronize(&engine.begin_register_sets(sets.to_vec())).map_err(StartError::Sets)?;
        }
        Ok(engine)
    }

    /// Over ranks that are already connected. Collective over all ranks.
    pub fn in_world(world: World, settings: &Settings) -> Result<Engine, StartError> {
        let shared = &world.shared;
        let place = shared.rank_info.clone();
        let comm_id = shared.next_comm_id.fetch_add(1, Ordering::Relaxed);
        let control_channel = open_control_channel(shared, comm_id).map_err(ConnectError::SharedMemory)?;
        let mut global = world.communicator()?;
        global.limit_silence(Some(settings.timeout));
        let instrumentation = Instrumentation::new(settings, place.rank);
        let timeline = instrumentation.timeline.clone();
        let shared = shared.clone();
        let RankInfo { size, local_rank, local_size, hostname, .. } = &place;
        let here = format!("one of {size}, number {local_rank} of {local_size} on host {hostname}: all are connected");
        instrumentation.log(LogLevel::Info, &here);
        let worker = Worker::new(WorkerConfig {
            rank: place.rank as u32,
            size: place.size as u32,
            dynamic_sets: settings.dynamic_process_sets,
        });
        let in_flight = Arc::new(SubmissionTable::new(place.rank as u32, place.size as u32));
        let config = config(&world, settings);
        let homogeneous = config.homogeneous;
        let coordinator = (place.rank == 0).then(|| {
            let mut coordinator = Coordinator::new(config);
            // From the first request on.
            coordinator.events().set_enabled(timeline.is_on());
            coordinator
        });
        let (waker, recorded) = (control_channel.waker().clone(), instrumentation.recorder.timeline.clone());
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
        );
        let shm_steps = progress.shm_steps.clone();
        let state = Arc::new(EngineState {
            waker,
            max_idle_polls: shared.wait_policy.spins / SPINS_PER_POLL,
            progress: Mutex::new(progress),
            submissions: Mutex::new(Vec::new()),
            is_progressing: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        });
        let thread = {
            let (state, cores, local_rank) = (state.clone(), settings.thread_affinity.clone(), place.local_rank);
            let work = move || {
                pin(&cores, local_rank);
                state.run_thread();
            };
            std::thread::Builder::new().name("corro-engine".into()).spawn(work).map_err(ConnectError::Thread)?
        };
        let thread = Mutex::new(Some(thread));
        Ok(Engine { state, thread, in_flight, homogeneous, place, timeline, recorded, shm_steps, world: shared })
    }

    /// Where this rank is: in the job, on its host, among the hosts.
    pub fn rank_info(&self) -> &RankInfo {
        &self.place
    }

    /// Whether every host has as many ranks.
    pub fn is_homogeneous(&self) -> bool {
        self.homogeneous
    }

    /// The process sets there are now, by id, with their ranks; the first is the global one.
    pub fn sets(&self) -> Vec<(SetId, Arc<[u32]>)> {
        self.in_flight.sets()
    }

    /// Started and stopped while the engine runs; written by rank 0.
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Hands something to the engine, and makes sure that somebody drives.
    fn enqueue(&self, enqueue: Submission) {
        self.enqueue_without_wake(enqueue);
        self.state.ensure_progress();
    }

    /// For a caller that waits at once, and so drives itself.
    fn enqueue_without_wake(&self, enqueue: Submission) {
        self.state.submissions.lock().unwrap_or_else(PoisonError::into_inner).push(enqueue);
    }

    fn wait(&self, completion: &Completion) -> Result<Outcome, EngineError> {
        self.state.wait(completion, None);
        completion.take_outcome()
    }

    /// Ends the engine on all ranks, not only on this one: whatever is pending anywhere fails, and whatever is asked afterwards. Returns
    /// when this rank's engine has ended; others need not call it. Threads that wait for something get the error. Does nothing the second
    /// time.
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

impl EngineState {
    /// Whoever sleeps is woken; whoever is awake will see.
    fn ensure_progress(&self) {
        if self.is_progressing.load(Ordering::SeqCst) {
            self.waker.wake();
        } else {
            self.waker.force();
        }
    }

    /// Until it is done, or the deadline has passed.
    fn wait(&self, completion: &Completion, deadline: Option<Instant>) {
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut n_spins = 0;
        while !completion.is_done() && !is_over() {
            match self.progress.try_lock() {
                Ok(mut progress) => {
                    self.progress_until(&mut progress, |_| completion.is_done() || is_over(), true);
                    self.release(progress);
                }
                Err(TryLockError::Poisoned(_)) => {
                    completion.fail(EngineError::Failed("the engine has ended by a defect; see its message".into()));
                }
                Err(TryLockError::WouldBlock) => {
                    n_spins += 1;
                    if n_spins < 20 {
                        std::hint::spin_loop();
                        continue;
                    }
                    self.waker.wake();
                    completion.sleep(WAITER_SLEEP);
                }
            }
        }
    }

    /// As [`Inner::wait`], for any call that the event counts. False when the engine has ended by a panic.
    fn wait_event(&self, event: &CompletionEvent, seen: u32, deadline: Instant) -> bool {
        let is_over = || event.count() != seen || Instant::now() >= deadline;
        let mut n_spins = 0;
        while !is_over() {
            match self.progress.try_lock() {
                Ok(mut progress) => {
                    self.progress_until(&mut progress, |_| is_over(), true);
                    self.release(progress);
                }
                Err(TryLockError::Poisoned(_)) => return false,
                Err(TryLockError::WouldBlock) => {
                    n_spins += 1;
                    if n_spins < 20 {
                        std::hint::spin_loop();
                        continue;
                    }
                    self.waker.wake();
                    event.sleep(seen, WAITER_SLEEP);
                }
            }
        }
        true
    }

    fn finish_shutdown(&self) {
        let Ok(mut progress) = self.progress.lock() else { return };
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        self.progress_until(&mut progress, |progress| progress.ended.is_some() || Instant::now() >= deadline, true);
        progress.shut_down_with(SHUTDOWN_MESSAGE);
        // What the others have to hear from here must be on its way.
        progress.flush_outgoing();
    }

    /// Takes turns until `done`, or, when that is not `worth_waiting`, until there is nothing to do.
    fn progress_until(&self, progress: &mut ProgressEngine, done: impl Fn(&ProgressEngine) -> bool, blocks: bool) {
        self.is_progressing.store(true, Ordering::SeqCst);
        self.waker.rouse();
        let mut submissions = Vec::new();
        let mut idle = 0;
        loop {
            self.take_submissions(&mut submissions);
            if progress.poll_once(&mut submissions) {
                idle = 0;
                if done(progress) {
                    return;
                }
                continue;
            }
            if done(progress) {
                return;
            }
            idle += 1;
            if idle <= self.max_idle_polls {
                std::hint::spin_loop();
            } else if idle <= self.max_idle_polls + YIELDS_BEFORE_SLEEP {
                rustix::thread::sched_yield();
            } else if !blocks {
                return;
            } else {
                let ticket = self.waker.doze();
                if !progress.has_incoming() && !self.has_submissions() {
                    self.waker.sleep(ticket, MAX_SLEEP);
                    progress.housekeeping();
                }
                self.waker.rouse();
            }
        }
    }

    /// Gives the seat up. When this rank still waits for something, whoever brings it wakes the engine's own thread; otherwise
    /// nobody needs to.
    fn release(&self, progress: MutexGuard<'_, ProgressEngine>) {
        self.is_progressing.store(false, Ordering::SeqCst);
        let waits = progress.has_pending() || progress.coordinates_other_sets();
        if waits {
            self.waker.doze();
        }
        let mail = waits && progress.has_incoming();
        drop(progress);
        // Only now: whoever asked before found the seat taken, and whoever asks from here on finds it free.
        if mail || self.has_submissions() {
            self.waker.force();
        }
    }

    fn take_submissions(&self, submissions: &mut Vec<Submission>) {
        let mut queue = self.submissions.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.is_empty() {
            std::mem::swap(&mut *queue, submissions);
        }
    }

    fn has_submissions(&self) -> bool {
        !self.submissions.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The engine's own thread.
    fn run_thread(&self) {
        while !self.is_ending.load(Ordering::SeqCst) {
            let seen = self.waker.seen();
            if let Ok(mut progress) = self.progress.try_lock() {
                self.progress_until(&mut progress, |progress| !progress.has_pending(), false);
                progress.housekeeping();
                self.release(progress);
            }
            self.waker.sleep(seen, MAX_SLEEP);
        }
    }
}

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

/// `HOROVOD_THREAD_AFFINITY`: one core for each local rank.
fn pin(cores: &[usize], local_rank: usize) {
    if let Some(core) = cores.get(local_rank) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(*core);
        // A core that is not there is no reason to fail.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
