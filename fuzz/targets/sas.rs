//! URLs with a shared access signature: parsed, signed, verified and presented to the file service. A signature that verifies
//! covers exactly these terms, this resource and this key.

use corro_model::storage::sas::{AccountSas, Bearer, Resource, Sas};

use super::{KEY, SERVICE, TestService};

const BEARER: Bearer = Bearer { address: None, over_tls: true };

/// The input is a query.
pub fn sas(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The rest is a fragment, which is never sent to the server.
    let query = text.split('#').next().unwrap_or_default();
    if let Some(Ok(link)) = Sas::from_query(query) {
        check_link(&link);
    }
    if let Some(Ok(link)) = AccountSas::from_query(query) {
        check_account_link(&link);
    }
    let is_valid = has_valid_signature(query);
    SERVICE.with_borrow_mut(|service| {
        let service = service.get_or_insert_with(TestService::new);
        for target in ["/acc/share/file", "/acc/share", "/acc.blob/con/blob"] {
            let status = service.send("GET", &format!("{target}?{query}"), &[], &[]);
            let is_refused = status.is_none_or(|status| (400..500).contains(&status));
            assert!(
                is_refused || (is_valid && status.is_some_and(|status| status < 500)),
                "{target}?{query}: {status:?}"
            );
        }
    });
}

fn has_valid_signature(query: &str) -> bool {
    let paths = [("share", "file"), ("share", ""), ("con", "blob")];
    let link = Sas::from_query(query).and_then(Result::ok);
    let link_is_valid = link
        .is_some_and(|link| paths.iter().any(|(share, path)| link.check_signature(&[KEY], "acc", share, path).is_ok()));
    let account = AccountSas::from_query(query).and_then(Result::ok);
    link_is_valid || account.is_some_and(|link| link.check(&[KEY], "acc", BEARER, 0).is_ok())
}

fn check_link(link: &Sas) {
    let _ = link.clone().check_terms(None, BEARER, 0);
    let query = link.signed_query(&KEY, "acc", "share", "file");
    let signed = Sas::from_query(&query).expect("it has a signature").expect("a parsed link can be written");
    assert_eq!(Sas { signature: link.signature.clone(), ..signed.clone() }, *link, "{query}");
    let verify =
        |link: &Sas, account: &str, share: &str, path: &str| link.check_signature(&[KEY], account, share, path);
    assert!(verify(&signed, "acc", "share", "file").is_ok(), "{query}");
    let is_of_file = matches!(link.resource, Resource::File | Resource::Blob);
    assert_eq!(verify(&signed, "acc", "share", "other").is_err(), is_of_file, "{query}");
    assert!(verify(&signed, "other", "share", "file").is_err() && verify(&signed, "acc", "other", "file").is_err());
    assert!(signed.check_signature(&[[8; 64]], "acc", "share", "file").is_err(), "another key");
    type Change = fn(&mut Sas);
    let changes: [Change; 8] = [
        |link| link.permissions.push('w'),
        |link| link.start.push('1'),
        |link| link.expiry.push('1'),
        |link| link.identifier.push('x'),
        |link| link.addresses.push('1'),
        |link| link.protocols.push('x'),
        |link| link.version.push('1'),
        |link| link.by.push('x'),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut changed = signed.clone();
        change(&mut changed);
        assert!(verify(&changed, "acc", "share", "file").is_err(), "change {number} of {query}");
    }
}

fn check_account_link(link: &AccountSas) {
    let query = link.signed_query(&KEY, "acc");
    let signed = AccountSas::from_query(&query).expect("it has a signature").expect("a parsed link can be written");
    assert_eq!(AccountSas { signature: link.signature.clone(), ..signed.clone() }, *link, "{query}");
    for now in [0, i64::MAX / 2] {
        // Its terms may have expired; the signature is checked separately.
        let own = signed.check(&[KEY], "acc", BEARER, now);
        let other_key = signed.check(&[[8; 64]], "acc", BEARER, now);
        let other_account = signed.check(&[KEY], "other", BEARER, now);
        assert!(other_key.is_err() && other_account.is_err(), "{query}: {own:?}");
    }
    for permission in ["w", "\n", "é"] {
        let mut changed = signed.clone();
        changed.permissions.push_str(permission);
        assert!(changed.check(&[KEY], "acc", BEARER, 0).is_err(), "{query}");
    }
}
