//! Kubernetes objects of a node: the pod that runs its agent, and the secret with the agent's one-time join token. The pod owns the secret,
//! so deleting the pod deletes both. Pure: sends nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, LocalObjectReference, PersistentVolumeClaimVolumeSource, Pod,
    PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, Secret, SecretVolumeSource, SecurityContext,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use corro_model::vm_size::VmSize;
use corro_model::{NodeId, Secret as JoinToken};
use corro_server::NewNode;

use super::args::PodSettings;
use crate::isolation::IsolationArg;

/// Paths in the pod of the node's directory and of the directory with its join token.
const NODE_DIR: &str = "/var/lib/corro-node";
const TOKEN_DIR: &str = "/run/corro";
const TOKEN_KEY: &str = "join-token";

/// Directories of the server's data directory that lie on the volume which nodes mount too.
const SHARED_DIRS: [&str; 3] = ["shares", "file-servers", "job-shared"];
/// File by which a node recognises that it sees the server's data directory.
pub const SHARED_DISK_PROBE_FILE: &str = "landmark";

pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
pub const NODE_LABEL: &str = "corro/node";
const CLUSTER_ANNOTATION: &str = "corro/cluster";

/// The server's identity and address, as its pods need them.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    /// Unique id; the label that tells this server's pods from those of others in the namespace.
    pub instance: String,
    pub url: String,
    /// Isolation of jobs within the pod.
    pub isolation: IsolationArg,
    /// SHA-256 fingerprint of the certificate authority; `None` without TLS.
    pub ca_fingerprint: Option<String>,
    pub data: PathBuf,
    /// Content of the file `SHARED_DISK_PROBE_FILE`.
    pub shared_disk_probe: String,
}

/// Name of a node's pod and of its secret. `attempt_id` tells one attempt to start the node from the next.
pub fn pod_name(node: &NodeId, attempt_id: &str) -> String {
    format!("corro-{}-{attempt_id}", node.as_str().replace('_', "-"))
}

/// Label selector of this server's pods.
pub fn label_selector(instance: &str) -> String {
    format!("app.kubernetes.io/component=node,{INSTANCE_LABEL}={instance}")
}

pub fn pod(name: &str, node: &NewNode, server: &ServerIdentity, settings: &PodSettings) -> Pod {
    let spec = PodSpec {
        containers: vec![container(node, server, settings)],
        volumes: Some(volumes(name, node.size, settings)),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(settings.grace),
        // The pause container then reaps orphaned processes of jobs.
        share_process_namespace: Some(true),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        service_account_name: settings.service_account.clone(),
        image_pull_secrets: non_empty(
            settings.pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }),
        ),
        node_selector: Some(settings.node_selector.iter().cloned().collect())
            .filter(|map: &BTreeMap<_, _>| !map.is_empty()),
        tolerations: non_empty(settings.tolerations.iter().cloned()),
        priority_class_name: settings.low_priority_class.clone().filter(|_| node.low_priority),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(settings.user),
            run_as_group: Some(settings.user),
            fs_group: Some(settings.user),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    };
    Pod { metadata: metadata(name, node, &server.instance), spec: Some(spec), status: None }
}

/// The secret of a pod. It is created after the pod, whose uid it names as its owner; the pod's start waits for it.
pub fn secret(pod: &ObjectMeta, token: &JoinToken, shared_disk_probe: &str) -> Secret {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.clone().unwrap_or_default(),
        uid: pod.uid.clone().unwrap_or_default(),
        ..Default::default()
    };
    Secret {
        metadata: ObjectMeta {
            name: pod.name.clone(),
            labels: pod.labels.clone(),
            owner_references: Some(vec![owner]),
            ..Default::default()
        },
        data: Some([(TOKEN_KEY, token.expose()), (SHARED_DISK_PROBE_FILE, shared_disk_probe)].map(secret_entry).into()),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Default::default()
    }
}

fn secret_entry((file, text): (&str, &str)) -> (String, ByteString) {
    (file.to_owned(), ByteString(text.as_bytes().to_vec()))
}

fn metadata(name: &str, node: &NewNode, instance: &str) -> ObjectMeta {
    let labels = [
        ("app.kubernetes.io/name", "corro"),
        ("app.kubernetes.io/component", "node"),
        ("app.kubernetes.io/managed-by", "corro"),
        (INSTANCE_LABEL, instance),
        (NODE_LABEL, node.id.as_str()),
    ];
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels.map(owned).into()),
        // A cluster name may be longer than a label allows.
        annotations: Some([(CLUSTER_ANNOTATION, node.cluster.as_str())].map(owned).into()),
        ..Default::default()
    }
}

fn container(node: &NewNode, server: &ServerIdentity, settings: &PodSettings) -> Container {
    let token_file = format!("{TOKEN_DIR}/{TOKEN_KEY}");
    let mut command =
        vec!["corro", "agent", "--server", &server.url, "--data", NODE_DIR, "--join-token-file", &token_file, "--once"];
    command.extend(["--isolation", server.isolation.as_str()]);
    command.extend(server.ca_fingerprint.iter().flat_map(|fingerprint| ["--ca-fingerprint", fingerprint]));
    Container {
        name: "agent".to_owned(),
        image: Some(settings.image.clone()),
        command: Some(command.into_iter().map(str::to_owned).collect()),
        resources: Some(resources(node.size, &settings.gpu_resource)),
        volume_mounts: Some(mounts(server, settings)),
        // The end of the log becomes the termination message, which explains why a pod failed.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            privileged: Some(false),
            run_as_non_root: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Requests and limits are the whole VM size: a node gets all of it or stays pending.
fn resources(size: &VmSize, gpu_resource: &str) -> ResourceRequirements {
    let mut amounts = BTreeMap::from([
        ("cpu".to_owned(), Quantity(size.cores.to_string())),
        ("memory".to_owned(), Quantity(format!("{}Gi", size.memory_gib))),
    ]);
    if size.gpus > 0 {
        amounts.insert(gpu_resource.to_owned(), Quantity(size.gpus.to_string()));
    }
    ResourceRequirements { requests: Some(amounts.clone()), limits: Some(amounts), ..Default::default() }
}

fn volumes(name: &str, size: &VmSize, settings: &PodSettings) -> Vec<Volume> {
    // Half of the memory, as Linux has by default. Ranks of a node communicate through it.
    let shm = EmptyDirVolumeSource {
        medium: Some("Memory".to_owned()),
        size_limit: Some(Quantity(format!("{}Mi", u64::from(size.memory_gib) * 512))),
    };
    let token =
        SecretVolumeSource { secret_name: Some(name.to_owned()), default_mode: Some(0o440), ..Default::default() };
    let claim = |claim: &String| Volume {
        name: "shares".to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name: claim.clone(), read_only: None }),
        ..Default::default()
    };
    let node = Volume { name: "node".to_owned(), empty_dir: Some(Default::default()), ..Default::default() };
    let shm = Volume { name: "shm".to_owned(), empty_dir: Some(shm), ..Default::default() };
    let token = Volume { name: "token".to_owned(), secret: Some(token), ..Default::default() };
    [node, shm, token].into_iter().chain(settings.shares_claim.iter().map(claim)).collect()
}

fn mounts(server: &ServerIdentity, settings: &PodSettings) -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..Default::default()
    };
    let token = VolumeMount { read_only: Some(true), ..mount("token", TOKEN_DIR) };
    let mut mounts = vec![mount("node", NODE_DIR), mount("shm", "/dev/shm"), token];
    if settings.shares_claim.is_some() {
        let sub_path = |volume: &str, name: &str| VolumeMount {
            sub_path: Some(name.to_owned()),
            ..mount(volume, &server.data.join(name).display().to_string())
        };
        mounts.extend(SHARED_DIRS.map(|name| sub_path("shares", name)));
        mounts.push(VolumeMount { read_only: Some(true), ..sub_path("token", SHARED_DISK_PROBE_FILE) });
    }
    mounts
}

/// The items, or `None` if there are none: empty lists are not sent.
fn non_empty<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    Some(items.collect()).filter(|items: &Vec<T>| !items.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::vm_size;
    use serde_json::{Value, json};

    fn node(size: &str, low_priority: bool) -> NewNode {
        NewNode {
            id: NodeId::parse("tvm-676767296_1-20180718t174802z-p").expect("an id"),
            address: "127.0.0.1".to_owned(),
            cluster: "nc6".to_owned(),
            size: vm_size::find(size).expect("a size"),
            low_priority,
        }
    }

    fn server(fingerprint: Option<&str>) -> ServerIdentity {
        ServerIdentity {
            isolation: IsolationArg::Auto,
            instance: "11111111-2222-3333-4444-555555555555".to_owned(),
            url: "https://corro.corro.svc:8470".to_owned(),
            ca_fingerprint: fingerprint.map(str::to_owned),
            data: PathBuf::from("/var/lib/corro"),
            shared_disk_probe: "here".to_owned(),
        }
    }

    fn settings() -> PodSettings {
        PodSettings {
            image: "corro:1".to_owned(),
            shares_claim: None,
            gpu_resource: "nvidia.com/gpu".to_owned(),
            node_selector: vec![],
            tolerations: vec![],
            pull_secrets: vec![],
            service_account: None,
            user: 1000,
            low_priority_class: None,
            grace: 30,
        }
    }

    fn pod_json(node: &NewNode, server: &ServerIdentity, settings: &PodSettings) -> Value {
        serde_json::to_value(pod(&pod_name(&node.id, "0a1b2c"), node, server, settings)).expect("JSON")
    }

    #[test]
    fn a_pod_has_the_resources_of_the_vm_size() {
        let pod = pod_json(&node("STANDARD_NC6", false), &server(Some("AB:CD")), &settings());
        let metadata = &pod["metadata"];
        assert_eq!(metadata["name"], "corro-tvm-676767296-1-20180718t174802z-p-0a1b2c");
        assert!(metadata["name"].as_str().is_some_and(|name| name.len() <= 63), "it is the pod's host name");
        assert_eq!(metadata["labels"]["corro/node"], "tvm-676767296_1-20180718t174802z-p");
        assert_eq!(metadata["labels"]["app.kubernetes.io/instance"], "11111111-2222-3333-4444-555555555555");
        assert_eq!(metadata["annotations"]["corro/cluster"], "nc6");
        let (spec, agent) = (&pod["spec"], &pod["spec"]["containers"][0]);
        let command = "corro agent --server https://corro.corro.svc:8470 --data /var/lib/corro-node \
            --join-token-file /run/corro/join-token --once --isolation auto --ca-fingerprint AB:CD";
        assert_eq!(agent["command"], json!(command.split_whitespace().collect::<Vec<_>>()));
        let size = json!({"cpu": "6", "memory": "56Gi", "nvidia.com/gpu": "1"});
        assert_eq!(agent["resources"], json!({"requests": size, "limits": size}));
        assert_eq!(spec["restartPolicy"], "Never");
        assert_eq!(spec["terminationGracePeriodSeconds"], 30);
        let shm = json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "28672Mi"}});
        assert!(spec["volumes"].as_array().expect("a list").contains(&shm), "{spec}");
        for (unset, why) in [("nodeSelector", "none"), ("tolerations", "none"), ("priorityClassName", "dedicated")] {
            assert_eq!(spec[unset], Value::Null, "{why}");
        }
    }

    #[test]
    fn a_pod_has_no_unneeded_privileges() {
        let pod = pod_json(&node("STANDARD_D1", false), &server(None), &settings());
        let (spec, agent) = (&pod["spec"], &pod["spec"]["containers"][0]);
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let rights = &agent["securityContext"];
        assert_eq!(rights["allowPrivilegeEscalation"], false);
        assert_eq!(rights["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(agent["resources"]["limits"], json!({"cpu": "1", "memory": "4Gi"}), "no GPU is asked for");
        for forbidden in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(spec[forbidden], Value::Null);
        }
    }

    #[test]
    fn options_are_applied_to_the_pod() {
        let settings = PodSettings {
            shares_claim: Some("corro-shares".to_owned()),
            gpu_resource: "amd.com/gpu".to_owned(),
            node_selector: vec![("pool".to_owned(), "gpu".to_owned())],
            tolerations: vec![Default::default()],
            pull_secrets: vec!["registry".to_owned()],
            service_account: Some("nodes".to_owned()),
            low_priority_class: Some("spare".to_owned()),
            user: 7,
            ..settings()
        };
        let pod = pod_json(&node("STANDARD_NC24", true), &server(None), &settings);
        let (spec, agent) = (&pod["spec"], &pod["spec"]["containers"][0]);
        assert_eq!(agent["resources"]["limits"]["amd.com/gpu"], "4");
        assert_eq!(spec["nodeSelector"], json!({"pool": "gpu"}));
        assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(1));
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));
        assert_eq!((&spec["serviceAccountName"], &spec["priorityClassName"]), (&json!("nodes"), &json!("spare")));
        assert_eq!(spec["securityContext"]["fsGroup"], 7);
        let mounts = agent["volumeMounts"].as_array().expect("a list");
        let below =
            |mount: &&Value| mount["mountPath"].as_str().is_some_and(|path| path.starts_with("/var/lib/corro/"));
        let sub_paths: Vec<_> = mounts.iter().filter(below).map(|mount| (&mount["name"], &mount["subPath"])).collect();
        let expected =
            [("shares", "shares"), ("shares", "file-servers"), ("shares", "job-shared"), ("token", "landmark")];
        assert_eq!(json!(sub_paths), json!(expected), "never the database or the keys");
    }

    #[test]
    fn the_join_token_is_only_in_the_secret_that_the_pod_owns() {
        let node = node("STANDARD_D1", false);
        let mut pod = pod(&pod_name(&node.id, "0a1b2c"), &node, &server(None), &settings());
        pod.metadata.uid = Some("u-1".to_owned());
        let secret = serde_json::to_value(secret(&pod.metadata, &JoinToken::new("t0ken"), "here")).expect("JSON");
        assert_eq!(secret["data"], json!({"join-token": "dDBrZW4=", "landmark": "aGVyZQ=="}));
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": "u-1"});
        assert_eq!(secret["metadata"]["ownerReferences"], json!([owner]));
        assert_eq!(secret["metadata"]["name"], json!(pod.metadata.name));
        let volume = &serde_json::to_value(&pod).expect("JSON")["spec"]["volumes"][2]["secret"];
        assert_eq!(volume["secretName"], json!(pod.metadata.name));
    }
}
