//! The negotiated door: operations by name, in any order, from any thread; the ranks agree on what is ready everywhere. Horovod's semantics.
//!
//! There is one driver, which takes turns (`driver`), and whoever waits for a result drives: a call that waits for its own result
//! needs no change of thread. The engine's own thread drives when nobody waits. `perform` does what is agreed, `handle`
//! carries outcomes, `calls` is what people call, `desk` refuses what needs no driver to be refused, `observed` and `shown` show what happens.

pub mod calls;
mod desk;
mod driver;
pub mod entry;
pub mod handle;
mod observed;
mod perform;
mod shown;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bootstrap::LaunchError;
use crate::bootstrap::place::{Launch, Place};
use crate::coordinator::{Config, Coordinator, Member, MemberConfig, SHUT_DOWN, SetId, StallLimits};
use crate::engine::desk::Desk;
use crate::engine::driver::Driver;
use crate::engine::entry::Ask;
use crate::engine::handle::{CompletionEvent, EngineError, Outcome, Slot};
use crate::engine::observed::Observed;
use crate::observe::shared_steps::SharedSteps;
use crate::observe::timeline::Timeline;
use crate::options::Options;
use crate::settings::{LogLevel, Settings, SettingsError};
use crate::transport::connect::ConnectError;
use crate::transport::control::channel::{ControlChannel, Waker};
use crate::world::{Shared, World};

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
    inner: Arc<Inner>,
    /// Gone after the end.
    thread: Mutex<Option<JoinHandle<()>>>,
    desk: Arc<Desk>,
    homogeneous: bool,
    place: Place,
    pub(crate) timeline: Arc<Timeline>,
    /// What is recorded on request from outside.
    pub(crate) recorded: Arc<Timeline>,
    pub(crate) shared_steps: Arc<SharedSteps>,
    pub(crate) world: Arc<Shared>,
}

struct Inner {
    driver: Mutex<Driver>,
    asked: Mutex<Vec<Ask>>,
    waker: Arc<Waker>,
    /// Somebody drives and is awake.
    driven: AtomicBool,
    ending: AtomicBool,
    spins: u32,
}

/// The longest sleep of whoever drives.
const NAP: Duration = Duration::from_millis(50);
/// How long somebody sleeps who waits while another drives; it is woken when its result is there.
const BESIDE: Duration = Duration::from_millis(5);
const YIELDS: u32 = 100;
/// A turn takes as long as so many looks at a flag. The rank that is waited for may share this core until the kernel moves one of them:
/// what is spent before the first yield is then added to every call.
const LOOKS_PER_TURN: u32 = 8;
/// How long the end is asked for of a coordinator that does not answer, before this rank ends alone.
const LAST_WORDS: Duration = Duration::from_secs(10);

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
        let engine = Engine::in_world(World::connect(launch, &Options::of(settings)?)?, settings)?;
        if !sets.is_empty() {
            engine.synchronize(&engine.begin_register_sets(sets.to_vec())).map_err(StartError::Sets)?;
        }
        Ok(engine)
    }

    /// Over ranks that are already connected. Collective over all ranks.
    pub fn in_world(world: World, settings: &Settings) -> Result<Engine, StartError> {
        let shared = &world.shared;
        let place = shared.place.clone();
        let area = shared.next_area.fetch_add(1, Ordering::Relaxed);
        let control_channel = ControlChannel::open(shared.clone(), area).map_err(ConnectError::Memory)?;
        let mut global = world.communicator()?;
        global.limit_silence(Some(settings.timeout));
        let observed = Observed::new(settings, place.rank);
        let timeline = observed.timeline.clone();
        let shared = shared.clone();
        let Place { size, local_rank, local_size, hostname, .. } = &place;
        let here = format!("one of {size}, number {local_rank} of {local_size} on host {hostname}: all are connected");
        observed.log(LogLevel::Info, &here);
        let member = Member::new(MemberConfig {
            rank: place.rank as u32,
            size: place.size as u32,
            dynamic_sets: settings.dynamic_process_sets,
        });
        let desk = Arc::new(Desk::new(place.rank as u32, place.size as u32));
        let config = config(&world, settings);
        let homogeneous = config.homogeneous;
        let coordinator = (place.rank == 0).then(|| {
            let mut coordinator = Coordinator::new(config);
            // From the first request on.
            coordinator.events().set(timeline.is_on());
            coordinator
        });
        let (waker, recorded) = (control_channel.waker().clone(), observed.recorder.timeline.clone());
        let timeout = settings.timeout;
        let driver = Driver::new(world, member, desk.clone(), coordinator, control_channel, global, observed, timeout);
        let shared_steps = driver.shared_steps.clone();
        let inner = Arc::new(Inner {
            waker,
            spins: shared.wait_policy.spins / LOOKS_PER_TURN,
            driver: Mutex::new(driver),
            asked: Mutex::new(Vec::new()),
            driven: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        });
        let thread = {
            let (inner, cores, local_rank) = (inner.clone(), settings.thread_affinity.clone(), place.local_rank);
            let work = move || {
                pin(&cores, local_rank);
                inner.drive_alone();
            };
            std::thread::Builder::new().name("corro-engine".into()).spawn(work).map_err(ConnectError::Thread)?
        };
        let thread = Mutex::new(Some(thread));
        Ok(Engine { inner, thread, desk, homogeneous, place, timeline, recorded, shared_steps, world: shared })
    }

    /// Where this rank is: in the job, on its host, among the hosts.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether every host has as many ranks.
    pub fn is_homogeneous(&self) -> bool {
        self.homogeneous
    }

    /// The process sets there are now, by id, with their ranks; the first is the global one.
    pub fn sets(&self) -> Vec<(SetId, Arc<[u32]>)> {
        self.desk.sets()
    }

    /// Started and stopped while the engine runs; written by rank 0.
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Hands something to the engine, and makes sure that somebody drives.
    fn ask(&self, ask: Ask) {
        self.ask_quietly(ask);
        self.inner.ensure_driven();
    }

    /// For a caller that waits at once, and so drives itself.
    fn ask_quietly(&self, ask: Ask) {
        self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner).push(ask);
    }

    fn wait(&self, slot: &Slot) -> Result<Outcome, EngineError> {
        self.inner.wait(slot, None);
        slot.take()
    }

    /// Ends the engine on all ranks, not only on this one: whatever is pending anywhere fails, and whatever is asked afterwards. Returns
    /// when this rank's engine has ended; others need not call it. Threads that wait for something get the error. Does nothing the second
    /// time.
    pub fn shut_down(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else { return };
        self.ask_quietly(Ask::ShutDown);
        self.inner.wait_for_end();
        self.inner.ending.store(true, Ordering::SeqCst);
        self.inner.waker.force();
        let _ = thread.join();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Inner {
    /// Whoever sleeps is woken; whoever is awake will see.
    fn ensure_driven(&self) {
        if self.driven.load(Ordering::SeqCst) {
            self.waker.wake();
        } else {
            self.waker.force();
        }
    }

    /// Until it is done, or the deadline has passed.
    fn wait(&self, slot: &Slot, deadline: Option<Instant>) {
        let over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut n_looks = 0;
        while !slot.is_done() && !over() {
            match self.driver.try_lock() {
                Ok(mut driver) => {
                    self.drive(&mut driver, |_| slot.is_done() || over(), true);
                    self.leave(driver);
                }
                Err(TryLockError::Poisoned(_)) => {
                    slot.refuse(EngineError::Failed("the engine has ended by a defect; see its message".into()));
                }
                Err(TryLockError::WouldBlock) => {
                    n_looks += 1;
                    if n_looks < 20 {
                        std::hint::spin_loop();
                        continue;
                    }
                    self.waker.wake();
                    slot.sleep(BESIDE);
                }
            }
        }
    }

    /// As [`Inner::wait`], for any call that the event counts. False when the engine has ended by a panic.
    fn wait_event(&self, event: &CompletionEvent, seen: u32, deadline: Instant) -> bool {
        let over = || event.count() != seen || Instant::now() >= deadline;
        let mut n_looks = 0;
        while !over() {
            match self.driver.try_lock() {
                Ok(mut driver) => {
                    self.drive(&mut driver, |_| over(), true);
                    self.leave(driver);
                }
                Err(TryLockError::Poisoned(_)) => return false,
                Err(TryLockError::WouldBlock) => {
                    n_looks += 1;
                    if n_looks < 20 {
                        std::hint::spin_loop();
                        continue;
                    }
                    self.waker.wake();
                    event.sleep(seen, BESIDE);
                }
            }
        }
        true
    }

    fn wait_for_end(&self) {
        let Ok(mut driver) = self.driver.lock() else { return };
        let deadline = Instant::now() + LAST_WORDS;
        self.drive(&mut driver, |driver| driver.ended.is_some() || Instant::now() >= deadline, true);
        driver.end(SHUT_DOWN);
        // What the others have to hear from here must be on its way.
        driver.send_rest();
    }

    /// Takes turns until `done`, or, when that is not `worth_waiting`, until there is nothing to do.
    fn drive(&self, driver: &mut Driver, done: impl Fn(&Driver) -> bool, worth_waiting: bool) {
        self.driven.store(true, Ordering::SeqCst);
        self.waker.rouse();
        let mut asked = Vec::new();
        let mut idle = 0;
        loop {
            self.take_asked(&mut asked);
            if driver.turn(&mut asked) {
                idle = 0;
                if done(driver) {
                    return;
                }
                continue;
            }
            if done(driver) {
                return;
            }
            idle += 1;
            if idle <= self.spins {
                std::hint::spin_loop();
            } else if idle <= self.spins + YIELDS {
                rustix::thread::sched_yield();
            } else if !worth_waiting {
                return;
            } else {
                let dozed = self.waker.doze();
                if !driver.has_mail() && !self.is_asked() {
                    self.waker.sleep(dozed, NAP);
                    driver.look_around();
                }
                self.waker.rouse();
            }
        }
    }

    /// Gives the seat up. When this rank still waits for something, whoever brings it wakes the engine's own thread; otherwise
    /// nobody needs to.
    fn leave(&self, driver: MutexGuard<'_, Driver>) {
        self.driven.store(false, Ordering::SeqCst);
        let waits = driver.is_waiting() || driver.is_needed();
        if waits {
            self.waker.doze();
        }
        let mail = waits && driver.has_mail();
        drop(driver);
        // Only now: whoever asked before found the seat taken, and whoever asks from here on finds it free.
        if mail || self.is_asked() {
            self.waker.force();
        }
    }

    fn take_asked(&self, asked: &mut Vec<Ask>) {
        let mut queue = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.is_empty() {
            std::mem::swap(&mut *queue, asked);
        }
    }

    fn is_asked(&self) -> bool {
        !self.asked.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The engine's own thread.
    fn drive_alone(&self) {
        while !self.ending.load(Ordering::SeqCst) {
            let seen = self.waker.seen();
            if let Ok(mut driver) = self.driver.try_lock() {
                self.drive(&mut driver, |driver| !driver.is_waiting(), false);
                driver.look_around();
                self.leave(driver);
            }
            self.waker.sleep(seen, NAP);
        }
    }
}

fn config(world: &World, settings: &Settings) -> Config {
    let shared = &world.shared;
    let hosts: Vec<String> = shared.peer_infos.iter().map(|peer| peer.hostname.clone()).collect();
    let n_on = |host: &String| hosts.iter().filter(|other| *other == host).count();
    Config {
        homogeneous: hosts.iter().all(|host| n_on(host) == n_on(&hosts[0])),
        fusion_threshold: settings.fusion_threshold as u64,
        local_size: shared.place.local_size as u32,
        groups_apart: settings.group_fusion_disabled,
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
