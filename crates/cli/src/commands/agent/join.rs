//! `corro agent join`: joins a server as a host on the first run, then runs its nodes.

mod host_state;
mod supervisor;
mod systemd_unit;
mod token;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use corro_agent::PortRange;
use corro_agent::host::{self, inventory};
use corro_hosting::isolation::IsolationArgs;
use corro_hosting::logging::LogArgs;
use corro_model::Secret;
use corro_model::host::{Capacity, HostCredential, Inventory, JoinToken};

use super::AgentOptions;
use crate::error::CliError;
use crate::stdio::{note, print};
use host_state::{ServerEndpoint, parse_server_url};
use supervisor::HostConfig;
use systemd_unit::UnitKind;
use token::{hide_token, read_hidden_token, read_token};

#[derive(Args, Debug)]
pub struct JoinArgs {
    /// URL of the server [default: from the token, or the server that this machine joined before]
    #[arg(value_name = "URL")]
    server: Option<String>,

    /// Token from 'corro host token'. Other users may see it briefly in the process list: a file, standard input or the
    /// variable CORRO_JOIN_TOKEN is safer
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,

    /// File with the token. '-' is standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// File descriptor with the token, which this program passes to itself
    #[arg(long, value_name = "N", hide = true)]
    token_fd: Option<i32>,

    /// Name of the host [default: the host name of this machine]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Label of the host, such as rack=a1. Shown by 'corro host show' and not used for placement. Can be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,

    /// Number of cores that nodes may use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,

    /// Memory that nodes may use, in GiB [default: all]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..))]
    memory: Option<u32>,

    /// Number of GPUs that nodes may use, counted from the first [default: all]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,

    /// Directory of the host and its nodes [default: ~/.corro/host]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// IP address at which other machines reach the nodes of this host [default: the address used to connect to the server]
    #[arg(long, value_name = "IP")]
    address: Option<String>,

    /// Range of ports on which nodes and their ranks listen for other nodes, such as 20000-20100 [default: any free port]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<PortRange>,

    #[command(flatten)]
    isolation: IsolationArgs,

    /// Directory to hide from jobs. The host's own directory and this user's login are always hidden. Can be repeated
    #[arg(long, value_name = "DIR")]
    hide: Vec<PathBuf>,

    /// Mount shares over the network, even if this machine can access the server's data directory
    #[arg(long)]
    remote_shares: bool,

    /// Join, then print a systemd unit that runs the host, instead of running it here
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, default_missing_value = "user")]
    systemd: Option<UnitKind>,

    /// Install the unit in systemd's directory, instead of printing it
    #[arg(long, requires = "systemd")]
    write: bool,

    #[command(flatten)]
    log: LogArgs,
}

pub async fn run(mut args: JoinArgs) -> Result<(), CliError> {
    hide_token(args.token.take())?;
    let hidden_token = args.token_fd.take().map(read_hidden_token).transpose()?;
    args.log.init();
    let root = match &args.data {
        Some(data) => data.clone(),
        None => corro_client::profile::config_dir()?.join("host"),
    };
    let lock = host::lock(&root)?;
    let root = root.canonicalize().map_err(|error| CliError::new(format!("cannot use {}: {error}", root.display())))?;
    let stored = host::stored_credential(&root)?;
    let inventory = detect_inventory(&args);
    let (endpoint, credential) = match stored {
        Some(credential) => (ServerEndpoint::load(&root, args.server.as_deref())?, credential),
        None => join(&args, hidden_token, &root, &inventory).await?,
    };
    if let Some(kind) = args.systemd {
        drop(lock);
        return write_unit(&args, kind, &root);
    }
    let agent_options = AgentOptions {
        isolation: args.isolation.isolation,
        hidden_dirs: args.hide,
        remote_shares: args.remote_shares,
        ports: args.ports,
        gpus: args.gpus,
        log: args.log,
    };
    let config = HostConfig { root, endpoint, credential, inventory, address: args.address, agent_options };
    let result = supervisor::run(config).await;
    drop(lock);
    result
}

/// Joins the server and stores its endpoint.
async fn join(
    args: &JoinArgs,
    hidden_token: Option<Secret>,
    root: &Path,
    found: &Inventory,
) -> Result<(ServerEndpoint, HostCredential), CliError> {
    let token = hidden_token.map_or_else(|| read_token(args.token_file.as_deref()), Ok)?;
    let Some(token) = JoinToken::decode(token.expose()) else {
        return Err(CliError::usage("invalid join token: it begins with 'corro-join-' and is one long word")
            .hint("copy the whole token from the output of 'corro host token', or make a new one"));
    };
    let server = parse_server_url(args.server.as_deref().unwrap_or(&token.server))?;
    let endpoint = ServerEndpoint { server, fingerprint: token.ca_fingerprint };
    let name = args.name.clone().unwrap_or_else(inventory::machine_name);
    host::check_name(&name).map_err(|error| {
        CliError::usage(format!("--name: {}", error.message)).hint("choose a name with --name, for example gpu-1")
    })?;
    let trust = endpoint.trust()?;
    let credential = host::join(root, (&endpoint.server, &trust), token.secret, name, found.clone()).await?;
    endpoint.save(root)?;
    note(format_args!("joined {} as host {} with {}", endpoint.server, credential.name, found.capacity()));
    Ok((endpoint, credential))
}

/// Inventory of the machine, limited to the part that is offered to nodes.
fn detect_inventory(args: &JoinArgs) -> Inventory {
    let labels: BTreeMap<String, String> = args.labels.iter().cloned().collect();
    let machine = inventory::find(labels, None);
    let all = machine.capacity();
    let offered = Capacity {
        cores: args.cores.unwrap_or(all.cores),
        memory_bytes: args.memory.map_or(all.memory_bytes, |gib| u64::from(gib) << 30),
        gpus: args.gpus.unwrap_or(all.gpus),
    };
    if offered.gpus > all.gpus {
        note(format_args!(
            "note: --gpus {} is more than the {} that were found on this machine",
            offered.gpus, all.gpus
        ));
    }
    Inventory { offered: (offered != all).then_some(offered), ..machine }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write a label as KEY=VALUE, for example rack=a1".to_owned()),
    }
}

fn write_unit(args: &JoinArgs, kind: UnitKind, root: &Path) -> Result<(), CliError> {
    let text = systemd_unit::text(kind, &systemd_unit::own_executable()?, &unit_args(args, root))?;
    if !args.write {
        print(text.trim_end());
        return Ok(());
    }
    let path = systemd_unit::write(kind, &text)?;
    note(format_args!(
        "wrote {}. To start the host now and at every boot:\n  {}",
        path.display(),
        kind.enable_command()
    ));
    Ok(())
}

/// Arguments with which the unit runs `corro agent join`: those that the host keeps nowhere else.
fn unit_args(args: &JoinArgs, root: &Path) -> Vec<OsString> {
    let mut agent_args: Vec<OsString> = vec!["--data".into(), root.into()];
    let mut option =
        |name: &str, value: Option<OsString>| agent_args.extend(value.into_iter().flat_map(|v| [name.into(), v]));
    option("--cores", args.cores.map(|n| n.to_string().into()));
    option("--memory", args.memory.map(|n| n.to_string().into()));
    option("--gpus", args.gpus.map(|n| n.to_string().into()));
    option("--address", args.address.as_ref().map(Into::into));
    option("--ports", args.ports.map(|ports| ports.to_string().into()));
    option("--isolation", args.isolation.isolation.map(|mode| mode.as_str().into()));
    args.labels.iter().for_each(|(key, value)| option("--label", Some(format!("{key}={value}").into())));
    args.hide.iter().for_each(|dir| option("--hide", Some(dir.into())));
    if args.remote_shares {
        agent_args.push("--remote-shares".into());
    }
    agent_args.extend(args.log.to_args().into_iter().map(OsString::from));
    agent_args
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        join: JoinArgs,
    }

    #[test]
    fn a_unit_runs_the_host_with_the_given_options() {
        let options = "--cores 4 --memory 8 --gpus 1 --address 10.0.0.1 --ports 20000-20100 --isolation strict --label rack=a1 \
                       --hide /srv --remote-shares --log-format json";
        let words = ["join", "--name", "gpu-1", "--systemd"].into_iter().chain(options.split_whitespace());
        let args = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).join;
        let expected: Vec<OsString> =
            ["--data", "/host"].into_iter().chain(options.split_whitespace()).map(Into::into).collect();
        assert_eq!(unit_args(&args, Path::new("/host")), expected);
    }

    #[test]
    fn labels_are_checked() {
        assert_eq!(parse_label("rack=a=1"), Ok(("rack".to_owned(), "a=1".to_owned())));
        assert!(parse_label("rack").is_err() && parse_label("=x").is_err());
    }
}
