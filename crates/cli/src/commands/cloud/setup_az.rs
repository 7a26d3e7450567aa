//! `corro cloud setup-az`: prints or writes the configuration with which the real `az` reaches the server of the current profile, and undoes it.
//! Prints no secret.

mod apply;
mod az_logins;
mod ca_bundle;
mod cloud_config;
mod file_backup;
mod hosts_file;
mod script;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use corro_model::arm::StorageAccount;
use corro_model::ops::AccountsList;

use self::apply::{SetupPaths, WriteReport};
use self::cloud_config::{Account, CloudConfig};
use self::file_backup::ManagedPart;
use self::script::{AccountNames, Shell};
use crate::commands::storage::auth::group_in_id;
use crate::error::CliError;
use crate::session::{self, GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::text_file::write_error;

#[derive(Args, Debug)]
pub struct SetupAzArgs {
    /// Perform the steps: configure the cloud in az, write the certificates and a file to source, and add names to the hosts
    /// file
    #[arg(long, conflicts_with_all = ["undo", "bundle"])]
    write: bool,
    /// Undo --write: restore all files and the cloud that was active before
    #[arg(long, conflicts_with_all = ["bundle", "host", "shell", "cloud"])]
    undo: bool,
    /// Print only the CA bundle for az: the certificate authority of this server and those that this machine trusts
    #[arg(long)]
    bundle: bool,
    /// Name of the cloud in az
    #[arg(long, value_name = "NAME", default_value = "corro", value_parser = parse_cloud_name)]
    cloud: String,
    /// Host name of the server in az's URLs. The server's certificate must contain it [default: the host that you are logged
    /// in to, or localhost]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Shell to print commands for
    #[arg(long, value_enum, value_name = "SHELL", default_value_t = Shell::Bash)]
    shell: Shell,
    /// Hosts file to add names to
    #[arg(long, value_name = "FILE", default_value = "/etc/hosts")]
    hosts_file: PathBuf,
}

pub async fn run(args: SetupAzArgs) -> Result<(), CliError> {
    let paths = SetupPaths::new(&args.hosts_file)?;
    if args.undo {
        return undo(&paths);
    }
    let profile = session::profile()?;
    let mut config = CloudConfig::new(&args.cloud, &profile, args.host.as_deref())?;
    if args.bundle {
        return print_bundle(&config, &paths);
    }
    config.accounts = list_accounts().await?;
    let names = resolve_account_names(&config)?;
    if !args.write {
        let bundle = paths.corro_dir.with_file_name("az-ca-bundle.pem");
        print(script::steps(&config, &names, args.shell, &bundle).trim_end());
        return Ok(());
    }
    let block = match &names {
        AccountNames::HostsLines { block, .. } if !config.names().is_empty() => Some(block.as_str()),
        _ => None,
    };
    let report = apply::write(&config, &paths, block, args.shell)?;
    print_report(&config, &paths, &names, &report, args.shell);
    Ok(())
}

fn parse_cloud_name(text: &str) -> Result<String, String> {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) && !text.is_empty();
    let reserved = ["azurecloud", "azurechinacloud", "azureusgovernment", "azuregermancloud", "default"];
    match is_plain && !reserved.contains(&text.to_ascii_lowercase().as_str()) {
        true => Ok(text.to_owned()),
        false => Err("use letters, digits, '.', '-' and '_', and none of az's own names".to_owned()),
    }
}

async fn list_accounts() -> Result<Vec<Account>, CliError> {
    let session = Session::open(&GlobalArgs::default())?;
    let found: Vec<StorageAccount> = session.client()?.list::<AccountsList, _>(&[], &[]).await?;
    let account =
        |account: StorageAccount| Some(Account { group: group_in_id(&account.id)?.to_owned(), name: account.name });
    Ok(found.into_iter().filter_map(account).collect())
}

/// Checks whether host names of storage accounts resolve on this machine; if not, makes the lines for the hosts file.
fn resolve_account_names(config: &CloudConfig) -> Result<AccountNames, CliError> {
    if !config.has_subdomains() {
        return Ok(AccountNames::Impossible);
    }
    let found = config.address.or_else(|| hosts_file::resolve(&config.host).into_iter().next());
    let address: IpAddr = found.ok_or_else(|| {
        CliError::new(format!("the host name '{}' does not resolve on this machine", config.host))
            .hint("check the name given with --host")
    })?;
    if !config.has_new_host && hosts_file::resolves_subdomains(&config.host, address) {
        return Ok(AccountNames::Resolvable);
    }
    Ok(AccountNames::HostsLines { address, block: hosts_file::block(address, &config.names()) })
}

fn print_bundle(config: &CloudConfig, paths: &SetupPaths) -> Result<(), CliError> {
    let Some(authority) = &config.authority else {
        return Err(CliError::new(
            "the profile names no certificate authority: this machine trusts the server already",
        ));
    };
    let bundle = ca_bundle::build(authority, &paths.bundle())?;
    io::stdout().write_all(bundle.text.as_bytes()).map_err(|error| CliError::from_error(&error))
}

fn print_report(config: &CloudConfig, paths: &SetupPaths, names: &AccountNames, report: &WriteReport, shell: Shell) {
    let state = match report.changed.is_empty() {
        true => "is set up already",
        false => "is set up",
    };
    print(format_args!("az {state} for {} as the cloud '{}':", config.url(), config.cloud));
    print(format_args!(
        "  cloud   {} (active before: {})",
        paths.az_dir.join("clouds.config").display(),
        report.previous_cloud
    ));
    if let Some(bundle) = &report.bundle {
        let others = bundle.base_file.as_ref().map_or_else(
            || "this server's authority alone".to_owned(),
            |file| format!("this server's authority, beside those of {}", file.display()),
        );
        print(format_args!("  trust   {} ({others})", paths.bundle().display()));
    }
    print(format_args!("  names   {}", describe_names(config, paths, names, report)));
    if let (Some(error), AccountNames::HostsLines { block, .. }) = (&report.hosts_error, names) {
        let by_hand = script::hosts_file_commands(&paths.hosts_file, block);
        print(format_args!(
            "\n{} cannot be written ({error}). With the right to do so:\n\n{by_hand}",
            paths.hosts_file.display()
        ));
        print(format_args!(
            "Or a connection string for each account:\n\n{}",
            script::connection_strings(config, shell).trim_end()
        ));
    }
    print(format_args!("\nIn every shell that runs az:\n\n  {}", shell.source_command(&report.env_file)));
    print(format_args!("\n{}", script::login(config, shell).trim_end()));
    print("\nUndo it with 'corro cloud setup-az --undo'.");
    if let Some(az) = az_program() {
        let is_corro = std::env::current_exe().ok().zip(az.canonicalize().ok()).is_some_and(|(own, az)| own == az);
        if is_corro {
            note(format_args!("note: {} is Corro itself, which needs no setup", az.display()));
        }
    } else {
        note("note: there is no az in your PATH yet; it will read this configuration when it is installed");
    }
}

fn describe_names(config: &CloudConfig, paths: &SetupPaths, names: &AccountNames, report: &WriteReport) -> String {
    let accounts: Vec<&str> = config.accounts.iter().map(|account| account.name.as_str()).collect();
    match names {
        AccountNames::Resolvable => format!("every name below {} resolves on this machine", config.host),
        AccountNames::Impossible => {
            format!(
                "none: {} is an address, which has no subdomains; use connection strings, or --host NAME",
                config.host
            )
        }
        AccountNames::HostsLines { .. } if report.hosts_error.is_some() => "to be done by hand, see below".to_owned(),
        AccountNames::HostsLines { .. } if accounts.is_empty() => {
            "no storage account yet: run this again when there is one".to_owned()
        }
        AccountNames::HostsLines { .. } => {
            format!("{} ({}; run this again for new accounts)", paths.hosts_file.display(), accounts.join(", "))
        }
    }
}

fn undo(paths: &SetupPaths) -> Result<(), CliError> {
    let Some(undo) = apply::undo(paths)? else {
        print("There is nothing to undo: az was not set up with 'corro cloud setup-az --write'.");
        return Ok(());
    };
    for path in undo.restored.iter().filter(|path| path.exists()) {
        print(format_args!("{} is as it was before", path.display()));
    }
    print(format_args!(
        "The cloud '{}' is gone, and az's logins at it; active is {}.",
        undo.cloud, undo.previous_cloud
    ));
    note("note: shells that have sourced the file keep REQUESTS_CA_BUNDLE until they end: unset REQUESTS_CA_BUNDLE");
    match undo.failed.first() {
        None => Ok(()),
        Some((path, part, error)) => {
            let cli_error = write_error(path, error);
            Err(match part {
                ManagedPart::HostsBlock => cli_error.hint(format!(
                    "a user with the right to do so can remove our lines: {} {}",
                    hosts_file::REMOVE_COMMAND,
                    path.display()
                )),
                _ => cli_error.hint("fix that, then undo again: the rest is done"),
            })
        }
    }
}

/// The first `az` in PATH.
pub fn az_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("az")).find(|path| path.is_file())
}
