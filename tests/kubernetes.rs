//! Nodes as pods: a real server against a scripted Kubernetes API server that uses the API's real types and runs the agents of
//! the pods as processes. Not covered: a real cluster's scheduler, kubelet, network and storage.

mod harness;

#[path = "kubernetes/api.rs"]
mod api;
#[path = "kubernetes/deployment.rs"]
mod deployment;
#[path = "kubernetes/kubelet.rs"]
mod kubelet;
#[path = "kubernetes/tls_proxy.rs"]
mod tls_proxy;
#[path = "kubernetes/ways.rs"]
mod ways;

use std::collections::BTreeSet;

use api::{Api, Fault};
use harness::fault_injection::{processes_of, waiting_rank};
use harness::{IN_WORKSPACE, Site, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A server whose nodes are pods of a scripted cluster.
struct KubernetesSite {
    site: Site,
    api: Api,
}

impl KubernetesSite {
    fn start() -> Self {
        Self::start_with_kubeconfig(|_, api| api.kubeconfig())
    }

    /// With the test's own kubeconfig.
    fn start_with_kubeconfig(kubeconfig: impl FnOnce(&Site, &Api) -> String) -> Self {
        let words = "--no-containers --tls --name localhost --lease 5 --nfs off --provider kubernetes \
            --kubernetes-image corro:test --kubernetes-config kubeconfig --kubernetes-shares-claim shares";
        let mut site = Site::unstarted(&words.split_whitespace().collect::<Vec<_>>());
        let api = Api::start(site.path().join("pods"));
        site.write("kubeconfig", kubeconfig(&site, &api));
        site.start_server("server", "127.0.0.1:0", "info");
        Self { site, api }
    }

    fn with_nodes(n_nodes: usize) -> Self {
        let cluster = Self::start();
        cluster.site.prepare(n_nodes);
        cluster
    }

    fn resize(&self, target: usize) {
        self.site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster --target {target}")).ok();
    }

    /// Errors shown to the cluster's owner.
    fn errors(&self) -> String {
        self.site.cluster()["errors"].to_string()
    }

    fn restart(&mut self) {
        let address = self.site.address();
        self.site.kill_server();
        self.site.start_server("server", &address, "info");
    }

    /// The pod of a node, by the node's id.
    fn pod_of(&self, node: &str) -> String {
        let state = self.api.state();
        let found = state.pods.iter().find(|(_, pod)| pod["metadata"]["labels"]["corro/node"] == node);
        found.unwrap_or_else(|| panic!("no pod of {node}: {:?}", state.pods.keys())).0.clone()
    }
}

impl Drop for KubernetesSite {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for pod in self.api.pod_names() {
                eprintln!("--- {pod} ---\n{}", self.api.kubelet().log(&pod));
            }
        }
        self.api.kubelet().kill_all();
    }
}

#[test]
fn a_job_runs_over_pods_that_come_and_go_with_the_cluster() {
    let cluster = KubernetesSite::with_nodes(2);
    let (site, api) = (&cluster.site, &cluster.api);
    site.submit_ranks("pods", 2, "echo rank $RANK of $AZ_BATCHAI_WORKER_COUNT");
    assert_eq!(site.wait_for_end("pods")["executionState"], "succeeded");
    assert!(site.stream("pods", "stdout.txt").ok().stdout.contains("rank 1"));
    let tokens: Vec<_> = api.state().secrets.values().map(|secret| secret["data"]["join-token"].clone()).collect();
    assert_eq!(tokens.len(), 2);
    let pods = json!(api.state().pods).to_string();
    for token in tokens {
        assert!(!pods.contains(token.as_str().expect("text")), "a pod can be read by more people than a secret");
    }
    cluster.resize(1);
    wait_for("one pod to be left", || api.pod_names().len() == 1);
    site.wait_for_nodes(1);
    assert_eq!(api.state().secrets.len(), 1, "a secret goes with its pod");
    site.corro(&format!("batchai cluster delete {IN_WORKSPACE} -n nc6cluster -y")).ok();
    wait_for("no pod to be left", || api.pod_names().is_empty());
    let used: BTreeSet<_> = api.state().calls.iter().copied().collect();
    assert!(used.is_subset(&deployment::permitted()), "the deployment's role does not permit {used:?}");
}

#[test]
fn an_evicted_pod_is_a_lost_node_and_its_job_runs_again() {
    let cluster = KubernetesSite::with_nodes(2);
    let (site, api) = (&cluster.site, &cluster.api);
    site.submit_ranks("evicted", 2, &waiting_rank(""));
    let first = site.wait_for_starts(2);
    let pod = cluster.pod_of(&first[0].node);
    api.evict(&pod);
    site.wait_for_starts(4);
    assert!(!api.pod_names().contains(&pod), "what an eviction left is cleared away");
    assert!(processes_of(&first[0].node).is_empty());
    site.release_ranks();
    assert_eq!(site.wait_for_end("evicted")["executionState"], "succeeded");
}

#[test]
fn causes_of_pending_pods_are_cluster_errors() {
    let cluster = KubernetesSite::start();
    let api = &cluster.api;
    api.state().fault = Fault::Quota;
    cluster.site.prepare(0);
    cluster.resize(1);
    wait_for("the quota to be reported", || cluster.errors().contains("exceeded quota: gpus"));
    api.state().no_room = true;
    api.state().fault = Fault::None;
    wait_for("a pod", || api.pod_names().len() == 1);
    let pod = api.pod_names().remove(0);
    let unplaced = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."});
    api.set_status(&pod, json!({"phase": "Pending", "conditions": [unplaced]}));
    wait_for("the scheduler's words", || cluster.errors().contains("3 Insufficient nvidia.com/gpu"));
    let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image"});
    let container = json!({"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": waiting}});
    api.set_status(&pod, json!({"phase": "Pending", "containerStatuses": [container]}));
    wait_for("the image to be reported", || cluster.errors().contains("ImagePullBackOff"));
    assert!(cluster.errors().contains(&pod), "by name");
    api.set_status(&pod, json!({"phase": "Pending"}));
    api.state().no_room = false;
    api.schedule();
    cluster.site.wait_for_nodes(1);
    assert_eq!(api.pod_names(), [pod], "the same pod all along");
}

#[test]
fn a_server_that_is_killed_finds_its_pods_and_ends_those_that_nobody_needs() {
    let mut cluster = KubernetesSite::with_nodes(1);
    cluster.site.submit_ranks("lasting", 1, &waiting_rank(""));
    let started = cluster.site.wait_for_starts(1);
    let kept = cluster.api.pod_names();
    // One that waits, and one whose secret was never created.
    cluster.api.state().no_room = true;
    cluster.resize(3);
    wait_for("two more pods", || cluster.api.pod_names().len() == 3 && cluster.api.state().secrets.len() == 3);
    let address = cluster.site.address();
    cluster.site.kill_server();
    let waiting = cluster.api.pod_names().into_iter().find(|pod| !kept.contains(pod)).expect("one that waits");
    cluster.api.state().secrets.remove(&waiting);
    // An orphan: of this server, but of no node it knows.
    let mut orphan = cluster.api.state().pods[&waiting].clone();
    orphan["metadata"]["labels"]["corro/node"] = json!("tvm-1_1-20180718t174802z-p");
    orphan["metadata"]["name"] = json!("orphan");
    orphan["metadata"]["uid"] = json!("of the orphan");
    cluster.api.state().pods.insert("orphan".to_owned(), orphan.clone());
    let mut stranger = orphan;
    stranger["metadata"]["labels"]["app.kubernetes.io/instance"] = json!("another server");
    cluster.api.state().pods.insert("stranger".to_owned(), stranger);
    cluster.site.start_server("server", &address, "info");
    wait_for("the orphan to be gone", || !cluster.api.pod_names().contains(&"orphan".to_owned()));
    wait_for("the secret to be made", || cluster.api.state().secrets.contains_key(&waiting));
    cluster.api.state().no_room = false;
    cluster.api.state().pods.remove("stranger").expect("a pod of another server stays");
    cluster.api.schedule();
    wait_for("two idle nodes", || cluster.site.cluster()["nodeStateCounts"]["idleNodeCount"] == 2);
    assert!(cluster.api.pod_names().contains(&kept[0]) && cluster.api.pod_names().len() == 3);
    cluster.site.release_ranks();
    assert_eq!(cluster.site.wait_for_end("lasting")["executionState"], "succeeded");
    assert_eq!(cluster.site.starts(), started, "the job went on");
}

#[test]
fn an_api_that_fails_costs_no_node_and_no_pod_is_made_twice() {
    let mut cluster = KubernetesSite::with_nodes(1);
    let api = cluster.api.clone();
    let first = api.pod_names();
    api.cut_watches();
    api.forget_events();
    api.state().fault = Fault::Broken;
    api.cut_watches();
    cluster.site.submit_custom("meanwhile", 1, "echo done");
    assert_eq!(cluster.site.wait_for_end("meanwhile")["executionState"], "succeeded");
    cluster.resize(2);
    wait_for("the trouble to be reported", || cluster.errors().contains("etcd is not there"));
    api.state().fault = Fault::LostAnswers;
    wait_for("a second pod", || api.pod_names().len() == 2);
    api.state().fault = Fault::None;
    cluster.site.wait_for_nodes(2);
    assert_eq!(api.pod_names().len(), 2, "{:?}", api.pod_names());
    assert!(api.pod_names().contains(&first[0]));
    // A manual kubectl delete is the loss of a node, which is replaced.
    api.state().pods.remove(&first[0]);
    api.kubelet().kill(&first[0]);
    api.forget_events();
    wait_for("another pod", || api.pod_names().len() == 2);
    cluster.site.wait_for_nodes(2);
    cluster.restart();
    cluster.site.wait_for_nodes(2);
    assert_eq!(cluster.site.stop_server(Signal::TERM), Some(0));
    assert_eq!(api.pod_names().len(), 2, "nodes go on without the server");
}

#[test]
fn a_frozen_pod_is_ended_by_its_machine_and_its_job_runs_on_another() {
    let cluster = KubernetesSite::with_nodes(1);
    let (site, api) = (&cluster.site, &cluster.api);
    site.submit_ranks("frozen", 1, &waiting_rank(""));
    let node = site.wait_for_starts(1).remove(0).node;
    let pod = cluster.pod_of(&node);
    api.kubelet().signal(&pod, Signal::STOP);
    site.wait_for_starts(2);
    wait_for("the frozen pod to be gone", || !api.kubelet().is_running(&pod) && !api.pod_names().contains(&pod));
    let asked: Vec<Option<i64>> =
        api.state().graces.iter().filter(|(name, _)| *name == pod).map(|(_, grace)| *grace).collect();
    assert_eq!(asked.first(), Some(&Some(1)), "its machine must say that it is gone");
    site.release_ranks();
    assert_eq!(site.wait_for_end("frozen")["executionState"], "succeeded");
}

#[test]
fn a_server_that_cannot_make_pods_says_so_at_once() {
    let site = Site::unstarted(&[]);
    let check = |words: &str, says: &[&str]| {
        site.corro(&format!("server --data data --listen 127.0.0.1:0 --provider kubernetes {words}")).fails(2, says);
    };
    check("", &["needs an image", "--kubernetes-image"]);
    check("--kubernetes-image x", &["pods must be able to reach this server", "--kubernetes-server-url"]);
    site.write("kubeconfig", Value::Null.to_string());
    let words = "server --data data --listen 127.0.0.1:0 --provider kubernetes --kubernetes-image x \
        --kubernetes-server-url https://corro --kubernetes-config kubeconfig";
    site.corro(words).fails(1, &["cannot read the configuration of the Kubernetes cluster from kubeconfig", "hint:"]);
}
