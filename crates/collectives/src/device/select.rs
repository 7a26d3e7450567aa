//! Selects how the members of a process set exchange device memory. Pure: every member decides from the same facts of all, so all decide alike.

use crate::device::driver::DeviceProperties;
use crate::device::tasks::MAX_POINTERS;
use crate::device_transport::DeviceTransport;

/// What a member tells the others about its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// Lowest rank of its host.
    pub host: u64,
    /// `None`: the member has no device, or its tensors are in host memory.
    pub device: Option<DeviceFacts>,
    /// From `CORRO_GPU_TRANSPORT`.
    pub forced: Option<DeviceTransport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    pub uuid: [u8; 16],
    /// Kernels can be compiled.
    pub has_kernels: bool,
    /// Streams can write words of host memory, and device memory can be exported.
    pub has_ipc: bool,
    /// Version of NCCL, 0 without.
    pub nccl: u32,
}

/// Size of encoded facts.
pub const FACTS_BYTES: usize = 40;

impl MemberFacts {
    pub fn new(
        host: usize,
        device: Option<(&DeviceProperties, bool)>,
        nccl: u32,
        forced: Option<DeviceTransport>,
    ) -> MemberFacts {
        let device = device.map(|(properties, can_export)| DeviceFacts {
            uuid: properties.uuid,
            has_kernels: properties.kernels.is_ok(),
            has_ipc: properties.has_stream_memory_operations && can_export,
            nccl,
        });
        MemberFacts { host: host as u64, device, forced }
    }

    pub fn encode(&self) -> [u8; FACTS_BYTES] {
        let mut bytes = [0; FACTS_BYTES];
        bytes[..8].copy_from_slice(&self.host.to_le_bytes());
        bytes[8] = self.forced.map_or(0, |forced| forced as u8 + 1);
        if let Some(device) = &self.device {
            bytes[9..12].copy_from_slice(&[1, u8::from(device.has_kernels), u8::from(device.has_ipc)]);
            bytes[12..16].copy_from_slice(&device.nccl.to_le_bytes());
            bytes[16..32].copy_from_slice(&device.uuid);
        }
        bytes
    }

    pub fn decode(bytes: &[u8; FACTS_BYTES]) -> MemberFacts {
        let forced = DeviceTransport::ALL.into_iter().find(|transport| *transport as u8 + 1 == bytes[8]);
        let device = (bytes[9] != 0).then(|| DeviceFacts {
            uuid: bytes[16..32].try_into().expect("16 bytes"),
            has_kernels: bytes[10] != 0,
            has_ipc: bytes[11] != 0,
            nccl: u32::from_le_bytes(bytes[12..16].try_into().expect("4 bytes")),
        });
        MemberFacts { host: u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")), device, forced }
    }
}

/// The selected transport and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub transport: DeviceTransport,
    pub reason: String,
}

/// Selects the transport. `ranks` are the members as ranks of the world.
///
/// # Errors
/// If `CORRO_GPU_TRANSPORT` differs between members, or names a transport that is impossible here.
pub fn select(members: &[MemberFacts], ranks: &[usize]) -> Result<Selection, String> {
    if let Some(odd) = members.iter().position(|member| member.forced != members[0].forced) {
        let name = |member: &MemberFacts| member.forced.map_or("auto", DeviceTransport::name);
        return Err(format!(
            "CORRO_GPU_TRANSPORT must be the same on all ranks: rank {} has {}, rank {} has {}",
            ranks[odd],
            name(&members[odd]),
            ranks[0],
            name(&members[0])
        ));
    }
    let obstacles = [
        (DeviceTransport::Ipc, ipc_obstacle(members, ranks)),
        (DeviceTransport::Nccl, nccl_obstacle(members, ranks)),
        (DeviceTransport::Host, None),
    ];
    if let Some(forced) = members[0].forced {
        // Several ranks on one GPU may use NCCL if they ask for it.
        let obstacle = match forced {
            DeviceTransport::Nccl => nccl_missing(members, ranks),
            forced => {
                obstacles.into_iter().find(|(transport, _)| *transport == forced).and_then(|(_, obstacle)| obstacle)
            }
        };
        return match obstacle {
            Some(obstacle) => Err(format!("CORRO_GPU_TRANSPORT={} is impossible: {obstacle}", forced.name())),
            None => Ok(Selection { transport: forced, reason: "CORRO_GPU_TRANSPORT says so".to_owned() }),
        };
    }
    let [(_, ipc), (_, nccl), _] = obstacles;
    Ok(match (ipc, nccl) {
        (None, _) if members.len() == 1 => {
            Selection { transport: DeviceTransport::Ipc, reason: "there is one rank".to_owned() }
        }
        (None, _) => Selection { transport: DeviceTransport::Ipc, reason: "the ranks share one GPU".to_owned() },
        (_, None) => {
            Selection { transport: DeviceTransport::Nccl, reason: "every rank has a GPU of its own".to_owned() }
        }
        (Some(ipc), Some(nccl)) => Selection {
            transport: DeviceTransport::Host,
            reason: if ipc == nccl { ipc } else { format!("no CUDA IPC: {ipc}; no NCCL: {nccl}") },
        },
    })
}

/// Why the members cannot share memory of one GPU.
fn ipc_obstacle(members: &[MemberFacts], ranks: &[usize]) -> Option<String> {
    let devices = all_devices(members, ranks).map_err(Some);
    let devices = match devices {
        Ok(devices) => devices,
        Err(obstacle) => return obstacle,
    };
    let rank = |predicate: &dyn Fn(&DeviceFacts) -> bool| devices.iter().position(predicate).map(|at| ranks[at]);
    if let Some(rank) = rank(&|device| !device.has_kernels) {
        return Some(format!("rank {rank} cannot compile kernels (libnvrtc was not found)"));
    }
    if members.len() == 1 {
        return None;
    }
    if let Some(at) = members.iter().position(|member| member.host != members[0].host) {
        return Some(format!("ranks {} and {} are on different hosts", ranks[0], ranks[at]));
    }
    if let Some(rank) = rank(&|device| device.uuid != devices[0].uuid) {
        return Some(format!("ranks {} and {rank} use different GPUs", ranks[0]));
    }
    if let Some(rank) = rank(&|device| !device.has_ipc) {
        return Some(format!("the driver of rank {rank} does not let processes share memory of the GPU"));
    }
    if 2 * members.len() > MAX_POINTERS - 2 {
        return Some(format!("{} ranks are too many for one GPU", members.len()));
    }
    None
}

/// Why the members cannot use NCCL, one GPU a rank.
fn nccl_obstacle(members: &[MemberFacts], ranks: &[usize]) -> Option<String> {
    if let Some(missing) = nccl_missing(members, ranks) {
        return Some(missing);
    }
    let uuids: Vec<[u8; 16]> = members.iter().filter_map(|member| Some(member.device?.uuid)).collect();
    let shared = (0..uuids.len()).find_map(|at| Some((uuids[..at].iter().position(|uuid| *uuid == uuids[at])?, at)));
    shared.map(|(one, other)| format!("ranks {} and {} share a GPU", ranks[one], ranks[other]))
}

fn nccl_missing(members: &[MemberFacts], ranks: &[usize]) -> Option<String> {
    let devices = match all_devices(members, ranks) {
        Ok(devices) => devices,
        Err(obstacle) => return Some(obstacle),
    };
    if let Some(at) = devices.iter().position(|device| device.nccl == 0) {
        return Some(format!("rank {} has no NCCL (libnccl.so.2 was not found)", ranks[at]));
    }
    if let Some(at) = devices.iter().position(|device| !device.has_kernels) {
        return Some(format!("rank {} cannot compile kernels (libnvrtc was not found)", ranks[at]));
    }
    let odd = devices.iter().position(|device| device.nccl != devices[0].nccl)?;
    Some(format!("ranks {} and {} have different versions of NCCL", ranks[0], ranks[odd]))
}

fn all_devices(members: &[MemberFacts], ranks: &[usize]) -> Result<Vec<DeviceFacts>, String> {
    let missing = |(at, _): (usize, &MemberFacts)| format!("rank {} passes no memory of a CUDA device", ranks[at]);
    match members.iter().enumerate().find(|(_, member)| member.device.is_none()) {
        Some(without) => Err(missing(without)),
        None => Ok(members.iter().filter_map(|member| member.device).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(host: u64, gpu: u8) -> MemberFacts {
        let device = DeviceFacts { uuid: [gpu; 16], has_kernels: true, has_ipc: true, nccl: 22803 };
        MemberFacts { host, device: Some(device), forced: None }
    }

    fn with(member: MemberFacts, change: impl FnOnce(&mut DeviceFacts)) -> MemberFacts {
        let mut device = member.device.expect("it has one");
        change(&mut device);
        MemberFacts { device: Some(device), ..member }
    }

    fn check(members: &[MemberFacts], expected: &str) {
        let ranks: Vec<usize> = (0..members.len()).map(|member| 10 + member).collect();
        let selection = match select(members, &ranks) {
            Ok(selection) => format!("{}: {}", selection.transport.name(), selection.reason),
            Err(text) => text,
        };
        assert_eq!(selection, expected);
    }

    #[test]
    fn the_transport_follows_from_gpus_and_hosts() {
        check(&[member(0, 1)], "ipc: there is one rank");
        check(&[member(0, 1), member(0, 1)], "ipc: the ranks share one GPU");
        check(&[member(0, 1), member(0, 2)], "nccl: every rank has a GPU of its own");
        check(&[member(0, 1), member(5, 2)], "nccl: every rank has a GPU of its own");
        check(
            &[member(0, 1), member(0, 2), member(0, 2)],
            "host: no CUDA IPC: ranks 10 and 11 use different GPUs; no NCCL: ranks 11 and 12 share a GPU",
        );
        let none = MemberFacts { device: None, ..member(0, 1) };
        check(&[member(0, 1), none], "host: rank 11 passes no memory of a CUDA device");
        check(
            &vec![member(0, 1); 40],
            "host: no CUDA IPC: 40 ranks are too many for one GPU; no NCCL: ranks 10 and 11 share a GPU",
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let old = with(member(0, 1), |device| device.has_ipc = false);
        check(
            &[member(0, 1), old],
            "host: no CUDA IPC: the driver of rank 11 does not let processes share memory of the GPU; no NCCL: ranks 10 and 11 \
             share a GPU",
        );
        let bare = with(member(0, 2), |device| device.nccl = 0);
        check(
            &[member(0, 1), bare],
            "host: no CUDA IPC: ranks 10 and 11 use different GPUs; no NCCL: rank 11 has no NCCL (libnccl.so.2 was not found)",
        );
        let newer = with(member(0, 2), |device| device.nccl = 22900);
        check(
            &[member(0, 1), newer],
            "host: no CUDA IPC: ranks 10 and 11 use different GPUs; no NCCL: ranks 10 and 11 have different versions of NCCL",
        );
        let no_compiler = with(member(0, 1), |device| device.has_kernels = false);
        check(&[no_compiler], "host: rank 10 cannot compile kernels (libnvrtc was not found)");
    }

    #[test]
    fn a_transport_can_be_forced_if_it_is_possible() {
        let force = |transport, gpu| MemberFacts { forced: Some(transport), ..member(0, gpu) };
        check(&[force(DeviceTransport::Nccl, 1), force(DeviceTransport::Nccl, 1)], "nccl: CORRO_GPU_TRANSPORT says so");
        check(&[force(DeviceTransport::Host, 1), force(DeviceTransport::Host, 1)], "host: CORRO_GPU_TRANSPORT says so");
        check(
            &[force(DeviceTransport::Ipc, 1), force(DeviceTransport::Ipc, 2)],
            "CORRO_GPU_TRANSPORT=ipc is impossible: ranks 10 and 11 use different GPUs",
        );
        check(
            &[member(0, 1), force(DeviceTransport::Host, 1)],
            "CORRO_GPU_TRANSPORT must be the same on all ranks: rank 11 has host, rank 10 has auto",
        );
    }

    #[test]
    fn facts_round_trip() {
        for facts in [
            member(7, 3),
            MemberFacts { device: None, ..member(1, 1) },
            MemberFacts {
                forced: Some(DeviceTransport::Host),
                ..with(member(2, 9), |device| device.has_kernels = false)
            },
        ] {
            assert_eq!(MemberFacts::decode(&facts.encode()), facts);
        }
    }
}
