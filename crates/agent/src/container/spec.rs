//! Builds the request that creates the container of an attempt on one node. Pure: the machine's capabilities are an
//! argument. Contains no variable and no secret; those are passed with each process. Requests nothing that an
//! unprivileged engine must refuse: no ulimits, no capabilities, no OOM score.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use bollard::models::{ContainerCreateBody, DeviceMapping, DeviceRequest, HostConfig, Mount, MountType};

use corro_model::NodeId;
use corro_model::container::{parse_size, size_words};
use corro_model::node::{TaskOrder, Volume};

use crate::limits::{self, Capacity, bounds};
use crate::storage::directories::Layout;
use crate::storage::mounts;

/// Label with the node's id.
pub const NODE_LABEL: &str = "corro.node";
/// Label with the incarnation of the node's directory, by which leftovers are found.
pub const INCARNATION_LABEL: &str = "corro.incarnation";
const ATTEMPT_LABEL: &str = "corro.attempt";

/// Keeps the container running until its standard input is closed. Uses shell built-ins only, since an image may have
/// no other programs.
const KEEP_ALIVE_SCRIPT: &str = "while read -r line; do :; done";

/// Resources and devices of this machine and features of its engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capabilities {
    pub capacity: Capacity,
    pub has_gpus: bool,
    /// `/dev/nvidiactl` and the other devices that every GPU needs.
    pub gpu_control_devices: Vec<PathBuf>,
    pub gpu_support: GpuSupport,
    /// The engine runs as root and this agent does not.
    pub engine_is_more_privileged: bool,
    /// System-wide limit of the kernel on processes.
    pub kernel_max_processes: u64,
    /// InfiniBand devices.
    pub fabric_devices: Vec<PathBuf>,
}

/// How the engine provides GPUs together with their libraries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSupport {
    /// Not at all: devices are mapped, for images that contain the libraries.
    #[default]
    None,
    /// By NVIDIA's container runtime (Docker).
    Runtime,
    /// By names of the Container Device Interface (Podman).
    Cdi,
}

/// Bind mounts, with the same paths inside as outside: the node's job and mount directories, and the targets of the
/// symlinks in them.
pub fn bind_mounts(
    layout: &Layout,
    wheels: &Path,
    order: &TaskOrder,
    cluster_volumes: &[Volume],
) -> BTreeMap<PathBuf, MountAccess> {
    let mut bind_mounts = BTreeMap::new();
    bind_mounts.insert(wheels.to_owned(), MountAccess::ReadOnly);
    // Directories inside of volumes are bind mounts below the node's directory, or refused: their paths can be changed
    // by others.
    let whole = cluster_volumes.iter().chain(&order.volumes).filter(|volume| volume.beneath.is_none());
    let targets = whole.filter_map(mounts::linked_directory);
    let shared = order.shared_temp.clone().filter(|_| order.hosts.len() > 1);
    let own = [layout.jobs.clone(), layout.mount_root.clone()];
    bind_mounts.extend(own.into_iter().chain(shared).chain(targets).map(|path| (path, MountAccess::ReadWrite)));
    bind_mounts
}

/// Access to a bind mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    ReadOnly,
    ReadWrite,
}

/// Body of the request that creates the container.
pub fn create_body(
    (node, incarnation): (&NodeId, &str),
    order: &TaskOrder,
    bind_mounts: &BTreeMap<PathBuf, MountAccess>,
    capabilities: &Capabilities,
    gpus: &[u16],
) -> ContainerCreateBody {
    let settings = order.container.as_ref();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mounts = bind_mounts.iter().map(|(path, access)| Mount {
        typ: Some(MountType::BIND),
        source: Some(text(path)),
        target: Some(text(path)),
        read_only: Some(*access == MountAccess::ReadOnly),
        ..Mount::default()
    });
    let bounds = bounds(order.limits.as_ref(), capabilities.capacity);
    let memory = bounds.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let (requests, devices) = devices(gpus, capabilities);
    let labels = [
        (NODE_LABEL, node.to_string()),
        (INCARNATION_LABEL, incarnation.to_owned()),
        (ATTEMPT_LABEL, order.attempt.to_string()),
    ];
    let shm_size = settings.and_then(|settings| settings.shm_size.as_deref()).and_then(parse_size);
    ContainerCreateBody {
        image: settings.map(|settings| settings.image_source_registry.image.clone()),
        entrypoint: Some(["/bin/sh", "-c", KEEP_ALIVE_SCRIPT].map(str::to_owned).to_vec()),
        cmd: Some(Vec::new()),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<HashMap<_, _>>()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // The container ends when the holder of its input is gone.
        stdin_once: Some(true),
        tty: Some(false),
        host_config: Some(HostConfig {
            mounts: Some(mounts.collect()),
            network_mode: Some("host".to_owned()),
            auto_remove: Some(true),
            shm_size: shm_size.and_then(|bytes| i64::try_from(bytes).ok()),
            memory,
            // Equal to the memory limit, so that no swap is used.
            memory_swap: memory,
            pids_limit: max_processes(order, capabilities).and_then(|max| i64::try_from(max).ok()),
            nano_cpus: bounds.cores.map(|cores| i64::from(cores) * 1_000_000_000),
            device_requests: requests.map(|request| vec![request]),
            devices: (!devices.is_empty()).then_some(devices),
            // SELinux labels of the node's directories must not deny access.
            security_opt: Some(vec!["label=disable".to_owned()]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// Limit on processes and threads in the container.
pub fn max_processes(order: &TaskOrder, capabilities: &Capabilities) -> Option<u64> {
    order.limits.as_ref().map(|limits| limits::max_processes(limits, capabilities.kernel_max_processes))
}

/// Requests exactly these GPUs, by the engine's mechanism or as plain devices, and the InfiniBand devices.
fn devices(gpus: &[u16], capabilities: &Capabilities) -> (Option<DeviceRequest>, Vec<DeviceMapping>) {
    let device_request = |driver: &str, prefix: &str| DeviceRequest {
        driver: Some(driver.to_owned()),
        device_ids: Some(gpus.iter().map(|number| format!("{prefix}{number}")).collect()),
        ..DeviceRequest::default()
    };
    let request = match capabilities.gpu_support {
        _ if gpus.is_empty() => None,
        GpuSupport::None => None,
        GpuSupport::Runtime => {
            Some(DeviceRequest { capabilities: Some(vec![vec!["gpu".to_owned()]]), ..device_request("nvidia", "") })
        }
        GpuSupport::Cdi => Some(device_request("cdi", "nvidia.com/gpu=")),
    };
    let cards = gpus.iter().map(|number| PathBuf::from(format!("/dev/nvidia{number}")));
    let plain =
        cards.chain(capabilities.gpu_control_devices.iter().cloned()).filter(|_| request.is_none() && !gpus.is_empty());
    let mapped: BTreeSet<PathBuf> = plain.chain(capabilities.fabric_devices.iter().cloned()).collect();
    let mapping = |path: PathBuf| DeviceMapping {
        path_on_host: Some(path.to_string_lossy().into_owned()),
        path_in_container: Some(path.to_string_lossy().into_owned()),
        cgroup_permissions: Some("rwm".to_owned()),
    };
    (request, mapped.into_iter().map(mapping).collect())
}

/// Describes the container's limits for the execution log, including what could not be provided.
pub fn describe(order: &TaskOrder, capabilities: &Capabilities, gpus: Option<&str>) -> String {
    let bounds = bounds(order.limits.as_ref(), capabilities.capacity);
    let mut parts = vec!["host network, root inside".to_owned()];
    let size = order.limits.as_ref().map_or("", |limits| limits.vm_size.as_str());
    match bounds.memory_bytes {
        Some(bytes) => parts.push(format!("{} of memory as {size} has", size_words(bytes))),
        None => parts.push(format!("all memory of the machine ({})", size_words(capabilities.capacity.memory_bytes))),
    }
    match bounds.cores {
        Some(cores) => parts.push(format!("{cores} {} as {size} has", if cores == 1 { "core" } else { "cores" })),
        None => parts.push(format!("all {} cores of the machine", capabilities.capacity.cores)),
    }
    parts.extend(max_processes(order, capabilities).map(|max| format!("at most {max} processes and threads")));
    let shm = order.container.as_ref().and_then(|settings| parse_size(settings.shm_size.as_deref()?));
    parts.extend(shm.map(|bytes| format!("{} of /dev/shm", size_words(bytes))));
    if let Some(gpus) = gpus {
        let bare = if capabilities.has_gpus && capabilities.gpu_support == GpuSupport::None {
            ", without their libraries"
        } else {
            ""
        };
        parts.push(format!("GPUs: {gpus}{bare}"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use corro_model::batchai::{ContainerSettings, ImageSourceRegistry};
    use corro_model::node::{Limits, VolumeKind, VolumeSource};
    use serde_json::json;

    use super::*;
    use crate::testing;

    fn order() -> TaskOrder {
        let registry = ImageSourceRegistry { server_url: None, image: "i:1".into(), credentials: None };
        let mut order = testing::order(2);
        order.container = Some(ContainerSettings { image_source_registry: registry, shm_size: Some("512m".into()) });
        order.limits = Some(Limits { vm_size: "STANDARD_D1".into(), memory_bytes: 4 << 30, cores: 1, processes: None });
        order.gpus = 1;
        order
    }

    fn capabilities() -> Capabilities {
        let capacity = Capacity { memory_bytes: 16 << 30, cores: 8 };
        Capabilities { capacity, kernel_max_processes: 32768, ..Capabilities::default() }
    }

    #[test]
    fn the_request_has_all_settings_and_no_variables() {
        let order = order();
        let bind_mounts =
            BTreeMap::from([("/n/jobs".into(), MountAccess::ReadWrite), ("/n/wheels".into(), MountAccess::ReadOnly)]);
        let body =
            serde_json::to_value(create_body((&testing::node(1), "0123"), &order, &bind_mounts, &capabilities(), &[]))
                .expect("plain data");
        let host = &body["HostConfig"];
        assert_eq!(body["Image"], "i:1");
        assert_eq!(body["Labels"]["corro.node"], "tvm-1_1-20180718t174802z-p");
        assert_eq!(body["Labels"]["corro.incarnation"], "0123");
        assert_eq!(
            (&body["OpenStdin"], &body["StdinOnce"], &host["AutoRemove"]),
            (&json!(true), &json!(true), &json!(true))
        );
        assert_eq!((&host["NetworkMode"], &body["User"]), (&json!("host"), &json!("0:0")));
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&json!(4u64 << 30), &json!(4u64 << 30)));
        assert_eq!((&host["NanoCpus"], &host["ShmSize"]), (&json!(1_000_000_000), &json!(512 << 20)));
        assert_eq!(host["PidsLimit"], json!(4096 + 1024));
        assert_eq!(
            host["Mounts"],
            json!([
                {"Type": "bind", "Source": "/n/jobs", "Target": "/n/jobs", "ReadOnly": false},
                {"Type": "bind", "Source": "/n/wheels", "Target": "/n/wheels", "ReadOnly": true}
            ])
        );
        for absent in ["Privileged", "Ulimits", "OomScoreAdj", "CapAdd"] {
            assert!(host[absent].is_null(), "{absent}");
        }
        assert!(body["Env"].is_null());
    }

    #[test]
    fn limits_above_the_machines_capacity_have_no_effect() {
        let capacity = Capacity { memory_bytes: 4 << 30, cores: 1 };
        let small = Capabilities { capacity, kernel_max_processes: 32768, ..Capabilities::default() };
        assert_eq!(
            describe(&order(), &small, Some("none, as the machine has none")),
            "host network, root inside; all memory of the machine (4 GiB); all 1 cores of the machine; \
             at most 5120 processes and threads; 512 MiB of /dev/shm; GPUs: none, as the machine has none"
        );
        assert!(
            describe(&order(), &capabilities(), None)
                .contains("; 4 GiB of memory as STANDARD_D1 has; 1 core as STANDARD_D1 has; ")
        );
    }

    #[test]
    fn link_targets_are_mounted_at_the_same_paths() {
        let mut order = order();
        order.shared_temp = Some("/d/job-shared/a".into());
        let volume = |path: &str| Volume {
            kind: VolumeKind::FileShare,
            relative: "s".into(),
            label: "s".into(),
            source: VolumeSource::LocalDirectory(path.into()),
            read_only: false,
            beneath: None,
        };
        order.volumes = vec![volume("/d/shares/a/s")];
        let layout = Layout::new(Path::new("/n"), "/tmp/n".into(), &order);
        let bind_mounts =
            bind_mounts(&layout, Path::new("/n/wheels"), &order, &[volume("/d/shares/a/s"), volume("/d/shares/a/c")]);
        let paths: Vec<_> = bind_mounts.keys().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(paths, ["/d/job-shared/a", "/d/shares/a/c", "/d/shares/a/s", "/n/jobs", "/n/mounts", "/n/wheels"]);
    }

    #[test]
    fn a_container_gets_the_gpus_of_its_node_and_no_others() {
        let capabilities = |gpu_support| Capabilities {
            has_gpus: true,
            gpu_control_devices: vec![PathBuf::from("/dev/nvidiactl")],
            gpu_support,
            fabric_devices: vec![PathBuf::from("/dev/infiniband/uverbs0")],
            ..capabilities()
        };
        let asked = |gpus: &[u16], gives| {
            let (request, mapped) = devices(gpus, &capabilities(gives));
            let paths: Vec<String> = mapped.into_iter().filter_map(|mapping| mapping.path_on_host).collect();
            (serde_json::to_value(request).expect("plain data"), paths.join(" "))
        };
        let bare = "/dev/infiniband/uverbs0";
        let by_runtime = json!({"Driver": "nvidia", "DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]});
        assert_eq!(asked(&[1, 3], GpuSupport::Runtime), (by_runtime, bare.to_owned()));
        let by_name = json!({"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "nvidia.com/gpu=3"]});
        assert_eq!(asked(&[1, 3], GpuSupport::Cdi), (by_name, bare.to_owned()));
        let devices = format!("{bare} /dev/nvidia1 /dev/nvidia3 /dev/nvidiactl");
        assert_eq!(asked(&[1, 3], GpuSupport::None), (json!(null), devices));
        for gives in [GpuSupport::None, GpuSupport::Runtime, GpuSupport::Cdi] {
            assert_eq!(asked(&[], gives), (json!(null), bare.to_owned()));
        }
    }
}
