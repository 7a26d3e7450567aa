//! SAS of every kind: for a share with a stored policy, for an account; and Shared Key Lite.

use corro_model::storage::{
    hmac_base64,
    sas::{AccountSas, Resource, Sas},
    shared_key,
};

use super::*;

const DAY: &str = "2018-06-08";
const CREATE: [(&str, &str); 2] = [("x-ms-type", "file"), ("x-ms-content-length", "1")];

fn account_link(services: &str, resource_types: &str, permissions: &str) -> AccountSas {
    let text = |text: &str| text.to_owned();
    AccountSas {
        version: text("2018-03-28"),
        services: text(services),
        resource_types: text(resource_types),
        permissions: text(permissions),
        expiry: text(DAY),
        ..AccountSas::default()
    }
}

/// Unsigned request; the query may carry a SAS.
async fn send(bench: &Bench, method: &str, uri: &str, headers: &[(&str, &str)]) -> Answer {
    let builder = Request::builder().method(method).uri(format!("/acc{uri}")).header("content-length", "0");
    let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
    bench.send_raw(builder, AddressStyle::Path, "").await
}

fn with(uri: &str, query: &str) -> String {
    format!("{uri}{}{query}", if uri.contains('?') { '&' } else { '?' })
}

#[tokio::test]
async fn an_account_sas_permits_its_services_types_and_permissions() {
    let bench = Bench::new();
    bench.upload("/share/f", b"x").await;
    let (ok, permission) = ("ok", "AuthorizationPermissionMismatch");
    let (service, kind) = ("AuthorizationServiceMismatch", "AuthorizationResourceTypeMismatch");
    for (link, method, uri, headers, expected) in [
        (("f", "s", "l"), "GET", "/?comp=list", &[][..], ok),
        (("f", "s", "r"), "GET", "/?comp=list", &[], permission),
        (("f", "co", "l"), "GET", "/?comp=list", &[], kind),
        (("bqt", "sco", "rwdlc"), "GET", "/?comp=list", &[], service),
        (("b", "s", "l"), "GET", "/?restype=container&comp=list", &[], ok),
        (("f", "s", "l"), "GET", "/?restype=container&comp=list", &[], service),
        (("f", "s", "r"), "GET", "/?restype=service&comp=properties", &[], ok),
        (("f", "c", "r"), "GET", "/share?restype=share", &[], ok),
        (("f", "o", "r"), "GET", "/share?restype=share", &[], kind),
        (("f", "c", "c"), "PUT", "/made?restype=share", &[], ok),
        (("f", "c", "d"), "DELETE", "/made?restype=share", &[], ok),
        (("f", "sco", "rwdlc"), "GET", "/share?restype=share&comp=acl", &[], permission),
        (("f", "c", "l"), "GET", "/share?restype=directory&comp=list", &[], ok),
        (("f", "o", "l"), "GET", "/share?restype=directory&comp=list", &[], kind),
        (("f", "o", "c"), "PUT", "/share/d?restype=directory", &[], ok),
        (("f", "o", "r"), "GET", "/share/f", &[], ok),
        (("f", "c", "r"), "GET", "/share/f", &[], kind),
        (("f", "o", "w"), "PUT", "/share/f?comp=metadata", &[], ok),
        (("f", "o", "r"), "PUT", "/share/f?comp=metadata", &[], permission),
        // The Create permission alone replaces nothing.
        (("f", "o", "c"), "PUT", "/share/new", &CREATE, ok),
        (("f", "o", "c"), "PUT", "/share/new", &CREATE, permission),
        (("f", "o", "w"), "PUT", "/share/new", &CREATE, ok),
        (("f", "o", "w"), "DELETE", "/share/new", &[], permission),
        (("f", "o", "d"), "DELETE", "/share/new", &[], ok),
    ] {
        let query = account_link(link.0, link.1, link.2).signed_query(&KEY2, "acc");
        let answer = send(&bench, method, &with(uri, &query), headers).await;
        assert_eq!(answer.outcome().1, expected, "{link:?} {method} {uri}");
    }
    // At the host of the blob service the SAS must be for blobs.
    bench.send("PUT", "/boxes?restype=container", &[], "").await;
    let host = bench.service.0.shares.container_host_path("acc", "boxes").expect("a path");
    std::fs::write(host.join("blob"), "x").expect("written");
    for (services, expected) in [("f", service), ("b", ok)] {
        let query = account_link(services, "o", "r").signed_query(&KEY1, "acc");
        let builder = Request::builder().uri(format!("/boxes/blob?{query}"));
        assert_eq!(bench.send_raw(builder, AddressStyle::BlobHost, "").await.outcome().1, expected, "{services}");
    }
    let query = account_link("f", "o", "r").signed_query(&KEY1, "acc");
    let refused = (403, "AuthenticationFailed");
    for forged in [query.replace("sp=r", "sp=rw"), query.replace("ss=f", "ss=bf"), query.replace("srt=o", "srt=so")] {
        assert_eq!(send(&bench, "GET", &with("/share/f", &forged), &[]).await.outcome(), refused, "{forged}");
    }
    let limit = |change: fn(&mut AccountSas)| {
        let mut sas = account_link("f", "o", "r");
        change(&mut sas);
        with("/share/f", &sas.signed_query(&KEY1, "acc"))
    };
    for (uri, expected) in [
        (limit(|sas| sas.expiry = "2018-06-07".to_owned()), refused),
        (limit(|sas| sas.start = DAY.to_owned()), refused),
        (limit(|sas| sas.protocols = "https".to_owned()), (403, "AuthorizationProtocolMismatch")),
        (limit(|sas| sas.addresses = "10.0.0.1".to_owned()), (403, "AuthorizationSourceIPMismatch")),
        (limit(|sas| sas.version = "2023-11-03".to_owned()), (200, "ok")),
    ] {
        assert_eq!(send(&bench, "GET", &uri, &[]).await.outcome(), expected, "{uri}");
    }
    let user = format!("/share/f?{query}&skoid=1&sktid=2");
    let answer = send(&bench, "GET", &user, &[]).await;
    assert!(answer.outcome() == refused && answer.text().contains("user delegation key"), "{answer:?}");
}

#[tokio::test]
async fn a_policy_gives_its_links_rights_and_takes_them_away() {
    let bench = Bench::new();
    bench.upload("/share/f", b"x").await;
    let link = |id: &str, permissions: &str| {
        let text = |text: &str| text.to_owned();
        let sas = Sas {
            version: text("2018-03-28"),
            resource: Resource::Share,
            identifier: text(id),
            permissions: text(permissions),
            ..Sas::default()
        };
        with("/share/f", &sas.signed_query(&KEY1, "acc", "share", ""))
    };
    let acl = async |body: &str| bench.send("PUT", "/share?restype=share&comp=acl", &[], body.to_owned()).await;
    let read = async |uri: String| send(&bench, "GET", &uri, &[]).await.outcome().0;
    let policy = |id: &str, fields: &str| {
        format!("<SignedIdentifier><Id>{id}</Id><AccessPolicy>{fields}</AccessPolicy></SignedIdentifier>")
    };
    let document = |policies: &[String]| {
        format!("<?xml version='1.0' encoding='utf-8'?>\n<SignedIdentifiers>{}</SignedIdentifiers>", policies.concat())
    };

    assert_eq!(read(link("mine", "")).await, 403, "no policy is kept yet");
    let both = document(&[
        policy("mine", "<Start>2018-06-07T00:00:00Z</Start><Expiry>2018-06-08</Expiry><Permission>rl</Permission>"),
        policy("a &amp; b", "<Expiry>2018-06-08</Expiry>"),
    ]);
    assert_eq!(acl(&both).await.outcome(), (200, "ok"));
    let kept = bench.get("/share?restype=share&comp=acl", &[]).await;
    assert!(kept.text().contains("<Id>mine</Id><AccessPolicy><Start>2018-06-07T00:00:00Z</Start>"), "{kept:?}");
    assert!(kept.text().contains("<Id>a &amp; b</Id><AccessPolicy><Expiry>2018-06-08</Expiry></AccessPolicy>"));
    assert_eq!(read(link("mine", "")).await, 200);
    assert_eq!(read(link("mine", "r")).await, 403, "both say what is permitted");
    assert_eq!(read(link("a & b", "r")).await, 200);
    assert_eq!(read(link("a & b", "w")).await, 403);
    let write = send(&bench, "PUT", &format!("{}&comp=metadata", link("mine", "")), &[]).await;
    assert_eq!(write.outcome(), (403, "AuthorizationPermissionMismatch"));
    // Metadata and policies are independent.
    bench.send("PUT", "/share?restype=share&comp=metadata", &[("x-ms-meta-a", "1")], "").await;
    assert_eq!(read(link("mine", "")).await, 200);
    assert_eq!(acl("").await.status, 200);
    assert_eq!(read(link("mine", "")).await, 403, "what is removed is revoked");
    assert_eq!(bench.get("/share?restype=share", &[]).await.header("x-ms-meta-a"), "1");

    let six: Vec<String> = (0..6).map(|number| policy(&number.to_string(), "")).collect();
    for (body, code) in [
        ("<SignedIdentifiers>".to_owned(), "InvalidXmlDocument"),
        ("<Other/>".to_owned(), "InvalidXmlDocument"),
        (document(&six), "InvalidXmlDocument"),
        (document(&["<Policy/>".to_owned()]), "UnsupportedXmlNode"),
        (document(&[policy("", "")]), "InvalidXmlNodeValue"),
        (document(&[policy("x", ""), policy("x", "")]), "InvalidXmlNodeValue"),
        (document(&[policy("x", "<Expiry>soon</Expiry>")]), "InvalidXmlNodeValue"),
        (document(&[policy("x", "<Permission>rx</Permission>")]), "InvalidXmlNodeValue"),
    ] {
        assert_eq!(acl(&body).await.outcome(), (400, code), "{body}");
    }
    assert_eq!(acl(&"x".repeat(70 << 10)).await.outcome(), (413, "RequestBodyTooLarge"));
}

#[tokio::test]
async fn the_lite_signature_opens_the_door_too() {
    let bench = Bench::new();
    let lite = |uri: &str, key: &[u8]| {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let request = shared_key::Request { method: "GET", path, query, account: "acc" };
        let text = shared_key::lite_string_to_sign(request, [("x-ms-date", DATE)]);
        let authorization = format!("SharedKeyLite acc:{}", hmac_base64(key, &text));
        Request::builder().uri(uri).header("x-ms-date", DATE).header("authorization", authorization)
    };
    let outcome = async |builder| bench.send_raw(builder, AddressStyle::Path, "").await.outcome().0;
    assert_eq!(outcome(lite("/acc/share?restype=directory&comp=list", &KEY2)).await, 200);
    assert_eq!(outcome(lite("/acc/share?restype=directory&comp=list", &[9; 64])).await, 403);
    assert_eq!(outcome(lite("/acc/share?restype=share&comp=acl", &KEY1).uri("/acc/share?comp=stats")).await, 403);
    assert_eq!(outcome(lite("/acc/share?restype=share", &KEY1).header("x-ms-meta-a", "1")).await, 403);
}
