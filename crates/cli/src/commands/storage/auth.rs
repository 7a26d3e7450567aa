//! Which storage account a data-plane command works on and with which key: arguments, then environment and configuration
//! file, then a lookup on the server, which is not asked (nor need be configured) when all is known. Entered by the share, directory and file commands, and by `mounts` for keys.

use clap::Args;
use corro_client::{Client, ClientError, Credential, FileService};
use corro_model::Secret;
use corro_model::arm::StorageAccount;
use corro_model::names::{NameOf, check_name};
use corro_model::ops::{AccountsList, AccountsListKeys, NoBody};

use crate::error::CliError;
use crate::session::{Session, env, setting};

/// On each argument: set for the group it would hold for the command's own arguments too.
const HEADING: &str = "Storage Account Arguments";

#[derive(Args, Clone, Debug, Default)]
pub struct AccountArgs {
    /// Name of the storage account [default: AZURE_STORAGE_ACCOUNT]
    #[arg(long, help_heading = HEADING, value_name = "ACCOUNT")]
    account_name: Option<String>,
    /// Its key; looked up on the server when not given [default: AZURE_STORAGE_KEY]
    #[arg(long, help_heading = HEADING, value_name = "KEY")]
    account_key: Option<String>,
    /// Connection string, instead of name and key [default: AZURE_STORAGE_CONNECTION_STRING]
    #[arg(long, help_heading = HEADING, value_name = "STRING")]
    connection_string: Option<String>,
    /// Shared access signature, instead of a key [default: AZURE_STORAGE_SAS_TOKEN]
    #[arg(long, help_heading = HEADING, value_name = "TOKEN")]
    sas_token: Option<String>,
    /// Give each request to the service this many seconds
    #[arg(long, help_heading = HEADING, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,
}

/// What the arguments, the environment and the configuration file say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Given {
    account: Option<String>,
    key: Option<String>,
    sas: Option<String>,
    endpoint: Option<String>,
    blob_endpoint: Option<String>,
}

/// The file service of the account, ready to use.
pub async fn open(session: &Session, args: &AccountArgs) -> Result<FileService, CliError> {
    open_or(session, args, None).await
}

/// The same; `named` is the account when nothing else names one, as a share's address does.
pub async fn open_or(session: &Session, args: &AccountArgs, named: Option<&str>) -> Result<FileService, CliError> {
    let mut args = args.clone();
    args.account_name = args.account_name.or_else(|| named.map(str::to_owned));
    let given = collect(&args, |option| setting("storage", option))?;
    open_given(session, given, args.timeout).await
}

/// The blob service of the account.
pub async fn open_blobs(session: &Session, args: &AccountArgs, named: Option<&str>) -> Result<FileService, CliError> {
    let mut args = args.clone();
    args.account_name = args.account_name.or_else(|| named.map(str::to_owned));
    let mut given = collect(&args, |option| setting("storage", option))?;
    match given.blob_endpoint.take() {
        Some(endpoint) => {
            given.endpoint = Some(endpoint);
            Ok(open_given(session, given, args.timeout).await?.as_blobs())
        }
        None => Ok(open_given(session, given, args.timeout).await?.blobs()),
    }
}

/// Says the rule for names of containers, as making one does.
pub async fn open_container(session: &Session, args: &AccountArgs, container: &str) -> Result<FileService, CliError> {
    if check_name(NameOf::Share, container).is_err() {
        return Err(CliError::usage(format!("'{container}' is not the name of a container"))
            .hint("use 3 to 63 lower-case letters, digits and single dashes"));
    }
    open_blobs(session, args, None).await
}

/// The file service of another account than the command's own.
pub async fn open_named(session: &Session, account: &str, key: Option<String>) -> Result<FileService, CliError> {
    let given = Given { account: Some(account.to_owned()), key, ..Given::default() };
    open_given(session, given, None).await
}

/// Where an account is, and what opens it.
pub struct Found {
    pub endpoint: String,
    pub account: String,
    pub credential: Credential,
}

/// The same without opening it, for whoever hands it to another process.
pub async fn find(session: &Session, args: &AccountArgs) -> Result<Found, CliError> {
    find_given(session, collect(args, |option| setting("storage", option))?).await
}

async fn open_given(session: &Session, given: Given, timeout: Option<u32>) -> Result<FileService, CliError> {
    let Found { endpoint, account, credential } = find_given(session, given).await?;
    Ok(FileService::new(&endpoint, &account, credential)?.trusting(&session.trust()?)?.with_timeout(timeout))
}

async fn find_given(session: &Session, given: Given) -> Result<Found, CliError> {
    let account = given.account.ok_or_else(missing_account)?;
    let credential = match (given.sas, given.key) {
        (Some(sas), _) => Credential::Sas(Secret::new(sas)),
        (None, Some(key)) => Credential::Key(Secret::new(key)),
        (None, None) => {
            let key = find_account_key(session.client()?, &account).await;
            // To `az` a name that is nobody's is a wrong argument here, and a failure where volumes are mounted.
            Credential::Key(key.map_err(|failure| CliError { exit: 2, ..failure })?)
        }
    };
    let endpoint = match (given.endpoint, env("CORRO_SERVER")) {
        (Some(endpoint), _) => endpoint,
        // What a profile would be overridden with.
        (None, Some(server)) => format!("{}/{account}", server.trim_end_matches('/')),
        (None, None) => format!("{}/{account}", session.client()?.server()),
    };
    Ok(Found { endpoint, account, credential })
}

/// Says the rule for names of shares, as making one does, where the service would only say that it is broken.
pub async fn open_share(session: &Session, args: &AccountArgs, share: &str) -> Result<FileService, CliError> {
    check_name(NameOf::Share, share)?;
    open(session, args).await
}

/// What an `exists` command answers; only "not found" is a no.
pub fn is_there<T>(found: Result<T, ClientError>) -> Result<bool, CliError> {
    match found {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The first key of an account, wherever in the subscription it is.
pub async fn find_account_key(client: &Client, name: &str) -> Result<Secret, CliError> {
    let accounts: Vec<StorageAccount> = client.list::<AccountsList, _>(&[], &[]).await?;
    let not_found = || {
        CliError::new(format!("Cannot find \"{name}\" storage account.")).hint(format!(
            "list the accounts with 'corro storage account list', \
             or make it with 'corro storage account create -g GROUP -n {name}'"
        ))
    };
    let account = accounts.iter().find(|account| account.name == name).ok_or_else(not_found)?;
    let group = group_of(&account.id).ok_or_else(not_found)?;
    let keys = client.call::<AccountsListKeys>(&[("group", group), ("account", name)], &[], &NoBody {}).await?;
    keys.keys.into_iter().next().map(|key| key.value).ok_or_else(not_found)
}

pub fn group_of(id: &str) -> Option<&str> {
    let mut parts = id.split('/');
    parts.find(|part| part.eq_ignore_ascii_case("resourceGroups")).and_then(|_| parts.next())
}

/// An argument beats a setting; a connection string beats name and key of the same rank.
fn collect(args: &AccountArgs, setting: impl Fn(&str) -> Option<String>) -> Result<Given, CliError> {
    if let Some(text) = &args.connection_string {
        return parse_connection_string(text);
    }
    if let Some(text) = setting("connection_string") {
        let kept = parse_connection_string(&text)?;
        // One that is kept for another account than the one that is named has nothing to say here.
        if args.account_name.is_none() || args.account_name == kept.account {
            return Ok(match (&args.account_key, &args.sas_token) {
                (None, None) => kept,
                (key, sas) => Given { key: key.clone(), sas: sas.clone(), ..kept },
            });
        }
    }
    let configured = setting("account");
    // A secret that is kept with an account's name belongs to that account only.
    let is_another = args.account_name.is_some() && configured.is_some() && args.account_name != configured;
    let secret = |option: &str| setting(option).filter(|_| !is_another);
    Ok(Given {
        account: args.account_name.clone().or(configured),
        key: args.account_key.clone().or_else(|| secret("key")),
        sas: args.sas_token.clone().or_else(|| secret("sas_token").filter(|_| args.account_key.is_none())),
        endpoint: None,
        blob_endpoint: None,
    })
}

/// `DefaultEndpointsProtocol=http;AccountName=a;AccountKey=k;FileEndpoint=http://127.0.0.1:8470/a`. Without a file
/// endpoint the account is on the configured server.
fn parse_connection_string(text: &str) -> Result<Given, CliError> {
    let mut given = Given::default();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(CliError::new("the connection string is malformed: each part must be NAME=VALUE"));
        };
        let slot = match name.to_ascii_lowercase().as_str() {
            "accountname" => &mut given.account,
            "accountkey" => &mut given.key,
            "sharedaccesssignature" => &mut given.sas,
            "fileendpoint" => &mut given.endpoint,
            "blobendpoint" => &mut given.blob_endpoint,
            _ => continue,
        };
        *slot = Some(value.to_owned());
    }
    Ok(given)
}

fn missing_account() -> CliError {
    CliError::new("Missing credentials to access storage service: no storage account is named")
        .hint("give --account-name, or set AZURE_STORAGE_ACCOUNT")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Account, key, signature and endpoint in one line.
    fn check(args: AccountArgs, settings: &[(&str, &str)], expected: &str) {
        let setting = |name: &str| settings.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let given = collect(&args, setting).expect("well-formed");
        let all = [given.account, given.key, given.sas, given.endpoint];
        assert_eq!(all.map(|value| value.unwrap_or("-".to_owned())).join(" "), expected);
    }

    #[test]
    fn arguments_beat_settings() {
        let named = || AccountArgs { account_name: Some("a".into()), ..AccountArgs::default() };
        let settings = [("account", "b"), ("key", "k"), ("sas_token", "s")];
        check(AccountArgs::default(), &settings, "b k s -");
        check(named(), &[], "a - - -");
        // Both secrets belong to the account they are kept with.
        check(named(), &settings, "a - - -");
        check(named(), &[("account", "a"), ("key", "k"), ("sas_token", "s")], "a k s -");
        check(named(), &[("key", "k"), ("sas_token", "s")], "a k s -");
        check(AccountArgs { account_key: Some("mine".into()), ..named() }, &settings, "a mine - -");
        check(AccountArgs { sas_token: Some("mine".into()), ..named() }, &settings, "a - mine -");
        let text = "AccountName=c;AccountKey=a2V5PT0=;FileEndpoint=http://127.0.0.1:1/c;";
        let kept = [("connection_string", text)];
        check(AccountArgs::default(), &kept, "c a2V5PT0= - http://127.0.0.1:1/c");
        check(AccountArgs { account_name: Some("c".into()), ..named() }, &kept, "c a2V5PT0= - http://127.0.0.1:1/c");
        check(named(), &kept, "a - - -");
        check(AccountArgs { account_key: Some("mine".into()), ..named() }, &kept, "a mine - -");
        let sas = AccountArgs { sas_token: Some("mine".into()), ..AccountArgs::default() };
        check(sas, &kept, "c - mine http://127.0.0.1:1/c");
        check(
            AccountArgs { connection_string: Some(text.into()), ..named() },
            &[],
            "c a2V5PT0= - http://127.0.0.1:1/c",
        );
    }

    #[test]
    fn a_malformed_connection_string() {
        assert!(parse_connection_string("nonsense").is_err());
    }

    #[test]
    fn groups_of_ids() {
        assert_eq!(group_of("/subscriptions/s/resourceGroups/g/providers/x"), Some("g"));
        assert_eq!(group_of("nothing"), None);
    }
}
