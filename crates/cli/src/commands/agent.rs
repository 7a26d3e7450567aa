//! `corro agent`: runs one node of a cluster on this machine. Providers start it, and users on machines that join by hand. The agent itself is the
//! agent crate's.

mod join;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use corro_agent::{AgentConfig, AgentEnd, Isolation, IsolationMode, PortRange, PythonCacheConfig};
use corro_client::{Fingerprint, Trust};
use corro_hosting::isolation::{IsolationArg, IsolationArgs};
use corro_hosting::logging::LogArgs;
use corro_hosting::providers::local;
use corro_launch::process::Launcher;
use corro_model::Secret;

use crate::error::CliError;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AgentArgs {
    #[command(subcommand)]
    command: Option<AgentCommand>,
    #[command(flatten)]
    node: Option<NodeArgs>,
    // Not in `NodeArgs`: clap allows no argument groups in optional flattened arguments.
    #[command(flatten)]
    isolation: IsolationArgs,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Subcommand, Debug)]
enum AgentCommand {
    /// Join this machine to a server as a host that runs nodes
    ///
    /// The server places as many nodes on the host as fit. Joining needs no root and only outbound connections. The first run
    /// needs a token, which 'corro host token' creates on the server. Later runs need no token and resume the nodes. Ctrl-C
    /// stops the host and its nodes. To upgrade without stopping jobs, replace the program and send SIGUSR2: the host
    /// restarts itself at once, and each node's agent when it is idle.
    #[command(
        after_help = "Examples:\n  corro agent join https://gpu-box:8470 --token corro-join-...\n  corro agent join --token-file token.txt --name gpu-1 --label rack=a1\n  corro agent join --token-file - --systemd user --write < token.txt\n  corro agent join"
    )]
    Join(join::JoinArgs),
}

/// Options that a host passes to all of its agents.
pub struct AgentOptions {
    pub isolation: Option<IsolationArg>,
    pub hidden_dirs: Vec<PathBuf>,
    pub remote_shares: bool,
    pub ports: Option<PortRange>,
    /// Number of the machine's GPUs for nodes; `None` for all.
    pub gpus: Option<u32>,
    pub log: LogArgs,
}

#[derive(Args, Debug)]
struct NodeArgs {
    /// URL of the server, such as https://gpu-box:8470
    #[arg(long, value_name = "URL")]
    server: String,

    /// File with the server's certificate authority, in PEM format [default: the system's root certificates]
    #[arg(long, value_name = "FILE", conflicts_with = "ca_fingerprint")]
    ca: Option<PathBuf>,

    /// SHA-256 fingerprint of the server's certificate authority, as printed by 'corro server --tls'
    #[arg(long, value_name = "HEX")]
    ca_fingerprint: Option<String>,

    /// File with the current URL of the server. It is read whenever the connection is lost
    #[arg(long, value_name = "FILE")]
    server_file: Option<PathBuf>,

    /// Directory of the node. Created if it does not exist
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// IP address at which other nodes reach this node [default: the address used to connect to the server]
    #[arg(long, value_name = "IP")]
    address: Option<String>,

    /// Range of ports on which this node and its ranks listen for other nodes, such as 20000-20100 [default: any free port]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<PortRange>,

    /// File with the join token
    #[arg(long, value_name = "FILE")]
    join_token_file: PathBuf,

    /// Directory to hide from jobs, except for their own files in it. The node's own directory is always hidden. Can be
    /// repeated
    #[arg(long, value_name = "DIR")]
    hide: Vec<PathBuf>,

    /// Mount shares over the network, even if this machine can access the server's data directory
    #[arg(long)]
    remote_shares: bool,

    /// Exit when the server no longer needs this node, instead of waiting for another cluster
    #[arg(long)]
    once: bool,

    /// Remove the node's directory at the end, and at the start those of killed agents beside it
    #[arg(long, hide = true, requires = "once")]
    leave_nothing: bool,
}

pub async fn run(args: AgentArgs) -> Result<(), CliError> {
    match (args.command, args.node) {
        (Some(AgentCommand::Join(args)), _) => join::run(args).await,
        (None, Some(node)) => {
            args.log.init();
            Ok(run_node(node, args.isolation.isolation.map(IsolationArg::mode)).await?)
        }
        (None, None) => Err(CliError::missing_arguments(&["--server", "--data", "--join-token-file"], &[])),
    }
}

async fn run_node(args: NodeArgs, isolation: Option<IsolationMode>) -> Result<()> {
    let config = AgentConfig {
        join_token: read_join_token(&args.join_token_file, &args.data)?,
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
        python_cache: PythonCacheConfig::from_environment(),
    };
    let removed_dir = args.leave_nothing.then(|| config.root.clone());
    if let Some(parent) = removed_dir.as_deref().and_then(Path::parent) {
        let parent = parent.to_owned();
        tokio::task::spawn_blocking(move || local::remove_directories_of_killed_agents(&parent)).await?;
    }
    let end = corro_agent::run(config).await;
    if let Some(root) = removed_dir {
        tokio::task::spawn_blocking(move || corro_agent::remove_node_directory(&root)).await??;
    }
    let end = end?;
    // A closed standard error is no failure of the node.
    let _ = writeln!(io::stderr(), "{}", end_message(&end));
    Ok(())
}

fn trust(file: Option<&Path>, fingerprint: Option<&str>) -> Result<Trust> {
    Ok(match (file, fingerprint) {
        (Some(file), _) => Trust::from_file(file)?,
        (None, Some(text)) => Trust::Fingerprint(Fingerprint::parse(text)?),
        (None, None) => Trust::System,
    })
}

/// Reads the join token from a file; never from the command line, which every user of the machine can see. Empty for a node that has joined.
fn read_join_token(file: &Path, data: &Path) -> Result<Secret> {
    let text = match std::fs::read_to_string(file) {
        // Needed only if the server gives this node up and another one takes its place.
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

fn end_message(end: &AgentEnd) -> String {
    match end {
        AgentEnd::Retired => "the server no longer needs this node: everything it left here is removed".to_owned(),
        AgentEnd::Fenced { reason } => {
            format!(
                "the server declared this node lost ({reason}): its tasks are ended and its credential is removed. Start it again to join anew"
            )
        }
        AgentEnd::Stopped => {
            "stopped; when it is started again with the same --data, it resumes the same node".to_owned()
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
    fn arguments_select_a_node_or_a_host() {
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
    fn the_token_file_is_needed_until_the_node_has_joined() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let file = data.path().join("token");
        assert!(read_join_token(&file, data.path()).is_err_and(|error| error.to_string().contains("cannot read")));
        std::fs::write(&file, "\n").expect("it can be written");
        assert!(read_join_token(&file, data.path()).is_err_and(|error| error.to_string().contains("is empty")));
        std::fs::write(&file, "t0ken\n").expect("it can be written");
        assert_eq!(read_join_token(&file, data.path()).expect("it is there"), Secret::new("t0ken"));
        std::fs::write(data.path().join("credential.json"), "{}").expect("it can be written");
        std::fs::remove_file(&file).expect("it is there");
        read_join_token(&file, data.path()).expect("a node that has joined needs no token");
    }
}
