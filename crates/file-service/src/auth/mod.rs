//! Who may do what: checks the Shared Key signature or the shared access signature of a request.
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

use crate::auth::requirement::Need;
use crate::protocol::error::Refusal;
use crate::protocol::operation::Operation;
use crate::protocol::request::{Call, Target};

pub use self::account_keys::{AccountKeys, CredentialSink};

/// Begins the `by` parameter of the SAS URLs that the server gives to nodes for their mounts: `node:NODE:…`.
pub const NODE_PREFIX: &str = "node:";

/// How far the date of a signed request may be from our clock, as the service has it.
const MAX_SKEW_SECONDS: i64 = 15 * 60;

#[derive(Debug)]
pub(crate) enum Access {
    /// Holds this one of the account's keys, counted from 0: everything.
    Owner(usize),
    /// Holds a link to a file or share: what the link says.
    Link(Arc<Sas>),
    /// Holds a link to the account: what that says.
    AccountLink(Box<AccountSas>),
}

/// What a signature has proven, and with which of the account's keys.
#[derive(Debug)]
pub(crate) enum Admission {
    Access(Access, usize),
    /// A link that is signed well, whose terms lie in a policy of its share.
    ByPolicy(Box<Sas>, usize),
}

pub(crate) fn authenticate(call: &Call, keys: Option<&Arc<[Vec<u8>]>>, now: i64) -> Result<Admission, Refusal> {
    if let Some(authorization) = call.headers.get("authorization") {
        let (keys, known) = keys_or_decoys(keys.map(|keys| &**keys));
        let authorization = authorization.to_str().map_err(|_| Refusal::authentication())?;
        let signer = check_shared_key(call, authorization, keys, known, now)?;
        return Ok(Admission::Access(Access::Owner(signer), signer));
    }
    let admission = match sas_cache::recall(call, keys) {
        Some((sas, signer)) => {
            sas.check_own_terms(call.bearer(), now).map_err(link_refusal)?;
            Admission::Access(Access::Link(sas), signer)
        }
        None => {
            let target = call.target.as_ref().map_err(|_| Refusal::authentication());
            let plain = keys.map(|keys| &**keys);
            let checked = check_link(&call.raw_query, plain, &call.account, target, call.bearer(), now)
                .unwrap_or_else(|| Err(Refusal::new("NoAuthenticationInformation")))?;
            if let Admission::Access(Access::Link(sas), signer) = &checked {
                sas_cache::keep(call, keys, sas, *signer);
            }
            checked
        }
    };
    // What the host says must be what the link is for.
    let resource = match &admission {
        Admission::Access(Access::Link(sas), _) => Some(sas.resource),
        Admission::ByPolicy(sas, _) => Some(sas.resource),
        Admission::Access(..) => None,
    };
    match call.of_blobs && resource.is_some_and(|resource| !resource.is_of_blobs()) {
        true => Err(Refusal::authentication()),
        false => Ok(admission),
    }
}

/// Checks the link in a query of a request or of a URL; None when there is none.
pub(crate) fn check_link(
    query: &str,
    keys: Option<&[Vec<u8>]>,
    account: &str,
    target: Result<&Target, Refusal>,
    bearer: Bearer,
    now: i64,
) -> Option<Result<Admission, Refusal>> {
    if is_by_user(query) {
        return Some(Err(Refusal::authentication().saying(
            "This shared access signature was made with a user delegation key. Use one made with the account's key.",
        )));
    }
    let (keys, known) = keys_or_decoys(keys);
    let checked = match (AccountSas::from_query(query), Sas::from_query(query)) {
        (Some(sas), _) => sas.and_then(|sas| {
            let signer = sas.check(keys, account, bearer, now)?;
            Ok(Admission::Access(Access::AccountLink(Box::new(sas)), signer))
        }),
        (None, Some(sas)) => sas.and_then(|sas| {
            let target = target.map_err(|_| Refused::Signature)?;
            let signer = sas.check_signature(keys, account, &target.share, target.path.as_str())?;
            Ok(match sas.identifier.is_empty() {
                true => Admission::Access(Access::Link(Arc::new(sas.check_terms(None, bearer, now)?)), signer),
                false => Admission::ByPolicy(Box::new(sas), signer),
            })
        }),
        (None, None) => return None,
    };
    Some(match known {
        true => checked.map_err(link_refusal),
        false => Err(Refusal::authentication()),
    })
}

/// Signed for a person and not by the account: such links name that person's object.
fn is_by_user(query: &str) -> bool {
    corro_model::storage::query_pairs(query).any(|(name, _)| name == "skoid")
}

/// The end of the check of a link whose terms lie in a policy.
pub(crate) fn under_policy(sas: Sas, policy: Option<&Policy>, bearer: Bearer, now: i64) -> Result<Access, Refusal> {
    sas.check_terms(policy, bearer, now).map(|sas| Access::Link(Arc::new(sas))).map_err(link_refusal)
}

/// As much work for an unknown account as for a known one.
fn keys_or_decoys(keys: Option<&[Vec<u8>]>) -> (&[Vec<u8>], bool) {
    static DECOYS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [vec![0; 64], vec![0; 64]]);
    (keys.unwrap_or(&*DECOYS), keys.is_some())
}

impl Access {
    /// `of_blobs`: the request is one to the blob service, whatever it asks for.
    pub fn allow(&self, operation: Operation, of_blobs: bool) -> Result<(), Refusal> {
        let need = operation.need();
        let service = if of_blobs { 'b' } else { operation.service_letter() };
        let permits = |any: &[Permission]| match self {
            Access::Owner(_) => true,
            Access::Link(sas) => any.iter().any(|permission| sas.permits(*permission)),
            Access::AccountLink(sas) => any.iter().any(|permission| sas.permits(*permission)),
        };
        let code = match (self, need) {
            (Access::Owner(_), _) => return Ok(()),
            (_, Need::Key) => "AuthorizationPermissionMismatch",
            (Access::AccountLink(sas), _) if !sas.is_for_service(service) => "AuthorizationServiceMismatch",
            (Access::AccountLink(sas), _) if !need.resource_type().is_some_and(|kind| sas.is_for(kind)) => {
                "AuthorizationResourceTypeMismatch"
            }
            (Access::AccountLink(_), need) if permits(need.permissions()) => return Ok(()),
            (Access::Link(_), Need::OnFile(any)) if permits(any) => return Ok(()),
            (Access::Link(sas), Need::InShare(any) | Need::Listing(any))
                if matches!(sas.resource, Resource::Share | Resource::Container) && permits(any) =>
            {
                return Ok(());
            }
            _ => "AuthorizationPermissionMismatch",
        };
        Err(Refusal::new(code))
    }

    /// Whether what is there may be replaced: with the right to create alone it may not.
    pub fn may_replace(&self) -> bool {
        match self {
            Access::Owner(_) => true,
            Access::Link(sas) => sas.permits(Permission::Write),
            Access::AccountLink(sas) => sas.permits(Permission::Write),
        }
    }

    /// Who this is in the history: a key by its name, a link by a part of a digest, which opens nothing.
    pub fn actor(&self, account: &str) -> String {
        let link = |signature: &str| format!("link:{}", &hex(&Sha256::digest(signature))[..8]);
        match self {
            Access::Owner(key) => format!("key:{account}/key{}", key + 1),
            Access::Link(sas) => match sas.by.strip_prefix(NODE_PREFIX).and_then(|by| by.split(':').next()) {
                Some(node) => format!("{NODE_PREFIX}{node}"),
                None => link(&sas.signature),
            },
            Access::AccountLink(sas) => link(&sas.signature),
        }
    }

    /// For whom this server made the link, if it did.
    pub fn by(&self) -> Option<&str> {
        match self {
            Access::Link(sas) if !sas.by.is_empty() => Some(&sas.by),
            _ => None,
        }
    }

    /// The pass of a node, which mounts with it.
    pub fn is_of_node(&self) -> bool {
        self.by().is_some_and(|by| by.starts_with(NODE_PREFIX))
    }

    /// A link to a container or to something in one.
    pub fn is_for_blob(&self) -> bool {
        matches!(self, Access::Link(sas) if sas.resource.is_of_blobs())
    }

    /// The links that this server makes to output in containers lead to the file service's address, and so do the passes of nodes, to which a
    /// container is a directory like others.
    pub fn sees_files(&self, call: &Call) -> bool {
        self.is_for_blob() && !call.of_blobs
    }

    /// Response headers chosen by the maker of a link.
    pub fn overrides(&self) -> Option<&Overrides> {
        match self {
            Access::Owner(_) | Access::AccountLink(_) => None,
            Access::Link(sas) => Some(&sas.overrides),
        }
    }
}

/// Which of the keys has signed.
fn check_shared_key(
    call: &Call,
    authorization: &str,
    keys: &[Vec<u8>],
    known: bool,
    now: i64,
) -> Result<usize, Refusal> {
    let credential = Credential::parse(authorization).ok_or(Refusal::authentication())?;
    let request = shared_key::Request {
        method: call.method.as_str(),
        path: &call.raw_path,
        query: &call.raw_query,
        account: &call.account,
    };
    let headers: Vec<_> = call.signed_headers().collect();
    let headers = headers.iter().map(|(name, value)| (*name, value.as_ref()));
    let signer = shared_key::verify(request, headers, keys, credential);
    let signer = signer.filter(|_| known && credential.account == call.account);
    let signer = signer.ok_or_else(Refusal::authentication)?;
    // Only now: the date is part of what was signed, and a forger need not know our clock.
    let date = call.header("x-ms-date").or(call.header("date")).ok_or(Refusal::authentication())?;
    let date = httpdate::parse_http_date(date).map_err(|_| Refusal::authentication())?;
    let date = corro_model::Timestamp::from(date).seconds();
    match (date - now).abs() <= MAX_SKEW_SECONDS {
        true => Ok(signer),
        false => Err(Refusal::authentication().saying(
            "The date in the request is more than 15 minutes from the server's clock. Set the clock of this machine.",
        )),
    }
}

pub(crate) fn link_refusal(refused: Refused) -> Refusal {
    let refusal = Refusal::authentication();
    match refused {
        Refused::Signature | Refused::Malformed => refusal,
        Refused::Expired => refusal.saying("The shared access signature has expired. Ask for a new link."),
        Refused::NotYet => refusal.saying("The shared access signature is not valid yet."),
        Refused::Policy => refusal.saying(
            "The share keeps no access policy of the name that the shared access signature gives (si), or both say the same thing.",
        ),
        Refused::Address => Refusal::new("AuthorizationSourceIPMismatch"),
        Refused::Protocol => Refusal::new("AuthorizationProtocolMismatch"),
    }
}

/// Lowercase hexadecimal digits of some bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
