//! SumKey may do what: checks the Shared Key signature or the shared access signature of a request.
//! Entered first for every request; nothing is looked up before it agrees. Never says whether an
//! account exists: a request for one that does not is checked against a key that nobody has.

mod account_keys;
pub(crate) mod requirement;
pub(crate) mod sas_cache;
pub(crate) mod stored_policies;

use std::sync::{Arc, LazyLock};

use corro_model::storage::{
    sas::{AccountSas, Bearer, Overrides, Permission, Policy, Refused, Resource, Sas},
    shared_key::{self, Credential},
};

use sha2::{Digest, Sha256};

use crate::auth::requirement::Requirement;
use crate::protocol::error::StorageError;
use crate::protocol::operation::Operation;
use crate::protocol::request::{StorageRequest, Target};

pub use self::account_keys::{AccountKeys, CredentialSink};

/// Begins the `by` parameter of the SAS URLs that the server gives to nodes for their mounts: `node:NODE:…`.
pub const NODE_PREFIX: &str = "node:";

/// How far the date of a signed request may be from our clock, as the service has it.
const MAX_SKEW_SECONDS: i64 = 15 * 60;

#[derive(Debug)]
pub(crate) enum Grant {
    /// Holds this one of the account's keys, counted from 0: everything.
    AccountKey(usize),
    /// Holds a link to a file or share: what the link says.
    Sas(Arc<Sas>),
    /// Holds a link to the account: what that says.
    AccountSas(Box<AccountSas>),
}

/// What a signature has proven, and with which of the account's keys.
#[derive(Debug)]
pub(crate) enum Authenticated {
    Granted(Grant, usize),
    /// A link that is signed well, whose terms lie in a policy of its share.
    NeedsPolicy(Box<Sas>, usize),
}

pub(crate) fn authenticate(
    request: &StorageRequest,
    keys: Option<&Arc<[Vec<u8>]>>,
    now: i64,
) -> Result<Authenticated, StorageError> {
    if let Some(authorization) = request.headers.get("authorization") {
        let (keys, known) = keys_or_decoys(keys.map(|keys| &**keys));
        let authorization = authorization.to_str().map_err(|_| StorageError::authentication_failed())?;
        let signer = check_shared_key(request, authorization, keys, known, now)?;
        return Ok(Authenticated::Granted(Grant::AccountKey(signer), signer));
    }
    let admission = match sas_cache::get(request, keys) {
        Some((sas, signer)) => {
            sas.check_own_terms(request.bearer(), now).map_err(sas_error)?;
            Authenticated::Granted(Grant::Sas(sas), signer)
        }
        None => {
            let target = request.target.as_ref().map_err(|_| StorageError::authentication_failed());
            let plain = keys.map(|keys| &**keys);
            let checked = check_sas(&request.raw_query, plain, &request.account, target, request.bearer(), now)
                .unwrap_or_else(|| Err(StorageError::new("NoAuthenticationInformation")))?;
            if let Authenticated::Granted(Grant::Sas(sas), signer) = &checked {
                sas_cache::insert(request, keys, sas, *signer);
            }
            checked
        }
    };
    // What the host says must be what the link is for.
    let resource = match &admission {
        Authenticated::Granted(Grant::Sas(sas), _) => Some(sas.resource),
        Authenticated::NeedsPolicy(sas, _) => Some(sas.resource),
        Authenticated::Granted(..) => None,
    };
    match request.is_blob_service && resource.is_some_and(|resource| !resource.is_of_blobs()) {
        true => Err(StorageError::authentication_failed()),
        false => Ok(admission),
    }
}

/// Checks the link in a query of a request or of a URL; None when there is none.
pub(crate) fn check_sas(
    query: &str,
    keys: Option<&[Vec<u8>]>,
    account: &str,
    target: Result<&Target, StorageError>,
    bearer: Bearer,
    now: i64,
) -> Option<Result<Authenticated, StorageError>> {
    if is_user_delegation_sas(query) {
        return Some(Err(StorageError::authentication_failed().with_message(
            "This shared access signature was made with a user delegation key. Use one made with the account's key.",
        )));
    }
    let (keys, known) = keys_or_decoys(keys);
    let checked = match (AccountSas::from_query(query), Sas::from_query(query)) {
        (Some(sas), _) => sas.and_then(|sas| {
            let signer = sas.check(keys, account, bearer, now)?;
            Ok(Authenticated::Granted(Grant::AccountSas(Box::new(sas)), signer))
        }),
        (None, Some(sas)) => sas.and_then(|sas| {
            let target = target.map_err(|_| Refused::Signature)?;
            let signer = sas.check_signature(keys, account, &target.share, target.path.as_str())?;
            Ok(match sas.identifier.is_empty() {
                true => Authenticated::Granted(Grant::Sas(Arc::new(sas.check_terms(None, bearer, now)?)), signer),
                false => Authenticated::NeedsPolicy(Box::new(sas), signer),
            })
        }),
        (None, None) => return None,
    };
    Some(match known {
        true => checked.map_err(sas_error),
        false => Err(StorageError::authentication_failed()),
    })
}

/// Signed for a person and not by the account: such links name that person's object.
fn is_user_delegation_sas(query: &str) -> bool {
    corro_model::storage::query_pairs(query).any(|(name, _)| name == "skoid")
}

/// The end of the check of a link whose terms lie in a policy.
pub(crate) fn apply_policy(sas: Sas, policy: Option<&Policy>, bearer: Bearer, now: i64) -> Result<Grant, StorageError> {
    sas.check_terms(policy, bearer, now).map(|sas| Grant::Sas(Arc::new(sas))).map_err(sas_error)
}

/// As much work for an unknown account as for a known one.
fn keys_or_decoys(keys: Option<&[Vec<u8>]>) -> (&[Vec<u8>], bool) {
    static DECOYS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [vec![0; 64], vec![0; 64]]);
    (keys.unwrap_or(&*DECOYS), keys.is_some())
}

impl Grant {
    /// `of_blobs`: the request is one to the blob service, whatever it asks for.
    pub fn authorize(&self, operation: Operation, is_blob_service: bool) -> Result<(), StorageError> {
        let requirement = operation.requirement();
        let service = if is_blob_service { 'b' } else { operation.service_letter() };
        let permits = |any: &[Permission]| match self {
            Grant::AccountKey(_) => true,
            Grant::Sas(sas) => any.iter().any(|permission| sas.permits(*permission)),
            Grant::AccountSas(sas) => any.iter().any(|permission| sas.permits(*permission)),
        };
        let code = match (self, requirement) {
            (Grant::AccountKey(_), _) => return Ok(()),
            (_, Requirement::AccountKey) => "AuthorizationPermissionMismatch",
            (Grant::AccountSas(sas), _) if !sas.is_for_service(service) => "AuthorizationServiceMismatch",
            (Grant::AccountSas(sas), _) if !requirement.resource_type().is_some_and(|kind| sas.is_for(kind)) => {
                "AuthorizationResourceTypeMismatch"
            }
            (Grant::AccountSas(_), requirement) if permits(requirement.permissions()) => return Ok(()),
            (Grant::Sas(_), Requirement::OnFile(any)) if permits(any) => return Ok(()),
            (Grant::Sas(sas), Requirement::InShare(any) | Requirement::Listing(any))
                if matches!(sas.resource, Resource::Share | Resource::Container) && permits(any) =>
            {
                return Ok(());
            }
            _ => "AuthorizationPermissionMismatch",
        };
        Err(StorageError::new(code))
    }

    /// Whether what is there may be replaced: with the right to create alone it may not.
    pub fn may_replace(&self) -> bool {
        match self {
            Grant::AccountKey(_) => true,
            Grant::Sas(sas) => sas.permits(Permission::Write),
            Grant::AccountSas(sas) => sas.permits(Permission::Write),
        }
    }

    /// SumKey this is in the history: a key by its name, a link by a part of a digest, which opens nothing.
    pub fn actor(&self, account: &str) -> String {
        let link = |signature: &str| format!("link:{}", &hex(&Sha256::digest(signature))[..8]);
        match self {
            Grant::AccountKey(key) => format!("key:{account}/key{}", key + 1),
            Grant::Sas(sas) => match sas.by.strip_prefix(NODE_PREFIX).and_then(|by| by.split(':').next()) {
                Some(node) => format!("{NODE_PREFIX}{node}"),
                None => link(&sas.signature),
            },
            Grant::AccountSas(sas) => link(&sas.signature),
        }
    }

    /// For whom this server made the link, if it did.
    pub fn on_behalf_of(&self) -> Option<&str> {
        match self {
            Grant::Sas(sas) if !sas.by.is_empty() => Some(&sas.by),
            _ => None,
        }
    }

    /// The pass of a node, which mounts with it.
    pub fn is_node(&self) -> bool {
        self.on_behalf_of().is_some_and(|by| by.starts_with(NODE_PREFIX))
    }

    /// A link to a container or to something in one.
    pub fn is_container_sas(&self) -> bool {
        matches!(self, Grant::Sas(sas) if sas.resource.is_of_blobs())
    }

    /// The links that this server makes to output in containers lead to the file service's address, and so do the passes of nodes, to which a
    /// container is a directory like others.
    pub fn uses_file_address(&self, request: &StorageRequest) -> bool {
        self.is_container_sas() && !request.is_blob_service
    }

    /// Response headers chosen by the maker of a link.
    pub fn header_overrides(&self) -> Option<&Overrides> {
        match self {
            Grant::AccountKey(_) | Grant::AccountSas(_) => None,
            Grant::Sas(sas) => Some(&sas.overrides),
        }
    }
}

/// Which of the keys has signed.
fn check_shared_key(
    request: &StorageRequest,
    authorization: &str,
    keys: &[Vec<u8>],
    known: bool,
    now: i64,
) -> Result<usize, StorageError> {
    let credential = Credential::parse(authorization).ok_or(StorageError::authentication_failed())?;
    let signed = shared_key::Request {
        method: request.method.as_str(),
        path: &request.raw_path,
        query: &request.raw_query,
        account: &request.account,
    };
    let headers: Vec<_> = request.signed_headers().collect();
    let headers = headers.iter().map(|(name, value)| (*name, value.as_ref()));
    let signer = shared_key::verify(signed, headers, keys, credential);
    let signer = signer.filter(|_| known && credential.account == request.account);
    let signer = signer.ok_or_else(StorageError::authentication_failed)?;
    // Only now: the date is part of what was signed, and a forger requirement not know our clock.
    let date = request.header("x-ms-date").or(request.header("date")).ok_or(StorageError::authentication_failed())?;
    let date = httpdate::parse_http_date(date).map_err(|_| StorageError::authentication_failed())?;
    let date = corro_model::Timestamp::from(date).seconds();
    match (date - now).abs() <= MAX_SKEW_SECONDS {
        true => Ok(signer),
        false => Err(StorageError::authentication_failed().with_message(
            "The date in the request is more than 15 minutes from the server's clock. Set the clock of this machine.",
        )),
    }
}

pub(crate) fn sas_error(refused: Refused) -> StorageError {
    let refusal = StorageError::authentication_failed();
    match refused {
        Refused::Signature | Refused::Malformed => refusal,
        Refused::Expired => refusal.with_message("The shared access signature has expired. Ask for a new link."),
        Refused::NotYet => refusal.with_message("The shared access signature is not valid yet."),
        Refused::Policy => refusal.with_message(
            "The share keeps no access policy of the name that the shared access signature gives (si), or both say the same thing.",
        ),
        Refused::Address => StorageError::new("AuthorizationSourceIPMismatch"),
        Refused::Protocol => StorageError::new("AuthorizationProtocolMismatch"),
    }
}

/// Lowercase hexadecimal digits of some bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
