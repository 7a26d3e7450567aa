//! SMB properties, permissions, service properties, handles.

use std::fs;

use super::*;

const NEW: (&str, &str) = ("x-ms-version", "2023-11-03");
const CREATE: [(&str, &str); 3] = [NEW, ("x-ms-type", "file"), ("x-ms-content-length", "3")];
const LONG_AGO: &str = "2001-02-03T04:05:06.7000000Z";

#[tokio::test]
async fn attributes_and_times_are_stored_until_a_write() {
    let bench = Bench::new();
    let said = [
        ("x-ms-file-attributes", "hidden|NotContentIndexed"),
        ("x-ms-file-creation-time", LONG_AGO),
        ("x-ms-file-last-write-time", LONG_AGO),
        ("x-ms-file-change-time", LONG_AGO),
        ("x-ms-file-permission", "inherit"),
    ];
    let expected = [
        ("x-ms-file-attributes", "Hidden | NotContentIndexed"),
        ("x-ms-file-creation-time", LONG_AGO),
        ("x-ms-file-last-write-time", LONG_AGO),
        ("x-ms-file-change-time", LONG_AGO),
        ("x-ms-file-permission-key", "0*0"),
    ];
    let check = |answer: &Answer, expected: &[(&str, &str)]| {
        assert!(answer.status < 300, "{answer:?}");
        expected.iter().for_each(|(name, value)| assert_eq!(answer.header(name), *value, "{name}"));
    };
    check(&bench.send("PUT", "/share/f", &[&CREATE[..], &said].concat(), "").await, &expected);
    let head = async || bench.send("HEAD", "/share/f", &[NEW], "").await;
    check(&head().await, &expected);
    // New metadata keeps the last write time and moves the change time.
    bench.send("PUT", "/share/f?comp=metadata", &[NEW, ("x-ms-meta-a", "1")], "").await;
    check(&head().await, &expected[..3]);
    assert_ne!(head().await.header("x-ms-file-change-time"), LONG_AGO);
    let preserve = [NEW, ("x-ms-file-attributes", "preserve"), ("x-ms-file-last-write-time", "preserve")];
    check(&bench.send("PUT", "/share/f?comp=properties", &preserve, "").await, &expected[..3]);
    let range = [NEW, ("x-ms-write", "update"), ("x-ms-range", "bytes=0-2"), ("x-ms-file-last-write-time", "preserve")];
    check(&bench.send("PUT", "/share/f?comp=range", &range, "abc").await, &expected[2..3]);
    check(&head().await, &expected[..3]);
    let resize = [NEW, ("x-ms-content-length", "5"), ("x-ms-file-last-write-time", "preserve")];
    check(&bench.send("PUT", "/share/f?comp=properties", &resize, "").await, &expected[..3]);
    // A write by a job updates the last write time.
    fs::write(bench.host().join("f"), "job").expect("written");
    assert_ne!(head().await.header("x-ms-file-last-write-time"), LONG_AGO);
    check(&head().await, &expected[..2]);
    let none = [NEW, ("x-ms-file-attributes", "None"), ("x-ms-file-creation-time", "now")];
    let reset = bench.send("PUT", "/share/f?comp=properties", &none, "").await;
    assert_eq!(reset.header("x-ms-file-attributes"), "Archive");
    assert_ne!(reset.header("x-ms-file-creation-time"), LONG_AGO);

    let directory = [NEW, ("x-ms-file-attributes", "System|Directory"), said[1], said[2]];
    check(
        &bench.send("PUT", "/share/d?restype=directory", &directory, "").await,
        &[("x-ms-file-attributes", "System | Directory")],
    );
    let found = bench.get("/share/d?restype=directory", &[NEW]).await;
    check(&found, &[("x-ms-file-attributes", "System | Directory"), expected[1], expected[2]]);
    for (name, value) in [
        ("x-ms-file-attributes", "Readable"),
        ("x-ms-file-attributes", "Directory"),
        ("x-ms-file-last-write-time", "yesterday"),
        ("x-ms-file-permission", "everybody"),
        ("x-ms-file-permission-key", "12*1"),
    ] {
        let refused = bench.send("PUT", "/share/bad", &[&CREATE[..], &[(name, value)]].concat(), "").await;
        assert_eq!(refused.outcome(), (400, "InvalidHeaderValue"), "{name}: {value}");
        assert_eq!(bench.send("HEAD", "/share/bad", &[], "").await.status, 404);
    }
}

#[tokio::test]
async fn a_read_only_file_is_not_written_to() {
    let bench = Bench::new();
    let read_only = ("x-ms-file-attributes", "ReadOnly");
    assert_eq!(bench.send("PUT", "/share/f", &[&CREATE[..], &[read_only]].concat(), "").await.status, 201);
    let range = [("x-ms-write", "update"), ("x-ms-range", "bytes=0-2")];
    for (method, uri, headers, body) in [
        ("PUT", "/share/f?comp=range", &range[..], "abc"),
        ("PUT", "/share/f?comp=properties", &[("x-ms-content-length", "9")], ""),
        ("PUT", "/share/f", &CREATE, ""),
        ("DELETE", "/share/f", &[], ""),
    ] {
        let refused = bench.send(method, uri, headers, body).await;
        assert_eq!(refused.outcome(), (409, "ReadOnlyAttribute"), "{method} {uri}");
    }
    let writable = bench.send("PUT", "/share/f?comp=properties", &[NEW, ("x-ms-file-attributes", "None")], "").await;
    assert_eq!(writable.outcome(), (200, "ok"));
    assert_eq!(bench.send("PUT", "/share/f?comp=range", &range, "abc").await.outcome(), (201, "ok"));
}

#[tokio::test]
async fn permissions_are_stored_per_share_under_a_key() {
    let bench = Bench::new();
    let sddl = "O:S-1-5-21-1G:S-1-5-21-2D:AI(A;;FA;;;SY)";
    let body = format!("{{\"permission\": \"{sddl}\"}}");
    let uri = "/share?restype=share&comp=filepermission";
    let made = bench.send("PUT", uri, &[NEW], body.clone()).await;
    let key = made.header("x-ms-file-permission-key").to_owned();
    assert!(made.outcome() == (201, "ok") && !key.is_empty(), "{made:?}");
    let again = bench.send("PUT", uri, &[NEW], body).await;
    assert_eq!(again.header("x-ms-file-permission-key"), key);
    let read = async |key: &str| bench.get(uri, &[NEW, ("x-ms-file-permission-key", key)]).await;
    assert_eq!(read(&key).await.text(), format!("{{\"permission\":\"{sddl}\"}}"));
    assert!(read("0*0").await.text().contains("D:(A;"));
    for key in ["12*1", "../share", "", "x"] {
        assert_eq!(read(key).await.outcome(), (404, "ResourceNotFound"), "{key}");
    }
    for body in ["", "{}", "{\"permission\": 1}", "{\"permission\": \"all\"}"] {
        assert_eq!(bench.send("PUT", uri, &[NEW], body).await.outcome(), (400, "InvalidInput"), "{body}");
    }
    let named = [&CREATE[..], &[("x-ms-file-permission-key", key.as_str())]].concat();
    assert_eq!(bench.send("PUT", "/share/a", &named, "").await.header("x-ms-file-permission-key"), key);
    let written = [&CREATE[..], &[("x-ms-file-permission", sddl)]].concat();
    assert_eq!(bench.send("PUT", "/share/b", &written, "").await.header("x-ms-file-permission-key"), key);
    // A share created later with the same name does not have it.
    bench.send("DELETE", "/share?restype=share", &[], "").await;
    bench.send("PUT", "/share?restype=share", &[], "").await;
    assert_eq!(read(&key).await.status, 404);
}

#[tokio::test]
async fn listings_include_only_requested_details() {
    let bench = Bench::new();
    let hidden = [&CREATE[..], &[("x-ms-file-attributes", "Hidden"), ("x-ms-file-last-write-time", LONG_AGO)]].concat();
    bench.send("PUT", "/share/f", &hidden, "").await;
    bench.send("PUT", "/share/d?restype=directory", &[], "").await;
    let list = async |query: &str, headers: &[(&str, &str)]| {
        let uri = format!("/share?restype=directory&comp=list{query}");
        bench.get(&uri, &[&[NEW], headers].concat()).await.text().to_owned()
    };
    let elements = ["<FileId>", "<DirectoryId>", "<LastWriteTime>", "<Etag>", "<Attributes>", "<PermissionKey>"];
    for (query, extended, expected) in [
        ("", "false", &[][..]),
        ("", "true", &["<FileId>", "<DirectoryId>"]),
        ("&include=Etag", "true", &["<FileId>", "<DirectoryId>", "<Etag>"]),
        ("&include=timestamps,attributes", "true", &["<FileId>", "<DirectoryId>", "<LastWriteTime>", "<Attributes>"]),
        ("&include=Timestamps,Etag,Attributes,PermissionKey", "true", &elements),
    ] {
        let text = list(query, &[("x-ms-file-extended-info", extended)]).await;
        let found: Vec<&str> = elements.into_iter().filter(|element| text.contains(element)).collect();
        assert_eq!(found, expected, "{query} {text}");
    }
    let all = list("&include=Timestamps,Attributes,PermissionKey", &[]).await;
    assert!(all.contains(&format!("<LastWriteTime>{LONG_AGO}</LastWriteTime>")), "{all}");
    assert!(all.contains("<Attributes>Hidden</Attributes><PermissionKey>0*0</PermissionKey></File>"), "{all}");
    assert!(all.contains("<Attributes>Directory</Attributes>"), "{all}");
}

#[tokio::test]
async fn the_service_keeps_its_settings() {
    let bench = Bench::new();
    let uri = "/?restype=service&comp=properties";
    let get = async || bench.get(uri, &[NEW]).await.text().to_owned();
    assert!(get().await.contains("<HourMetrics><Version>1.0</Version><Enabled>false</Enabled>"));
    assert!(get().await.contains("<Cors></Cors><ProtocolSettings><SMB>"));
    let old = bench.get(uri, &[("x-ms-version", "2018-03-28")]).await;
    assert!(!old.text().contains("ProtocolSettings"), "{old:?}");
    let set = async |body: &str| {
        let body = format!(
            "<?xml version='1.0' encoding='utf-8'?>\n<StorageServiceProperties>{body}</StorageServiceProperties>"
        );
        bench.send("PUT", uri, &[NEW], body).await
    };
    let rule = "<CorsRule><AllowedOrigins>http://é.example,*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
                <MaxAgeInSeconds>60</MaxAgeInSeconds><ExposedHeaders /><AllowedHeaders>x-ms-*</AllowedHeaders></CorsRule>";
    let metrics = "<HourMetrics><Version>1.0</Version><Enabled>True</Enabled><IncludeAPIs>False</IncludeAPIs>\
                   <RetentionPolicy><Enabled>True</Enabled><Days>5</Days></RetentionPolicy></HourMetrics>";
    assert_eq!(set(&format!("{metrics}<Cors>{rule}</Cors>")).await.outcome(), (202, "ok"));
    let kept = get().await;
    assert!(kept.contains("<Enabled>true</Enabled><IncludeAPIs>false</IncludeAPIs>"), "{kept}");
    assert!(
        kept.contains("<Days>5</Days>") && kept.contains("<AllowedOrigins>http://&#233;.example,*</AllowedOrigins>")
    );
    let protocol =
        "<ProtocolSettings><SMB><Multichannel><Enabled>true</Enabled></Multichannel></SMB></ProtocolSettings>";
    assert_eq!(set(protocol).await.outcome(), (202, "ok"));
    let kept = get().await;
    assert!(kept.contains(protocol) && kept.contains("<Days>5</Days>"), "what is left out stays: {kept}");
    for (body, code) in [
        ("<Logging/>", "UnsupportedXmlNode"),
        ("<HourMetrics/>", "MissingRequiredXmlNode"),
        ("<Cors><Rule/></Cors>", "UnsupportedXmlNode"),
        (&format!("<Cors>{}</Cors>", rule.repeat(6)), "InvalidXmlDocument"),
        (&metrics.replace("<Days>5", "<Days>0"), "InvalidXmlNodeValue"),
        (&metrics.replace("True", "yes"), "InvalidXmlNodeValue"),
        ("<Cors/><Cors/>", "InvalidXmlDocument"),
        ("<Cors>", "InvalidXmlDocument"),
    ] {
        assert_eq!(set(body).await.outcome(), (400, code), "{body}");
    }
    assert_eq!(get().await, kept, "nothing is half-done");
}

#[tokio::test]
async fn cors_rules_decide_what_browsers_may_do() {
    let bench = Bench::new();
    bench.upload("/share/f", b"abc").await;
    let page = ("origin", "http://page.example");
    let ask = async |headers: &[(&str, &str)]| {
        let builder = Request::builder().method("OPTIONS").uri("/acc/share/f");
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        bench.send_raw(builder, AddressStyle::Path, "").await
    };
    let (method, names) = (("access-control-request-method", "PUT"), "access-control-request-headers");
    assert_eq!(ask(&[page, method]).await.outcome(), (403, "CorsPreflightFailure"), "there is no rule yet");
    let rule = "<CorsRule><AllowedOrigins>http://page.example</AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods>\
                <MaxAgeInSeconds>60</MaxAgeInSeconds><ExposedHeaders>x-ms-v*,etag</ExposedHeaders>\
                <AllowedHeaders>x-ms-*,Range</AllowedHeaders></CorsRule>";
    let body = format!("<StorageServiceProperties><Cors>{rule}</Cors></StorageServiceProperties>");
    assert_eq!(bench.send("PUT", "/?restype=service&comp=properties", &[], body).await.status, 202);
    let allowed = ask(&[page, method, (names, "X-MS-Date, range")]).await;
    assert_eq!(allowed.outcome(), (200, "ok"));
    assert_eq!(allowed.header("access-control-allow-origin"), "http://page.example");
    assert_eq!(
        (allowed.header("access-control-max-age"), allowed.header("access-control-allow-methods")),
        ("60", "PUT")
    );
    for headers in [
        &[("origin", "http://other.example"), method][..],
        &[page, ("access-control-request-method", "DELETE")],
        &[page, method, (names, "x-other")],
    ] {
        assert_eq!(ask(headers).await.outcome(), (403, "CorsPreflightFailure"), "{headers:?}");
    }
    assert_eq!(ask(&[page]).await.outcome(), (400, "MissingRequiredHeader"));
    assert_eq!(ask(&[method]).await.outcome(), (401, "NoAuthenticationInformation"), "not from a page");
    let read = bench.get("/share/f", &[page]).await;
    assert_eq!((read.text(), read.header("access-control-allow-origin")), ("abc", "http://page.example"));
    assert!(read.header("access-control-expose-headers").contains("x-ms-version"), "{read:?}");
    assert!(read.header("access-control-expose-headers").contains("etag"), "{read:?}");
    let other = bench.get("/share/f", &[("origin", "http://other.example")]).await;
    assert!(!other.headers.contains_key("access-control-allow-origin"), "{other:?}");
}

#[tokio::test]
async fn handle_lists_are_empty_and_shares_report_smb() {
    let bench = Bench::new();
    bench.upload("/share/f", b"abc").await;
    for uri in ["/share?comp=listhandles", "/share/f?comp=listhandles&maxresults=5"] {
        let listed = bench.get(uri, &[("x-ms-recursive", "true")]).await;
        assert!(listed.outcome() == (200, "ok") && listed.text().contains("<Entries /><NextMarker />"), "{listed:?}");
    }
    assert_eq!(bench.get("/share/none?comp=listhandles", &[]).await.status, 404);
    let closed = bench.send("PUT", "/share/f?comp=forceclosehandles", &[("x-ms-handle-id", "*")], "").await;
    assert_eq!((closed.outcome(), closed.header("x-ms-number-of-handles-closed")), ((200, "ok"), "0"));

    let tier = ("x-ms-access-tier", "hot");
    assert_eq!(bench.send("PUT", "/tiers?restype=share", &[NEW, tier], "").await.status, 201);
    let found = bench.get("/tiers?restype=share", &[NEW]).await;
    assert_eq!((found.header("x-ms-access-tier"), found.header("x-ms-enabled-protocols")), ("Hot", "SMB"));
    assert!(bench.get("/?comp=list", &[NEW]).await.text().contains("<AccessTier>Hot</AccessTier>"));
    let cool = bench.send("PUT", "/tiers?restype=share&comp=properties", &[("x-ms-access-tier", "Cool")], "").await;
    assert_eq!(cool.outcome(), (200, "ok"));
    assert_eq!(bench.get("/tiers?restype=share", &[NEW]).await.header("x-ms-access-tier"), "Cool");
    for header in [("x-ms-access-tier", "Warm"), ("x-ms-enabled-protocols", "NFS"), ("x-ms-root-squash", "RootSquash")]
    {
        let refused = bench.send("PUT", "/other?restype=share", &[header], "").await;
        assert_eq!(refused.outcome(), (400, "InvalidHeaderValue"), "{header:?}");
    }
    let deleted = [("x-ms-deleted-share-name", "tiers"), ("x-ms-deleted-share-version", "1")];
    let undelete = bench.send("PUT", "/tiers?restype=share&comp=undelete", &deleted, "").await;
    assert_eq!(undelete.outcome(), (404, "ShareNotFound"));
    assert!(!bench.get("/?comp=list&include=deleted", &[NEW]).await.text().contains("<Deleted>"));
}
