//! Client commands as users run them: real processes, a real server, standard output, standard error and exit
//! codes. The server listens on a free port and keeps everything in a temporary directory.

mod accounts;
mod batches;
mod blobs;
mod shares;
mod site;
mod stdio;
mod storage;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use site::{IN_EXPERIMENT, Site, prepare, text, wait_until, write_job};

#[test]
fn after_a_logout_up_logs_in_to_the_running_server() {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    let profile = site.path("conf").join("profile.json");
    let gone = site.run("logout");
    assert_eq!(
        (gone.status.code(), text(&gone.stderr)),
        (
            Some(0),
            format!(
                "Logged out of http://{address}: {} is removed.\nThe server still runs on this machine: 'corro up' logs you in again.\n",
                profile.display()
            )
        )
    );
    site.fails(
        "group list",
        1,
        &format!(
            "error: not logged in to http://{address}: {} does not exist\n\nhint: the server runs on this machine: log in to it again with 'corro up'\nsee 'corro docs not-logged-in'\n",
            profile.display()
        ),
    );
    let said = site.out("up");
    assert!(said.contains("You are logged in to it again"), "{said}");
    assert_eq!(site.out("group list"), "[]\n");
    // While logged in, a second `up` reports that the server runs already.
    assert_eq!(site.run("up").status.code(), Some(1));
}

#[test]
fn without_a_server_the_error_has_a_hint() {
    let site = Site::new();
    let profile = site.path("conf").join("profile.json");
    site.fails(
        "group list",
        1,
        &format!(
            "error: No Corro server is configured: {} does not exist\n\nhint: start a server on this machine with 'corro up' (with its --data DIR, to get back to one that runs), or log in to another with 'corro login'\nsee 'corro docs no-server-configured'\n",
            profile.display()
        ),
    );
    let elsewhere = site.command(&["group", "list"]).env("CORRO_SERVER", "https://box:8470").output().expect("it runs");
    let error = text(&elsewhere.stderr);
    assert!(error.starts_with("error: not logged in to https://box:8470: "), "{error}");
    assert!(error.contains("--server https://box:8470'"), "{error}");
    // A profile of a server that no longer runs.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    fs::create_dir_all(site.path("conf")).expect("made");
    let lost = json!({"server": format!("http://{address}"), "subscription": "s", "tenant": "t", "clientId": "c", "clientSecret": "x"});
    fs::write(&profile, lost.to_string()).expect("written");
    let output = site.run("group list");
    let error = text(&output.stderr);
    assert!(error.starts_with(&format!("error: cannot reach the server at http://{address}\n")), "{error}");
    assert!(
        error.contains("\nhint: start it with 'corro up', or with 'corro files' if it serves files only\n"),
        "{error}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn resources_are_made_shown_listed_and_deleted() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    let group = site.json("group create -n g -l eastus --tags a=b");
    let subscription = group["id"].as_str().and_then(|id| id.split('/').nth(2)).expect("an id").to_owned();
    assert_eq!(
        group,
        json!({"id": format!("/subscriptions/{subscription}/resourceGroups/g"), "location": "eastus", "managedBy": null,
               "name": "g", "properties": {"provisioningState": "Succeeded"}, "tags": {"a": "b"}})
    );
    prepare(&site);
    assert_eq!(site.out("group exists -n g"), "true\n");
    assert_eq!(
        site.out("batchai workspace show -g g -n w -o table"),
        "Name    Resource Group    Location    State\n------  ----------------  ----------  ---------\nw       g                 eastus      succeeded\n"
    );
    assert_eq!(site.out("batchai experiment list -g g -w w --query [].name -o tsv"), "e\n");
    let cluster = site.json("batchai cluster show -g g -w w -n c");
    assert_eq!((&cluster["vmSize"], &cluster["resourceGroup"]), (&json!("STANDARD_D1"), &json!("g")));
    assert_eq!(
        cluster["userAccountSettings"],
        json!({"adminUserName": "me", "adminUserPassword": null, "adminUserSshPublicKey": null})
    );
    let by_id = format!("batchai cluster show --ids {} --query name", cluster["id"].as_str().expect("an id"));
    assert_eq!(site.out(&by_id), "\"c\"\n");
    let resized = site.json("batchai cluster resize -g g -w w -n c -t 0 --query scaleSettings.manual");
    assert_eq!(resized, json!({"targetNodeCount": 0, "nodeDeallocationOption": "requeue"}));
    assert_eq!(site.json("storage share create -n myshare --account-name acc"), json!({"created": false}));
    assert_eq!(site.json("storage account keys list -g g -n acc --query [].keyName"), json!(["key1", "key2"]));

    site.fails("group delete -n g", 1, "error: Unable to prompt for confirmation as no tty available. Use --yes.\n");
    site.fails(
        "batchai cluster create -g g -w w -n c -s Standard_D1 -t 1 -p x",
        1,
        "error: \"c\" already exists in \"g\" resource group under \"w\" workspace.\n\nhint: choose another name, or change its size with 'corro batchai cluster resize -g g -w w -n c -t N'\n",
    );
    site.fails(
        "batchai job show -g g -w w -e e -n nope",
        3,
        "error: The specified job nope is not found\n\nhint: list the jobs with 'corro batchai job list -g g -w w -e e'\n",
    );
    site.fails(
        "batchai job list -g g",
        2,
        "error: the following arguments are required: --experiment/-e, --workspace/-w\n\nUsage: corro batchai job list [OPTIONS] --resource-group <GROUP> --workspace <WORKSPACE> --experiment <EXPERIMENT>\n\nFor more information, try '--help'.\n",
    );
    let wrong_query = site.run("group list --query foo[");
    assert_eq!(wrong_query.status.code(), Some(2));
    assert!(text(&wrong_query.stderr).starts_with("error: argument --query: invalid jmespath_type value: 'foo['\n"));

    assert_eq!(site.out("group delete -n g --yes"), "");
    assert_eq!(site.out("group exists -n g -o tsv"), "false\n");
    assert_eq!(site.json("storage account list"), json!([]));
}

#[test]
fn a_stream_survives_a_restart_of_the_server_and_ends_with_the_last_byte() {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    prepare(&site);
    // The job waits for a file, so that the restart falls between two lines for certain. Not every byte is text.
    let go = site.path("go");
    let command = format!(
        "printf 'before\\377\\n'; while [ ! -e {} ]; do sleep 0.05; done; echo after; echo sorry >&2; exit 3",
        go.display()
    );
    write_job(&site.path("job.json"), &command);
    let create =
        format!("batchai job create {IN_EXPERIMENT} -n j -c c -f job.json --storage-account-name acc --query name");
    assert_eq!(site.out(&create), "\"j\"\n");

    let args = format!("batchai job file stream {IN_EXPERIMENT} -j j -f stdout.txt");
    let mut follower = site.command(&args.split(' ').collect::<Vec<_>>());
    let mut follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("corro starts");
    let mut stdout = follower.stdout.take().expect("piped");
    let mut first = [0; 8];
    stdout.read_exact(&mut first).expect("the first line");
    assert_eq!(&first, b"before\xff\n");

    site.kill(Signal::KILL);
    let mut stderr = BufReader::new(follower.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("does not answer") {
        assert!(stderr.read_line(&mut said).expect("text") > 0, "{said}");
    }
    site.start(&address);
    fs::write(&go, "").expect("written");

    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("the rest");
    assert_eq!(text(&rest), "after\n");
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(said.matches("does not answer").count(), 1, "{said}");
    assert!(said.contains("the job \"j\" failed with exit code 3") && said.contains("sorry"), "{said}");
    assert_eq!(follower.wait().expect("it ends").code(), Some(0));

    let waited = site.run(&format!("batchai job wait {IN_EXPERIMENT} -n j --interval 1"));
    assert_eq!(waited.status.code(), Some(3), "{}", text(&waited.stderr));
}

#[test]
fn a_stream_ends_quietly_on_ctrl_c_and_on_a_closed_pipe() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    prepare(&site);
    write_job(&site.path("job.json"), "while true; do echo again; sleep 0.05; done");
    site.out(&format!("batchai job create {IN_EXPERIMENT} -n j -c c -f job.json --storage-account-name acc"));
    let args = format!("batchai job file stream {IN_EXPERIMENT} -j j -f stdout.txt");
    for by_signal in [true, false] {
        let mut follower = site.command(&args.split(' ').collect::<Vec<_>>());
        let mut follower = follower.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("corro starts");
        let mut stdout = follower.stdout.take().expect("piped");
        let mut first = [0; 6];
        stdout.read_exact(&mut first).expect("a line");
        if by_signal {
            kill_process(Pid::from_child(&follower), Signal::INT).expect("it runs");
        } else {
            drop(stdout);
        }
        wait_until("the end of the stream", || follower.try_wait().expect("a child").is_some());
        let status = follower.wait().expect("it ended");
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{by_signal}");
    }
    site.out(&format!("batchai job terminate {IN_EXPERIMENT} -n j -y"));
    wait_until("the job's end", || {
        site.out(&format!("batchai job show {IN_EXPERIMENT} -n j --query executionState")) == "\"failed\"\n"
    });
}
