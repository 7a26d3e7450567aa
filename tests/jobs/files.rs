//! Files of a job: logs, outputs, links to them, and the absence of secrets.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::http::{self, Response};
use crate::harness::{IN_WORKSPACE, Site};
use corro_model::storage::sas;
use serde_json::json;

/// Several small jobs on one node, one after the other.
#[test]
fn logs_outputs_and_secrets() {
    let site = Site::start();
    site.prepare(1);

    site.submit_custom("hi", 1, "echo hi");
    assert_eq!(site.wait_for_end("hi")["executionState"], "succeeded");
    assert_eq!(site.file_names("hi"), ["execution.log", "stderr.txt", "stdout.txt"]);
    let files = site.files("hi");
    assert_eq!((&files[2]["contentLength"], &files[1]["contentLength"]), (&json!(3), &json!(0)));
    assert_eq!(site.stream("hi", "stdout.txt").ok().stdout, "hi\n");
    let execution = site.log("hi", "execution.log");
    for line in execution.lines().filter(|line| !line.starts_with(">>>   ")) {
        let (time, message) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(time.len() == 20 && time.ends_with('Z') && !message.is_empty(), "{line}");
    }
    assert!(execution.contains("Z Mounted //mystorageaccount.file.core.windows.net/myshare at "), "{execution}");
    links_open_files_for_a_while(&site);

    // The next job on the same node sees nothing of this one.
    site.submit("other", &json!({"properties": {"nodeCount": 1,
        "customToolkitSettings": {"commandLine": "ls -A $AZ_BATCHAI_JOB_MOUNT_ROOT | wc -l; ls $AZ_BATCHAI_JOB_TEMP_DIR/batchaidev/cifar"},
        "mountVolumes": {"azureFileShares": [{"relativeMountPath": "elsewhere",
            "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare"}]},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/elsewhere/cifar"}})).ok();
    assert_eq!(site.wait_for_end("other")["executionState"], "succeeded");
    assert_eq!(site.log("other", "stdout.txt"), "1\nother\n");

    let more = json!({
        "jobPreparation": {"commandLine": "echo prep $PLAIN $HIDDEN"},
        "environmentVariables": [{"name": "PLAIN", "value": "plain value"}],
        "secrets": [{"name": "HIDDEN", "value": "s3cr3t-w0rd"}],
        "inputDirectories": [{"id": "IN", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar"}],
        "outputDirectories": [
            {"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar", "pathSuffix": "models/a"},
            {"id": "ALL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar"}],
    });
    std::fs::write(site.share().join("cifar/input.txt"), "given\n").expect("an input");
    let command = "echo $PLAIN $HIDDEN; cat $AZ_BATCHAI_INPUT_IN/input.txt; echo weights > $AZ_BATCHAI_OUTPUT_MODEL/model.bin; mkdir $AZ_BATCHAI_OUTPUT_ALL/sub; echo x > $AZ_BATCHAI_OUTPUT_ALL/sub/x.txt";
    let settings = json!({"customToolkitSettings": {"commandLine": command}});
    let created = site.submit("outputs", &site.job_json(1, settings, more)).ok();
    let job = site.wait_for_end("outputs");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(site.log("outputs", "stdout.txt"), "plain value ***\ngiven\n");
    assert_eq!(site.log("outputs", "stdout-job_prep.txt"), "prep plain value ***\n");
    assert_eq!(
        site.file_names("outputs"),
        ["execution.log", "stderr-job_prep.txt", "stderr.txt", "stdout-job_prep.txt", "stdout.txt"]
    );
    let listed = site.corro(&format!("batchai job list {IN_WORKSPACE} -e cifar")).ok().stdout;
    for shown in [job.to_string(), created.stdout, listed, site.log("outputs", "execution.log"), site.up_log()] {
        assert!(!shown.contains("s3cr3t-w0rd"), "{shown}");
    }
    assert_eq!(job["environmentVariables"], json!([{"name": "PLAIN", "value": "plain value"}]));
    assert_eq!(job["secrets"][0]["name"], "HIDDEN");
    assert!(job["secrets"][0]["value"].is_null(), "{job}");
    let key = site.corro("storage account keys list -g batchai.horovod -n mystorageaccount --query [0].value -o tsv");
    assert!(!job.to_string().contains(key.ok().stdout.trim()), "the account's key is not shown");

    let list = |more: &str| site.corro(&format!("batchai job file list {IN_WORKSPACE} -e cifar -j outputs {more}"));
    let names = |more: &str| list(&format!("{more} --query [].[name,fileType] -o tsv")).ok().stdout;
    assert_eq!(names("-d MODEL"), "model.bin\tfile\n");
    assert_eq!(names("-d ALL"), "models\tdirectory\nsub\tdirectory\n");
    assert_eq!(names("-d ALL -p sub"), "x.txt\tfile\n");
    assert_eq!(names("-d ALL -p nowhere"), "");
    list("-d NOPE").fails(1, &["NOPE"]);
    list("-d ALL -p ../../..").fails(1, &[]);
    let table = list("-d ALL -o table").ok().stdout;
    assert_eq!(
        table,
        "Name    Type       Size    Modified\n------  ---------  ------  ----------\nmodels  directory\nsub     directory\n"
    );
    let stream = format!("batchai job file stream {IN_WORKSPACE} -e cifar -j outputs -d MODEL -f model.bin");
    assert_eq!(site.corro(&stream).ok().stdout, "weights\n");
    site.stream("outputs", "absent.txt").fails(0, &["The file \"absent.txt\" not found for the completed job."]);
}

/// More files than one response holds: all are listed, and the last can be followed.
#[test]
fn a_directory_with_many_files() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("many", 1, "for i in $(seq 1100); do echo $i > $AZ_BATCHAI_STDOUTERR_DIR/f$i; done; echo done");
    assert_eq!(site.wait_for_end("many")["executionState"], "succeeded");
    // The rest is behind nextLink.
    assert_eq!(site.file_names("many").len(), 1103);
    assert_eq!(site.stream("many", "stdout.txt").ok().stdout, "done\n");
}

/// A link of `job file list` supports ranges, and cannot be altered to give more access.
fn links_open_files_for_a_while(site: &Site) {
    let files = site.files("hi");
    let url = files[2]["downloadUrl"].as_str().expect("a link");
    let says = |response: Response, status: u16, body: &[u8]| {
        assert_eq!((response.status, &response.body[..]), (status, body), "{}", response.headers);
        response
    };
    says(http::get(url, &[]), 200, b"hi\n");
    let part = says(http::get(url, &["Range: bytes=1-"]), 206, b"i\n");
    assert_eq!((part.header("content-range"), part.header("content-length")), (Some("bytes 1-2/3"), Some("2")));
    says(http::get(url, &["Range: bytes=0-0"]), 206, b"h");
    says(http::get(url, &["Range: bytes=-1"]), 206, b"\n");
    let beyond = http::get(url, &["Range: bytes=3-"]);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */3")), "{}", beyond.headers);
    let empty = files[1]["downloadUrl"].as_str().expect("a link");
    assert_eq!(http::get(empty, &["Range: bytes=0-"]).status, 416);
    says(http::get(empty, &[]), 200, b"");

    let refused = |url: &str, word: &str| {
        let response = http::get(url, &[]);
        assert_eq!((response.status, response.header("x-ms-error-code")), (403, Some("AuthenticationFailed")), "{url}");
        assert!(response.text().contains(word), "{}", response.text());
    };
    refused(&url.replace("stdout.txt", "execution.log"), "");
    refused(&change(url, "sig=", |signature| signature.chars().rev().collect()), "");
    refused(&change(url, "se=", |_| "2999-01-01T00%3A00%3A00Z".to_owned()), "");
    refused(&change(url, "sp=", |_| "rwd".to_owned()), "");
    // Correctly signed, but expired.
    let segment = site.job("hi")["jobOutputDirectoryPathSegment"].as_str().expect("a path").to_owned();
    let path = format!("cifar/{segment}/stdouterr/stdout.txt");
    let query = |expires: i64| {
        let query = sas::read_link_query(&site.raw_key(), "mystorageaccount", "myshare", &path, expires);
        format!("{}?{}", url.split('?').next().expect("a path"), query.expect("a link"))
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    says(http::get(&query(now + 300), &[]), 200, b"hi\n");
    refused(&query(now - 1), "expired");
    let never = site.corro(&format!("batchai job file list {IN_WORKSPACE} -e cifar -j hi --expiry 0"));
    never.fails(2, &["--expiry", "5..=600"]);
    let anonymous = http::get(url.split('?').next().expect("a path"), &[]);
    assert!([401, 403].contains(&anonymous.status), "{}", anonymous.headers);
}

/// The URL with one value of its query replaced.
fn change(url: &str, name: &str, new: impl FnOnce(&str) -> String) -> String {
    let at = url.find(&format!("&{name}")).or_else(|| url.find(&format!("?{name}"))).expect(name) + 1 + name.len();
    let end = url[at..].find('&').map_or(url.len(), |length| at + length);
    let changed = format!("{}{}{}", &url[..at], new(&url[at..end]), &url[end..]);
    assert_ne!(changed, url);
    changed
}
