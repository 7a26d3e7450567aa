//! What the engine is asked for: one container for one attempt at a job on one node. Pure: what the machine has is handed in.
//! Holds no variable and no secret; those go with each process that is started inside. Asks for nothing that an engine
//! without special rights must refuse: no limits of open files or locked memory, no privileges, no order among victims of
//! the kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use bollard::models::{ContainerCreateBody, DeviceMapping, DeviceRequest, HostConfig, Mount, MountType};

use corro_model::NodeId;
use corro_model::container::{parse_size, size_words};
use corro_model::node::{TaskOrder, Volume};

use crate::limits::{self, Capacity, bounds};
use crate::storage::directories::Layout;
use crate::storage::mounts;

/// On every container of ours, with the node it is of.
pub const NODE_LABEL: &str = "corro.node";
/// On every container of ours, with the incarnation of the node's directory: what a crash left is found by it.
pub const INCARNATION_LABEL: &str = "corro.incarnation";
const ATTEMPT_LABEL: &str = "corro.attempt";

/// Lives for as long as its input is open, and does nothing: the shell's own words, as an image may lack all others.
const LIVE: &str = "while read -r line; do :; done";

/// What this machine has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub capacity: Capacity,
    pub has_gpus: bool,
    /// `/dev/nvidiactl` and the others that every GPU needs.
    pub beside_gpus: Vec<PathBuf>,
    pub gives_gpus: GivesGpus,
    /// Its engine runs as root, and this agent does not.
    pub engine_has_more_rights: bool,
    /// Processes that its kernel has for everybody.
    pub kernel_processes: u64,
    /// Devices of InfiniBand.
    pub fabric_devices: Vec<PathBuf>,
}

/// How an engine gives GPUs, with the libraries they need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GivesGpus {
    /// It does not: devices can be mapped, for images that bring the libraries.
    #[default]
    Not,
    /// By NVIDIA's runtime, which Docker knows.
    ByRuntime,
    /// By the names of the Container Device Interface, which Podman knows.
    ByName,
}

/// The same paths inside as outside: the node's directories of jobs and mounts, and what the links in them lead to.
pub fn places(layout: &Layout, wheels: &Path, order: &TaskOrder, of_cluster: &[Volume]) -> BTreeMap<PathBuf, Access> {
    let mut places = BTreeMap::new();
    places.insert(wheels.to_owned(), Access::Read);
    // Directories inside of trees are mounts below the node's own, or not shown at all: a path to one can be turned by others.
    let whole = of_cluster.iter().chain(&order.volumes).filter(|volume| volume.beneath.is_none());
    let targets = whole.filter_map(mounts::linked_directory);
    let shared = order.shared_temp.clone().filter(|_| order.hosts.len() > 1);
    let own = [layout.jobs.clone(), layout.mount_root.clone()];
    places.extend(own.into_iter().chain(shared).chain(targets).map(|path| (path, Access::Write)));
    places
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// The container as the engine is asked for it.
pub fn body(
    (node, incarnation): (&NodeId, &str),
    order: &TaskOrder,
    places: &BTreeMap<PathBuf, Access>,
    machine: &Machine,
    gpus: &[u16],
) -> ContainerCreateBody {
    let settings = order.container.as_ref();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mounts = places.iter().map(|(path, access)| Mount {
        typ: Some(MountType::BIND),
        source: Some(text(path)),
        target: Some(text(path)),
        read_only: Some(*access == Access::Read),
        ..Mount::default()
    });
    let bounds = bounds(order.limits.as_ref(), machine.capacity);
    let memory = bounds.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let (requests, devices) = devices(gpus, machine);
    let labels = [
        (NODE_LABEL, node.to_string()),
        (INCARNATION_LABEL, incarnation.to_owned()),
        (ATTEMPT_LABEL, order.attempt.to_string()),
    ];
    let shm_size = settings.and_then(|settings| settings.shm_size.as_deref()).and_then(parse_size);
    ContainerCreateBody {
        image: settings.map(|settings| settings.image_source_registry.image.clone()),
        entrypoint: Some(["/bin/sh", "-c", LIVE].map(str::to_owned).to_vec()),
        cmd: Some(Vec::new()),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<HashMap<_, _>>()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // It ends when whoever holds its input is gone, however that went.
        stdin_once: Some(true),
        tty: Some(false),
        host_config: Some(HostConfig {
            mounts: Some(mounts.collect()),
            network_mode: Some("host".to_owned()),
            auto_remove: Some(true),
            shm_size: shm_size.and_then(|bytes| i64::try_from(bytes).ok()),
            memory,
            // The same, so that nothing is swapped instead.
            memory_swap: memory,
            pids_limit: most_processes(order, machine).and_then(|most| i64::try_from(most).ok()),
            nano_cpus: bounds.cores.map(|cores| i64::from(cores) * 1_000_000_000),
            device_requests: requests.map(|request| vec![request]),
            devices: (!devices.is_empty()).then_some(devices),
            // Where files carry labels, those of the node's directories must not keep the container out.
            security_opt: Some(vec!["label=disable".to_owned()]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// How many processes and threads the container may have.
pub fn most_processes(order: &TaskOrder, machine: &Machine) -> Option<u64> {
    order.limits.as_ref().map(|limits| limits::most_processes(limits, machine.kernel_processes))
}

/// These GPUs and no others: by the engine where it can, else their devices alone; and the fabric.
fn devices(gpus: &[u16], machine: &Machine) -> (Option<DeviceRequest>, Vec<DeviceMapping>) {
    let named = |driver: &str, prefix: &str| DeviceRequest {
        driver: Some(driver.to_owned()),
        device_ids: Some(gpus.iter().map(|number| format!("{prefix}{number}")).collect()),
        ..DeviceRequest::default()
    };
    let request = match machine.gives_gpus {
        _ if gpus.is_empty() => None,
        GivesGpus::Not => None,
        GivesGpus::ByRuntime => {
            Some(DeviceRequest { capabilities: Some(vec![vec!["gpu".to_owned()]]), ..named("nvidia", "") })
        }
        GivesGpus::ByName => Some(named("cdi", "nvidia.com/gpu=")),
    };
    let cards = gpus.iter().map(|number| PathBuf::from(format!("/dev/nvidia{number}")));
    let plain = cards.chain(machine.beside_gpus.iter().cloned()).filter(|_| request.is_none() && !gpus.is_empty());
    let mapped: BTreeSet<PathBuf> = plain.chain(machine.fabric_devices.iter().cloned()).collect();
    let mapping = |path: PathBuf| DeviceMapping {
        path_on_host: Some(path.to_string_lossy().into_owned()),
        path_in_container: Some(path.to_string_lossy().into_owned()),
        cgroup_permissions: Some("rwm".to_owned()),
    };
    (request, mapped.into_iter().map(mapping).collect())
}

/// For the execution log: what was applied, and what was asked and is not there.
pub fn words(order: &TaskOrder, machine: &Machine, gpus: Option<&str>) -> String {
    let bounds = bounds(order.limits.as_ref(), machine.capacity);
    let mut words = vec!["host network, root inside".to_owned()];
    let size = order.limits.as_ref().map_or("", |limits| limits.vm_size.as_str());
    match bounds.memory_bytes {
        Some(bytes) => words.push(format!("{} of memory as {size} has", size_words(bytes))),
        None => words.push(format!("all memory of the machine ({})", size_words(machine.capacity.memory_bytes))),
    }
    match bounds.cores {
        Some(cores) => words.push(format!("{cores} {} as {size} has", if cores == 1 { "core" } else { "cores" })),
        None => words.push(format!("all {} cores of the machine", machine.capacity.cores)),
    }
    words.extend(most_processes(order, machine).map(|most| format!("at most {most} processes and threads")));
    let shm = order.container.as_ref().and_then(|settings| parse_size(settings.shm_size.as_deref()?));
    words.extend(shm.map(|bytes| format!("{} of /dev/shm", size_words(bytes))));
    if let Some(gpus) = gpus {
        let bare =
            if machine.has_gpus && machine.gives_gpus == GivesGpus::Not { ", without their libraries" } else { "" };
        words.push(format!("GPUs: {gpus}{bare}"));
    }
    words.join("; ")
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

    fn machine() -> Machine {
        let capacity = Capacity { memory_bytes: 16 << 30, cores: 8 };
        Machine { capacity, kernel_processes: 32768, ..Machine::default() }
    }

    #[test]
    fn the_body_holds_everything_and_no_variable() {
        let order = order();
        let places = BTreeMap::from([("/n/jobs".into(), Access::Write), ("/n/wheels".into(), Access::Read)]);
        let body = serde_json::to_value(body((&testing::node(1), "0123"), &order, &places, &machine(), &[]))
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
    fn a_machine_that_has_less_gives_what_it_has() {
        let capacity = Capacity { memory_bytes: 4 << 30, cores: 1 };
        let small = Machine { capacity, kernel_processes: 32768, ..Machine::default() };
        assert_eq!(
            words(&order(), &small, Some("none, as the machine has none")),
            "host network, root inside; all memory of the machine (4 GiB); all 1 cores of the machine; \
             at most 5120 processes and threads; 512 MiB of /dev/shm; GPUs: none, as the machine has none"
        );
        assert!(
            words(&order(), &machine(), None)
                .contains("; 4 GiB of memory as STANDARD_D1 has; 1 core as STANDARD_D1 has; ")
        );
    }

    #[test]
    fn links_lead_to_the_same_places_inside() {
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
        let places =
            places(&layout, Path::new("/n/wheels"), &order, &[volume("/d/shares/a/s"), volume("/d/shares/a/c")]);
        let paths: Vec<_> = places.keys().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(paths, ["/d/job-shared/a", "/d/shares/a/c", "/d/shares/a/s", "/n/jobs", "/n/mounts", "/n/wheels"]);
    }

    #[test]
    fn a_container_gets_the_gpus_of_its_node_and_no_others() {
        let machine = |gives_gpus| Machine {
            has_gpus: true,
            beside_gpus: vec![PathBuf::from("/dev/nvidiactl")],
            gives_gpus,
            fabric_devices: vec![PathBuf::from("/dev/infiniband/uverbs0")],
            ..machine()
        };
        let asked = |gpus: &[u16], gives| {
            let (request, mapped) = devices(gpus, &machine(gives));
            let paths: Vec<String> = mapped.into_iter().filter_map(|mapping| mapping.path_on_host).collect();
            (serde_json::to_value(request).expect("plain data"), paths.join(" "))
        };
        let bare = "/dev/infiniband/uverbs0";
        let by_runtime = json!({"Driver": "nvidia", "DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]});
        assert_eq!(asked(&[1, 3], GivesGpus::ByRuntime), (by_runtime, bare.to_owned()));
        let by_name = json!({"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "nvidia.com/gpu=3"]});
        assert_eq!(asked(&[1, 3], GivesGpus::ByName), (by_name, bare.to_owned()));
        let devices = format!("{bare} /dev/nvidia1 /dev/nvidia3 /dev/nvidiactl");
        assert_eq!(asked(&[1, 3], GivesGpus::Not), (json!(null), devices));
        for gives in [GivesGpus::Not, GivesGpus::ByRuntime, GivesGpus::ByName] {
            assert_eq!(asked(&[], gives), (json!(null), bare.to_owned()));
        }
    }
}
