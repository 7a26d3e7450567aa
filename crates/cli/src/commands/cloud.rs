//! `corro cloud setup-az`: everything a real `az` needs to reach the server of the present profile, printed or written, and
//! the way back. Says what it did in plain words; knows no secret but the profile's own, which it does not show.

mod bundle;
mod hosts;
mod ini;
mod keeping;
mod logins;
mod script;
mod setup;
mod site;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_model::arm::StorageAccount;
use corro_model::ops::AccountsList;

use self::keeping::Part;
use self::script::{Names, Shell};
use self::setup::{Done, Places};
use self::site::{Account, Site};
use crate::commands::storage::auth::group_of;
use crate::failure::Failure;
use crate::session::{self, GlobalArgs, Session};
use crate::talk::{say, tell};

#[derive(Args, Debug)]
pub struct CloudArgs {
    #[command(subcommand)]
    command: CloudCommand,
}

#[derive(Subcommand, Debug)]
enum CloudCommand {
    /// Say what a real az needs to reach this server, or write it, or take it back
    #[command(
        after_help = "Examples:\n  corro cloud setup-az            # show every step\n  corro cloud setup-az --write    # do them; again after new storage accounts\n  corro cloud setup-az --undo     # as it was before\n\nThe server must serve TLS: 'corro up --tls'."
    )]
    SetupAz(SetupArgs),
}

#[derive(Args, Debug)]
struct SetupArgs {
    /// Write it: the cloud into az's configuration, certificates, a file to source, names into the hosts file
    #[arg(long, conflicts_with_all = ["undo", "bundle"])]
    write: bool,
    /// Take back what --write did: every file as it was before, and the cloud active that was
    #[arg(long, conflicts_with_all = ["bundle", "host", "shell", "cloud"])]
    undo: bool,
    /// Print only the certificates that az is to believe: this server's authority and those this machine trusts
    #[arg(long)]
    bundle: bool,
    /// What az is to call the server
    #[arg(long, value_name = "NAME", default_value = "corro", value_parser = cloud_name)]
    cloud: String,
    /// Name of the server in az's URLs, one that its certificate has [default: that of the profile, or localhost]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The shell that the commands are for
    #[arg(long, value_enum, value_name = "SHELL", default_value_t = Shell::Bash)]
    shell: Shell,
    /// The file that names are written to
    #[arg(long, value_name = "FILE", default_value = "/etc/hosts")]
    hosts_file: PathBuf,
}

pub async fn run(args: CloudArgs) -> Result<(), Failure> {
    let CloudCommand::SetupAz(args) = args.command;
    let places = Places::new(&args.hosts_file)?;
    if args.undo {
        return undo(&places);
    }
    let profile = session::profile()?;
    let mut site = Site::new(&args.cloud, &profile, args.host.as_deref())?;
    if args.bundle {
        return print_bundle(&site, &places);
    }
    site.accounts = accounts().await?;
    let names = find_names(&site)?;
    if !args.write {
        let bundle = places.own.with_file_name("az-ca-bundle.pem");
        tell(script::steps(&site, &names, args.shell, &bundle).trim_end());
        return Ok(());
    }
    let block = match &names {
        Names::Lines { block, .. } if !site.names().is_empty() => Some(block.as_str()),
        _ => None,
    };
    let done = setup::write(&site, &places, block, args.shell)?;
    report(&site, &places, &names, &done, args.shell);
    Ok(())
}

fn cloud_name(text: &str) -> Result<String, String> {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) && !text.is_empty();
    let is_az = ["azurecloud", "azurechinacloud", "azureusgovernment", "azuregermancloud", "default"];
    match is_plain && !is_az.contains(&text.to_ascii_lowercase().as_str()) {
        true => Ok(text.to_owned()),
        false => Err("use letters, digits, '.', '-' and '_', and none of az's own names".to_owned()),
    }
}

async fn accounts() -> Result<Vec<Account>, Failure> {
    let session = Session::open(&GlobalArgs::default())?;
    let found: Vec<StorageAccount> = session.client()?.list::<AccountsList, _>(&[], &[]).await?;
    let account =
        |account: StorageAccount| Some(Account { group: group_of(&account.id)?.to_owned(), name: account.name });
    Ok(found.into_iter().filter_map(account).collect())
}

/// Does this machine know the names of accounts, and if not, which lines would tell it?
fn find_names(site: &Site) -> Result<Names, Failure> {
    if !site.has_names() {
        return Ok(Names::None);
    }
    let found = site.address.or_else(|| hosts::resolve(&site.host).into_iter().next());
    let address: IpAddr = found.ok_or_else(|| {
        Failure::new(format!("the name '{}' leads nowhere on this machine", site.host))
            .hint("check the name given with --host")
    })?;
    if !site.is_chosen && hosts::are_known(&site.host, address) {
        return Ok(Names::Known);
    }
    Ok(Names::Lines { address, block: hosts::block(address, &site.names()) })
}

fn print_bundle(site: &Site, places: &Places) -> Result<(), Failure> {
    let Some(authority) = &site.authority else {
        return Err(Failure::new("the profile names no certificate authority: this machine trusts the server anyway"));
    };
    let bundle = bundle::make(authority, &places.bundle())?;
    io::stdout().write_all(bundle.text.as_bytes()).map_err(|error| Failure::of(&error))
}

fn report(site: &Site, places: &Places, names: &Names, done: &Done, shell: Shell) {
    let state = match done.changed.is_empty() {
        true => "is set up already",
        false => "is set up",
    };
    tell(format_args!("az {state} for {} as the cloud '{}':", site.url(), site.cloud));
    tell(format_args!("  cloud   {} (active before: {})", places.az.join("clouds.config").display(), done.previous));
    if let Some(bundle) = &done.bundle {
        let others = bundle.others.as_ref().map_or_else(
            || "this server's authority alone".to_owned(),
            |file| format!("this server's authority, beside those of {}", file.display()),
        );
        tell(format_args!("  trust   {} ({others})", places.bundle().display()));
    }
    tell(format_args!("  names   {}", names_in_words(site, places, names, done)));
    if let (Some(error), Names::Lines { block, .. }) = (&done.hosts_refused, names) {
        let by_hand = script::hosts_by_hand(&places.hosts, block);
        tell(format_args!("\n{} cannot be written ({error}). Somebody who may:\n\n{by_hand}", places.hosts.display()));
        tell(format_args!(
            "Or a connection string for each account:\n\n{}",
            script::connection_strings(site, shell).trim_end()
        ));
    }
    tell(format_args!("\nIn every shell that runs az:\n\n  {}", shell.source(&done.env_file)));
    tell(format_args!("\n{}", script::login(site, shell).trim_end()));
    tell("\n'corro cloud setup-az --undo' takes it back.");
    if let Some(az) = az_program() {
        let is_corro = std::env::current_exe().ok().zip(az.canonicalize().ok()).is_some_and(|(own, az)| own == az);
        if is_corro {
            say(format_args!("note: {} is Corro itself, which needs none of this", az.display()));
        }
    } else {
        say("note: there is no az on your search path yet; whichever you install reads what was written");
    }
}

fn names_in_words(site: &Site, places: &Places, names: &Names, done: &Done) -> String {
    let accounts: Vec<&str> = site.accounts.iter().map(|account| account.name.as_str()).collect();
    match names {
        Names::Known => format!("this machine knows every name below {}", site.host),
        Names::None => {
            format!("none: nothing can be named below {}; use connection strings, or --host NAME", site.host)
        }
        Names::Lines { .. } if done.hosts_refused.is_some() => "to be done by hand, see below".to_owned(),
        Names::Lines { .. } if accounts.is_empty() => {
            "no storage account yet: run this again when there is one".to_owned()
        }
        Names::Lines { .. } => {
            format!("{} ({}; run this again for new accounts)", places.hosts.display(), accounts.join(", "))
        }
    }
}

fn undo(places: &Places) -> Result<(), Failure> {
    let Some(undone) = setup::undo(places)? else {
        tell("There is nothing to take back: az was not set up with 'corro cloud setup-az --write'.");
        return Ok(());
    };
    for path in undone.files.iter().filter(|path| path.exists()) {
        tell(format_args!("{} is as it was before", path.display()));
    }
    tell(format_args!("The cloud '{}' is gone, and az's logins at it; active is {}.", undone.cloud, undone.previous));
    say("note: shells that have sourced the file keep REQUESTS_CA_BUNDLE until they end: unset REQUESTS_CA_BUNDLE");
    match undone.refused.first() {
        None => Ok(()),
        Some((path, part, error)) => {
            let failure =
                Failure { causes: vec![error.to_string()], ..Failure::new(format!("cannot write {}", path.display())) };
            Err(match part {
                Part::Names => {
                    failure.hint(format!("somebody who may can remove our lines: {} {}", hosts::REMOVE, path.display()))
                }
                _ => failure.hint("when that is mended, undo again: the rest is done"),
            })
        }
    }
}

/// The first `az` on the search path.
fn az_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("az")).find(|path| path.is_file())
}
