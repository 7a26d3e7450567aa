//! Cluster configuration of TensorFlow jobs: addresses of all tasks, and the variables of each task. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use corro_model::layout::{ProcessSlot, Role};
use corro_model::node::{GangAddress, TaskOrder};

/// Addresses of the cluster's tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    ps: Vec<String>,
    worker: Vec<String>,
}

/// Number of tasks that listen on the node `host_idx`; 0 in a job with a single process.
pub fn n_listeners(order: &TaskOrder, host_idx: usize) -> usize {
    let slots = order.process_slots(false);
    match slots.iter().any(|slot| slot.role == Role::ParameterServer) {
        true => slots.iter().filter(|slot| slot.host_idx == host_idx).count(),
        false => 0,
    }
}

/// Addresses of all tasks; `None` if none listens. Parameter servers have the first ports of their nodes.
pub fn cluster(order: &TaskOrder, slots: &[ProcessSlot], gang: &GangAddress) -> Option<Cluster> {
    let mut taken = vec![0; order.hosts.len()];
    let mut of_role = |role: Role| {
        let of = slots.iter().filter(|slot| slot.role == role).map(|slot| {
            let (host, ports) = (order.hosts.get(slot.host_idx)?, gang.ports.get(slot.host_idx)?);
            let port = ports.tasks.get(taken[slot.host_idx])?;
            taken[slot.host_idx] += 1;
            Some(format!("{}:{port}", host.address))
        });
        of.collect::<Option<Vec<String>>>()
    };
    let ps = of_role(Role::ParameterServer)?;
    Some(Cluster { ps, worker: of_role(Role::Worker)? })
}

/// Variables of one task.
pub fn variables(cluster: Option<&Cluster>, slot: &ProcessSlot) -> BTreeMap<String, String> {
    let mut variables = vec![("AZ_BATCHAI_TASK_INDEX", slot.index.to_string()), ("PYTHONUNBUFFERED", "1".to_owned())];
    if let Some(cluster) = cluster {
        let kind = if slot.role == Role::ParameterServer { "ps" } else { "worker" };
        let config = Config { cluster, task: TaskName { kind, index: slot.index }, environment: "cloud" };
        variables.push(("AZ_BATCHAI_PS_HOSTS", cluster.ps.join(",")));
        variables.push(("AZ_BATCHAI_WORKER_HOSTS", cluster.worker.join(",")));
        variables.push(("TF_CONFIG", serde_json::to_string(&config).expect("plain data")));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `TF_CONFIG`, with its fields in the documented order.
#[derive(Serialize)]
struct Config<'a> {
    cluster: &'a Cluster,
    task: TaskName,
    environment: &'static str,
}

#[derive(Serialize)]
struct TaskName {
    #[serde(rename = "type")]
    kind: &'static str,
    index: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use corro_model::layout::{Layout, TensorFlow};
    use corro_model::node::HostPorts;

    fn order(n_nodes: u32, workers: usize, parameter_servers: usize) -> TaskOrder {
        let [master, worker, parameter_server] = ["m", "w", "p"].map(String::from);
        let tasks = TensorFlow { workers, parameter_servers, master, worker, parameter_server };
        TaskOrder { layout: Layout::TensorFlow(tasks), ..testing::order(n_nodes) }
    }

    #[test]
    fn task_variables_match_the_service() {
        let order = order(3, 3, 1);
        let ports = |tasks: &[u16]| HostPorts { tasks: tasks.to_vec(), ..HostPorts::default() };
        let ports = vec![ports(&[2222, 2223]), ports(&[2222]), ports(&[2222])];
        let gang = GangAddress { ports, ..GangAddress::new("127.0.0.4", 0, 0) };
        let slots = order.process_slots(false);
        let cluster = cluster(&order, &slots, &gang).expect("all ports are known");
        let workers = "127.0.0.4:2223,127.0.0.5:2222,127.0.0.6:2222";
        let master = variables(Some(&cluster), &slots[0]);
        assert_eq!(master["AZ_BATCHAI_PS_HOSTS"], "127.0.0.4:2222");
        assert_eq!(
            (master["AZ_BATCHAI_WORKER_HOSTS"].as_str(), master["AZ_BATCHAI_TASK_INDEX"].as_str()),
            (workers, "0")
        );
        let listed = workers.split(',').map(|worker| format!("\"{worker}\"")).collect::<Vec<_>>().join(",");
        let config = |kind: &str, index: usize| {
            format!(
                "{{\"cluster\":{{\"ps\":[\"127.0.0.4:2222\"],\"worker\":[{listed}]}},\
                 \"task\":{{\"type\":\"{kind}\",\"index\":{index}}},\"environment\":\"cloud\"}}"
            )
        };
        assert_eq!(master["TF_CONFIG"], config("worker", 0));
        assert_eq!(variables(Some(&cluster), &slots[2])["TF_CONFIG"], config("worker", 2));
        assert_eq!(variables(Some(&cluster), &slots[3])["TF_CONFIG"], config("ps", 0));
        assert_eq!([0, 1, 2].map(|host_idx| n_listeners(&order, host_idx)), [2, 1, 1]);
    }

    #[test]
    fn one_process_alone_has_no_cluster() {
        let order = order(1, 1, 0);
        assert_eq!(n_listeners(&order, 0), 0);
        let seen = variables(None, &order.process_slots(false)[0]);
        assert!(seen["AZ_BATCHAI_TASK_INDEX"] == "0" && !seen.contains_key("TF_CONFIG"), "{seen:?}");
    }
}
