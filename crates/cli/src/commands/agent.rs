//! `corro agent`: runs this machine, or a part of it, as one node of a cluster. Started by the server's local provider
//! and by hand on machines that join. The running itself is the agent crate's. `corro agent join`, which carries several nodes, is in `join`.

mod join;
mod place;
mod supervisor;
mod token;
mod unit;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use corro_agent::{AgentConfig, AgentEnd, Isolation, IsolationMode, PortRange};
use corro_client::{Fingerprint, Trust};
use corro_launch::process::Launcher;
use corro_model::Secret;

use crate::failure::Failure;
use crate::hosting::providers::local;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AgentArgs {
    #[command(subcommand)]
    command: Option<AgentCommand>,
    #[command(flatten)]
    node: Option<NodeArgs>,
    // Not in the node's own ones: what is optional as a whole may hold no groups.
    #[command(flatten)]
    isolation: IsolationArgs,
    #[command(flatten)]
    log: crate::logging::LogArgs,
}

#[derive(Subcommand, Debug)]
enum AgentCommand {
    /// Make this machine a host of a server: it carries as many nodes as fit, and goes on where it was when it is started again
    ///
    /// Needs no root, and outbound connections only. The first run needs the token that 'corro host token' shows on the server; later
    /// ones need none. Ctrl-C ends the host and its nodes. SIGUSR2 lets a new version of the program take over while nodes and
    /// their jobs go on: each node's agent is renewed when it is idle.
    #[command(
        after_help = "Examples:\n  corro agent join https://gpu-box:8470 --token corro-join-...\n  corro agent join --token-file token.txt --name gpu-1 --label rack=a1\n  corro agent join --token-file - --systemd user --write < token.txt\n  corro agent join"
    )]
    Join(join::JoinArgs),
}

/// What every agent of a host is told.
pub struct NodeWords {
    pub isolation: Option<IsolationArg>,
    pub hidden: Vec<PathBuf>,
    pub remote_shares: bool,
    pub ports: Option<PortRange>,
    /// As many of the machine's are for nodes, if not all.
    pub gpus: Option<u32>,
    pub log: crate::logging::LogArgs,
}

#[derive(Args, Debug)]
struct NodeArgs {
    /// Where the server listens, for example https://gpu-box:8470
    #[arg(long, value_name = "URL")]
    server: String,

    /// A file with the certificate authority that vouches for the server (PEM) [default: whom this machine trusts]
    #[arg(long, value_name = "FILE", conflicts_with = "ca_fingerprint")]
    ca: Option<PathBuf>,

    /// The SHA-256 fingerprint of that authority, as 'corro server --tls' shows it
    #[arg(long, value_name = "HEX")]
    ca_fingerprint: Option<String>,

    /// A file that holds the server's present URL; looked into whenever the connection is lost
    #[arg(long, value_name = "FILE")]
    server_file: Option<PathBuf>,

    /// The node's own directory; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// The address at which the other nodes of a job reach this one [default: the one by which it reaches the server]
    #[arg(long, value_name = "IP")]
    address: Option<String>,

    /// On which ports this node and its ranks listen for others of their job, for example 20000-20100 [default: any that is free]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<PortRange>,

    /// A file that holds the join token
    #[arg(long, value_name = "FILE")]
    join_token_file: PathBuf,

    /// A directory that jobs must not see, but for what is theirs in it; the node's own one is always hidden
    #[arg(long, value_name = "DIR")]
    hide: Vec<PathBuf>,

    /// Mount shares over the network, even if this machine sees the server's data directory
    #[arg(long)]
    remote_shares: bool,

    /// End when the server no longer needs this node, instead of waiting for the next cluster that does
    #[arg(long)]
    once: bool,

    /// Remove the node's directory at the end, and what agents that were killed left beside it at the start
    #[arg(long, hide = true, requires = "once")]
    leave_nothing: bool,
}

/// How far jobs on one machine are kept from each other.
#[derive(Args, Clone, Copy, Debug)]
pub struct IsolationArgs {
    /// Whether a job sees other jobs, their secrets and the server's files: as little as this machine allows (auto), all that
    /// this account sees (off), or not running where that cannot be prevented (strict). Execution logs say what was done
    /// [default: strict for jobs that start while the server has more than one principal, else auto]
    #[arg(long, value_enum, value_name = "MODE")]
    pub isolation: Option<IsolationArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    Auto,
    Off,
    Strict,
}

impl IsolationArg {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            IsolationArg::Auto => "auto",
            IsolationArg::Off => "off",
            IsolationArg::Strict => "strict",
        }
    }

    fn mode(self) -> IsolationMode {
        match self {
            IsolationArg::Auto => IsolationMode::Auto,
            IsolationArg::Off => IsolationMode::Off,
            IsolationArg::Strict => IsolationMode::Strict,
        }
    }
}

pub async fn run(args: AgentArgs) -> Result<(), Failure> {
    match (args.command, args.node) {
        (Some(AgentCommand::Join(args)), _) => join::run(args).await,
        (None, Some(node)) => {
            args.log.init();
            Ok(run_node(node, args.isolation.isolation.map(IsolationArg::mode)).await?)
        }
        (None, None) => Err(Failure::missing(&["--server", "--data", "--join-token-file"], &[])),
    }
}

async fn run_node(args: NodeArgs, isolation: Option<IsolationMode>) -> Result<()> {
    let config = AgentConfig {
        join_token: join_token(&args.join_token_file, &args.data)?,
        trust: trust(args.ca.as_deref(), args.ca_fingerprint.as_deref())?,
        server: args.server,
        server_file: args.server_file,
        root: args.data,
        guard: Launcher::this_executable(),
        address: args.address,
        ports: args.ports,
        heartbeat: AgentConfig::HEARTBEAT,
        engine_sockets: corro_agent::engine_sockets(|name| std::env::var(name).ok()),
        rejoin: !args.once,
        isolation: Isolation { mode: isolation, hidden: args.hide },
        remote_shares: args.remote_shares,
    };
    let tidied = args.leave_nothing.then(|| config.root.clone());
    if let Some(parent) = tidied.as_deref().and_then(Path::parent) {
        let parent = parent.to_owned();
        tokio::task::spawn_blocking(move || local::remove_left_by_killed(&parent)).await?;
    }
    let end = corro_agent::run(config).await;
    if let Some(root) = tidied {
        tokio::task::spawn_blocking(move || corro_agent::remove_node_directory(&root)).await??;
    }
    let end = end?;
    // Whoever read our stderr may be gone, which is no failure of the node.
    let _ = writeln!(io::stderr(), "{}", farewell(&end));
    Ok(())
}

fn trust(file: Option<&Path>, fingerprint: Option<&str>) -> Result<Trust> {
    Ok(match (file, fingerprint) {
        (Some(file), _) => Trust::from_file(file)?,
        (None, Some(text)) => Trust::Fingerprint(Fingerprint::parse(text)?),
        (None, None) => Trust::System,
    })
}

/// Never from the command line, which every user of the machine can read.
fn join_token(file: &Path, data: &Path) -> Result<Secret> {
    let text = match std::fs::read_to_string(file) {
        // It is needed only when this node is given up and another is to take its place.
        Err(_) if corro_agent::has_joined(data) => return Ok(Secret::new("")),
        read => read.with_context(|| {
            format!("cannot read the join token from {}: the server's operator hands out join tokens", file.display())
        })?,
    };
    match text.trim() {
        "" if corro_agent::has_joined(data) => Ok(Secret::new("")),
        "" => {
            bail!("the join token file {} is empty\n\nhint: ask the server's operator for a new token", file.display())
        }
        token => Ok(Secret::new(token)),
    }
}

fn farewell(end: &AgentEnd) -> String {
    match end {
        AgentEnd::Retired => "the server no longer needs this node: everything it left here is removed".to_owned(),
        AgentEnd::Fenced { reason } => {
            format!(
                "the server declared this node lost ({reason}): its tasks are ended and its credential is removed. Start it again to join anew"
            )
        }
        AgentEnd::Stopped => {
            "stopped; when it is started again with the same --data, it goes on as the same node".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AgentArgs,
    }

    #[test]
    fn it_is_one_node_or_a_host() {
        let read = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.args);
        let node = "agent --server http://a:1 --data d --join-token-file t --once --isolation off --log-format json";
        let node = read(node).expect("a node");
        assert!(node.command.is_none() && node.node.is_some_and(|node| node.once));
        assert_eq!(node.isolation.isolation, Some(IsolationArg::Off));
        let host =
            read("agent join https://a:1 --token-file t --isolation strict --ports 20000-20100").expect("a host");
        assert!(host.command.is_some() && host.node.is_none());
        assert!(read("agent --server http://a:1 --data d").is_err() && read("agent").is_err(), "a token is needed");
    }

    #[test]
    fn the_token_comes_from_the_file_until_the_node_has_joined() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let file = data.path().join("token");
        assert!(join_token(&file, data.path()).is_err_and(|error| error.to_string().contains("cannot read")));
        std::fs::write(&file, "\n").expect("it can be written");
        assert!(join_token(&file, data.path()).is_err_and(|error| error.to_string().contains("is empty")));
        std::fs::write(&file, "t0ken\n").expect("it can be written");
        assert_eq!(join_token(&file, data.path()).expect("it is there"), Secret::new("t0ken"));
        std::fs::write(data.path().join("credential.json"), "{}").expect("it can be written");
        std::fs::remove_file(&file).expect("it is there");
        join_token(&file, data.path()).expect("a node that has joined needs no token");
    }
}
