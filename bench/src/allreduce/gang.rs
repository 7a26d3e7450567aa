//! Starts ranks that find each other through our rendezvous server (our engine, Gloo and upstream Horovod) and returns the
//! output of rank 0. All ranks are killed together: when one fails, on timeout, and when the benchmark dies.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corro_launch::environment::{GangContext, for_rank};
use corro_launch::rank_assignment::{Host, RankAssignment, assign_ranks};
use corro_launch::rendezvous::{Rendezvous, known_scopes};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::placement::Placement;
use crate::peers::CommandOutput;

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Runs `program arguments…` once per rank at a placement, for at most `limit`.
pub fn run(placement: Placement<'_>, program: &Path, arguments: &[String], limit: Duration) -> Result<CommandOutput> {
    let rendezvous = GangRendezvous::start(placement)?;
    let output = tempfile::Builder::new().prefix("corro-bench-ranks-").tempdir()?;
    let mut ranks = RankProcesses::default();
    for (assignment, variables) in &rendezvous.ranks {
        let mut command = command(placement, assignment, program);
        command.args(arguments).envs(variables);
        ranks.start(&mut command, &output.path().join(assignment.rank.to_string()))?;
    }
    let complete = ranks.wait(output.path(), limit)?;
    drop(ranks);
    Ok(CommandOutput { text: fs::read_to_string(output.path().join("0.out"))?, complete })
}

/// Rendezvous server of a gang, which runs until this is dropped, and the environment variables of each rank.
pub struct GangRendezvous {
    pub ranks: Vec<(RankAssignment, BTreeMap<String, String>)>,
    _server: Server,
}

impl GangRendezvous {
    pub fn start(placement: Placement<'_>) -> Result<Self> {
        let hosts: Vec<Host> = match placement {
            Placement::OneHost(slots) => vec![Host { name: "here".to_owned(), slots }],
            Placement::Hosts(_, ranks) => {
                (1..=ranks).map(|host| Host { name: format!("node{host}"), slots: 1 }).collect()
            }
        };
        let assignments = assign_ranks(&hosts);
        let server = Server::start(placement, known_scopes(&hosts, &assignments))?;
        let gang = GangContext {
            rendezvous_addr: server.addr.ip().to_string(),
            rendezvous_port: server.addr.port(),
            iface: Some(placement.interface().to_owned()),
            master_addr: server.addr.ip().to_string(),
            master_port: server.free_port,
            secret: format!("{:032x}", u128::from(std::process::id())),
        };
        let with_environment = |assignment: RankAssignment| {
            let mut variables = for_rank(&gang, &assignment, &hosts[assignment.host_idx].name);
            variables.insert("GLOO_SOCKET_IFNAME".to_owned(), placement.interface().to_owned());
            (assignment, variables)
        };
        Ok(Self { ranks: assignments.into_iter().map(with_environment).collect(), _server: server })
    }
}

fn command(placement: Placement<'_>, assignment: &RankAssignment, program: &Path) -> Command {
    match placement {
        Placement::OneHost(_) => Command::new(program),
        Placement::Hosts(hosts, _) => hosts.program(assignment.host_idx + 1, &program.display().to_string()),
    }
}

#[derive(Default)]
struct RankProcesses(Vec<Child>);

impl RankProcesses {
    fn start(&mut self, command: &mut Command, output: &Path) -> Result<()> {
        command.stdin(Stdio::null());
        command.stdout(File::create(output.with_extension("out"))?);
        command.stderr(File::create(output.with_extension("err"))?);
        // SAFETY: runs between fork and exec and makes one async-signal-safe system call.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        self.0.push(command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?);
        Ok(())
    }

    /// Waits for all ranks; returns whether they exited within the limit.
    fn wait(&mut self, output: &Path, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        let mut running = self.0.len();
        while running > 0 {
            running = 0;
            for (rank, child) in self.0.iter_mut().enumerate() {
                match child.try_wait()? {
                    None => running += 1,
                    Some(status) if status.success() => {}
                    Some(status) => {
                        let stderr = fs::read_to_string(output.join(format!("{rank}.err"))).unwrap_or_default();
                        bail!("rank {rank} exited with {status}: {}", stderr.lines().last().unwrap_or_default());
                    }
                }
            }
            if Instant::now() > deadline {
                return Ok(running == 0);
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
        Ok(true)
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A rank that has exited already is only reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Rendezvous server on its own thread, in the first host's network; stops on drop.
struct Server {
    addr: SocketAddr,
    /// Free port on which rank 0 may listen itself.
    free_port: u16,
    _stop: Sender<()>,
}

impl Server {
    fn start(placement: Placement<'_>, scopes: BTreeMap<String, usize>) -> Result<Self> {
        let (namespace, ip) = match placement {
            Placement::OneHost(_) => (None, Ipv4Addr::LOCALHOST),
            Placement::Hosts(hosts, _) => (Some(File::open(hosts.namespace_file(1))?), hosts.address(1)),
        };
        let (sender, started) = channel();
        let (stop, stopped) = channel::<()>();
        std::thread::spawn(move || {
            let enter = namespace.map(|file| {
                use std::os::fd::AsFd;
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            });
            let serve = async {
                enter.transpose()?;
                let server = Rendezvous::start(SocketAddr::new(IpAddr::V4(ip), 0), scopes).await?;
                let free_port = TcpListener::bind((ip, 0))?.local_addr()?.port();
                let _ = sender.send(Ok((server.addr(), free_port)));
                // The blocking wait runs outside the server's thread.
                let _ = tokio::task::spawn_blocking(move || stopped.recv()).await;
                anyhow::Ok(())
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Err(error) = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(serve)) {
                let _ = sender.send(Err(error));
            }
        });
        let (addr, free_port) = started.recv().context("the rendezvous server exited")??;
        Ok(Self { addr, free_port, _stop: stop })
    }
}
