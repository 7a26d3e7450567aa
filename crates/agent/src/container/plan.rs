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

use crate::directories::Layout;
use crate::limits::{Capacity, bounds};

/// On every container of ours, with the node it is of: what a crash left is found by it.
pub const NODE_LABEL: &str = "corro.node";
const ATTEMPT_LABEL: &str = "corro.attempt";

/// Lives for as long as its input is open, and does nothing: the shell's own words, as an image may lack all others.
const LIVE: &str = "while read -r line; do :; done";

/// What this machine has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub capacity: Capacity,
    /// `/dev/nvidia0` and those beside it.
    pub gpu_devices: Vec<PathBuf>,
    /// Its engine gives GPUs by itself, with the libraries they need.
    pub engine_gives_gpus: bool,
    /// Its engine runs as root, and this agent does not.
    pub engine_has_more_rights: bool,
    /// Devices of InfiniBand.
    pub fabric_devices: Vec<PathBuf>,
}

/// The same paths inside as outside: the node's directories of jobs and mounts, and what the links in them lead to.
pub fn places(layout: &Layout, wheels: &Path, order: &TaskOrder, of_cluster: &[Volume]) -> BTreeMap<PathBuf, Access> {
    let mut places = BTreeMap::new();
    places.insert(wheels.to_owned(), Access::Read);
    let targets = of_cluster.iter().chain(&order.volumes).filter_map(|volume| volume.linked_directory().cloned());
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
    node: &NodeId,
    order: &TaskOrder,
    places: &BTreeMap<PathBuf, Access>,
    machine: &Machine,
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
    let (requests, devices) = devices(order.gpus, machine);
    let labels = [(NODE_LABEL, node.to_string()), (ATTEMPT_LABEL, order.attempt.to_string())];
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

/// GPUs by the engine where it can, else their devices alone, for images that bring the libraries; and the fabric.
fn devices(gpus: u32, machine: &Machine) -> (Option<DeviceRequest>, Vec<DeviceMapping>) {
    let wants_gpus = gpus > 0 && !machine.gpu_devices.is_empty();
    let request = (wants_gpus && machine.engine_gives_gpus).then(|| DeviceRequest {
        driver: Some("nvidia".to_owned()),
        count: Some(-1),
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    });
    let plain = machine.gpu_devices.iter().filter(|_| wants_gpus && request.is_none());
    let mapped: BTreeSet<&PathBuf> = plain.chain(machine.fabric_devices.iter()).collect();
    let mapping = |path: &PathBuf| DeviceMapping {
        path_on_host: Some(path.to_string_lossy().into_owned()),
        path_in_container: Some(path.to_string_lossy().into_owned()),
        cgroup_permissions: Some("rwm".to_owned()),
    };
    (request, mapped.into_iter().map(mapping).collect())
}

/// For the execution log: what was applied, and what was asked and is not there.
pub fn words(order: &TaskOrder, machine: &Machine) -> String {
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
    let shm = order.container.as_ref().and_then(|settings| parse_size(settings.shm_size.as_deref()?));
    words.extend(shm.map(|bytes| format!("{} of /dev/shm", size_words(bytes))));
    match (order.gpus, machine.gpu_devices.is_empty(), machine.engine_gives_gpus) {
        (0, ..) => {}
        (_, true, _) => words.push("no GPU, as the machine has none".to_owned()),
        (_, false, true) => words.push("the machine's GPUs".to_owned()),
        (_, false, false) => words.push("the devices of the machine's GPUs, without their libraries".to_owned()),
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
        order.limits = Some(Limits { vm_size: "STANDARD_D1".into(), memory_bytes: 4 << 30, cores: 1 });
        order.gpus = 1;
        order
    }

    fn machine() -> Machine {
        Machine { capacity: Capacity { memory_bytes: 16 << 30, cores: 8 }, ..Machine::default() }
    }

    #[test]
    fn the_body_holds_everything_and_no_variable() {
        let order = order();
        let places = BTreeMap::from([("/n/jobs".into(), Access::Write), ("/n/wheels".into(), Access::Read)]);
        let body = serde_json::to_value(body(&testing::node(1), &order, &places, &machine())).expect("plain data");
        let host = &body["HostConfig"];
        assert_eq!(body["Image"], "i:1");
        assert_eq!(body["Labels"]["corro.node"], "tvm-1_1-20180718t174802z-p");
        assert_eq!(
            (&body["OpenStdin"], &body["StdinOnce"], &host["AutoRemove"]),
            (&json!(true), &json!(true), &json!(true))
        );
        assert_eq!((&host["NetworkMode"], &body["User"]), (&json!("host"), &json!("0:0")));
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&json!(4u64 << 30), &json!(4u64 << 30)));
        assert_eq!((&host["NanoCpus"], &host["ShmSize"]), (&json!(1_000_000_000), &json!(512 << 20)));
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
        let small = Machine { capacity: Capacity { memory_bytes: 4 << 30, cores: 1 }, ..Machine::default() };
        assert_eq!(
            words(&order(), &small),
            "host network, root inside; all memory of the machine (4 GiB); all 1 cores of the machine; \
             512 MiB of /dev/shm; no GPU, as the machine has none"
        );
        assert!(
            words(&order(), &machine()).contains("; 4 GiB of memory as STANDARD_D1 has; 1 core as STANDARD_D1 has; ")
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
        };
        order.volumes = vec![volume("/d/shares/a/s")];
        let layout = Layout::new(Path::new("/n"), &order);
        let places =
            places(&layout, Path::new("/n/wheels"), &order, &[volume("/d/shares/a/s"), volume("/d/shares/a/c")]);
        let paths: Vec<_> = places.keys().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(paths, ["/d/job-shared/a", "/d/shares/a/c", "/d/shares/a/s", "/n/jobs", "/n/mounts", "/n/wheels"]);
    }

    #[test]
    fn gpus_come_by_the_engine_or_as_devices() {
        let cards = vec![PathBuf::from("/dev/nvidia0"), PathBuf::from("/dev/nvidiactl")];
        let fabric_devices = vec![PathBuf::from("/dev/infiniband/uverbs0")];
        let mut machine = Machine { gpu_devices: cards, fabric_devices, ..machine() };
        let (request, mapped) = devices(1, &machine);
        assert!(request.is_none() && mapped.len() == 3);
        machine.engine_gives_gpus = true;
        let (request, mapped) = devices(1, &machine);
        assert!(request.is_some() && mapped.len() == 1);
        let (request, mapped) = devices(0, &machine);
        assert!(request.is_none() && mapped.len() == 1);
    }
}
