//! Shares and directories: every operation.

use super::*;

#[tokio::test]
async fn shares() {
    let bench = Bench::new();
    for (method, uri, expected) in [
        ("PUT", "/new?restype=share", (201, "ok")),
        ("PUT", "/new?restype=share", (409, "ShareAlreadyExists")),
        ("PUT", "/UPPER?restype=share", (400, "InvalidResourceName")),
        ("GET", "/new?restype=share", (200, "ok")),
        ("HEAD", "/new?restype=share", (200, "ok")),
        ("GET", "/new?restype=share&comp=metadata", (200, "ok")),
        ("PUT", "/new?restype=share&comp=metadata", (200, "ok")),
        ("PUT", "/new?restype=share&comp=properties", (200, "ok")),
        ("DELETE", "/new?restype=share", (202, "ok")),
        ("DELETE", "/new?restype=share", (404, "ShareNotFound")),
        ("GET", "/new?restype=share", (404, "ShareNotFound")),
        ("HEAD", "/new?restype=share", (404, "ShareNotFound")),
        ("PUT", "/new?restype=share&comp=metadata", (404, "ShareNotFound")),
        ("GET", "/new?restype=share&comp=nonsense", (400, "InvalidQueryParameterValue")),
        ("GET", "/share?restype=share&sharesnapshot=2018", (400, "InvalidQueryParameterValue")),
        ("POST", "/share?restype=share", (405, "UnsupportedHttpVerb")),
        ("DELETE", "/?restype=share", (400, "InvalidQueryParameterValue")),
    ] {
        let answer = bench.send(method, uri, &[("x-ms-version", "2023-11-03")], "").await;
        assert_eq!(answer.outcome(), expected, "{method} {uri}");
        assert_eq!(answer.header("x-ms-version"), "2023-11-03");
        // An older SDK would take these headers for a file's and fail.
        assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("x-ms-file")), "{answer:?}");
        if matches!(answer.status, 200 | 201) {
            assert!(answer.header("etag").starts_with("\"0x8D"), "{answer:?}");
            assert!(answer.header("last-modified").ends_with(" GMT"), "{answer:?}");
            assert!(answer.body.is_empty());
        }
        if method == "HEAD" {
            assert!(answer.body.is_empty());
        }
    }
    let properties = bench.get("/share?restype=share", &[]).await;
    assert_eq!(properties.header("x-ms-share-quota"), "5120");
    assert_eq!(properties.header("x-ms-version"), "2018-03-28");
    assert!(!properties.header("server").is_empty());
}

#[tokio::test]
async fn share_listing() {
    let bench = Bench::new();
    for name in ["aaa", "bbb", "bbc"] {
        assert_eq!(bench.send("PUT", &format!("/{name}?restype=share"), &[], "").await.status, 201);
    }
    let names = |answer: &Answer| -> Vec<String> {
        assert_eq!(answer.outcome(), (200, "ok"), "{answer:?}");
        let parts = answer.text().split("<Name>").skip(1);
        parts.map(|part| part.split('<').next().expect("a name").to_owned()).collect()
    };
    let all = bench.get("?comp=list&include=", &[("host", "127.0.0.1:1")]).await;
    assert_eq!(names(&all), ["aaa", "bbb", "bbc", "share"]);
    assert!(all.text().starts_with(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
         <EnumerationResults ServiceEndpoint=\"http://127.0.0.1:1/acc/\"><Shares><Share><Name>aaa</Name>\
         <Properties><Last-Modified>"
    ));
    assert!(all.text().contains("</Etag><Quota>5120</Quota></Properties></Share>"));
    assert!(all.text().ends_with("</Shares><NextMarker /></EnumerationResults>"));
    assert_eq!(all.header("content-type"), "application/xml");

    let page = bench.get("/?comp=list&prefix=bb&maxresults=1", &[]).await;
    assert_eq!(names(&page), ["bbb"]);
    assert!(page.text().contains("<NextMarker>bbc</NextMarker>"));
    assert_eq!(names(&bench.get("/?comp=list&prefix=bb&marker=bbc", &[]).await), ["bbc"]);
    for limit in ["0", "-1", "many"] {
        let answer = bench.get(&format!("/?comp=list&maxresults={limit}"), &[]).await;
        assert_eq!(answer.outcome(), (400, "OutOfRangeQueryParameterValue"));
    }
}

#[tokio::test]
async fn directories() {
    let bench = Bench::new();
    bench.upload("/share/f", b"x").await;
    for (method, uri, expected) in [
        ("PUT", "/share/d?restype=directory", (201, "ok")),
        ("PUT", "/share/d?restype=directory", (409, "ResourceAlreadyExists")),
        ("PUT", "/share/d%2Fsub?restype=directory", (201, "ok")),
        ("PUT", "/share/x/y?restype=directory", (404, "ParentNotFound")),
        ("PUT", "/none/x?restype=directory", (404, "ShareNotFound")),
        ("PUT", "/share?restype=directory", (409, "ResourceAlreadyExists")),
        ("GET", "/share/d?restype=directory", (200, "ok")),
        ("HEAD", "/share/d/sub?restype=directory", (200, "ok")),
        ("GET", "/share?restype=directory", (200, "ok")),
        ("GET", "/share/f?restype=directory", (404, "ResourceNotFound")),
        ("GET", "/share/no?restype=directory", (404, "ResourceNotFound")),
        ("GET", "/share/d?restype=directory&comp=metadata", (200, "ok")),
        ("PUT", "/share/d?restype=directory&comp=metadata", (200, "ok")),
        ("PUT", "/share/d?restype=directory&comp=properties", (200, "ok")),
        ("PUT", "/share/no?restype=directory&comp=metadata", (404, "ResourceNotFound")),
        ("DELETE", "/share/d?restype=directory", (409, "DirectoryNotEmpty")),
        ("DELETE", "/share/d/sub?restype=directory", (202, "ok")),
        ("DELETE", "/share/d?restype=directory", (202, "ok")),
        ("DELETE", "/share/d?restype=directory", (404, "ResourceNotFound")),
        ("DELETE", "/share/f?restype=directory", (409, "ResourceTypeMismatch")),
        ("DELETE", "/share?restype=directory", (400, "InvalidFileOrDirectoryPathName")),
        ("GET", "/share/no?restype=directory&comp=list", (404, "ResourceNotFound")),
        ("GET", "/none?restype=directory&comp=list", (404, "ShareNotFound")),
    ] {
        let answer = bench.send(method, uri, &[], "").await;
        assert_eq!(answer.outcome(), expected, "{method} {uri}");
        assert!(!answer.headers.contains_key("x-ms-file-id"), "{answer:?}");
        if matches!(answer.status, 200 | 201) {
            assert!(!answer.header("etag").is_empty() && !answer.header("last-modified").is_empty());
        }
    }
}

#[tokio::test]
async fn newer_versions_get_the_smb_properties() {
    let bench = Bench::new();
    for (version, present) in [("2018-03-28", false), ("2019-02-02", true), ("2023-11-03", true), ("newest", false)] {
        let headers = [("x-ms-version", version), ("x-ms-file-permission", "Inherit")];
        let uri = format!("/share/dir-{version}?restype=directory");
        for method in ["PUT", "GET"] {
            let answer = bench.send(method, &uri, &headers, "").await;
            for name in [
                "x-ms-file-attributes",
                "x-ms-file-creation-time",
                "x-ms-file-last-write-time",
                "x-ms-file-change-time",
                "x-ms-file-id",
                "x-ms-file-parent-id",
                "x-ms-file-permission-key",
            ] {
                assert_eq!(answer.headers.contains_key(name), present, "{method} {version} {name}");
            }
            let encrypted = if method == "PUT" { "x-ms-request-server-encrypted" } else { "x-ms-server-encrypted" };
            assert_eq!(answer.header(encrypted), "true", "{method} {version}");
        }
    }
}

#[tokio::test]
async fn directory_listing() {
    let bench = Bench::new();
    bench.send("PUT", "/share/d?restype=directory", &[], "").await;
    bench.send("PUT", "/share/d/sub?restype=directory", &[], "").await;
    bench.upload("/share/d/a%26%3Cb%3E%22", b"12345").await;
    bench.upload("/share/d/z", b"").await;
    let list = async |query: &str| bench.get(&format!("/share/d?restype=directory&comp=list{query}"), &[]).await;
    let all = list("").await;
    assert_eq!(all.outcome(), (200, "ok"));
    assert_eq!(
        all.text().split_once("DirectoryPath").expect("the root element").1,
        "=\"d\"><Entries>\
         <File><Name>a&amp;&lt;b&gt;&quot;</Name><Properties><Content-Length>5</Content-Length></Properties></File>\
         <Directory><Name>sub</Name><Properties></Properties></Directory>\
         <File><Name>z</Name><Properties><Content-Length>0</Content-Length></Properties></File>\
         </Entries><NextMarker /></EnumerationResults>"
    );
    let page = list("&maxresults=1&prefix=s").await;
    assert!(page.text().contains("<Prefix>s</Prefix><MaxResults>1</MaxResults><Entries><Directory><Name>sub<"));
    assert!(page.text().contains("<NextMarker />"));
    let first = list("&maxresults=2").await;
    assert!(first.text().contains("<NextMarker>z</NextMarker>"), "{first:?}");
    let second = list("&maxresults=2&marker=z").await;
    assert!(second.text().contains("<Marker>z</Marker><MaxResults>2</MaxResults><Entries><File><Name>z<"));
    let details = list("&include=Timestamps%2CETag").await;
    assert!(details.text().contains("<LastWriteTime>") && details.text().contains("<Etag>"));
    let wrong = bench.send("PUT", "/share/d/f", &[("x-ms-type", "blob")], "").await;
    assert!(wrong.text().contains("</Message><HeaderName>x-ms-type</HeaderName></Error>"), "{wrong:?}");
    // Echoed parameters are escaped.
    let odd = list("&prefix=%3CEntries%3E%00").await;
    assert!(odd.text().contains("<Prefix>&lt;Entries&gt;\u{FFFD}</Prefix><Entries></Entries>"), "{odd:?}");
}

#[tokio::test]
async fn names_that_xml_cannot_say_are_listed_encoded() {
    let bench = Bench::new();
    for name in ["a%EF%BF%BF1", "a%EF%BF%BF2", "b"] {
        bench.upload(&format!("/share/{name}"), b"x").await;
    }
    let list = async |version: &str, query: &str| {
        let uri = format!("/share?restype=directory&comp=list{query}");
        bench.get(&uri, &[("x-ms-version", version)]).await.text().to_owned()
    };
    let old = list("2021-10-04", "").await;
    assert!(old.contains("<Name>b</Name>") && old.matches("<Name>").count() == 1, "{old}");
    let new = list("2021-12-02", "").await;
    assert!(new.contains("<Name Encoded=\"true\">a%EF%BF%BF1</Name>") && new.contains("<Name>b</Name>"), "{new}");
    let first = list("2021-12-02", "&maxresults=1").await;
    assert!(first.contains("<NextMarker>/a%EF%BF%BF2/</NextMarker>"), "{first}");
    let second = list("2021-12-02", "&maxresults=1&marker=/a%25EF%25BF%25BF2/").await;
    assert!(second.contains(">a%EF%BF%BF2</Name>") && second.contains("<NextMarker>b</NextMarker>"), "{second}");
    assert_eq!(bench.get("/share/a%EF%BF%BF2", &[]).await.text(), "x");
    // The SDK garbles the prefix of all pages after the first; the marker carries it.
    bench.upload("/share/bb", b"x").await;
    bench.upload("/share/c", b"x").await;
    let first = list("2021-12-02", "&maxresults=1&prefix=b").await;
    assert!(first.contains("<NextMarker>/bb/b</NextMarker>"), "{first}");
    let second = list("2021-12-02", "&maxresults=1&prefix=%7Bodd%7D&marker=%2Fbb%2Fb").await;
    assert!(second.contains("<Prefix>b</Prefix>") && second.contains("<Name>bb</Name>"), "{second}");
    assert!(second.contains("<NextMarker />"), "{second}");
}
