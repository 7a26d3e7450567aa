//! TensorBoard on event files of jobs: where the shares are, and downloaded.

use crate::harness::{CommandOutput, http, is_alive, wait_for};
use crate::project::{ProjectSite, Running};

/// Serves the list of the files below `--logdir`: path, size, and whether it is a link.
const TENSORBOARD: &str = r#"#!/usr/bin/env python3
import http.server, os, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
logdir = options["--logdir"]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        lines = []
        for directory, _, names in os.walk(logdir):
            for name in names:
                path = os.path.join(directory, name)
                kind = "link" if os.path.islink(path) else "file"
                lines.append(f"{os.path.relpath(path, logdir)} {os.path.getsize(path)} {kind}")
        body = ("\n".join(sorted(lines)) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(options.get("--port", 0))), Handler)
print(f"TensorBoard at http://127.0.0.1:{server.server_port}/ ({os.getpid()}) {options.get('--reload_interval')}", flush=True)
server.serve_forever()
"#;

/// Writes an event file, waits for the file `go`, and writes more and another file.
const JOB: &str = "mkdir -p runs; printf 12345 >runs/events.out.tfevents.1.host; echo other >runs/model.txt
until [ -e go ]; do sleep 0.05; done; printf 678 >>runs/events.out.tfevents.1.host; printf 1 >late.tfevents.2\n";

fn site() -> ProjectSite {
    let project = ProjectSite::new(&[("tensorboard", TENSORBOARD)]);
    std::fs::write(project.dir().join("job.sh"), JOB).expect("a file");
    project
}

/// A TensorBoard that was started by a command: its address and its process id.
fn started(running: &mut Running) -> (String, u32) {
    let line = running.wait_for_line("TensorBoard at ");
    let mut words = line.split_whitespace().skip(2);
    let url = words.next().expect("an address").to_owned();
    let pid = words.next().and_then(|word| word.trim_matches(['(', ')']).parse().ok()).expect("a process id");
    (url, pid)
}

/// Starts TensorBoard with the temporary directory of this test.
fn start(project: &ProjectSite, line: &str) -> Running {
    std::fs::create_dir_all(project.site.path().join("tmp")).expect("a directory");
    let mut command = project.command(line);
    command.env("TMPDIR", project.site.path().join("tmp"));
    Running::start(command)
}

fn temporary_files(project: &ProjectSite) -> usize {
    std::fs::read_dir(project.site.path().join("tmp")).expect("it exists").count()
}

fn wait_for_files(url: &str, expected: &str) {
    wait_for(&format!("these files: {expected}"), || http::get(url, &[]).text() == expected);
}

fn submit(project: &ProjectSite, name: &str) {
    project.corro(&format!("submit --detach --name {name} -- sh job.sh")).ok();
    let first = project.job_directory(name).join("runs/model.txt");
    wait_for("the first event file", || first.exists());
}

#[test]
fn the_shares_of_this_machine_are_read_in_place() {
    let project = site();
    submit(&project, "one");
    let mut running = start(&project, "tensorboard one -- --reload_interval 1");
    let (url, pid) = started(&mut running);
    assert!(running.stdout().contains(") 1\n"), "{}", running.stdout());
    assert_eq!(http::get(&url, &[]).text(), "one/runs/events.out.tfevents.1.host 5 link\n");
    assert!(running.stderr().contains("1 event file of the job one, on this machine."), "{}", running.stderr());
    std::fs::write(project.job_directory("one").join("go"), "").expect("a file");
    wait_for_files(&url, "one/late.tfevents.2 1 link\none/runs/events.out.tfevents.1.host 8 link\n");
    running.interrupt();
    running.end().ok();
    assert!(!is_alive(pid), "TensorBoard ends with the command");
    assert_eq!(temporary_files(&project), 0);
    assert!(project.job_directory("one").join("late.tfevents.2").exists(), "the files themselves stay");
}

#[test]
fn event_files_of_another_machine_are_downloaded_as_they_grow() {
    let project = site();
    submit(&project, "one");
    // As a login from another machine has it.
    let mut profile = project.site.profile();
    profile.as_object_mut().expect("an object").remove("dataDirectory").expect("it is of this machine");
    std::fs::write(project.site.path().join("config/profile.json"), profile.to_string()).expect("written");
    let mut running = start(&project, "tensorboard cifar --port 0");
    let (url, pid) = started(&mut running);
    assert_eq!(http::get(&url, &[]).text(), "one/runs/events.out.tfevents.1.host 5 file\n");
    assert!(running.stderr().contains("1 event file of the experiment cifar, on the server."), "{}", running.stderr());
    std::fs::write(project.job_directory("one").join("go"), "").expect("a file");
    wait_for_files(&url, "one/late.tfevents.2 1 file\none/runs/events.out.tfevents.1.host 8 file\n");
    // A job that is submitted later is shown too.
    submit(&project, "two");
    let first = "one/late.tfevents.2 1 file\none/runs/events.out.tfevents.1.host 8 file\n";
    wait_for_files(&url, &format!("{first}two/runs/events.out.tfevents.1.host 5 file\n"));
    crate::harness::signal(running.pid(), rustix::process::Signal::TERM);
    running.end().ok();
    assert!(!is_alive(pid));
    assert_eq!(temporary_files(&project), 0);
}

#[test]
fn output_directories_of_a_job_file_are_searched() {
    let project = site();
    project.site.prepare(1);
    let command =
        "mkdir -p $AZ_BATCHAI_OUTPUT_MODEL/train && printf 123 >$AZ_BATCHAI_OUTPUT_MODEL/train/events.out.tfevents.1.h";
    let settings = serde_json::json!({ "customToolkitSettings": { "commandLine": command } });
    let output = serde_json::json!({ "outputDirectories": [{
        "id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar", "pathSuffix": "model",
    }] });
    project.site.submit("classic", &project.site.job_json(1, settings, output)).ok();
    project.site.wait_for_end("classic");
    let mut running = start(&project, "tensorboard classic");
    let (url, _) = started(&mut running);
    assert_eq!(http::get(&url, &[]).text(), "classic/MODEL/train/events.out.tfevents.1.h 3 link\n");
    running.interrupt();
    running.end().ok();
}

#[test]
fn a_tensorboard_that_is_killed_ends_the_command_and_a_killed_command_ends_it() {
    let project = site();
    submit(&project, "one");
    let mut running = start(&project, "tensorboard one");
    let (_, pid) = started(&mut running);
    crate::harness::signal(pid, rustix::process::Signal::KILL);
    running.end().fails(1, &["TensorBoard ended with exit code 1."]);
    assert_eq!(temporary_files(&project), 0);
    let mut running = start(&project, "tensorboard one");
    let (_, pid) = started(&mut running);
    crate::harness::signal(running.pid(), rustix::process::Signal::KILL);
    wait_for("the end of TensorBoard", || !is_alive(pid));
}

#[test]
fn errors_say_what_to_do() {
    let project = site();
    project.corro("submit --name plain -- true").ok();
    start(&project, "tensorboard plain")
        .end()
        .fails(3, &["the job plain has written no TensorBoard event files", "corro job plot"]);
    start(&project, "tensorboard nothing").end().fails(3, &["there is no job nothing"]);
    // Without a program and without Python.
    let empty = project.site.path().join("empty");
    std::fs::create_dir(&empty).expect("a directory");
    let mut command = project.command("tensorboard plain");
    let output = command.env("PATH", &empty).output().expect("it runs");
    CommandOutput::from(output).fails(1, &["TensorBoard is not installed on this machine", "pip install tensorboard"]);
}
