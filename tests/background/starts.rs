//! Starts in the background: what is printed, what runs, and what is left of a start that failed.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, getsid};

use crate::harness::terminal::Terminal;
use crate::harness::{CommandOutput, http, is_alive, signal, wait_for};
use crate::site::{BackgroundSite, UP};

#[test]
fn a_server_in_the_background_is_ready_when_the_command_returns() {
    let background = BackgroundSite::new();
    let started = background.corro(UP).ok();
    let data = background.site.data().canonicalize().expect("it exists");
    let log = data.join("server.log");
    for text in [
        "Corro ",
        " listens on http://127.0.0.1:",
        &format!("  data     {}\n", data.display()),
        &format!("  log      {}\n", log.display()),
        "The server runs in the background. See it with 'corro status', stop it with 'corro stop'.\n",
    ] {
        assert!(started.stdout.contains(text), "{text:?} is missing: {}", started.stdout);
    }
    let status = background.status();
    let url = status["server"].as_str().expect("an address");
    assert!(started.stdout.contains(url), "{status}");
    assert_eq!(http::get(&format!("{url}/readyz"), &[]).text(), "ok\n");
    assert_eq!((&status["running"], &status["background"]), (&true.into(), &true.into()));
    assert_eq!(status["log"], log.display().to_string());

    // Without a terminal, in a session of its own, with its output in the log.
    let pid = background.pid();
    let own = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    assert_eq!(getsid(Some(own)).expect("it runs"), own);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let terminal = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(4));
    assert_eq!(terminal, Some("0"), "{stat}");
    let target = |fd: u32| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).expect("it is open");
    assert_eq!((target(0), target(1), target(2)), ("/dev/null".into(), log.clone(), log.clone()));
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).expect("it runs"), data);
    let mode = std::fs::metadata(&log).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    background.corro("group create -n g -l eastus").ok();
    wait_for("the request in the log", || {
        background.log().contains("resourcegroups/g") || background.log().contains("resourceGroups/g")
    });

    let text = background.corro("status").ok().stdout;
    for part in [
        " runs at http://127.0.0.1:",
        "  since    ",
        &format!("  process  {pid}, in the background"),
        "  nodes    none",
        "  jobs     0 running, 0 queued, 0 ended",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

#[test]
fn a_second_start_reports_the_first_and_leaves_it_alone() {
    let background = BackgroundSite::new();
    background.corro(UP).ok();
    let pid = background.pid();
    let again = background.corro(UP).ok();
    assert!(
        again.stdout.contains("Corro already runs on ") && again.stdout.contains(&format!("(process {pid})")),
        "{}",
        again.stdout
    );
    // A start in a terminal says the same, as an error.
    let other = background.corro("up --listen 127.0.0.1:0 --data data");
    other.fails(1, &["already running on", "corro stop --data "]);
    // A user who has lost the login gets it again.
    let profile = background.site.path().join("config/profile.json");
    let before = std::fs::read(&profile).expect("a profile");
    std::fs::remove_file(&profile).expect("removed");
    let again = background.corro(UP).ok();
    assert!(again.stderr.contains("You are logged in to http://127.0.0.1:"), "{}", again.stderr);
    assert_eq!(std::fs::read(&profile).expect("a profile"), before);
    assert_eq!((background.pid(), background.servers().len()), (pid, 1));
}

#[test]
fn of_several_starts_at_once_one_wins_and_the_others_report_it() {
    let background = BackgroundSite::new();
    let starts: Vec<_> = (0..4).map(|_| background.start(UP)).collect();
    let outputs: Vec<CommandOutput> =
        starts.into_iter().map(|child| CommandOutput::from(child.wait_with_output().expect("it ends")).ok()).collect();
    let pid = background.pid();
    let won = |output: &&CommandOutput| output.stdout.contains("(ready in ");
    assert_eq!(outputs.iter().filter(won).count(), 1, "{outputs:?}");
    for output in outputs.iter().filter(|output| !won(output)) {
        assert!(
            output.stdout.contains(&format!(
                "listens on {} (process {pid})",
                background.status()["server"].as_str().expect("text")
            )),
            "{output:?}"
        );
        assert_eq!(output.stderr, "", "the start that lost says nothing else");
    }
    assert_eq!(background.servers(), [pid as i32]);
}

#[test]
fn a_failed_start_prints_the_error_of_the_server_and_leaves_nothing() {
    let background = BackgroundSite::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let failed = background.corro(&UP.replace("127.0.0.1:0", &address.to_string()));
    let failed = failed.fails(1, &[&format!("error: cannot listen on {address}"), "hint: another program listens on"]);
    assert_eq!(failed.stdout, "");
    background.site.write("file", "");
    background
        .corro(&UP.replace("--data data", "--data file/below"))
        .fails(1, &["cannot use file/below as data directory"]);
    background
        .corro(&UP.replace("--data data", "--data /proc/corro"))
        .fails(1, &["cannot use /proc/corro as data directory"]);
    background.corro(&UP.replace("127.0.0.1:0", "nowhere")).fails(2, &["'nowhere' is not an address to listen on"]);
    background.corro(&format!("{UP} --lease 0")).fails(2, &["--lease is 0"]);
    background.corro(&format!("{UP} --no-such-option")).fails(2, &["--no-such-option"]);
    assert!(!background.site.path().join("config/profile.json").exists());
    assert_eq!(background.servers(), Vec::<i32>::new());
    // The directory is free for the next start.
    background.corro(UP).ok();
}

#[test]
fn an_interrupted_start_leaves_no_process() {
    let background = BackgroundSite::new();
    std::fs::create_dir(background.site.data()).expect("a directory");
    // A start waits for a backup that reads the directory.
    let reader = std::fs::File::open(background.site.data()).expect("it exists");
    flock(&reader, FlockOperation::NonBlockingLockShared).expect("free");
    let mut command = background.command(UP);
    // A group of its own, as a shell gives it: the signal reaches the command only.
    command.process_group(0).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("it starts");
    wait_for("the server process", || !background.servers().is_empty());
    signal(child.id(), Signal::INT);
    let ended = CommandOutput::from(child.wait_with_output().expect("it ends"));
    ended.fails(130, &["interrupted: no server was started"]);
    wait_for("no server process", || background.servers().is_empty());
    drop(reader);
    background.corro("status --data data").fails(3, &["no server is running on data"]);
}

#[test]
fn the_server_outlives_the_terminal_in_which_it_was_started() {
    let background = BackgroundSite::new();
    let mut terminal = Terminal::start(background.command(UP), 100, 30);
    assert_eq!(terminal.code(), Some(0));
    terminal.wait_for_output("The server runs in the background");
    let pid = background.pid();
    drop(terminal);
    assert!(is_alive(pid));
    background.corro("group create -n g -l eastus").ok();
}

#[test]
fn a_killed_server_is_noticed_and_started_again() {
    let background = BackgroundSite::new();
    background.corro(UP).ok();
    background.corro("group create -n kept -l eastus").ok();
    let (pid, url) = (background.pid(), background.status()["server"].as_str().expect("text").to_owned());
    signal(pid, Signal::KILL);
    wait_for("its end", || !is_alive(pid));
    let status = background.corro("status");
    status.fails(3, &[&format!("no server answers at {url}"), "corro up --detach"]);
    assert_eq!(background.status()["running"], false);
    let stopped = background.corro("stop").ok();
    assert!(stopped.stdout.contains("No server is running on "), "{}", stopped.stdout);
    background.corro(UP).ok();
    assert_ne!(background.pid(), pid);
    background.corro("group show -n kept").ok();
}
