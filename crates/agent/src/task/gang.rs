//! Preparation of a task for the other nodes of its gang: rendezvous, remote execution, reserved ports; and the wait
//! for the gang's address.

use std::sync::Arc;

use corro_model::layout::Layout;
use corro_model::node::{GangAddress, HostPorts, TaskFailure};

use crate::ports::ReservedPorts;
use crate::task::Task;
use crate::task::control::{TaskAbort, TaskControl};
use crate::task::job_env::JobEnv;
use crate::task::ranks::tensorflow;
use crate::task::remote_exec::{self, RemoteExecContext, RemoteExecServer};
use crate::task::rendezvous_host::{RendezvousHost, resolve};
use crate::task_errors;

impl Task {
    pub(super) fn has_remote_nodes(&self) -> bool {
        self.order.hosts.len() > 1 && self.order.layout.reaches_out()
    }

    /// Installs the `ssh` shim that starts commands on the job's other nodes. Runs before anything of the job, so that
    /// no symlink of the job can redirect it.
    pub(super) fn install_ssh_shim(&self, job_env: &mut JobEnv) -> Result<(), TaskFailure> {
        if !self.has_remote_nodes() {
            return Ok(());
        }
        let (address, node) = (&self.context.address, &self.context.node);
        let job = &job_env.directories.layout.job_temp;
        let in_container = self.order.container.is_some() && !self.order.containers_on_host;
        let shim_dir = remote_exec::install(&job_env.directories, in_container);
        let shim_dir = shim_dir.map_err(|error| task_errors::directory(job, node, &error))?;
        let variables = &mut job_env.environment.variables;
        let path = variables.get("PATH").map(String::as_str);
        let added = remote_exec::launcher_variables(&shim_dir, address, &self.order, path);
        for (name, value) in added {
            // Settings of the user's launcher take precedence.
            match name.contains("_MCA_") {
                true => drop(variables.entry(name).or_insert(value)),
                false => drop(variables.insert(name, value)),
            }
        }
        Ok(())
    }

    /// Opens what other nodes of the job connect to: the remote execution server, and reserved ports for processes that
    /// listen.
    pub(super) async fn open_listeners(&mut self, job_env: &Arc<JobEnv>) -> Result<(), TaskFailure> {
        let (address, node) = (self.context.address.clone(), self.context.node.clone());
        let failed = |error: &dyn std::error::Error| task_errors::rendezvous(&address, &node, error);
        let n_listeners = match self.order.layout {
            Layout::TensorFlow(_) => tensorflow::n_listeners(&self.order, self.order.host_idx),
            _ => 0,
        };
        if n_listeners > 0 {
            let at = resolve(&address).await.map_err(|error| failed(&error))?;
            self.ports = Some(
                ReservedPorts::reserve(at, n_listeners, self.context.config.ports).map_err(|error| failed(&error))?,
            );
        }
        if self.has_remote_nodes() {
            let (context, order) = (self.context.clone(), Arc::clone(&self.order));
            let remote_context = RemoteExecContext { node: context, order, job_env: Arc::clone(job_env) };
            self.remote_exec = Some(RemoteExecServer::open(remote_context).await.map_err(|error| failed(&error))?);
        }
        Ok(())
    }

    pub(super) async fn open_rendezvous(&self) -> Result<Option<RendezvousHost>, TaskFailure> {
        // Without ranks no rendezvous is needed.
        let is_host = self.order.is_master() || self.order.elastic;
        if !is_host || self.order.layout.ranks().is_none() {
            return Ok(None);
        }
        let address = &self.context.address;
        let rendezvous = RendezvousHost::open(address, &self.order, self.context.config.ports).await;
        let rendezvous = rendezvous.map_err(|error| task_errors::rendezvous(address, &self.context.node, &error))?;
        let port = rendezvous.gang.rendezvous_port;
        self.log.line(format_args!("Rendezvous of this job's ranks at {address}:{port}"));
        for host in self.order.hosts.iter() {
            self.log.line(format_args!(
                "Node {} at {} runs {} rank{}",
                host.node,
                host.address,
                host.slots,
                if host.slots == 1 { "" } else { "s" }
            ));
        }
        Ok(Some(rendezvous))
    }

    /// The rendezvous, which the master provides, and this node's listeners.
    pub(super) fn gang_address(&self, mpirun: bool) -> Option<GangAddress> {
        let remote_exec = self.remote_exec.as_ref().map(|remote_exec| remote_exec.port);
        let tasks = self.ports.as_ref().map(|ports| ports.numbers.clone()).unwrap_or_default();
        let has_listeners = remote_exec.is_some() || !tasks.is_empty();
        if !self.order.is_master() && !has_listeners {
            return None;
        }
        let no_rendezvous = || GangAddress::new(&*self.context.address, 0, 0);
        let gang = self.rendezvous.as_ref().map_or_else(no_rendezvous, |rendezvous| rendezvous.gang.clone());
        let ports = if has_listeners { vec![HostPorts { remote: remote_exec, tasks }] } else { Vec::new() };
        Some(GangAddress { mpirun, ports, ..gang })
    }

    /// Waits for the gang's address from the server. A node that is the whole gang uses its own.
    pub(super) async fn wait_for_gang(&mut self, own: Option<GangAddress>) -> Result<GangAddress, TaskAbort> {
        let is_decided = |control: &TaskControl| control.gang.is_some() || control.alone || control.stop.is_some();
        let decided = self.control.wait_for(is_decided).await;
        match decided.map(|control| control.clone()) {
            // If the driver is gone, nothing needs this task any more.
            Ok(TaskControl { stop: Some(_), .. }) | Err(_) => Err(TaskAbort::Stopped),
            Ok(TaskControl { gang, .. }) => gang.or(own).ok_or(TaskAbort::Stopped),
        }
    }
}
