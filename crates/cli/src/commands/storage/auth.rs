//! Account and credential of data-plane commands: from arguments, then environment and configuration file, then a lookup on the server. A server need not
//! be configured if account, key and endpoint are settings.

use clap::Args;
use corro_client::{Client, ClientError, Credential, FileService};
use corro_model::Secret;
use corro_model::arm::StorageAccount;
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{AccountsList, AccountsListKeys, NoBody};

use crate::error::CliError;
use crate::session::{Session, env, setting};

/// Help heading. Set on each argument, because a heading of the group would also apply to the command's own arguments.
const HEADING: &str = "Storage Account Arguments";

#[derive(Args, Clone, Debug, Default)]
pub struct AccountArgs {
    /// Name of the storage account [default: $AZURE_STORAGE_ACCOUNT]
    #[arg(long, help_heading = HEADING, value_name = "ACCOUNT")]
    account_name: Option<String>,
    /// Key of the storage account [default: $AZURE_STORAGE_KEY, or looked up on the server]
    #[arg(long, help_heading = HEADING, value_name = "KEY")]
    account_key: Option<String>,
    /// Connection string, instead of an account name and key [default: $AZURE_STORAGE_CONNECTION_STRING]
    #[arg(long, help_heading = HEADING, value_name = "STRING")]
    connection_string: Option<String>,
    /// Shared access signature (SAS), instead of a key [default: $AZURE_STORAGE_SAS_TOKEN]
    #[arg(long, help_heading = HEADING, value_name = "TOKEN")]
    sas_token: Option<String>,
    /// Timeout of each request, in seconds
    #[arg(long, help_heading = HEADING, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,
}

/// Account settings from arguments, environment and configuration file.
#[derive(Debug, Default, PartialEq, Eq)]
struct AccountSettings {
    account: Option<String>,
    key: Option<String>,
    sas: Option<String>,
    endpoint: Option<String>,
    blob_endpoint: Option<String>,
}

/// Opens the file service of the account.
pub async fn open(session: &Session, args: &AccountArgs) -> Result<FileService, CliError> {
    open_with_default(session, args, None).await
}

/// The same with a default account, for example that of a share's URL.
pub async fn open_with_default(
    session: &Session,
    args: &AccountArgs,
    named: Option<&str>,
) -> Result<FileService, CliError> {
    let mut args = args.clone();
    args.account_name = args.account_name.or_else(|| named.map(str::to_owned));
    let settings = collect(&args, |option| setting("storage", option))?;
    open_settings(session, settings, args.timeout).await
}

/// The blob service of the account.
pub async fn open_blobs(session: &Session, args: &AccountArgs, named: Option<&str>) -> Result<FileService, CliError> {
    let mut args = args.clone();
    args.account_name = args.account_name.or_else(|| named.map(str::to_owned));
    let mut settings = collect(&args, |option| setting("storage", option))?;
    match settings.blob_endpoint.take() {
        Some(endpoint) => {
            settings.endpoint = Some(endpoint);
            Ok(open_settings(session, settings, args.timeout).await?.as_blobs())
        }
        None => Ok(open_settings(session, settings, args.timeout).await?.blobs()),
    }
}

/// Opens the account of a container. An invalid container name is reported with the naming rule.
pub async fn open_container(session: &Session, args: &AccountArgs, container: &str) -> Result<FileService, CliError> {
    if check_name(NameKind::Share, container).is_err() {
        return Err(CliError::usage(format!("'{container}' is not the name of a container"))
            .hint("use 3 to 63 lower-case letters, digits and single dashes"));
    }
    open_blobs(session, args, None).await
}

/// The file service of another account than the command's own.
pub async fn open_named(session: &Session, account: &str, key: Option<String>) -> Result<FileService, CliError> {
    let settings = AccountSettings { account: Some(account.to_owned()), key, ..AccountSettings::default() };
    open_settings(session, settings, None).await
}

/// Endpoint and credential of an account.
pub struct AccountAccess {
    pub endpoint: String,
    pub account: String,
    pub credential: Credential,
}

/// The same without a client, to pass it to another process.
pub async fn resolve(session: &Session, args: &AccountArgs) -> Result<AccountAccess, CliError> {
    resolve_settings(session, collect(args, |option| setting("storage", option))?).await
}

async fn open_settings(
    session: &Session,
    settings: AccountSettings,
    timeout: Option<u32>,
) -> Result<FileService, CliError> {
    let AccountAccess { endpoint, account, credential } = resolve_settings(session, settings).await?;
    Ok(FileService::new(&endpoint, &account, credential)?.trusting(&session.trust()?)?.with_timeout(timeout))
}

async fn resolve_settings(session: &Session, settings: AccountSettings) -> Result<AccountAccess, CliError> {
    let account = settings.account.ok_or_else(missing_account)?;
    let credential = match (settings.sas, settings.key) {
        (Some(sas), _) => Credential::Sas(Secret::new(sas)),
        (None, Some(key)) => Credential::Key(Secret::new(key)),
        (None, None) => {
            let key = find_account_key(session.client()?, &account).await;
            // As in `az`, an unknown account is a usage error here, and a failure where volumes are mounted.
            Credential::Key(key.map_err(|failure| CliError { exit: 2, ..failure })?)
        }
    };
    let endpoint = match (settings.endpoint, env("CORRO_SERVER")) {
        (Some(endpoint), _) => endpoint,
        // The variable that overrides the server of the profile.
        (None, Some(server)) => format!("{}/{account}", server.trim_end_matches('/')),
        (None, None) => format!("{}/{account}", session.client()?.server()),
    };
    Ok(AccountAccess { endpoint, account, credential })
}

/// Opens the account of a share. An invalid share name is reported with the naming rule, which the service's error lacks.
pub async fn open_share(session: &Session, args: &AccountArgs, share: &str) -> Result<FileService, CliError> {
    check_name(NameKind::Share, share)?;
    open(session, args).await
}

/// The result of an `exists` command: only a 404 counts as no.
pub fn exists_result<T>(found: Result<T, ClientError>) -> Result<bool, CliError> {
    match found {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The first key of an account in any group of the subscription.
pub async fn find_account_key(client: &Client, name: &str) -> Result<Secret, CliError> {
    let accounts: Vec<StorageAccount> = client.list::<AccountsList, _>(&[], &[]).await?;
    let not_found = || {
        CliError::new(format!("Cannot find \"{name}\" storage account.")).hint(format!(
            "list the accounts with 'corro storage account list', \
             or make it with 'corro storage account create -g GROUP -n {name}'"
        ))
    };
    let account = accounts.iter().find(|account| account.name == name).ok_or_else(not_found)?;
    let group = group_in_id(&account.id).ok_or_else(not_found)?;
    let keys = client.call::<AccountsListKeys>(&[("group", group), ("account", name)], &[], &NoBody {}).await?;
    keys.keys.into_iter().next().map(|key| key.value).ok_or_else(not_found)
}

pub fn group_in_id(id: &str) -> Option<&str> {
    let mut parts = id.split('/');
    parts.find(|part| part.eq_ignore_ascii_case("resourceGroups")).and_then(|_| parts.next())
}

/// Arguments override settings; among either, a connection string overrides name and key.
fn collect(args: &AccountArgs, setting: impl Fn(&str) -> Option<String>) -> Result<AccountSettings, CliError> {
    if let Some(text) = &args.connection_string {
        return parse_connection_string(text);
    }
    if let Some(text) = setting("connection_string") {
        let kept = parse_connection_string(&text)?;
        // A configured connection string of another account is ignored.
        if args.account_name.is_none() || args.account_name == kept.account {
            return Ok(match (&args.account_key, &args.sas_token) {
                (None, None) => kept,
                (key, sas) => AccountSettings { key: key.clone(), sas: sas.clone(), ..kept },
            });
        }
    }
    let configured = setting("account");
    // A configured key belongs to the configured account only.
    let is_another = args.account_name.is_some() && configured.is_some() && args.account_name != configured;
    let secret = |option: &str| setting(option).filter(|_| !is_another);
    Ok(AccountSettings {
        account: args.account_name.clone().or(configured),
        key: args.account_key.clone().or_else(|| secret("key")),
        sas: args.sas_token.clone().or_else(|| secret("sas_token").filter(|_| args.account_key.is_none())),
        endpoint: None,
        blob_endpoint: None,
    })
}

/// Parses `DefaultEndpointsProtocol=http;AccountName=a;AccountKey=k;FileEndpoint=http://127.0.0.1:8470/a`. Without a file endpoint the account is on the
/// configured server.
fn parse_connection_string(text: &str) -> Result<AccountSettings, CliError> {
    let mut settings = AccountSettings::default();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(CliError::new("the connection string is malformed: each part must be NAME=VALUE"));
        };
        let slot = match name.to_ascii_lowercase().as_str() {
            "accountname" => &mut settings.account,
            "accountkey" => &mut settings.key,
            "sharedaccesssignature" => &mut settings.sas,
            "fileendpoint" => &mut settings.endpoint,
            "blobendpoint" => &mut settings.blob_endpoint,
            _ => continue,
        };
        *slot = Some(value.to_owned());
    }
    Ok(settings)
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
        let settings = collect(&args, setting).expect("well-formed");
        let all = [settings.account, settings.key, settings.sas, settings.endpoint];
        assert_eq!(all.map(|value| value.unwrap_or("-".to_owned())).join(" "), expected);
    }

    #[test]
    fn arguments_beat_settings() {
        let named = || AccountArgs { account_name: Some("a".into()), ..AccountArgs::default() };
        let settings = [("account", "b"), ("key", "k"), ("sas_token", "s")];
        check(AccountArgs::default(), &settings, "b k s -");
        check(named(), &[], "a - - -");
        // Both secrets belong to the configured account.
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
        assert_eq!(group_in_id("/subscriptions/s/resourceGroups/g/providers/x"), Some("g"));
        assert_eq!(group_in_id("nothing"), None);
    }
}
