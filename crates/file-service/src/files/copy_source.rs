//! Sources that a header names by URL: of copies, of ranges, of renames. A source is a URL of this server (its own
//! address, or `{account}.file.…`); nothing is ever fetched from elsewhere. A caller with the account's key may use
//! what is in the account; any other source must carry a shared access signature that permits it.

use corro_model::storage::sas::Permission;
use corro_shares::{SharePath, SnapshotId};

use crate::auth::{self, Access, Admission, stored_policies};
use crate::context::Context;
use crate::protocol::error::Refusal;
use crate::protocol::operation::Operation;
use crate::protocol::request::{AddressStyle, Call, Target, snapshot_in};

#[derive(Debug)]
pub(crate) struct Source {
    pub account: String,
    pub target: Target,
    pub snapshot: Option<SnapshotId>,
    /// The URL without its query: a signature is not to be kept.
    pub shown: String,
}

/// Finds the source in the header, and whether the caller may do this with it.
pub(crate) async fn find(
    context: &Context<'_>,
    access: &Access,
    header: &'static str,
    permission: Permission,
) -> Result<Source, Refusal> {
    let call = context.call;
    let url = call.header(header).ok_or(Refusal::missing_header(header))?;
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (account, style, raw_path) = locate(call, address).ok_or_else(|| {
        Refusal::new("CannotVerifyCopySource").saying("The source is not a file of this server, and no other is asked.")
    })?;
    let mut target = Target::parse(raw_path, style, &account).map_err(|_| Refusal::header(header))?;
    if call.header("x-ms-source-allow-trailing-dot").is_some_and(|text| text.eq_ignore_ascii_case("false")) {
        target = target.without_trailing_dots().map_err(|_| Refusal::header(header))?;
    }
    if target.path.is_root() {
        return Err(Refusal::header(header));
    }
    if !matches!(access, Access::Owner(_)) || account != call.account {
        check_link(context, &account, &target, query, permission).await?;
    }
    let snapshot = snapshot_in(query)?;
    Ok(Source { account, target, snapshot, shown: address.to_owned() })
}

/// Account, style and raw path of a URL of this server.
fn locate<'u>(call: &Call, address: &'u str) -> Option<(String, AddressStyle, &'u str)> {
    let rest = address.strip_prefix("http://").or(address.strip_prefix("https://"))?;
    let at = rest.find('/')?;
    let (host, path) = rest.split_at(at);
    if let Some((account, domain)) = host.split_once('.')
        && domain.starts_with("file.")
        && corro_shares::is_account_name(account)
    {
        return Some((account.to_owned(), AddressStyle::Host, path));
    }
    let account = path.split('/').nth(1).filter(|name| corro_shares::is_account_name(name))?;
    (call.header("host") == Some(host)).then(|| (account.to_owned(), AddressStyle::Path, path))
}

async fn check_link(
    context: &Context<'_>,
    account: &str,
    target: &Target,
    query: &str,
    permission: Permission,
) -> Result<(), Refusal> {
    let (call, service, now) = (context.call, context.service, (context.service.now)());
    let refused = || Refusal::new("CannotVerifyCopySource");
    let keys = service.keys.keys(account);
    let admission =
        auth::check_link(query, keys.as_deref(), account, Ok(target), call.bearer(), now).ok_or_else(refused)?;
    let access = match admission.map_err(|_| refused())? {
        Admission::Access(access, _) => access,
        Admission::ByPolicy(sas, _) => {
            let (owner, share) = (account.to_owned(), target.share.clone());
            let described = context.on_disk(move |shares, _| shares.share(&owner, &share)?.describe(&SharePath::ROOT));
            let policy = stored_policies::find(&described.await.map_err(|_| refused())?.1, &sas.identifier);
            auth::under_policy(*sas, policy.as_ref(), call.bearer(), now).map_err(|_| refused())?
        }
    };
    if access.by().is_some_and(|by| !service.keys.is_login_valid(by)) {
        return Err(refused());
    }
    let operation = match permission {
        Permission::Read => Operation::ReadFile,
        _ => Operation::SetFile,
    };
    // A link to something in a container opens no share of the same name. What a node renames stays where it is.
    let stays = context.in_container && permission == Permission::Write;
    match access.is_for_blob() && !stays {
        true => Err(refused()),
        false => access.allow(operation, false).map_err(|_| refused()),
    }
}
