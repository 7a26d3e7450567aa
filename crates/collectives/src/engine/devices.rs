//! The device of this rank and the transports of its process sets. A transport is selected at a set's first operation on device memory, which
//! all members execute together.

use std::collections::HashMap;
use std::sync::Arc;

use crate::algorithm::Buffers;
use crate::communicator::Communicator;
use crate::communicator::typed::contiguous_ranges;
use crate::coordinator::{FusionKey, SetId};
use crate::device::context::DeviceContext;
use crate::device::driver::Current;
use crate::device::error::DeviceError;
use crate::device::host::HostTransport;
use crate::device::ipc::IpcTransport;
use crate::device::nccl::NcclTransport;
use crate::device::nccl::library::Nccl;
use crate::device::select::{self, FACTS_BYTES, MemberFacts, Selection};
use crate::device_transport::DeviceTransport;
use crate::engine::execute_device;
use crate::engine::execute_host::{TensorOp, execute_on_host};
use crate::engine::instrumentation::Instrumentation;
use crate::settings::LogLevel;

/// State of the progress engine for device memory.
pub struct Devices {
    /// `None` before the first tensor in device memory.
    context: Option<Arc<DeviceContext>>,
    sets: HashMap<SetId, SetTransport>,
    /// From `CORRO_GPU_TRANSPORT`.
    forced: Option<DeviceTransport>,
}

/// Transport of a process set.
enum SetTransport {
    Ipc(IpcTransport),
    Nccl(NcclTransport),
    Host(HostTransport),
    /// At the first operation no member had tensors in the memory of a device that the engine knows: frameworks have copied them.
    Plain,
}

impl Devices {
    pub fn new(forced: Option<DeviceTransport>) -> Devices {
        Devices { context: None, sets: HashMap::new(), forced }
    }

    /// A tensor of this device was submitted. The first device counts.
    pub fn on_used(&mut self, context: &Arc<DeviceContext>) {
        self.context.get_or_insert_with(|| context.clone());
    }

    pub fn remove_set(&mut self, set: SetId) {
        self.sets.remove(&set);
    }

    /// Ends operations in which the device waits for other ranks: those of NCCL. The second call does nothing.
    pub fn abort(&mut self) {
        for transport in self.sets.values_mut() {
            if let SetTransport::Nccl(transport) = transport {
                transport.abort();
            }
        }
    }

    /// Executes an operation of a process set and completes its tensors.
    pub fn execute(
        &mut self,
        set: SetId,
        communicator: &mut Communicator,
        key: FusionKey,
        ops: &mut [TensorOp<'_>],
        fusion_buffer: &mut Vec<u8>,
        instrumentation: &Instrumentation,
    ) -> Result<(), DeviceError> {
        if !self.sets.contains_key(&set) {
            let transport = self.set_up(communicator, instrumentation)?;
            self.sets.insert(set, transport);
        }
        match self.sets.get_mut(&set).expect("it was inserted") {
            SetTransport::Ipc(transport) => {
                let context = transport.context().clone();
                execute_device::execute(&context, communicator, key, ops, |communicator, operation| {
                    transport.execute(communicator, operation)
                })
            }
            SetTransport::Nccl(transport) => {
                let context = transport.context().clone();
                execute_device::execute(&context, communicator, key, ops, |_, operation| transport.execute(operation))
            }
            SetTransport::Host(transport) => {
                transport.use_device(self.context.as_ref());
                execute_device::through_host(transport, communicator, key, ops, fusion_buffer)
            }
            SetTransport::Plain => {
                let is_on_device = |op: &TensorOp<'_>| op.entry.as_ref().is_some_and(|entry| entry.ready.is_some());
                match &self.context {
                    Some(context) if ops.iter().any(is_on_device) => {
                        execute_device::through_copies(context, communicator, key, ops, fusion_buffer)
                    }
                    _ => Ok(execute_on_host(communicator, key, ops, fusion_buffer)?),
                }
            }
        }
    }

    /// Exchanges facts with the other members and sets up the transport that follows from them. Collective.
    fn set_up(
        &self,
        communicator: &mut Communicator,
        instrumentation: &Instrumentation,
    ) -> Result<SetTransport, DeviceError> {
        let own = self.facts(communicator);
        let members = exchange(communicator, &own)?;
        if members.iter().all(|member| member.device.is_none()) {
            return Ok(SetTransport::Plain);
        }
        let ranks = communicator.world_ranks();
        let selection = select::select(&members, ranks).map_err(DeviceError::Transport)?;
        if communicator.rank() == 0 {
            instrumentation.log(LogLevel::Info, &selection_text(&selection, ranks.len()));
        }
        match (selection.transport, &self.context) {
            (DeviceTransport::Ipc, Some(context)) => {
                Ok(SetTransport::Ipc(IpcTransport::new(context.clone(), communicator)?))
            }
            (DeviceTransport::Nccl, Some(context)) => {
                Ok(SetTransport::Nccl(NcclTransport::new(context.clone(), communicator)?))
            }
            (_, context) => Ok(SetTransport::Host(HostTransport::new(context.clone()))),
        }
    }

    fn facts(&self, communicator: &Communicator) -> MemberFacts {
        let device = self.context.as_ref().map(|context| (context.driver.properties(), can_export(context)));
        let can_share = communicator.size() == 1 || communicator.device_area().is_some();
        let device = device.map(|(properties, can_export)| (properties, can_export && can_share));
        let nccl = if device.is_some() { Nccl::version() } else { 0 };
        MemberFacts::new(communicator.host_id(), device, nccl, self.forced)
    }
}

/// Tries to export memory of the device.
fn can_export(context: &Arc<DeviceContext>) -> bool {
    let Ok(_current) = Current::enter(&*context.driver) else { return false };
    context.allocate(1).is_ok_and(|memory| {
        let allocation = context.driver.allocation_of(memory.ptr());
        allocation.is_ok_and(|allocation| context.driver.export(allocation.base).is_ok())
    })
}

/// The facts of all members.
fn exchange(communicator: &mut Communicator, own: &MemberFacts) -> Result<Vec<MemberFacts>, DeviceError> {
    let n = communicator.size();
    let mut all = vec![0u8; n * FACTS_BYTES];
    let parts = contiguous_ranges(&vec![FACTS_BYTES; n], 1);
    all[parts[communicator.rank()].clone()].copy_from_slice(&own.encode());
    let at = all.as_mut_ptr();
    // SAFETY: the vector has a part for each member.
    unsafe { communicator.allgather_raw(Buffers { src: at, dst: at }, &parts)? };
    Ok(all.as_chunks::<FACTS_BYTES>().0.iter().map(MemberFacts::decode).collect())
}

fn selection_text(selection: &Selection, n: usize) -> String {
    let how = match selection.transport {
        DeviceTransport::Ipc if n == 1 => "in place",
        DeviceTransport::Ipc => "by CUDA IPC",
        DeviceTransport::Nccl => "by NCCL",
        DeviceTransport::Host => "through host memory",
    };
    let ranks = if n == 1 { "1 rank".to_owned() } else { format!("{n} ranks") };
    format!("GPU tensors of {ranks} are exchanged {how}: {}", selection.reason)
}
