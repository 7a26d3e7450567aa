//! `corro admin`: what whoever runs a server does with its data: back it up, restore it, check it, read its history. All but
//! the history work on the data directory itself, on the machine of the server.

use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use corro_agent::incarnation;
use corro_model::Timestamp;
use corro_model::batchai::Page;
use corro_model::history::HistoryEntry;
use corro_model::ops::{HistoryList, NoBody};
use corro_server::backup::{self, BackupError, Contents};

use crate::error::CliError;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{filtered_stdout, print};
use corro_hosting::data_dir::DataDir;

#[derive(Args, Debug)]
pub struct AdminArgs {
    #[command(subcommand)]
    command: AdminCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum AdminCommand {
    /// Copy everything a server knows into one new file, while it runs
    ///
    /// The file holds resources, jobs, the history, the key that opens stored secrets and, of a server with --tls, its
    /// authority: keep it as safe as the server.
    /// Files on shares are not in it: they lie in shares/ of the data directory; copy them as you copy other files.
    #[command(after_help = "Example:\n  corro admin backup --to /backups/corro-monday.db")]
    Backup(BackupArgs),
    /// Put a backup into a data directory; the server must not run
    #[command(after_help = "Example:\n  corro admin restore --from /backups/corro-monday.db --data ./data")]
    Restore(RestoreArgs),
    /// Look at every record of a data directory or of a backup, and change nothing
    Check(CheckArgs),
    /// Show what happened: who changed what, how jobs and nodes fared; newest first
    #[command(
        after_help = "Examples:\n  corro admin history --export >> audit.jsonl\n  corro admin history --kind job -o table\n  corro admin history --resource batchai.horovod/batchaidev/cifar/j1"
    )]
    History(HistoryArgs),
}

#[derive(Args, Debug)]
struct DataArgs {
    /// The server's data directory [default: data/ in the configuration directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct BackupArgs {
    /// The file to make; it must not be there yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    data: DataArgs,
}

#[derive(Args, Debug)]
struct RestoreArgs {
    /// A file made by 'corro admin backup'
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Where to: an empty or new directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Also into a directory that is not empty; a database in it is kept under another name
    #[arg(long)]
    force: bool,
}

#[derive(Args, Debug)]
struct CheckArgs {
    #[command(flatten)]
    data: DataArgs,
    /// A backup, instead of a data directory
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    backup: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct HistoryArgs {
    /// Only this resource and what is inside it: GROUP[/WORKSPACE[/NAME[/JOB]]]
    #[arg(long, value_name = "PATH")]
    resource: Option<String>,
    /// Only this kind (job, node, cluster, ...) or this event (job.placed, ...)
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only what this principal asked for; 'corro' is the server itself
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Only what happened since this time, as 2018-06-07T21:16:21Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Everything that is kept, the oldest first, one JSON object in each line: to keep it elsewhere
    #[arg(long)]
    export: bool,
    /// With --export: only what is newer than the entry of this number
    #[arg(long, value_name = "NUMBER", requires = "export", default_value_t = 0)]
    after: u64,
    /// As many entries at most
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
    let contents = backup::back_up(&data, &args.to, Timestamp::from(SystemTime::now())).map_err(failure)?;
    print(format_args!("{} holds {}.", args.to.display(), words(&contents)));
    print("It also holds the key that opens stored secrets: keep it safe.");
    print(format_args!("Not in it: the files of shares. They are in {}.", data.join("shares").display()));
    Ok(())
}

fn restore(args: RestoreArgs) -> Result<(), CliError> {
    // Before the directory is made or locked: a file that is no backup changes nothing.
    backup::look_at_backup(&args.from).map_err(failure)?;
    let occupied = std::fs::read_dir(&args.data).is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !args.force {
        let message = format!("{} is not empty", args.data.display());
        return Err(CliError::new(message)
            .hint("choose a new directory, or add --force: the database there is then kept under another name"));
    }
    let data = DataDir::lock(&args.data)?;
    // First: should this be cut short, the directory must not take nodes of the server that the backup is of for its own.
    incarnation::renew(data.path()).map_err(|error| {
        CliError::new(format!("cannot write {}: {error}", data.path().join("incarnation").display()))
            .hint("see whether the disk is full and the directory is yours")
    })?;
    let contents = backup::restore(&args.from, data.path()).map_err(failure)?;
    print(format_args!("{} now holds {}.", data.path().display(), words(&contents)));
    if occupied {
        print("What was there before is beside it, under names with 'replaced' in them.");
    }
    print(format_args!(
        "Not restored: the files of shares. Put them into {} before you start the server.",
        data.path().join("shares").display()
    ));
    Ok(())
}

fn check(args: CheckArgs) -> Result<(), CliError> {
    let path = match args.backup {
        Some(file) => file,
        None => args.data.path()?.join(backup::DATABASE),
    };
    let contents = backup::look(&path).map_err(failure)?;
    print(format_args!("{} is sound: {}.", path.display(), words(&contents)));
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

/// The audit log as JSON lines. Whoever keeps it goes on after the last number.
async fn export(session: &Session, args: HistoryArgs) -> Result<(), CliError> {
    const PAGE: usize = 1000;
    let (mut after, page) = (args.after, PAGE.to_string());
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
            Some(last) if entries.len() == PAGE => after = last.number,
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

fn words(contents: &Contents) -> String {
    let Contents { made, records, jobs, unfinished_jobs, history, .. } = contents;
    let when = made.map_or_else(String::new, |made| format!(", as of {}", made.whole_seconds()));
    format!(
        "{records} records ({jobs} jobs, {unfinished_jobs} of them not ended) and {history} entries of history{when}"
    )
}

fn failure(error: BackupError) -> CliError {
    let hint = match &error {
        BackupError::NoDatabase(_) => "say where the server keeps its data with --data DIR",
        BackupError::Exists(_) => "choose another name: a backup is never overwritten",
        BackupError::NotABackup(_) => "give the file that 'corro admin backup' made",
        BackupError::Damaged { .. } => "do not use it: restore the newest backup that 'corro admin check' finds sound",
        BackupError::File { .. } | BackupError::Database { .. } => "see whether the disk is full and the file is yours",
        BackupError::NoKey { .. } | BackupError::WrongKey { .. } => {
            "put the master.key that belongs to the database beside it, or restore the newest backup that 'corro admin check' finds sound"
        }
        BackupError::Refused(_) => "nothing was changed: check again when the files are in their places",
        BackupError::Records { .. } => return CliError::from_error(&error),
    };
    CliError::from_error(&error).hint(hint)
}
