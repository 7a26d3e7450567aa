//! `corro admin`: backs up, restores and checks the data of a server, and reads its history. All but `history` work on the data directory itself, on
//! the server's machine.

use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use corro_agent::incarnation;
use corro_hosting::data_dir::DataDir;
use corro_model::Timestamp;
use corro_model::batchai::Page;
use corro_model::history::HistoryEntry;
use corro_model::ops::{HistoryList, NoBody};
use corro_server::backup::{self, BackupError, Contents};

use crate::error::CliError;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{filtered_stdout, print};

#[derive(Args, Debug)]
pub struct AdminArgs {
    #[command(subcommand)]
    command: AdminCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum AdminCommand {
    /// Back up the database and keys of a server to one file, also while the server runs
    ///
    /// The file contains resources, jobs, the history and the key that decrypts stored secrets. For a server with --tls it
    /// also contains the certificate authority. Keep the file as safe as the server. Files on shares are not included: copy
    /// shares/ in the data directory as you copy other files.
    #[command(after_help = "Example:\n  corro admin backup --to /backups/corro-monday.db")]
    Backup(BackupArgs),
    /// Restore a backup to a data directory. The server must be stopped
    #[command(after_help = "Example:\n  corro admin restore --from /backups/corro-monday.db --data ./data")]
    Restore(RestoreArgs),
    /// Verify every record of a data directory or backup, without changing it
    Check(CheckArgs),
    /// Show the history of a server, newest entries first: changes by users, and state changes of jobs and nodes
    #[command(
        after_help = "Examples:\n  corro admin history --export >> audit.jsonl\n  corro admin history --kind job -o table\n  corro admin history --resource batchai.horovod/batchaidev/cifar/j1"
    )]
    History(HistoryArgs),
}

#[derive(Args, Debug)]
struct DataArgs {
    /// Data directory of the server [default: ~/.corro/data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct BackupArgs {
    /// File to create. It must not exist
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Args, Debug)]
struct RestoreArgs {
    /// Backup file, created by 'corro admin backup'
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Data directory to restore to. It must be new or empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Restore even if the directory is not empty. An existing database in it is renamed
    #[arg(long)]
    force: bool,
}

#[derive(Args, Debug)]
struct CheckArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Backup file to verify, instead of a data directory
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    backup: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct HistoryArgs {
    /// Show only this resource and those inside it, as GROUP[/WORKSPACE[/NAME[/JOB]]]
    #[arg(long, value_name = "PATH")]
    resource: Option<String>,
    /// Show only one kind of resource, such as job, node or cluster, or one event, such as job.placed
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Show only changes by this principal. 'corro' is the server itself
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Show only entries since this time, such as 2018-06-07T21:16:21Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print the whole history for an external audit log: oldest first, one JSON object per line
    #[arg(long)]
    export: bool,
    /// With --export, print only entries after this number
    #[arg(long, value_name = "NUMBER", requires = "export", default_value_t = 0)]
    after: u64,
    /// Maximum number of entries
    #[arg(long, conflicts_with = "export", value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
}

pub async fn run(args: AdminArgs) -> Result<(), CliError> {
    match args.command {
        AdminCommand::Backup(own) => back_up(own),
        AdminCommand::Restore(own) => restore(own),
        AdminCommand::Check(own) => check(own),
        AdminCommand::History(own) => history(&Session::open(&args.global)?, own).await,
    }
}

fn back_up(args: BackupArgs) -> Result<(), CliError> {
    let data = args.data.path()?;
    let contents = backup::back_up(&data, &args.to, Timestamp::from(SystemTime::now())).map_err(backup_error)?;
    print(format_args!("{} holds {}.", args.to.display(), describe(&contents)));
    print("It also contains the key of stored secrets: keep it safe.");
    print(format_args!("Not in it: the files of shares, in {}.", data.join("shares").display()));
    Ok(())
}

fn restore(args: RestoreArgs) -> Result<(), CliError> {
    // Checked first: a file that is no backup must change nothing.
    backup::verify_backup(&args.from).map_err(backup_error)?;
    let occupied = std::fs::read_dir(&args.data).is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !args.force {
        let message = format!("{} is not empty", args.data.display());
        return Err(CliError::new(message)
            .hint("choose a new directory, or add --force: the database there is then kept under another name"));
    }
    let data = DataDir::lock(&args.data)?;
    // Renewed first: even after an interrupted restore, the directory must not treat nodes of the original server as its own.
    incarnation::renew(data.path()).map_err(|error| {
        CliError::new(format!("cannot write {}: {error}", data.path().join("incarnation").display()))
            .hint("check that the disk is not full and that the directory belongs to you")
    })?;
    let contents = backup::restore(&args.from, data.path()).map_err(backup_error)?;
    print(format_args!("{} now holds {}.", data.path().display(), describe(&contents)));
    if occupied {
        print("The previous files are beside it, with 'replaced' in their names.");
    }
    print(format_args!(
        "Not restored: the files of shares. Copy them to {} before you start the server.",
        data.path().join("shares").display()
    ));
    Ok(())
}

fn check(args: CheckArgs) -> Result<(), CliError> {
    let path = match args.backup {
        Some(file) => file,
        None => args.data.path()?.join(corro_server::data_dir::DATABASE),
    };
    let contents = backup::verify(&path).map_err(backup_error)?;
    print(format_args!("{} is sound: {}.", path.display(), describe(&contents)));
    Ok(())
}

async fn history(session: &Session, args: HistoryArgs) -> Result<(), CliError> {
    if args.export {
        return export(session, args).await;
    }
    let top = args.top.to_string();
    let given = [("resource", args.resource), ("kind", args.kind), ("actor", args.actor), ("since", args.since)];
    let mut query: Vec<(&str, &str)> = vec![("maxresults", &top)];
    query.extend(given.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
    let page: Page<HistoryEntry> = session.client()?.call::<HistoryList>(&[], &query, &NoBody {}).await?;
    let entries = serde_json::to_value(page.value).map_err(|error| CliError::from_error(&error))?;
    session.print_value(&entries)
}

/// Prints the history as JSON lines. A later export continues with `--after` and the last number.
async fn export(session: &Session, args: HistoryArgs) -> Result<(), CliError> {
    const PAGE_SIZE: usize = 1000;
    let (mut after, page) = (args.after, PAGE_SIZE.to_string());
    let given = [("resource", args.resource), ("kind", args.kind), ("actor", args.actor), ("since", args.since)];
    let mut out = std::io::BufWriter::new(filtered_stdout());
    let failed = |error: std::io::Error| CliError::new(format!("cannot write the history: {error}"));
    loop {
        let number = after.to_string();
        let mut query: Vec<(&str, &str)> = vec![("maxresults", &page), ("after", &number)];
        query.extend(given.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
        let entries = session.client()?.call::<HistoryList>(&[], &query, &NoBody {}).await?.value;
        for entry in &entries {
            let line = serde_json::to_string(entry).map_err(|error| CliError::from_error(&error))?;
            writeln!(out, "{line}").map_err(failed)?;
        }
        match entries.last() {
            Some(last) if entries.len() == PAGE_SIZE => after = last.number,
            _ => return out.flush().map_err(failed),
        }
    }
}

impl DataArgs {
    fn path(&self) -> Result<PathBuf, CliError> {
        match &self.data {
            Some(path) => Ok(path.clone()),
            None => Ok(corro_client::profile::config_dir()?.join("data")),
        }
    }
}

fn describe(contents: &Contents) -> String {
    let Contents { made, records, jobs, unfinished_jobs, history, .. } = contents;
    let when = made.map_or_else(String::new, |made| format!(", as of {}", made.whole_seconds()));
    format!(
        "{records} records ({jobs} jobs, {unfinished_jobs} of them not ended) and {history} entries of history{when}"
    )
}

fn backup_error(error: BackupError) -> CliError {
    let hint = match &error {
        BackupError::NoDatabase(_) => "give the server's data directory with --data DIR",
        BackupError::Exists(_) => "choose another name: a backup is never overwritten",
        BackupError::NotABackup(_) => "give the file that 'corro admin backup' made",
        BackupError::Damaged { .. } => "do not use it: restore the newest backup that 'corro admin check' finds sound",
        BackupError::File { .. } | BackupError::Database { .. } => {
            "check that the disk is not full and that the file belongs to you"
        }
        BackupError::NoKey { .. } | BackupError::WrongKey { .. } => {
            "put the master.key that belongs to the database beside it, or restore the newest backup that 'corro admin check' finds sound"
        }
        BackupError::DatabaseFiles(_) => "nothing was changed: put the correct files back, then check again",
        BackupError::Records { .. } => return CliError::from_error(&error),
    };
    CliError::from_error(&error).hint(hint)
}
