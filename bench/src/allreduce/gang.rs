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

use super::place::Place;
use crate::peers::Said;

const LOOK: Duration = Duration::from_millis(2);

/// Runs `program arguments…` once per rank at a placement, for at most `limit`.
pub fn run(at: Place<'_>, program: &Path, arguments: &[String], limit: Duration) -> Result<Said> {
    let meeting = Meeting::start(at)?;
    let output = tempfile::Builder::new().prefix("corro-bench-ranks-").tempdir()?;
    let mut ranks = Ranks::default();
    for (place, variables) in &meeting.ranks {
        let mut command = command(at, place, program);
        command.args(arguments).envs(variables);
        ranks.start(&mut command, &output.path().join(place.rank.to_string()))?;
    }
    let whole = ranks.wait(output.path(), limit)?;
    drop(ranks);
    Ok(Said { text: fs::read_to_string(output.path().join("0.out"))?, whole })
}

/// Rendezvous of the ranks while it lives, and the environment of each of them.
pub struct Meeting {
    pub ranks: Vec<(RankAssignment, BTreeMap<String, String>)>,
    _server: Server,
}

impl Meeting {
    pub fn start(at: Place<'_>) -> Result<Self> {
        let hosts: Vec<Host> = match at {
            Place::Here(slots) => vec![Host { name: "here".to_owned(), slots }],
            Place::Hosts(_, ranks) => (1..=ranks).map(|host| Host { name: format!("node{host}"), slots: 1 }).collect(),
        };
        let places = assign_ranks(&hosts);
        let server = Server::start(at, known_scopes(&hosts, &places))?;
        let gang = GangContext {
            rendezvous_addr: server.addr.ip().to_string(),
            rendezvous_port: server.addr.port(),
            iface: Some(at.interface().to_owned()),
            master_addr: server.addr.ip().to_string(),
            master_port: server.free_port,
            secret: format!("{:032x}", u128::from(std::process::id())),
        };
        let told = |place: RankAssignment| {
            let mut variables = for_rank(&gang, &place, &hosts[place.host_idx].name);
            variables.insert("GLOO_SOCKET_IFNAME".to_owned(), at.interface().to_owned());
            (place, variables)
        };
        Ok(Self { ranks: places.into_iter().map(told).collect(), _server: server })
    }
}

fn command(at: Place<'_>, place: &RankAssignment, program: &Path) -> Command {
    match at {
        Place::Here(_) => Command::new(program),
        Place::Hosts(hosts, _) => hosts.program(place.host_idx + 1, &program.display().to_string()),
    }
}

#[derive(Default)]
struct Ranks(Vec<Child>);

impl Ranks {
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

    /// Whether all have exited within the limit.
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
                        let said = fs::read_to_string(output.join(format!("{rank}.err"))).unwrap_or_default();
                        bail!("rank {rank} ended with {status}: {}", said.lines().last().unwrap_or_default());
                    }
                }
            }
            if Instant::now() > deadline {
                return Ok(running == 0);
            }
            std::thread::park_timeout(LOOK);
        }
        Ok(true)
    }
}

impl Drop for Ranks {
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
    fn start(at: Place<'_>, scopes: BTreeMap<String, usize>) -> Result<Self> {
        let (namespace, ip) = match at {
            Place::Here(_) => (None, Ipv4Addr::LOCALHOST),
            Place::Hosts(hosts, _) => (Some(File::open(hosts.namespace_file(1))?), hosts.address(1)),
        };
        let (say, heard) = channel();
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
                let _ = say.send(Ok((server.addr(), free_port)));
                // The blocking wait runs outside the server's thread.
                let _ = tokio::task::spawn_blocking(move || stopped.recv()).await;
                anyhow::Ok(())
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Err(error) = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(serve)) {
                let _ = say.send(Err(error));
            }
        });
        let (addr, free_port) = heard.recv().context("the rendezvous server has ended")??;
        Ok(Self { addr, free_port, _stop: stop })
    }
}
