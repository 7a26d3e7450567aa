//! Resource limits for unauthenticated clients.

use std::io::Write;
use std::net::TcpStream;

use corro_model::storage::shared_key;
use serde_json::json;

use super::harness::http::exchange;
use super::harness::{GROUP, Site, wait_for};

fn group(site: &Site, name: &str) -> String {
    format!("{}/resourceGroups/{name}?api-version=2018-05-01", site.subscription())
}

#[test]
fn bodies_and_headers_have_limits() {
    let site = Site::start();
    let large = json!({"location": "eastus", "tags": {"a": "x".repeat(2 * 1024 * 1024)}});
    site.arm("PUT", &group(&site, "large"), large.clone()).refused(413, "RequestEntityTooLarge");
    // An unauthenticated request gets 401 before its body is read.
    site.request("PUT", &group(&site, "large"), &[], large.to_string().as_bytes()).is(401);
    for path in ["/adfs/oauth2/token", "/corro/v1/join"] {
        site.request("POST", path, &[], large.to_string().as_bytes()).is(413);
    }
    // A declared length that is never sent blocks nothing.
    let claim = format!("PUT {} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", group(&site, "large"));
    let mut waiting = TcpStream::connect(site.address()).expect("accepted");
    waiting.write_all(claim.as_bytes()).expect("taken");
    for head in [
        format!("GET / HTTP/1.1\r\nHost: x\r\nX-Large: {}\r\n\r\n", "y".repeat(3 * 1024 * 1024)),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "z".repeat(3 * 1024 * 1024)),
        format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(5000)),
    ] {
        // Refused or cut off, never accepted.
        if let Some(response) = exchange(&site.address(), head.as_bytes()) {
            assert!(matches!(response.status, 400 | 401 | 414 | 431), "{response}");
        }
    }
    site.arm("PUT", &group(&site, "small"), json!({"location": "eastus"})).is(201);
}

#[test]
fn slow_and_idle_connections_do_not_stop_the_service() {
    let site = Site::start();
    let connect = || TcpStream::connect(site.address()).expect("accepted");
    let idle: Vec<_> = (0..300).map(|_| connect()).collect();
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(b"GET /subscriptions HTTP/1.1\r\nHost: x\r\nX-Slow: ").expect("taken");
            stream
        })
        .collect();
    site.arm("PUT", &group(&site, "served"), json!({"location": "eastus"})).is(201);
    site.corro("group show -n served").ok();
    drop((idle, slow));
    site.corro("group show -n served").ok();
}

#[test]
fn a_rate_limited_caller_waits_and_others_are_served() {
    let site = Site::start_with(&["--no-containers", "--rate", "1", "--anonymous-rate", "1000"]);
    let made = site.corro("ad sp create-for-rbac -n busy --role Reader").json();
    let form = format!(
        "grant_type=client_credentials&client_id={}&resource=x&client_secret={}",
        made["appId"].as_str().expect("text"),
        made["password"].as_str().expect("text")
    );
    let token = site.request("POST", "/adfs/oauth2/token", &[], form.as_bytes()).is(200).json();
    let bearer = format!("Bearer {}", token["access_token"].as_str().expect("text"));
    let ask = || site.request("GET", "/subscriptions?api-version=2016-06-01", &[("Authorization", &bearer)], b"");
    let header = "x-ms-ratelimit-remaining-subscription-reads";
    let remaining: u32 = ask().is(200).required_header(header).parse().expect("a number");
    let next: u32 = ask().is(200).required_header(header).parse().expect("a number");
    assert!(next < 10 && next <= remaining, "{remaining}, then {next}");
    let refused = (0..60).map(|_| ask()).find(|response| response.status == 429).expect("a bucket has an end");
    let refused = refused.refused(429, "TooManyRequests");
    assert_eq!(refused.required_header("retry-after"), "1");
    assert!(refused.text().contains(made["appId"].as_str().expect("text")), "{refused}");
    // The administrator has its own bucket.
    site.corro("ad sp show --id busy").ok();
}

#[test]
fn commands_wait_when_logins_come_too_often() {
    let site = Site::start_with(&["--no-containers", "--anonymous-rate", "1"]);
    // More than one address may request without a login; each command logs in anew.
    for _ in 0..14 {
        site.corro("group list").ok();
    }
}

#[test]
fn a_rate_limited_storage_account_answers_503() {
    let site = Site::start_with(&["--no-containers", "--rate", "1", "--anonymous-rate", "1000"]);
    site.corro(&format!("group create -n {GROUP} -l eastus")).ok();
    site.corro(&format!("storage account create -g {GROUP} -n mystorageaccount -l eastus --sku Standard_LRS")).ok();
    let key = site.raw_key();
    let ask = || site.signed_request(&key, "GET", "/?comp=list", &[], b"");
    ask().is(200);
    let busy = (0..1_000).map(|_| ask()).find(|response| response.status != 200).expect("a bucket has an end").is(503);
    assert_eq!(
        (busy.required_header("retry-after"), busy.required_header("x-ms-error-code")),
        ("1".into(), "ServerBusy".into())
    );
    assert!(busy.text().contains("<Code>ServerBusy</Code>"), "{busy}");
    // The principal who owns it is still served, and so is the account, later.
    site.corro("group list").ok();
    wait_for("the account to be served again", || ask().status == 200);
}

#[test]
fn slow_uploads_to_one_account_do_not_stop_those_to_another() {
    let site = Site::start();
    site.corro(&format!("group create -n {GROUP} -l eastus")).ok();
    for account in ["mystorageaccount", "other"] {
        site.corro(&format!("storage account create -g {GROUP} -n {account} -l eastus --sku Standard_LRS")).ok();
        site.corro(&format!("storage share create -n data --account-name {account}")).ok();
    }
    let key = site.raw_key();
    let file = [("x-ms-type", "file"), ("x-ms-content-length", "4096")];
    site.signed_request(&key, "PUT", "/data/slow", &file, b"").is(201);
    // More uploads than permits, each with all but its last byte.
    let stuck: Vec<TcpStream> = (0..80).map(|_| half_an_upload(&site, &key)).collect();
    site.write("up.bin", [7; 5000]);
    site.corro("storage file upload --source up.bin -s data -p up.bin --account-name other").ok();
    site.corro("storage file download -s data -p up.bin --dest down.bin --account-name other").ok();
    drop(stuck);
    site.signed_request(&key, "GET", "/data/slow", &[], b"").is(200);
}

fn half_an_upload(site: &Site, key: &[u8]) -> TcpStream {
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let target = "/mystorageaccount/data/slow?comp=range";
    let headers = [
        ("x-ms-write", "update"),
        ("x-ms-range", "bytes=0-4095"),
        ("x-ms-date", date.as_str()),
        ("x-ms-version", "2018-03-28"),
        ("content-length", "4096"),
    ];
    let (path, query) = target.split_once('?').expect("a query");
    let request = shared_key::Request { method: "PUT", path, query, account: "mystorageaccount" };
    let authorization = shared_key::authorization(request, headers.iter().copied(), key);
    let mut text = format!("PUT {target} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    let mut stream = TcpStream::connect(site.address()).expect("accepted");
    stream.write_all(format!("{text}\r\n{}", "x".repeat(4095)).as_bytes()).expect("taken");
    stream
}
