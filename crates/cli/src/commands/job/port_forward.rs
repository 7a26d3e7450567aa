//! `corro job port-forward`: local ports that lead to ports of a running job's node, through the server. Runs until Ctrl-C or the end of the job.

use std::str::FromStr;

use clap::Args;
use corro_model::batchai::ExecutionState;
use corro_model::ops::JobsProcesses;

use crate::defaults::Defaults;
use crate::error::CliError;
use crate::job_follow;
use crate::job_watch::{JobWatch, running_since};
use crate::local_port::{Destination, LocalPort};
use crate::node_ssh::job_login::{NodeChoice, node_of_choice};
use crate::resource::args::ResourceNames;
use crate::resource::lookup;
use crate::resource::short_names::ExperimentPlace;
use crate::retry::Retry;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};

#[derive(Args, Debug)]
pub struct PortForwardArgs {
    /// Name of the job, or EXPERIMENT/NAME
    #[arg(value_name = "NAME")]
    job: String,
    /// Ports: PORT for the same port here, LOCAL:PORT for another one, :PORT for one that is free
    #[arg(value_name = "[LOCAL:]PORT", required = true, num_args = 1..=16)]
    ports: Vec<PortMapping>,
    /// Connect to the node of this rank
    #[arg(long, value_name = "RANK", conflicts_with = "node")]
    rank: Option<usize>,
    /// Connect to this node of the job [default: the first node, which is the master]
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    #[command(flatten)]
    place: ExperimentPlace,
}

/// A local port and the port of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortMapping {
    /// 0: one that is free.
    local: u16,
    remote: u16,
}

impl FromStr for PortMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<PortMapping, String> {
        let number = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(format!("'{text}' is not a port: use a number from 1 to 65535")),
        };
        match text.split_once(':') {
            None => number(text).map(|port| PortMapping { local: port, remote: port }),
            Some(("", remote)) => Ok(PortMapping { local: 0, remote: number(remote)? }),
            Some((local, remote)) => Ok(PortMapping { local: number(local)?, remote: number(remote)? }),
        }
    }
}

pub async fn run(args: PortForwardArgs) -> Result<(), CliError> {
    let session = Session::open(&GlobalArgs::default())?;
    let client = session.client()?;
    let target = lookup::find_job(client, &Defaults::load()?, &args.job, &args.place.names()).await?;
    let watch = JobWatch::new(&session, &target);
    let job = watch.get(&mut Retry::default()).await?;
    let Some(since) = running_since(&job) else {
        let (name, state) = (target.name("job"), predicate(job.properties.status.execution_state));
        return Err(CliError::new(format!("the job {name} {state}: only a running job has ports"))
            .hint(format!("see why with 'corro job why {name}'")));
    };
    let choice = NodeChoice { rank: args.rank, node: args.node };
    let node = match choice {
        NodeChoice { rank: None, node: None } => None,
        choice => {
            let processes = client.get::<JobsProcesses>(&target.values()).await;
            node_of_choice(choice, &processes.map_err(|error| target.request_error(error))?)?
        }
    };
    let mut open = Vec::new();
    for PortMapping { local, remote } in args.ports {
        let port = LocalPort::open(Some(local), local)
            .await
            .map_err(|error| error.hint(format!("choose another one, for example :{remote} for one that is free")))?;
        let (job, node) = (target.clone(), node.clone());
        port.set_destination(Some(Destination { client: client.clone(), job, node, port: remote }));
        print(format_args!("127.0.0.1:{} -> port {remote} of the job {}", port.number, target.name("job")));
        open.push(port);
    }
    note("Ctrl-C ends this command.");
    let ended = tokio::select! {
        job = watch.wait_for_change(since) => job?,
        _ = tokio::signal::ctrl_c() => return Ok(()),
    };
    drop(open);
    if ended.properties.status.execution_state.is_terminal() {
        job_follow::note_end(&session, &target, &ended).await;
        return Err(CliError::silent(1));
    }
    Err(CliError::new(format!("the job {} has left its nodes, so its ports may be others now", target.name("job")))
        .hint("run the command again once the job runs"))
}

fn predicate(state: ExecutionState) -> &'static str {
    match state {
        ExecutionState::Queued => "is queued",
        ExecutionState::Running => "is about to run",
        ExecutionState::Terminating => "is being stopped",
        ExecutionState::Succeeded => "has succeeded",
        ExecutionState::Failed => "has failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_in_kubectl() {
        let of = |text: &str| PortMapping::from_str(text).map(|ports| (ports.local, ports.remote));
        assert_eq!(
            (of("80"), of("8080:80"), of(":80"), of("1:65535")),
            (Ok((80, 80)), Ok((8080, 80)), Ok((0, 80)), Ok((1, 65535)))
        );
        for wrong in ["", ":", "80:", "0", "0:80", "80:0", "x", "1:2:3", "65536", "-1:80", "localhost:80"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
