//! A thread that reads the GPUs on request. The driver is opened once, by the first request, and calls of it may take
//! long or hang: whoever asks waits for a limited time, and gets the GPUs as silent after that. Requests during a reading
//! are answered by the next one, so that at most one waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corro_model::gpu::XidError;

use super::kernel_log::KernelLog;
use super::tracker::{self, GpuTracker};
use super::{GpuSource, MachineGpu, ReadError};

/// Time between two attempts to find a driver on a machine without one.
const NO_DRIVER_RETRY: Duration = Duration::from_secs(60);

/// Opens a source and a log on the sampler's thread.
pub type OpenSource = fn() -> (Box<dyn GpuSource>, Box<dyn KernelLog>);

/// Handle of the thread, which ends with its last clone.
#[derive(Clone)]
pub struct GpuSampler(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    open: OpenSource,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_started: bool,
    is_closed: bool,
    /// Number of the last request, and of the last one that was answered.
    requested: u64,
    answered: u64,
    gpus: Vec<MachineGpu>,
}

/// A reading that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u64);

impl Default for GpuSampler {
    /// The sampler of this machine.
    fn default() -> GpuSampler {
        GpuSampler::new(|| (super::source(), super::kernel_log()))
    }
}

impl GpuSampler {
    pub fn new(open: OpenSource) -> GpuSampler {
        GpuSampler(Arc::new(Handle { shared: Arc::default(), open }))
    }

    /// Begins a reading, and does not wait for it.
    pub fn request(&self) -> Ticket {
        let shared = &self.0.shared;
        let mut state = shared.lock();
        if !state.is_started {
            let (own, open) = (Arc::clone(shared), self.0.open);
            let started = thread::Builder::new().name("gpu-sampler".into()).spawn(move || run(&own, open));
            // Without a thread the machine has no GPUs to show; the next request tries again.
            state.is_started = started.is_ok();
        }
        state.requested += 1;
        shared.changed.notify_all();
        Ticket(state.requested)
    }

    /// The machine's GPUs as the reading found them; silent ones if it takes longer than `limit`.
    pub fn wait(&self, ticket: Ticket, limit: Duration) -> Vec<MachineGpu> {
        let shared = &self.0.shared;
        let state = shared.lock();
        let is_pending = |state: &mut State| state.is_started && state.answered < ticket.0;
        let waited = shared.changed.wait_timeout_while(state, limit, is_pending);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        match result.timed_out() {
            true => tracker::silent(&state.gpus),
            false => state.gpus.clone(),
        }
    }

    /// The machine's GPUs as the last reading found them.
    pub fn last(&self) -> Vec<MachineGpu> {
        self.0.shared.lock().gpus.clone()
    }

    pub fn read(&self, limit: Duration) -> Vec<MachineGpu> {
        self.wait(self.request(), limit)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request; `None` when the sampler is gone.
    fn next_request(&self) -> Option<u64> {
        let is_idle = |state: &mut State| !state.is_closed && state.requested == state.answered;
        let state = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        (!state.is_closed).then_some(state.requested)
    }

    fn answer(&self, request: u64, gpus: Vec<MachineGpu>) {
        let mut state = self.lock();
        (state.answered, state.gpus) = (request, gpus);
        self.changed.notify_all();
    }
}

fn run(shared: &Shared, open: OpenSource) {
    let (mut source, mut log) = open();
    let mut position = log.position();
    let mut tracker = GpuTracker::default();
    // The last failure, and when it happened.
    let mut last_failure: Option<(Instant, ReadError)> = None;
    while let Some(request) = shared.next_request() {
        let has_no_driver = last_failure
            .as_ref()
            .is_some_and(|(at, error)| *error == ReadError::NoDriver && at.elapsed() < NO_DRIVER_RETRY);
        let found = if has_no_driver { Err(ReadError::NoDriver) } else { source.read() };
        match &found {
            Ok(_) => last_failure = None,
            Err(_) if has_no_driver => {}
            Err(error) => {
                if last_failure.as_ref().is_none_or(|(_, last)| last != error) && *error != ReadError::NoDriver {
                    tracing::warn!(%error, "the state of the GPUs cannot be read");
                }
                last_failure = Some((Instant::now(), error.clone()));
            }
        }
        shared.answer(request, tracker.update(found));
        // The answer does not wait for the log.
        if tracker.wants_errors() {
            let lines = log.since(&mut position);
            tracker.add_errors(&XidError::parse_all(lines.iter().map(String::as_str)));
            shared.lock().gpus = tracker.current();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use corro_model::gpu::GpuReading;

    use super::super::kernel_log::LogPosition;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    type Script = Result<Vec<MachineGpu>, ReadError>;

    /// Answers with what the test sends, and blocks until then, as a driver that hangs does.
    struct Scripted(Receiver<Script>);

    impl GpuSource for Scripted {
        fn read(&mut self) -> Script {
            self.0.recv().unwrap_or(Err(ReadError::NoDriver))
        }
    }

    struct Log;

    impl KernelLog for Log {
        fn position(&mut self) -> LogPosition {
            LogPosition::Line(0)
        }

        fn since(&mut self, _: &mut LogPosition) -> Vec<String> {
            vec!["NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus.".to_owned()]
        }
    }

    fn gpu(number: u32) -> MachineGpu {
        let bus_id = format!("00000000:{:02X}:00.0", number + 16);
        let reading = GpuReading { gpu: number, bus_id, utilization_percent: Some(9), ..GpuReading::default() };
        MachineGpu { reading, ..MachineGpu::default() }
    }

    /// A channel per test: the function that opens a source has no state of its own.
    macro_rules! scripted {
        () => {{
            static SCRIPT: OnceLock<Mutex<Option<Receiver<Script>>>> = OnceLock::new();
            let (sender, receiver): (Sender<Script>, _) = channel();
            SCRIPT.set(Mutex::new(Some(receiver))).expect("once per test");
            let sampler = GpuSampler::new(|| {
                let receiver = SCRIPT.get().and_then(|script| script.lock().ok()?.take()).expect("opened once");
                (Box::new(Scripted(receiver)), Box::new(Log))
            });
            (sampler, sender)
        }};
    }

    #[test]
    fn a_driver_that_hangs_holds_nobody_up() {
        let (sampler, script) = scripted!();
        script.send(Ok(vec![gpu(0)])).expect("the thread lives");
        assert_eq!(sampler.read(LONG), [gpu(0)]);
        // From now on the driver does not answer.
        let began = Instant::now();
        let tickets: Vec<Ticket> = (0..50).map(|_| sampler.request()).collect();
        let silent = sampler.wait(tickets[49], Duration::from_millis(20));
        assert!(silent[0].reading.silent && silent[0].reading.utilization_percent.is_none(), "{silent:?}");
        assert!(began.elapsed() < LONG);
        // It answers again: at most two readings serve all requests.
        for _ in 0..2 {
            script.send(Ok(vec![gpu(0), gpu(1)])).expect("the thread lives");
        }
        assert_eq!(sampler.wait(tickets[49], LONG).len(), 2);
    }

    #[test]
    fn a_lost_gpu_has_its_error_at_the_next_reading() {
        let (sampler, script) = scripted!();
        for found in [vec![gpu(0), gpu(1)], vec![gpu(0)], vec![gpu(0)]] {
            script.send(Ok(found)).expect("the thread lives");
        }
        assert!(sampler.read(LONG).iter().all(|gpu| !gpu.reading.lost));
        assert!(sampler.read(LONG)[1].reading.lost);
        let errors = sampler.read(LONG)[1].reading.errors.clone();
        assert_eq!(errors.iter().map(|error| (error.xid, error.gpu)).collect::<Vec<_>>(), [(79, Some(1))]);
    }

    #[test]
    fn without_a_driver_there_is_nothing_to_read_and_it_is_not_tried_at_once() {
        let (sampler, script) = scripted!();
        script.send(Err(ReadError::NoDriver)).expect("the thread lives");
        // The second reading would block forever.
        assert!(sampler.read(LONG).is_empty() && sampler.read(LONG).is_empty());
    }
}
