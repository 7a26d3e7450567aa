//! `corro status`: the server that commands use: its address, version, start, nodes and jobs; and on its own machine its process, data directory and
//! log. Exits with 3 if no server runs. [`report`] has the output.

mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use corro_client::{Client, ClientError, Profile, profile};
use corro_hosting::local_admin_login;
use corro_hosting::server_record::RunningServer;
use corro_model::Timestamp;
use corro_model::ops::{JobsListAll, NoBody, NodesList, ServerGet};
use tokio::time::timeout;

use crate::background_server::data_directory;
use crate::error::CliError;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;
use report::{Answer, LocalProcess, ServerReport};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro status
  corro status -o json --query jobs.running

Exit codes: 0 the server runs and answers, 3 no server runs or it does not
answer, 1 another error.")]
pub struct StatusArgs {
    /// Data directory of a server on this machine [default: the server that you are logged in to]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    global: GlobalArgs,
}

const NOT_RUNNING: u8 = 3;
/// A server that takes longer counts as not answering.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub async fn run(args: StatusArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let report = inspect(args.data.as_deref()).await?;
    if args.global.is_output_chosen() {
        session.print_serialized(&report, None)?;
        return if report.running { Ok(()) } else { Err(CliError::silent(NOT_RUNNING)) };
    }
    match &report.problem {
        None => {
            print(report.text(Timestamp::from(SystemTime::now())).join("\n"));
            Ok(())
        }
        Some(problem) => {
            if report.process.is_some() {
                print(report.text(Timestamp::from(SystemTime::now())).join("\n"));
            }
            Err(CliError { exit: NOT_RUNNING, ..CliError::new(problem.clone()) }.hint(report.hint()))
        }
    }
}

/// Looks at the process on this machine and asks the server itself.
async fn inspect(given: Option<&Path>) -> Result<ServerReport, CliError> {
    let config_dir = profile::config_dir()?;
    let data = data_directory(given)?;
    let of_user = Profile::load(&config_dir).ok();
    let process = match RunningServer::find(&data) {
        Ok(found) => found,
        // Another user's server is only asked, as one of another machine.
        Err(_) if given.is_none() && of_user.is_some() => None,
        Err(error) => {
            return Err(CliError::from_error(&error).hint("run the command as the user who started the server"));
        }
    };
    let url = process.as_ref().and_then(|process| process.url.clone());
    let login = match given {
        Some(_) => {
            of_user.filter(|profile| Some(&profile.server) == url.as_ref()).or_else(|| local_admin_login::load(&data))
        }
        None => of_user.or_else(|| local_admin_login::load(&data)),
    };
    // The process is that of the server only if both have the same address.
    let process = process.filter(|process| {
        login.as_ref().is_none_or(|login| process.url.as_ref().is_none_or(|url| *url == login.server))
    });
    let local = process.as_ref().map(|server| LocalProcess {
        pid: server.process.pid(),
        data_directory: server.data.clone(),
        background: server.record.as_ref().map(|record| record.log.is_some()),
        log: server.record.as_ref().and_then(|record| record.log.clone()),
    });
    let mut report = ServerReport { process: local, ..ServerReport::default() };
    if let Some(record) = process.as_ref().and_then(|process| process.record.as_ref()) {
        report.version = Some(record.version.clone());
        report.start_time = Some(record.start_time);
    }
    match (&process, login) {
        (Some(server), _) if server.url.is_none() => {
            report.problem = Some(format!("the server of {} is starting or does not answer", data.display()));
        }
        (process, Some(login)) if process.is_some() || given.is_none() => {
            report.server = Some(login.server.clone());
            match timeout(ANSWER_TIMEOUT, ask(&login)).await {
                Ok(Ok(answer)) => report.add(answer),
                Ok(Err(error)) if is_absence(&error) => {
                    report.problem = Some(match process {
                        Some(process) => {
                            format!("the process {} does not answer at {}", process.process.pid(), login.server)
                        }
                        None => format!("no server answers at {}", login.server),
                    });
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => {
                    let seconds = ANSWER_TIMEOUT.as_secs();
                    report.problem =
                        Some(format!("the server {} does not answer within {seconds} seconds", login.server));
                }
            }
        }
        (Some(server), _) => {
            // Its login cannot be read by this user.
            report.server.clone_from(&server.url);
            report.running = true;
        }
        (None, _) => report.problem = Some(format!("no server is running on {}", data.display())),
    }
    Ok(report)
}

async fn ask(login: &Profile) -> Result<Answer, ClientError> {
    let client = Client::new(login)?;
    // Servers of earlier versions do not have this operation.
    let status = client.find::<ServerGet>(&[]).await?;
    let mut nodes = BTreeMap::new();
    for node in client.list::<NodesList, _>(&[], &[]).await? {
        *nodes.entry(node.state).or_insert(0) += 1;
    }
    let jobs = client.call::<JobsListAll>(&[], &[("maxresults", "1")], &NoBody {}).await?.counts;
    Ok(Answer { status, nodes, jobs })
}

fn is_absence(error: &ClientError) -> bool {
    matches!(error, ClientError::Unreachable { .. } | ClientError::Broken { .. })
}
