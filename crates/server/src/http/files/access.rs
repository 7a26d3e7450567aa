//! Who may do what: checks the Shared Key signature or the shared access signature of a request.
//! Entered first for every request; nothing is looked up before it agrees. Never says whether an
//! account exists: a request for one that does not is checked against a key that nobody has.

use corro_model::storage::{
    sas::{Bearer, Overrides, Refused, Resource, Sas},
    shared_key::{self, Credential},
};

use sha2::{Digest, Sha256};

use super::{
    call::Call,
    operation::{Need, Operation},
    refusal::Refusal,
};
use crate::app::instance::hex;

/// How far the date of a signed request may be from our clock, as the service has it.
const MAX_SKEW_SECONDS: i64 = 15 * 60;

#[derive(Debug)]
pub(super) enum Access {
    /// Holds this one of the account's keys, counted from 0: everything.
    Owner(usize),
    /// Holds a link: what the link says.
    Link(Box<Sas>),
}

pub(super) fn authenticate(call: &Call, keys: Option<Vec<Vec<u8>>>, now: i64) -> Result<Access, Refusal> {
    // As much work for an unknown account as for a known one.
    let known = keys.is_some();
    let keys = keys.unwrap_or_else(|| vec![vec![0; 64]; 2]);
    if let Some(authorization) = call.headers.get("authorization") {
        let authorization = authorization.to_str().map_err(|_| Refusal::authentication())?;
        return check_shared_key(call, authorization, &keys, known, now).map(Access::Owner);
    }
    match Sas::from_query(&call.raw_query) {
        None => Err(Refusal::new("NoAuthenticationInformation")),
        Some(Err(refused)) => Err(link_refusal(refused)),
        Some(Ok(sas)) => {
            check_link(call, &sas, &keys, known, now)?;
            Ok(Access::Link(Box::new(sas)))
        }
    }
}

impl Access {
    pub fn allow(&self, operation: Operation) -> Result<(), Refusal> {
        let Access::Link(sas) = self else { return Ok(()) };
        let allowed = match operation.need() {
            Need::Key => false,
            Need::OnShare(any) => sas.resource == Resource::Share && any.iter().any(|p| sas.permits(*p)),
            Need::OnFile(permission) => sas.permits(permission),
        };
        match allowed {
            true => Ok(()),
            false => Err(Refusal::new("AuthorizationPermissionMismatch")),
        }
    }

    /// Who this is in the history: a key by its name, a link by a part of a digest, which opens nothing.
    pub fn actor(&self, account: &str) -> String {
        match self {
            Access::Owner(key) => format!("key:{account}/key{}", key + 1),
            Access::Link(sas) => format!("link:{}", &hex(&Sha256::digest(&sas.signature))[..8]),
        }
    }

    /// A link to something in a container.
    pub fn is_for_blob(&self) -> bool {
        matches!(self, Access::Link(sas) if sas.resource == Resource::Blob)
    }

    /// Response headers chosen by the maker of a link.
    pub fn overrides(&self) -> Option<&Overrides> {
        match self {
            Access::Owner(_) => None,
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
    let signed = |key: &Vec<u8>| shared_key::verify(request, headers.clone(), &[key], credential.signature);
    let signer = keys.iter().position(signed).filter(|_| known && credential.account == call.account);
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

fn check_link(call: &Call, sas: &Sas, keys: &[Vec<u8>], known: bool, now: i64) -> Result<(), Refusal> {
    let target = call.target.as_ref().map_err(|_| Refusal::authentication())?;
    // What the host says must be what the link is for.
    if call.of_blobs && sas.resource != Resource::Blob {
        return Err(Refusal::authentication());
    }
    let bearer = Bearer { address: call.address, over_tls: call.over_tls };
    let checked = sas.check(keys, &call.account, &target.share, target.path.as_str(), bearer, now);
    match known {
        true => checked.map_err(link_refusal),
        false => Err(Refusal::authentication()),
    }
}

pub(super) fn link_refusal(refused: Refused) -> Refusal {
    let refusal = Refusal::authentication();
    match refused {
        Refused::Signature | Refused::Malformed => refusal,
        Refused::Expired => refusal.saying("The shared access signature has expired. Ask for a new link."),
        Refused::NotYet => refusal.saying("The shared access signature is not valid yet."),
        Refused::StoredPolicy => refusal.saying("Stored access policies (si) are not supported."),
        Refused::Address => refusal.saying("The shared access signature is limited to other addresses."),
        Refused::Protocol => refusal.saying("The shared access signature is limited to https."),
    }
}
