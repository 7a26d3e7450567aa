//! Command line and environment of each process that this node starts for a job. Pure but for the lookup of the network interface.

use std::collections::BTreeMap;
use std::net::IpAddr;

use corro_launch::environment::{GangContext, for_rank};
use corro_launch::rank_assignment::{RankAssignment, assign_ranks};
use corro_model::layout::{Layout, ProcessSlot, Ranks, Role};
use corro_model::node::{GangAddress, TaskOrder};

use crate::shell;
use crate::task::job_env::JobEnv;
use crate::task::node_context::NodeContext;
use crate::task::ranks::mpirun::{self, Mpirun};
use crate::task::ranks::tensorflow::{self, Cluster};
use crate::task::remote_exec;
use crate::task::rendezvous_host::{hosts, interface_of};

/// Everything from which the command lines and environments of this node's processes are built.
pub struct RankLaunch<'a> {
    order: &'a TaskOrder,
    gang: &'a GangAddress,
    /// Variables of all processes.
    variables: BTreeMap<String, String>,
    /// Assignment of all ranks in rank order, and the rendezvous they use.
    ranks: Vec<RankAssignment>,
    context: GangContext,
    cluster: Option<Cluster>,
}

impl<'a> RankLaunch<'a> {
    pub fn new(
        order: &'a TaskOrder,
        job_env: &JobEnv,
        gang: &'a GangAddress,
        slots: &[ProcessSlot],
        node: &NodeContext,
    ) -> RankLaunch<'a> {
        let mut variables = job_env.environment.variables.clone();
        variables.extend(
            remote_exec::node_addresses(order, gang).map(|nodes| (remote_exec::NODES_VARIABLE.to_owned(), nodes)),
        );
        let shared = job_env.directories.layout.shared.to_string_lossy();
        variables.extend(order.layout.ranks().into_iter().flat_map(|ranks| torch_variables(ranks, gang, &shared)));
        let distributed = matches!(order.layout, Layout::TensorFlow(_)) && slots.len() > 1;
        let context = GangContext {
            rendezvous_addr: gang.address.clone(),
            rendezvous_port: gang.rendezvous_port,
            iface: interface_of(&node.address),
            master_addr: gang.address.clone(),
            master_port: gang.master_port,
            secret: order.gang_secret.expose().to_owned(),
        };
        let ranks = if order.layout.ranks().is_some() { assign_ranks(&hosts(order)) } else { Vec::new() };
        let cluster = distributed.then(|| tensorflow::cluster(order, slots, gang)).flatten();
        RankLaunch { order, gang, variables, ranks, context, cluster }
    }

    /// Command line and environment of one process.
    pub fn command_and_env(
        &self,
        mpirun: Option<&Mpirun>,
        own: &ProcessSlot,
    ) -> (Vec<String>, BTreeMap<String, String>) {
        let mut env = self.variables.clone();
        let path = self.variables.get("PATH").map(String::as_str);
        if let (Some(mpirun), Layout::Mpi(ranks)) = (mpirun, &self.order.layout) {
            let argv = mpirun::command(mpirun, self.order, ranks, &self.exports_for_mpirun(ranks), path);
            return (argv, env);
        }
        match own.role {
            Role::Rank => {
                let hostname = self.order.hosts.get(own.host_idx).map_or("", |host| host.node.as_str());
                env.extend(
                    self.ranks.get(own.number).map(|p| for_rank(&self.context, p, hostname)).unwrap_or_default(),
                );
                if self.order.layout.ranks().is_some_and(|ranks| ranks.indexed) {
                    env.insert("AZ_BATCHAI_TASK_INDEX".to_owned(), own.number.to_string());
                }
            }
            Role::Worker | Role::ParameterServer => env.extend(tensorflow::variables(self.cluster.as_ref(), own)),
            Role::Command | Role::Mpirun => {}
        }
        (shell::command(own.command, path), env)
    }

    /// Variables that ranks under `mpirun` need on every node, where no agent starts them.
    fn exports_for_mpirun(&self, ranks: &Ranks) -> Vec<(String, String)> {
        let (address, port) = (self.gang.address.clone(), self.gang.master_port.to_string());
        let mut exports = vec![("MASTER_ADDR".to_owned(), address), ("MASTER_PORT".to_owned(), port)];
        exports.extend(torch_variables(ranks, self.gang, ""));
        exports
    }
}

/// Initialization of `torch.distributed`: by a shared file, as Batch AI did, or by TCP at the master. File locks work
/// only within one machine, whose nodes have loopback addresses.
fn torch_variables(ranks: &Ranks, gang: &GangAddress, shared: &str) -> Vec<(String, String)> {
    let Some(backend) = &ranks.backend else { return Vec::new() };
    let method = match backend.as_str() {
        "gloo" if gang.address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) => {
            format!("file://{shared}/pytorch-init")
        }
        "mpi" => "env://".to_owned(),
        _ => format!("tcp://{}:{}", gang.address, gang.master_port),
    };
    let variables = [("AZ_BATCHAI_PYTORCH_BACKEND", backend.clone()), ("AZ_BATCHAI_PYTORCH_INIT_METHOD", method)];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_gets_an_init_method() {
        for (address, backend, expected) in [
            ("127.0.0.4", "gloo", "file:///n/shared/pytorch-init"),
            ("10.0.0.4", "gloo", "tcp://10.0.0.4:29500"),
            ("127.0.0.4", "tcp", "tcp://127.0.0.4:29500"),
            ("127.0.0.4", "nccl", "tcp://127.0.0.4:29500"),
        ] {
            let gang = GangAddress::new(address, 1, 29500);
            let logs = corro_model::layout::RankLogs::Apart;
            let ranks = Ranks { command: "x".into(), logs, indexed: true, backend: Some(backend.into()) };
            let seen = torch_variables(&ranks, &gang, "/n/shared");
            assert_eq!([seen[0].1.as_str(), seen[1].1.as_str()], [backend, expected]);
        }
    }
}
