//! Authentication by Shared Key or shared access signature (SAS), and authorization of the operation. Never reveals
//! whether an account exists: a request for an unknown account is checked against a decoy key, with the same amount of
//! work.

mod account_keys;
pub(crate) mod requirement;
pub(crate) mod sas_cache;
pub(crate) mod stored_policies;

use std::sync::{Arc, LazyLock};

use corro_model::storage::{
    sas::{AccountSas, Bearer, Overrides, Permission, Policy, Resource, Sas, SasError},
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

/// Maximum difference between the date of a Shared Key request and the server's clock, as in Azure.
const MAX_SKEW_SECONDS: i64 = 15 * 60;

#[derive(Debug)]
pub(crate) enum Grant {
    /// Signed with this key of the account, counted from 0. Permits everything.
    AccountKey(usize),
    /// Service SAS: a file, share, blob or container, with the permissions that it lists.
    Sas(Arc<Sas>),
    /// Account SAS, with the services, resource types and permissions that it lists.
    AccountSas(Box<AccountSas>),
}

/// Result of the signature check, with the index of the account key that signed.
#[derive(Debug)]
pub(crate) enum Authenticated {
    Granted(Grant, usize),
    /// The signature is valid, but the terms are in a stored access policy of the share.
    NeedsPolicy(Box<Sas>, usize),
}

pub(crate) fn authenticate(
    request: &StorageRequest,
    keys: Option<&Arc<[Vec<u8>]>>,
    now: i64,
) -> Result<Authenticated, StorageError> {
    if let Some(authorization) = request.headers.get("authorization") {
        let (keys, account_exists) = keys_or_decoys(keys.map(|keys| &**keys));
        let authorization = authorization.to_str().map_err(|_| StorageError::authentication_failed())?;
        let signer = check_shared_key(request, authorization, keys, account_exists, now)?;
        return Ok(Authenticated::Granted(Grant::AccountKey(signer), signer));
    }
    let authenticated = match sas_cache::get(request, keys) {
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
    // A SAS for files is not valid on the host of the blob service.
    let resource = match &authenticated {
        Authenticated::Granted(Grant::Sas(sas), _) => Some(sas.resource),
        Authenticated::NeedsPolicy(sas, _) => Some(sas.resource),
        Authenticated::Granted(..) => None,
    };
    match request.is_blob_service && resource.is_some_and(|resource| !resource.is_of_blobs()) {
        true => Err(StorageError::authentication_failed()),
        false => Ok(authenticated),
    }
}

/// Checks the SAS in the query of a request or of a source URL; `None` when the query has none.
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
    let (keys, account_exists) = keys_or_decoys(keys);
    let checked = match (AccountSas::from_query(query), Sas::from_query(query)) {
        (Some(sas), _) => sas.and_then(|sas| {
            let signer = sas.check(keys, account, bearer, now)?;
            Ok(Authenticated::Granted(Grant::AccountSas(Box::new(sas)), signer))
        }),
        (None, Some(sas)) => sas.and_then(|sas| {
            let target = target.map_err(|_| SasError::Signature)?;
            let signer = sas.check_signature(keys, account, &target.share, target.path.as_str())?;
            Ok(match sas.identifier.is_empty() {
                true => Authenticated::Granted(Grant::Sas(Arc::new(sas.check_terms(None, bearer, now)?)), signer),
                false => Authenticated::NeedsPolicy(Box::new(sas), signer),
            })
        }),
        (None, None) => return None,
    };
    Some(match account_exists {
        true => checked.map_err(sas_error),
        false => Err(StorageError::authentication_failed()),
    })
}

/// User delegation SAS carry the object id of the user (`skoid`). They are not supported.
fn is_user_delegation_sas(query: &str) -> bool {
    corro_model::storage::query_pairs(query).any(|(name, _)| name == "skoid")
}

/// Completes the check of a SAS whose terms are in a stored access policy.
pub(crate) fn apply_policy(sas: Sas, policy: Option<&Policy>, bearer: Bearer, now: i64) -> Result<Grant, StorageError> {
    sas.check_terms(policy, bearer, now).map(|sas| Grant::Sas(Arc::new(sas))).map_err(sas_error)
}

/// Decoy keys make the check of an unknown account cost as much as that of a known one.
fn keys_or_decoys(keys: Option<&[Vec<u8>]>) -> (&[Vec<u8>], bool) {
    static DECOYS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [vec![0; 64], vec![0; 64]]);
    (keys.unwrap_or(&*DECOYS), keys.is_some())
}

impl Grant {
    /// Checks that the operation is permitted. `is_blob_service`: the request was sent to the host of the blob service.
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

    /// Whether an existing file may be overwritten. The Create permission alone does not allow it.
    pub fn may_replace(&self) -> bool {
        match self {
            Grant::AccountKey(_) => true,
            Grant::Sas(sas) => sas.permits(Permission::Write),
            Grant::AccountSas(sas) => sas.permits(Permission::Write),
        }
    }

    /// Name of the caller in the history: the name of the key, or a prefix of a digest of the SAS signature, which
    /// cannot be used to sign in.
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

    /// Login that the server made this SAS for (its `by` parameter), if any.
    pub fn on_behalf_of(&self) -> Option<&str> {
        match self {
            Grant::Sas(sas) if !sas.by.is_empty() => Some(&sas.by),
            _ => None,
        }
    }

    /// Whether this is the mount token of a node.
    pub fn is_node(&self) -> bool {
        self.on_behalf_of().is_some_and(|by| by.starts_with(NODE_PREFIX))
    }

    /// A SAS for a container or a blob in it.
    pub fn is_container_sas(&self) -> bool {
        matches!(self, Grant::Sas(sas) if sas.resource.is_of_blobs())
    }

    /// A container SAS that is used at the address of the file service. The server makes such URLs for job output in
    /// containers, and nodes mount containers with them.
    pub fn uses_file_address(&self, request: &StorageRequest) -> bool {
        self.is_container_sas() && !request.is_blob_service
    }

    /// Response headers that the SAS overrides.
    pub fn header_overrides(&self) -> Option<&Overrides> {
        match self {
            Grant::AccountKey(_) | Grant::AccountSas(_) => None,
            Grant::Sas(sas) => Some(&sas.overrides),
        }
    }
}

/// Index of the account key that made the signature.
fn check_shared_key(
    request: &StorageRequest,
    authorization: &str,
    keys: &[Vec<u8>],
    account_exists: bool,
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
    let signer = signer.filter(|_| account_exists && credential.account == request.account);
    let signer = signer.ok_or_else(StorageError::authentication_failed)?;
    // Checked after the signature: the date is signed too, and a forger must not learn the server's time.
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

pub(crate) fn sas_error(failure: SasError) -> StorageError {
    let error = StorageError::authentication_failed();
    match failure {
        SasError::Signature | SasError::Malformed => error,
        SasError::Expired => error.with_message("The shared access signature has expired. Ask for a new link."),
        SasError::NotYet => error.with_message("The shared access signature is not valid yet."),
        SasError::Policy => error.with_message(
            "The share has no stored access policy with the identifier of the shared access signature (si), or both set the same field.",
        ),
        SasError::Address => StorageError::new("AuthorizationSourceIPMismatch"),
        SasError::Protocol => StorageError::new("AuthorizationProtocolMismatch"),
    }
}

/// Lowercase hexadecimal digits of some bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
