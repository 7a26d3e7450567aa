//! Resolves and authorizes sources that a header names by URL, for copies, ranges and renames. The URL must be one of
//! this server (its address, or `{account}.file.…`); nothing is fetched from other servers. A caller with the account
//! key may use all files of the account. Every other source URL must carry a SAS with the needed permission.

use corro_model::storage::sas::Permission;
use corro_shares::{SharePath, SnapshotId};

use crate::auth::{self, Authenticated, Grant, stored_policies};
use crate::context::OperationContext;
use crate::protocol::error::StorageError;
use crate::protocol::operation::Operation;
use crate::protocol::request::{AddressStyle, StorageRequest, Target, parse_snapshot};

#[derive(Debug)]
pub(crate) struct Source {
    pub account: String,
    pub target: Target,
    pub snapshot: Option<SnapshotId>,
    /// URL without its query, because the signature must not be stored.
    pub url: String,
}

/// Resolves the source URL in the header and checks that the caller has the permission on it.
pub(crate) async fn resolve(
    context: &OperationContext<'_>,
    grant: &Grant,
    header: &'static str,
    permission: Permission,
) -> Result<Source, StorageError> {
    let request = context.request;
    let url = request.header(header).ok_or(StorageError::missing_header(header))?;
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (account, style, raw_path) = parse_url(request, address).ok_or_else(|| {
        StorageError::new("CannotVerifyCopySource")
            .with_message("The source is not a file on this server. Copies from other servers are not supported.")
    })?;
    let mut target = Target::parse(raw_path, style, &account).map_err(|_| StorageError::invalid_header(header))?;
    if request.header("x-ms-source-allow-trailing-dot").is_some_and(|text| text.eq_ignore_ascii_case("false")) {
        target = target.without_trailing_dots().map_err(|_| StorageError::invalid_header(header))?;
    }
    if target.path.is_root() {
        return Err(StorageError::invalid_header(header));
    }
    if !matches!(grant, Grant::AccountKey(_)) || account != request.account {
        authorize_by_sas(context, &account, &target, query, permission).await?;
    }
    let snapshot = parse_snapshot(query)?;
    Ok(Source { account, target, snapshot, url: address.to_owned() })
}

/// Account, address style and raw path of a URL of this server.
fn parse_url<'u>(request: &StorageRequest, address: &'u str) -> Option<(String, AddressStyle, &'u str)> {
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
    (request.header("host") == Some(host)).then(|| (account.to_owned(), AddressStyle::Path, path))
}

async fn authorize_by_sas(
    context: &OperationContext<'_>,
    account: &str,
    target: &Target,
    query: &str,
    permission: Permission,
) -> Result<(), StorageError> {
    let (request, service, now) = (context.request, context.state, (context.state.now)());
    let unverified = || StorageError::new("CannotVerifyCopySource");
    let keys = service.keys.keys(account);
    let authenticated =
        auth::check_sas(query, keys.as_deref(), account, Ok(target), request.bearer(), now).ok_or_else(unverified)?;
    let grant = match authenticated.map_err(|_| unverified())? {
        Authenticated::Granted(grant, _) => grant,
        Authenticated::NeedsPolicy(sas, _) => {
            let (owner, share) = (account.to_owned(), target.share.clone());
            let described = context.on_disk(move |shares, _| shares.share(&owner, &share)?.describe(&SharePath::ROOT));
            let policy = stored_policies::find(&described.await.map_err(|_| unverified())?.1, &sas.identifier);
            auth::apply_policy(*sas, policy.as_ref(), request.bearer(), now).map_err(|_| unverified())?
        }
    };
    if grant.on_behalf_of().is_some_and(|by| !service.keys.is_login_valid(by)) {
        return Err(unverified());
    }
    let operation = match permission {
        Permission::Read => Operation::ReadFile,
        _ => Operation::SetFile,
    };
    // A SAS for a container is not valid for a share of the same name. A rename by a node stays inside its container.
    let stays = context.in_container && permission == Permission::Write;
    match grant.is_container_sas() && !stays {
        true => Err(unverified()),
        false => grant.authorize(operation, false).map_err(|_| unverified()),
    }
}
