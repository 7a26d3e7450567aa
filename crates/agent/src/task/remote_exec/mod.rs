//! Remote execution between the nodes of a job without SSH: `mpirun` starts its daemons with it, and a custom job's
//! command anything. Each node listens while the job runs. A shim named `ssh` connects, both sides prove knowledge of
//! the job's secret, and the command runs under a guard of that node with the job's environment. Nothing started here
//! outlives the task.
//!
//! Reading order: `wire` (protocol), `session` (the agent's side of a command), [`ssh_shim`] (the client),
//! `ssh_shim_install`.

mod session;
pub mod ssh_shim;
mod ssh_shim_install;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use corro_launch::connection_set::ConnectionSet;
use corro_launch::environment::SECRET_VARIABLE;
use corro_model::node::{GangAddress, TaskOrder};

use crate::ports::ReservedPorts;
use crate::task::job_env::JobEnv;
use crate::task::node_context::NodeContext;
use crate::task::rendezvous_host::{RendezvousHostError, interface_of, resolve};

pub use ssh_shim_install::install;

/// Variable with the addresses of the job's nodes: `NODE=ADDRESS:PORT`, separated by commas.
pub const NODES_VARIABLE: &str = "CORRO_REMOTE_NODES";

/// Limit of concurrent commands from other nodes.
const MAX_SESSIONS: usize = 1024;

/// Handles that a session needs.
#[derive(Debug)]
pub struct RemoteExecContext {
    pub node: NodeContext,
    pub order: Arc<TaskOrder>,
    pub job_env: Arc<JobEnv>,
}

/// The listening server. Dropping it kills the commands that it runs.
#[derive(Debug)]
pub struct RemoteExecServer {
    pub port: u16,
    stop: watch::Sender<Option<Duration>>,
    work: JoinSet<()>,
    _ports: Option<ReservedPorts>,
}

impl RemoteExecServer {
    pub async fn open(context: RemoteExecContext) -> Result<RemoteExecServer, RendezvousHostError> {
        let mut address = resolve(&context.node.address).await?;
        let ports = context.node.config.ports.map(|range| ReservedPorts::reserve(address, 1, Some(range)));
        let ports = ports.transpose().map_err(RendezvousHostError::Port)?;
        address.set_port(ports.as_ref().map_or(0, |ports| ports.numbers[0]));
        let listener = TcpListener::bind(address).await.map_err(RendezvousHostError::Port)?;
        let port = listener.local_addr().map_err(RendezvousHostError::Port)?.port();
        let (stop, stopped) = watch::channel(None);
        let mut work = JoinSet::new();
        work.spawn(serve(listener, Arc::new(context), stopped));
        Ok(RemoteExecServer { port, stop, work, _ports: ports })
    }

    /// Ends all commands and waits for them.
    pub async fn close(mut self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        while self.work.join_next().await.is_some() {}
    }
}

async fn serve(listener: TcpListener, context: Arc<RemoteExecContext>, stopped: watch::Receiver<Option<Duration>>) {
    let mut stop_requested = stopped.clone();
    let mut sessions = ConnectionSet::new(MAX_SESSIONS);
    let mut number = 0u64;
    loop {
        let has_space = sessions.has_space();
        tokio::select! {
            // Errors of `accept` concern one connection or are temporary.
            Ok((stream, _)) = listener.accept(), if has_space => {
                number += 1;
                let (context, stopped) = (Arc::clone(&context), stopped.clone());
                sessions.spawn(|auth_flag| async move { session::serve(stream, &context, number, stopped, auth_flag).await });
            }
            () = sessions.ended() => {}
            _ = stop_requested.wait_for(Option::is_some) => break,
        }
    }
    drop(listener);
    sessions.finish().await;
}

/// Default `PATH` of container engines, for images that set none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that make `ssh`, Open MPI and the launchers of the MPICH family use the shim.
pub fn launcher_variables(
    shim_dir: &Path,
    address: &str,
    order: &TaskOrder,
    path: Option<&str>,
) -> BTreeMap<String, String> {
    let directory = shim_dir.to_string_lossy().into_owned();
    let program = shim_dir.join("ssh").to_string_lossy().into_owned();
    let mut variables = vec![
        (SECRET_VARIABLE, order.gang_secret.expose().to_owned()),
        // By name, which every node finds in its own `PATH`: launchers pass the value on to their daemons.
        ("OMPI_MCA_plm_rsh_agent", "ssh".to_owned()),
        // Daemons stay in the foreground under our guards, and are all started from the master.
        ("OMPI_MCA_orte_leave_session_attached", "1".to_owned()),
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".to_owned()),
        ("PRTE_MCA_plm_ssh_agent", "ssh".to_owned()),
        ("PRTE_MCA_prte_leave_session_attached", "1".to_owned()),
        ("PRTE_MCA_plm_ssh_no_tree_spawn", "1".to_owned()),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned()),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
        ("PRTE_ALLOW_RUN_AS_ROOT", "1".to_owned()),
        ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
        ("HYDRA_LAUNCHER", "ssh".to_owned()),
        ("HYDRA_LAUNCHER_EXEC", program.clone()),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh".to_owned()),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", program),
    ];
    let path = path.filter(|path| !path.is_empty()).unwrap_or(DEFAULT_PATH);
    variables.push(("PATH", format!("{directory}:{path}")));
    let interface = interface_of(address);
    if order.shares_machines() || interface.as_deref() == Some("lo") {
        // Nodes of one machine would all be bound to the machine's first CPUs.
        variables.push(("OMPI_MCA_hwloc_base_binding_policy", "none".to_owned()));
        variables.push(("PRTE_MCA_hwloc_default_binding_policy", "none".to_owned()));
        // Ranks of two nodes on one machine would use the same names of shared memory and overwrite each other's.
        variables.push(("OMPI_MCA_btl", "^vader,sm".to_owned()));
    }
    for name in ["OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include"] {
        variables.extend(interface.iter().map(|interface| (name, interface.clone())));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Addresses of the job's listening nodes; `None` if there are none.
pub fn node_addresses(order: &TaskOrder, gang: &GangAddress) -> Option<String> {
    let names = order.launch_names();
    let at =
        order.hosts.iter().zip(&names).zip(&gang.ports).filter_map(|((host, name), ports)| {
            Some(format!("{}|{name}={}:{}", host.node, host.address, ports.remote?))
        });
    let at: Vec<String> = at.collect();
    (!at.is_empty()).then(|| at.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use corro_model::node::HostPorts;

    #[test]
    fn node_addresses_list_every_listener() {
        let order = testing::order(2);
        let ports = |remote| HostPorts { remote, tasks: vec![] };
        let gang = GangAddress { ports: vec![ports(Some(7)), ports(Some(8))], ..GangAddress::new("a", 1, 2) };
        let [first, second] = [&order.hosts[0].node, &order.hosts[1].node];
        assert_eq!(
            node_addresses(&order, &gang),
            Some(format!("{first}|127.0.0.4=127.0.0.4:7,{second}|127.0.0.5=127.0.0.5:8"))
        );
        assert_eq!(node_addresses(&order, &GangAddress::new("a", 1, 2)), None);
    }

    #[test]
    fn launchers_use_the_ssh_shim() {
        let mut order = testing::order(2);
        order.gang_secret = corro_model::Secret::new("s3");
        let seen = launcher_variables(Path::new("/j/.remote"), "127.0.0.4", &order, Some("/usr/bin"));
        assert_eq!(seen["PATH"], "/j/.remote:/usr/bin");
        assert_eq!(seen["HYDRA_LAUNCHER_EXEC"], "/j/.remote/ssh");
        assert_eq!((seen["OMPI_MCA_plm_rsh_agent"].as_str(), seen["PRTE_MCA_plm_ssh_agent"].as_str()), ("ssh", "ssh"));
        assert_eq!((seen["OMPI_MCA_btl_tcp_if_include"].as_str(), seen["CORRO_JOB_SECRET"].as_str()), ("lo", "s3"));
        assert_eq!(seen["OMPI_MCA_btl"], "^vader,sm");
    }
}
