//! Ranks with an engine and a simulated device each. At the end of a job no rank has memory of another one mapped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::elements::decode;
use super::ranks::on_ranks;
use crate::coordinator::{Kind, Request, SetId};
use crate::device::context::{DeviceContext, DeviceEvent};
use crate::device::driver::{DevicePtr, Driver, Stream};
use crate::device::fake::FakeDriver;
use crate::engine::handle::{EngineError, Outcome, Output};
use crate::engine::ops::Handle;
use crate::engine::submission::{OutputBuffer, TensorBuffers};
use crate::settings::Settings;
use crate::{Dtype, Engine, Options, ReduceOp};

/// Longest wait for what must happen; the machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(60);

/// One rank of a job.
pub struct Rank {
    pub engine: Engine,
    pub driver: Arc<FakeDriver>,
    pub context: Arc<DeviceContext>,
    /// Stream in which the rank computes its inputs.
    pub stream: Stream,
}

/// GPU of each rank, and settings.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub gpus: &'a [u8],
    pub variables: &'a [(&'a str, &'a str)],
}

/// Through memory of one GPU, on 1 to 4 ranks.
pub const ONE_GPU: [Job<'static>; 4] = [one_gpu(&[1]), one_gpu(&[1; 2]), one_gpu(&[1; 3]), one_gpu(&[1; 4])];

/// Through host memory, on 1 to 4 ranks; without the variable only where neither CUDA IPC nor NCCL are possible.
pub const THROUGH_HOST: [Job<'static>; 4] = [
    Job { gpus: &[1], variables: HOST },
    Job { gpus: &[1, 2], variables: HOST },
    Job { gpus: &[1, 2, 2], variables: &[] },
    Job { gpus: &[1; 4], variables: HOST },
];

pub const HOST: &[(&str, &str)] = &[("CORRO_GPU_TRANSPORT", "host")];

pub const fn one_gpu(gpus: &[u8]) -> Job<'_> {
    Job { gpus, variables: &[] }
}

/// Runs `body` on each transport and number of ranks.
pub fn each(body: impl Fn(&Rank) + Sync) {
    for job in ONE_GPU.into_iter().chain(THROUGH_HOST) {
        println!("{job:?}");
        job.run(&body);
    }
}

impl Job<'_> {
    /// Runs `body` on all ranks. All finish before any ends its engine.
    pub fn run<R: Send>(self, body: impl Fn(&Rank) -> R + Sync) -> Vec<R> {
        self.run_to_end(|rank| {
            let result = body(&rank);
            rank.engine.barrier(SetId::GLOBAL).expect("all ranks finish");
            result
        })
    }

    /// Runs `body`, which may end the engine whenever it wants.
    pub fn run_to_end<R: Send>(self, body: impl Fn(Rank) -> R + Sync) -> Vec<R> {
        on_ranks(self.gpus.len(), &Options::DEFAULT, |world| {
            let driver = FakeDriver::new(self.gpus[world.rank()]);
            let read = |name: &str| {
                let variable = self.variables.iter().find(|(known, _)| *known == name);
                variable.map(|(_, value)| (*value).to_owned())
            };
            let settings = Settings::from_variables(read).expect("good settings");
            let engine = Engine::in_world(world, &settings).expect("an engine");
            let context = DeviceContext::with_driver(driver.clone(), 0).expect("a stream");
            let stream = driver.new_stream().expect("a stream");
            let result = body(Rank { engine, driver: driver.clone(), context, stream });
            assert_eq!(*driver.imported.lock().expect("no panic"), [], "all memory of other ranks is unmapped");
            assert_eq!(driver.errors(), [""; 0], "kernels access only memory that this rank may access");
            driver.end_streams();
            result
        })
    }
}

impl Rank {
    pub fn rank(&self) -> usize {
        self.engine.rank_info().rank
    }

    pub fn size(&self) -> usize {
        self.engine.rank_info().size
    }

    /// Event after the work that the rank has submitted to its stream.
    pub fn ready(&self) -> Arc<DeviceEvent> {
        self.context.record(self.stream).expect("an event")
    }

    /// Submits operations whose inputs are there when the rank's stream is.
    pub fn submit(&self, requests: Vec<Request>, buffers: Vec<TensorBuffers>) -> Handle {
        self.try_submit(requests, buffers).expect("good requests")
    }

    /// As [`Rank::submit`], on an engine that may have ended.
    pub fn try_submit(&self, requests: Vec<Request>, buffers: Vec<TensorBuffers>) -> Result<Handle, EngineError> {
        let grouped = requests.len() > 1;
        // SAFETY: tests keep their tensors until the operation is complete, and use them as they say.
        unsafe { self.engine.submit_on_device(requests, buffers, grouped, self.ready()) }
    }

    /// Results of a call, which are in memory on return.
    pub fn finish(&self, handle: &Handle) -> Outcome {
        let outcome = self.engine.synchronize(handle).expect("the operation succeeds");
        for output in &outcome.outputs {
            output.device.as_ref().expect("the result is in device memory").done.synchronize().expect("it is there");
        }
        outcome
    }

    /// Waits until the engine executes an operation, or has done so. Does not execute it on this thread, unlike a wait for the result.
    pub fn until_begun(&self, name: &str) {
        until("the operation begins", || self.engine.world.peer_table.work().as_deref() == Some(name));
    }

    /// Whether the result of a call is in memory.
    pub fn has_result(&self, handle: &Handle) -> bool {
        handle.is_done() && handle.is_settled()
    }

    /// The error of a call that must fail.
    pub fn error(&self, handle: &Handle) -> String {
        assert!(self.engine.wait_for(handle, LIMIT), "rank {} waits for ever", self.rank());
        self.engine.synchronize(handle).expect_err("the operation fails").to_string()
    }

    /// Result that the engine allocated.
    pub fn result(&self, output: &Output, dtype: Dtype) -> Vec<f64> {
        let device = output.device.as_ref().expect("the result is in device memory");
        let n_bytes = output.shape.iter().product::<u64>() as usize * dtype.size();
        decode(dtype, &self.driver.read(device.memory.as_ref().expect("the engine's memory").ptr(), n_bytes))
    }
}

/// Waits until a condition holds.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// Request of an operation on device memory without scaling, in the global set.
pub fn request(name: &str, kind: Kind, dtype: Dtype, shape: &[u64]) -> Request {
    Request {
        set: SetId::GLOBAL,
        kind,
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        root: 0,
        device: 0,
        prescale: 1.0,
        postscale: 1.0,
        op: ReduceOp::Sum,
        splits: Vec::new(),
    }
}

/// Buffers of an operation: `output` is the input's address for one in place, `None` for memory of the engine.
pub fn buffers(input: DevicePtr, n_bytes: usize, output: Option<DevicePtr>) -> TensorBuffers {
    let output = match output {
        Some(output) => OutputBuffer::SameSize(std::ptr::with_exposed_provenance_mut(output as usize)),
        None => OutputBuffer::Allocate,
    };
    TensorBuffers { input: std::ptr::with_exposed_provenance(input as usize), n_bytes, output }
}
