//! `corro files`: runs the Azure Files service alone on a directory, until Ctrl-C. There is no resource manager, no node and no profile: clients use
//! connection strings.

mod accounts;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use corro_hosting::data_dir::DataDir;
use corro_hosting::embedded_server::TlsTrust;
use corro_hosting::listen::{ListenArgs, listen_address, open_tls, public_url};
use corro_hosting::logging::LogArgs;
use corro_hosting::server_args::RateArgs;
use corro_hosting::signals::wait_for_shutdown_signal;
use corro_hosting::{HostingError, StartError};
use corro_server::tls::Tls;
use corro_server::{FileServer, FileServerConfig};

use self::accounts::Accounts;
use crate::error::CliError;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro files --account myaccount\n  corro files --account alice --account bob --data /srv/files \\\n      --tls --listen 0.0.0.0:8470 --name files.example.org\n\nClients use a connection string, which is stored beside the keys:\n  export AZURE_STORAGE_CONNECTION_STRING=\\\n      \"$(cat ~/.corro/files/accounts/myaccount.connection)\"\n  corro storage share create --name myshare\n\nEach share is a plain directory: DATA/shares/ACCOUNT/SHARE."
)]
pub struct FilesArgs {
    /// Directory for shares and keys. Created on the first start [default: ~/.corro/files]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Storage account to serve. Accounts of earlier starts are served too. Can be repeated
    #[arg(long = "account", value_name = "NAME")]
    accounts: Vec<String>,

    /// File with one or two keys of the account in base64, one per line. Created if it does not exist [default: a file in the
    /// data directory]
    #[arg(long, value_name = "FILE", requires = "accounts")]
    key_file: Option<PathBuf>,

    /// Print the connection strings, including the keys, when the server is ready
    #[arg(long)]
    show_connection_strings: bool,

    #[command(flatten)]
    address: ListenArgs,

    #[command(flatten)]
    rates: RateArgs,

    #[command(flatten)]
    log: LogArgs,
}

pub async fn run(args: FilesArgs) -> Result<(), CliError> {
    let began = Instant::now();
    args.log.init();
    let listen = listen_address(&args.address)?;
    if args.key_file.is_some() && args.accounts.len() != 1 {
        return Err(CliError::usage("--key-file belongs to one account")
            .hint("name one --account, or write the keys of each to accounts/NAME.key in the data directory"));
    }
    let path = match &args.data {
        Some(path) => path.clone(),
        None => corro_client::profile::config_dir()?.join("files"),
    };
    reject_full_server_data(&path)?;
    let data = DataDir::lock(&path)?;
    let accounts = Accounts::open(data.path(), &args.accounts, args.key_file.as_deref())?;
    let tls = open_tls(&args.address, data.path())?;
    let config = FileServerConfig {
        data: data.path().to_owned(),
        listen,
        tls: tls.clone(),
        rates: args.rates.rates(),
        accounts: accounts.keys.clone(),
    };
    let stop = wait_for_shutdown_signal();
    tokio::pin!(stop);
    let server = tokio::select! {
        started = FileServer::start(config) => started.map_err(|error| HostingError::Start(StartError::new(listen, error)))?,
        stopped = &mut stop => return Ok(stopped?),
    };
    let url = public_url(&args.address, server.address, tls.is_some());
    let _ = data.write_url(&url);
    print_summary(&accounts, &url, &data, tls, args.show_connection_strings, began)?;
    stop.await?;
    server.stop().await;
    let _ = writeln!(io::stderr(), "\nStopped.");
    Ok(())
}

/// Rejects the data directory of a full server, whose accounts and keys are in its database.
fn reject_full_server_data(data: &Path) -> Result<(), CliError> {
    match [corro_server::data_dir::DATABASE, corro_server::data_dir::MASTER_KEY]
        .iter()
        .any(|name| data.join(name).exists())
    {
        true => Err(CliError::new(format!("{} is the data directory of a full server", data.display())).hint(
            "start that with 'corro up', which serves its files too, or choose another directory with --data DIR",
        )),
        false => Ok(()),
    }
}

fn print_summary(
    accounts: &Accounts,
    url: &str,
    data: &DataDir,
    tls: Option<Tls>,
    show: bool,
    began: Instant,
) -> Result<(), CliError> {
    let files = accounts.write_connection_strings(url)?;
    let mut out = io::stdout().lock();
    let (version, took) = (env!("CARGO_PKG_VERSION"), began.elapsed().as_millis());
    // Write errors are ignored: a closed standard output must not end the server.
    let _ = writeln!(out, "Corro {version} serves files on {url} (ready in {took} ms)");
    let _ = writeln!(out, "  data     {}", data.path().display());
    if let Some(tls) = tls {
        let _ = writeln!(out, "{}", TlsTrust::from(tls));
    }
    for (name, file) in &files {
        let _ = writeln!(out, "  account  {name} (connection string in {})", file.display());
    }
    if show {
        let _ = writeln!(out);
        for name in files.keys() {
            let _ = writeln!(out, "{}", accounts.connection_string(name, url).expose());
        }
    }
    if let Some(file) = files.values().next() {
        let file = file.display();
        let _ = writeln!(out, "\nTry 'corro storage share create --name demo' in another terminal, after");
        let _ = writeln!(out, "  export AZURE_STORAGE_CONNECTION_STRING=\"$(cat {file})\"\nCtrl-C stops.");
    }
    let _ = out.flush();
    Ok(())
}
