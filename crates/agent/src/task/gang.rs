//! What a task sets up for the other nodes of its gang: rendezvous, remote execution, reserved ports; and the wait for the gang's address.

use std::sync::Arc;

use corro_model::layout::Layout;
use corro_model::node::{GangAddress, HostPorts, TaskFailure};

use crate::ports::Ports;
use crate::task::Task;
use crate::task::control::{Control, Cut};
use crate::task::job_env::Ground;
use crate::task::ranks::tensorflow;
use crate::task::remote_exec::{self, House, Remote};
use crate::task::rendezvous_host::{Meeting, resolve};
use crate::task_errors;

impl Task {
    pub(super) fn has_neighbours(&self) -> bool {
        self.order.hosts.len() > 1 && self.order.layout.reaches_out()
    }

    /// Gives the job what starts commands on its other nodes. Before anything of the job runs, so that nothing in its
    /// directories can lead elsewhere.
    pub(super) fn install_helper(&self, ground: &mut Ground) -> Result<(), TaskFailure> {
        if !self.has_neighbours() {
            return Ok(());
        }
        let (address, node) = (&self.context.address, &self.context.node);
        let job = &ground.directories.layout.job_temp;
        let in_container = self.order.container.is_some() && !self.order.containers_on_host;
        let helper = remote_exec::install(&ground.directories, in_container);
        let helper = helper.map_err(|error| task_errors::directory(job, node, &error))?;
        let variables = &mut ground.environment.variables;
        let path = variables.get("PATH").map(String::as_str);
        let added = remote_exec::variables(&helper, address, &self.order, path);
        for (name, value) in added {
            // What somebody says about their launcher stays.
            match name.contains("_MCA_") {
                true => drop(variables.entry(name).or_insert(value)),
                false => drop(variables.insert(name, value)),
            }
        }
        Ok(())
    }

    /// What other nodes of the job reach here: commands that they start, and processes that listen by themselves.
    pub(super) async fn open_doors(&mut self, ground: &Arc<Ground>) -> Result<(), TaskFailure> {
        let (address, node) = (self.context.address.clone(), self.context.node.clone());
        let failed = |error: &dyn std::error::Error| task_errors::rendezvous(&address, &node, error);
        let n_listeners = match self.order.layout {
            Layout::TensorFlow(_) => tensorflow::n_listeners(&self.order, self.order.host_idx),
            _ => 0,
        };
        if n_listeners > 0 {
            let at = resolve(&address).await.map_err(|error| failed(&error))?;
            self.ports = Some(Ports::take(at, n_listeners, self.context.config.ports).map_err(|error| failed(&error))?);
        }
        if self.has_neighbours() {
            let (context, order) = (self.context.clone(), Arc::clone(&self.order));
            let house = House { context, order, ground: Arc::clone(ground) };
            self.remote = Some(Remote::open(house).await.map_err(|error| failed(&error))?);
        }
        Ok(())
    }

    pub(super) async fn open_meeting(&self) -> Result<Option<Meeting>, TaskFailure> {
        // Without ranks there is nobody who could meet.
        if !self.order.is_master() || self.order.layout.ranks().is_none() {
            return Ok(None);
        }
        let address = &self.context.address;
        let meeting = Meeting::open(address, &self.order, self.context.config.ports).await;
        let meeting = meeting.map_err(|error| task_errors::rendezvous(address, &self.context.node, &error))?;
        let port = meeting.gang.rendezvous_port;
        self.log.line(format_args!("The ranks of this job meet at {address}:{port}"));
        for host in self.order.hosts.iter() {
            self.log.line(format_args!(
                "Node {} at {} runs {} rank{}",
                host.node,
                host.address,
                host.slots,
                if host.slots == 1 { "" } else { "s" }
            ));
        }
        Ok(Some(meeting))
    }

    /// Where the gang meets, which the master says, and what this node has open for it.
    pub(super) fn place_to_meet(&self, mpirun: bool) -> Option<GangAddress> {
        let remote = self.remote.as_ref().map(|remote| remote.port);
        let tasks = self.ports.as_ref().map(|ports| ports.numbers.clone()).unwrap_or_default();
        let has_doors = remote.is_some() || !tasks.is_empty();
        if !self.order.is_master() && !has_doors {
            return None;
        }
        let nowhere = || GangAddress::new(&*self.context.address, 0, 0);
        let gang = self.meeting.as_ref().map_or_else(nowhere, |meeting| meeting.gang.clone());
        let ports = if has_doors { vec![HostPorts { remote, tasks }] } else { Vec::new() };
        Some(GangAddress { mpirun, ports, ..gang })
    }

    /// The server says where to meet; to a node that is the whole gang it may say that it knows best.
    pub(super) async fn gang_is_ready(&mut self, own: Option<GangAddress>) -> Result<GangAddress, Cut> {
        let is_decided = |control: &Control| control.gang.is_some() || control.alone || control.stop.is_some();
        let decided = self.control.wait_for(is_decided).await;
        match decided.map(|control| control.clone()) {
            // The driver is gone: so is everything that could still want this task.
            Ok(Control { stop: Some(_), .. }) | Err(_) => Err(Cut::Stopped),
            Ok(Control { gang, .. }) => gang.or(own).ok_or(Cut::Stopped),
        }
    }
}
