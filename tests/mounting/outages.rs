//! Death of the server, the network or the mount process under a mount.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{Share, WRITE_MODES, fails, is_mounted, mount_process, pattern, start_share, wait_until};

/// Restarts the server from a separate process. A forked child closes inherited files of the mount, and a close sends them to
/// the server, so a test that has stopped the server cannot start it itself.
struct ServerSupervisor<'a> {
    share: &'a Share,
    shell: Child,
}

impl<'a> ServerSupervisor<'a> {
    /// Replaces the share's own server.
    fn new(share: &'a mut Share) -> ServerSupervisor<'a> {
        share.kill_server();
        let script = "while :; do \"$0\" files --data data --account one --listen \"$1\" & echo $! > server.pid; wait; sleep 0.3; done";
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_corro"), &share.address]).current_dir(share.dir.path());
        command.env("HOME", share.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let supervisor = ServerSupervisor { shell: command.spawn().expect("a shell"), share };
        supervisor.wait_until_listening();
        supervisor
    }

    fn wait_until_listening(&self) {
        wait_until("the server to listen", || std::net::TcpStream::connect(&self.share.address).is_ok());
    }

    fn kill_server(&self) {
        let text = fs::read_to_string(self.share.path("server.pid")).unwrap_or_default();
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for ServerSupervisor<'_> {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        self.kill_server();
    }
}

#[test]
fn writes_wait_for_a_restarted_server_and_none_is_lost() {
    WRITE_MODES.into_iter().for_each(check_server_restart);
}

fn check_server_restart(mode: &str) {
    let Some(mut share) = start_share() else { return };
    let at = share.mount("m", mode);
    let supervisor = ServerSupervisor::new(&mut share);
    let share = supervisor.share;
    let synced = pattern(3_000_000);
    let mut file = File::create(at.join("synced")).expect("made");
    file.write_all(&synced).expect("written");
    file.sync_all().expect("synced");
    drop(file);
    supervisor.kill_server();
    assert_eq!(fs::read(share.on_disk("synced")).expect("there"), synced);
    // A copy continues over the restart, and so does a log.
    let content = pattern(48 << 20);
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| fs::write(at.join("copy"), &content));
        let log = scope.spawn(|| {
            let mut log = OpenOptions::new().append(true).create(true).open(at.join("log"))?;
            (0..20).try_for_each(|number| log.write_all(format!("line {number}\n").as_bytes()))
        });
        wait_until("the copy", || share.on_disk("copy").exists());
        supervisor.kill_server();
        copy.join().expect("no panic").expect("copied");
        log.join().expect("no panic").expect("logged");
    });
    assert!(fs::read(share.on_disk("copy")).expect("there") == content);
    let log = fs::read_to_string(share.on_disk("log")).expect("there");
    assert_eq!(log.lines().collect::<Vec<_>>(), (0..20).map(|n| format!("line {n}")).collect::<Vec<_>>());
    assert!(share.log("m").contains("answers again"), "{}", share.log("m"));
    share.unmount("m");
}

#[test]
fn an_unreachable_server_is_an_error_after_the_deadline() {
    let Some(share) = start_share() else { return };
    let at = share.mount("m", "--deadline 2");
    fs::write(at.join("f"), "x").expect("written");
    // Connections are neither refused nor answered, as behind a link that is down.
    share.signal_server(Signal::STOP);
    fails(File::create(at.join("g")), Errno::TIMEDOUT);
    let log = share.log("m");
    let said = log.lines().find(|line| line.contains("has not answered since")).unwrap_or_else(|| panic!("{log}"));
    assert!(said.contains("the share share of the account one") && said.contains(&share.address), "{said}");
    share.signal_server(Signal::CONT);
    fs::write(at.join("h"), "again").expect("it works again");
    assert_eq!(fs::read_to_string(share.on_disk("h")).expect("there"), "again");
    share.unmount("m");
}

#[test]
fn a_killed_mount_process_leaves_no_mount() {
    let Some(share) = start_share() else { return };
    let at = share.mount("m", "");
    fs::write(at.join("f"), "kept").expect("written");
    kill_process(mount_process(&at), Signal::KILL).expect("it runs");
    wait_until("the end of the mount", || !is_mounted(&at));
    assert!(fs::read_dir(&at).expect("a plain directory again").next().is_none());
    assert_eq!(fs::read_to_string(share.on_disk("f")).expect("there"), "kept");
    // On SIGTERM it ends in order, in the background and in the foreground.
    fs::remove_dir(&at).expect("empty");
    let at = share.mount("m", "");
    kill_process(mount_process(&at), Signal::TERM).expect("it runs");
    wait_until("the end of the mount", || !is_mounted(&at));
    let mut command = share.command("mount share m --foreground");
    command.env("AZURE_STORAGE_CONNECTION_STRING", share.connection());
    let mut foreground = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    BufReader::new(foreground.stderr.take().expect("piped")).read_line(&mut said).expect("a first line");
    assert!(said.contains("Ctrl-C unmounts it") && at.join("f").exists(), "{said}");
    kill_process(Pid::from_child(&foreground), Signal::INT).expect("it runs");
    assert!(foreground.wait().expect("it ends").success() && !is_mounted(&at));
}
