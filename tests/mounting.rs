//! `corro mount` on a real `corro files`, through the kernel: the file system as programs see it, the files on the server's
//! disk, and the death of the server, the network or the mount process. Skipped with a notice without FUSE.

mod harness;
#[path = "mounting/links.rs"]
mod links;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use corro_test_support::skip;

use harness::host::find_program;
use harness::{DEADLINE, Ended};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

struct Share {
    dir: tempfile::TempDir,
    server: Option<Child>,
    address: String,
}

/// A server with the share `share` of the account `one`; `None`, with a notice, if nothing can be mounted.
fn share() -> Option<Share> {
    let is_root = rustix::process::geteuid().is_root();
    if !Path::new("/dev/fuse").exists() || !(is_root || find_program("fusermount3").is_some()) {
        skip::unsupported_machine("no FUSE on this machine, so nothing can be mounted");
        return None;
    }
    let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
    let mut share = Share { dir, server: None, address: "127.0.0.1:0".to_owned() };
    share.serve();
    share.corro("storage share create -n share").ok();
    Some(share)
}

impl Share {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Path of a file of the share on the server's disk.
    fn on_disk(&self, name: &str) -> PathBuf {
        self.path("data/shares/one/share").join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
        command.args(line.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.dir.path());
        command
    }

    /// Starts the server; later starts reuse its address.
    fn serve(&mut self) {
        let mut command = self.command(&format!("files --data data --account one --listen {}", self.address));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("it speaks");
        let url = first.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        self.address = url.unwrap_or_else(|| panic!("it said {first:?}")).trim_end_matches('/').to_owned();
        self.server = Some(child);
    }

    fn kill_server(&mut self) {
        let mut child = self.server.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    fn signal_server(&self, signal: Signal) {
        kill_process(Pid::from_child(self.server.as_ref().expect("it runs")), signal).expect("it runs");
    }

    fn connection(&self) -> String {
        fs::read_to_string(self.path("data/accounts/one.connection")).expect("it is kept").trim().to_owned()
    }

    fn corro(&self, line: &str) -> Ended {
        let mut command = self.command(line);
        command.env("AZURE_STORAGE_CONNECTION_STRING", self.connection());
        Ended::from(command.output().expect("it runs"))
    }

    /// Mounts the share at a new directory.
    fn mount(&self, name: &str, options: &str) -> PathBuf {
        let place = self.path(name);
        fs::create_dir(&place).expect("a directory");
        let ended = self.corro(&format!("mount share {name} --log-file {name}.log {options}")).ok();
        assert!(ended.stdout.contains("Mounted the share share of the account one at http://"), "{}", ended.stdout);
        assert!(ended.stderr.contains("corro unmount"), "{}", ended.stderr);
        place
    }

    fn unmount(&self, name: &str) {
        assert!(self.corro(&format!("unmount {name}")).ok().stdout.starts_with("Unmounted "));
        assert!(!is_mounted(&self.path(name)));
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for place in mounts().iter().filter(|place| place.starts_with(self.dir.path())) {
            let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(place).status();
            let _ = Command::new("umount").arg("-l").arg(place).stderr(Stdio::null()).status();
        }
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn mounts() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    let ours = table.lines().filter(|line| line.contains("corro://"));
    ours.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

fn is_mounted(place: &Path) -> bool {
    mounts().contains(&place.to_owned())
}

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "{what} did not come to pass");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The process that serves the mount: the parent of its watchdog, whose command line has the mount point.
fn mount_process(place: &Path) -> Pid {
    let words = format!("mount-watch\0{}\0", place.display());
    let pids =
        fs::read_dir("/proc").expect("Linux has it").flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let watcher = pids
        .into_iter()
        .find(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(&words)));
    let status = fs::read_to_string(format!("/proc/{}/status", watcher.expect("a watcher"))).expect("its status");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    Pid::from_raw(parent.trim().parse().expect("a number")).expect("a process")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31) ^ (at >> 8)) as u8).collect()
}

#[track_caller]
fn fails<T>(result: std::io::Result<T>, errno: Errno) {
    let error = result.err().expect("it must fail");
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
}

/// The kernel's write modes: write-through, or writeback.
const WAYS: [&str; 2] = ["", "--write-cache"];

#[test]
fn a_share_is_a_directory_like_others() {
    WAYS.into_iter().for_each(is_like_others);
}

fn is_like_others(way: &str) {
    let Some(share) = share() else { return };
    let at = share.mount("m", &format!("--file-mode 0640 --dir-mode 0750 {way}"));
    // Content, compared with the server's disk.
    let content = pattern(9 << 20);
    fs::create_dir_all(at.join("a/b")).expect("made");
    fs::write(at.join("a/b/file"), &content).expect("written");
    assert_eq!(fs::read(share.on_disk("a/b/file")).expect("there"), content);
    assert_eq!(fs::read(at.join("a/b/file")).expect("read"), content);
    let file = File::open(at.join("a/b/file")).expect("opened");
    for start in [0, 5_000_000, 4095, 9 << 20, 1, 7 << 20] {
        let mut part = vec![0; 70_000];
        let n = file.read_at(&mut part, start).expect("read");
        let start = start as usize;
        assert_eq!(part[..n], content[start..(start + 70_000).min(content.len())]);
    }
    drop(file);
    let mode = |name: &str| fs::metadata(at.join(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("a"), mode("a/b/file")), (0o750, 0o640));
    // Random writes, read back before close.
    let mut file = OpenOptions::new().read(true).write(true).open(at.join("a/b/file")).expect("opened");
    file.write_all_at(b"changed", 1_000_000).expect("written");
    let mut back = [0; 9];
    file.read_exact_at(&mut back, 999_999).expect("read");
    assert_eq!(&back[1..8], b"changed");
    file.set_len(1_000_003).expect("cut");
    file.seek(SeekFrom::Start(1_000_000)).expect("moved");
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "cha");
    drop(file);
    assert_eq!(fs::metadata(share.on_disk("a/b/file")).expect("there").len(), 1_000_003);
    // Sparse: a hole is a hole on the server too.
    let sparse = File::create(at.join("sparse")).expect("made");
    sparse.write_all_at(b"end", 1 << 30).expect("written");
    sparse.sync_all().expect("synced");
    let kept = fs::metadata(share.on_disk("sparse")).expect("there");
    assert!(kept.len() == (1 << 30) + 3 && kept.blocks() < 1000, "{} blocks", kept.blocks());
    // Times.
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_700);
    sparse.set_modified(then).expect("set");
    assert_eq!(fs::metadata(share.on_disk("sparse")).expect("there").modified().expect("a time"), then);
    assert_eq!(fs::metadata(at.join("sparse")).expect("there").modified().expect("a time"), then);
    drop(sparse);
    // Names.
    fs::rename(at.join("a/b"), at.join("moved ü + #%")).expect("renamed");
    fs::write(at.join("target"), "old").expect("written");
    fs::rename(at.join("moved ü + #%/file"), at.join("target")).expect("renamed");
    assert_eq!(fs::metadata(at.join("target")).expect("there").len(), 1_000_003);
    let listed = |at: &Path| {
        let names = fs::read_dir(at).expect("listed").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names
    };
    assert_eq!(listed(&at), ["a", "moved ü + #%", "sparse", "target"]);
    assert_eq!(listed(&share.on_disk("")), listed(&at));
    fails(fs::remove_dir(at.join("target")), Errno::NOTDIR);
    fails(File::create_new(at.join("target")), Errno::EXIST);
    fails(fs::read(at.join("nothing")), Errno::NOENT);
    fails(File::create(at.join("x".repeat(256))), Errno::NAMETOOLONG);
    fails(fs::hard_link(at.join("target"), at.join("link")), Errno::PERM);
    fs::write(at.join("a/inside"), "x").expect("written");
    fails(fs::remove_dir(at.join("a")), Errno::NOTEMPTY);
    // An open file outlives its name.
    let mut open = OpenOptions::new().read(true).write(true).open(at.join("a/inside")).expect("opened");
    fs::remove_file(at.join("a/inside")).expect("removed");
    fs::remove_dir(at.join("moved ü + #%")).expect("removed");
    open.write_all(b"still here").expect("written");
    open.rewind().expect("moved");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("read");
    assert_eq!((text.as_str(), listed(&at.join("a"))), ("still here", vec![]));
    share.corro("unmount m").fails(1, &["in use", "--lazy"]);
    drop(open);
    until("its end", || fs::read_dir(share.on_disk("a")).expect("there").next().is_none());
    // Locks hold between programs of this machine.
    let (one, two) = (File::open(at.join("target")).expect("opened"), File::open(at.join("target")).expect("opened"));
    one.lock().expect("free");
    assert!(matches!(two.try_lock(), Err(fs::TryLockError::WouldBlock)));
    drop((one, two));
    share.unmount("m");
}

#[test]
fn what_others_wrote_is_seen_and_a_full_or_read_only_share_says_so() {
    WAYS.into_iter().for_each(is_seen_by_others_and_says_when_it_is_full);
}

fn is_seen_by_others_and_says_when_it_is_full(way: &str) {
    let Some(share) = share() else { return };
    let (one, two) = (share.mount("one", way), share.mount("two", "--read-only"));
    for round in 0..3 {
        let text = format!("round {round}{}", "!".repeat(round * 10));
        fs::write(one.join("f"), &text).expect("written");
        assert_eq!(fs::read_to_string(two.join("f")).expect("read"), text, "whoever opens sees what was closed");
    }
    fails(fs::write(two.join("g"), "x"), Errno::ROFS);
    fails(fs::remove_file(two.join("f")), Errno::ROFS);
    share.unmount("two");
    // Free space.
    share.corro("storage share update -n share --quota 1").ok();
    let room = rustix::fs::statvfs(&one).expect("it can be asked");
    assert_eq!(room.f_blocks * room.f_frsize, 1 << 30);
    assert!(room.f_bavail < room.f_blocks && room.f_namemax == 255);
    let file = File::create(one.join("large")).expect("made");
    fails(file.set_len(2 << 30), Errno::NOSPC);
    file.set_len((1 << 30) - (1 << 20)).expect("it fits");
    file.write_all_at(&[1; 2 << 20], (1 << 30) - (1 << 20)).expect("not sent yet");
    fails(file.sync_all(), Errno::NOSPC);
    drop(file);
    fs::remove_file(one.join("large")).expect("removed");
    fs::write(one.join("small"), "fits").expect("there is room again");
    share.unmount("one");
}

/// Programs of one machine, and in between, when they have closed everything, a writer on another: compared with a plain file.
#[test]
fn random_work_ends_as_on_a_disk() {
    WAYS.into_iter().for_each(|way| (0..6).for_each(|seed| ends_as_on_a_disk(way, seed)));
}

fn ends_as_on_a_disk(way: &str, seed: u64) {
    let Some(share) = share() else { return };
    let (here, there) = (share.mount("here", way).join("f"), share.mount("there", "").join("f"));
    let plain = share.path("plain");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut open: Vec<(File, File)> = Vec::new();
    fs::write(&here, "").expect("made");
    fs::write(&plain, "").expect("made");
    for step in 0..250u32 {
        let told = format!("{way} seed {seed} step {step}");
        let content = vec![step as u8; 1 + below(9_000) as usize];
        let place = below(40_000);
        match below(9) {
            0 | 1 if open.len() < 3 => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).truncate(below(4) == 0);
                let opened = [&here, &plain].map(|path| options.open(path).unwrap_or_else(|e| panic!("{told}: {e}")));
                open.push(opened.into());
            }
            2 | 3 if !open.is_empty() => {
                let (file, beside) = &open[below(open.len() as u64) as usize];
                file.write_all_at(&content, place).expect(&told);
                beside.write_all_at(&content, place).expect(&told);
            }
            4 if !open.is_empty() => {
                let (file, beside) = &open[below(open.len() as u64) as usize];
                [file, beside].into_iter().for_each(|file| file.set_len(place).expect(&told));
            }
            5 if !open.is_empty() => open.swap_remove(below(open.len() as u64) as usize).0.sync_all().expect(&told),
            6 if !open.is_empty() => drop(open.swap_remove(below(open.len() as u64) as usize)),
            // Not combined with files that are open here: an append goes to the server's end of file.
            7 if open.is_empty() => [&here, &plain].into_iter().for_each(|path| {
                let mut log = OpenOptions::new().append(true).open(path).expect(&told);
                log.write_all(&content).expect(&told);
            }),
            8 if open.is_empty() => [&there, &plain].into_iter().for_each(|path| {
                let file = OpenOptions::new().write(true).open(path).expect(&told);
                match place % 3 {
                    0 => file.set_len(place).expect(&told),
                    _ => file.write_all_at(&content, place).expect(&told),
                }
            }),
            _ => {}
        }
        for (file, beside) in &open {
            let (mut seen, mut wanted) = ([0; 5_000], [0; 5_000]);
            let place = below(45_000);
            let n = [file.read_at(&mut seen, place).expect(&told), beside.read_at(&mut wanted, place).expect(&told)];
            assert!(n[0] == n[1] && seen == wanted, "{told}: {n:?} bytes at {place}");
            assert_eq!(file.metadata().expect(&told).len(), beside.metadata().expect(&told).len(), "{told}");
        }
        if open.is_empty() {
            let wanted = fs::read(&plain).expect(&told);
            assert!(fs::read(share.on_disk("f")).expect(&told) == wanted, "{told}: what the server has");
            assert!(fs::read(&here).expect(&told) == wanted, "{told}: what is read");
            assert_eq!(fs::metadata(&here).expect(&told).len(), wanted.len() as u64, "{told}");
        }
    }
    drop(open);
    assert!(fs::read(share.on_disk("f")).expect("there") == fs::read(&plain).expect("there"), "{way} seed {seed}");
    share.unmount("here");
    share.unmount("there");
}

#[test]
fn lines_that_several_machines_append_stay_whole() {
    let Some(share) = share() else { return };
    let places = [share.mount("one", ""), share.mount("two", "--write-cache")];
    File::create(places[0].join("log")).expect("made");
    const LINES: usize = 100;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let log = places[writer % 2].join("log");
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(log).expect("opened");
                for number in 0..LINES {
                    let line = format!("{writer} {number} {}\n", "x".repeat(writer * 100 + number));
                    log.write_all(line.as_bytes()).expect("appended");
                }
            });
        }
    });
    let text = fs::read_to_string(share.on_disk("log")).expect("there");
    let mut next = [0; 4];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (writer, number): (usize, usize) = (words[0].parse().expect(line), words[1].parse().expect(line));
        assert_eq!((number, words[2].len()), (next[writer], writer * 100 + number), "torn or out of order");
        next[writer] += 1;
    }
    assert_eq!(next, [LINES; 4]);
    assert_eq!(fs::read_to_string(places[1].join("log")).expect("read"), text);
    share.unmount("one");
    share.unmount("two");
}

#[test]
fn a_large_directory_is_listed_once_and_whole() {
    let Some(share) = share() else { return };
    const FILES: usize = 6_000;
    fs::create_dir(share.on_disk("many")).expect("made");
    for number in 0..FILES {
        fs::write(share.on_disk(&format!("many/file-{number:05}")), [7; 3]).expect("written");
    }
    let at = share.mount("m", "");
    let mut names: Vec<String> = fs::read_dir(at.join("many"))
        .expect("listed")
        .map(|entry| {
            let entry = entry.expect("an entry");
            assert_eq!(entry.metadata().expect("known").len(), 3);
            entry.file_name().into_string().expect("text")
        })
        .collect();
    names.sort();
    let expected: Vec<String> = (0..FILES).map(|number| format!("file-{number:05}")).collect();
    assert_eq!(names, expected);
    share.unmount("m");
}

/// Restarts the server from a separate process. A forked child closes inherited files of the mount, and a close sends them to
/// the server, so a test that has stopped the server cannot start it itself.
struct Keeper<'a> {
    share: &'a Share,
    keeper: Child,
}

impl<'a> Keeper<'a> {
    /// Replaces the share's own server.
    fn new(share: &'a mut Share) -> Keeper<'a> {
        share.kill_server();
        let script = "while :; do \"$0\" files --data data --account one --listen \"$1\" & echo $! > server.pid; wait; sleep 0.3; done";
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_corro"), &share.address]).current_dir(share.dir.path());
        command.env("HOME", share.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let keeper = Keeper { keeper: command.spawn().expect("a shell"), share };
        keeper.wait();
        keeper
    }

    fn wait(&self) {
        until("the server to listen", || std::net::TcpStream::connect(&self.share.address).is_ok());
    }

    fn kill_server(&self) {
        let text = fs::read_to_string(self.share.path("server.pid")).unwrap_or_default();
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        self.kill_server();
    }
}

#[test]
fn a_server_that_comes_back_is_waited_for_and_nothing_is_lost() {
    WAYS.into_iter().for_each(waits_for_its_server);
}

fn waits_for_its_server(way: &str) {
    let Some(mut share) = share() else { return };
    let at = share.mount("m", way);
    let keeper = Keeper::new(&mut share);
    let share = keeper.share;
    let synced = pattern(3_000_000);
    let mut file = File::create(at.join("synced")).expect("made");
    file.write_all(&synced).expect("written");
    file.sync_all().expect("synced");
    drop(file);
    keeper.kill_server();
    assert_eq!(fs::read(share.on_disk("synced")).expect("there"), synced);
    // A copy continues over the restart, and so does a log.
    let content = pattern(48 << 20);
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| fs::write(at.join("copy"), &content));
        let log = scope.spawn(|| {
            let mut log = OpenOptions::new().append(true).create(true).open(at.join("log"))?;
            (0..20).try_for_each(|number| log.write_all(format!("line {number}\n").as_bytes()))
        });
        until("the copy", || share.on_disk("copy").exists());
        keeper.kill_server();
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
fn a_server_that_stays_away_is_an_error_after_the_deadline() {
    let Some(share) = share() else { return };
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
    let Some(share) = share() else { return };
    let at = share.mount("m", "");
    fs::write(at.join("f"), "kept").expect("written");
    kill_process(mount_process(&at), Signal::KILL).expect("it runs");
    until("the end of the mount", || !is_mounted(&at));
    assert!(fs::read_dir(&at).expect("a plain directory again").next().is_none());
    assert_eq!(fs::read_to_string(share.on_disk("f")).expect("there"), "kept");
    // On SIGTERM it ends in order, in the background and in the foreground.
    fs::remove_dir(&at).expect("empty");
    let at = share.mount("m", "");
    kill_process(mount_process(&at), Signal::TERM).expect("it runs");
    until("the end of the mount", || !is_mounted(&at));
    let mut command = share.command("mount share m --foreground");
    command.env("AZURE_STORAGE_CONNECTION_STRING", share.connection());
    let mut front = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    BufReader::new(front.stderr.take().expect("piped")).read_line(&mut said).expect("it speaks");
    assert!(said.contains("Ctrl-C unmounts it") && at.join("f").exists(), "{said}");
    kill_process(Pid::from_child(&front), Signal::INT).expect("it runs");
    assert!(front.wait().expect("it ends").success() && !is_mounted(&at));
}

#[test]
fn what_cannot_be_mounted_is_said_with_the_cause() {
    let Some(share) = share() else { return };
    fs::write(share.path("file"), "x").expect("written");
    fs::create_dir(share.path("dir")).expect("made");
    share.corro("mount share nowhere").fails(1, &["does not exist", "mkdir"]);
    share.corro("mount share file").fails(1, &["is not a directory"]);
    share.corro("mount missing dir").fails(1, &["The specified share does not exist: missing"]);
    share.corro("mount Bad_Name dir").fails(1, &["Bad_Name"]);
    share.corro("mount share dir --file-mode 999").fails(2, &["octal"]);
    share.corro("unmount dir").fails(1, &["no share is mounted at"]);
    let key = "bm90IHRoZSBrZXk=";
    share
        .corro(&format!("mount share dir --account-name one --account-key {key}"))
        .fails(1, &["failed to authenticate"]);
    fs::remove_dir(share.path("dir")).expect("empty");
    share.mount("dir", "");
    share.corro("mount share dir").fails(1, &["a share is mounted at", "corro unmount"]);
    // The key is in no command line and no environment.
    let connection = share.connection();
    let key = connection.split("AccountKey=").nth(1).and_then(|rest| rest.split(';').next()).expect("a key");
    let pid = mount_process(&share.path("dir"));
    for file in ["cmdline", "environ"] {
        let text = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).expect("readable");
        assert!(!String::from_utf8_lossy(&text).contains(key), "the key is in {file}");
    }
    share.unmount("dir");
}

/// An unprivileged user mounts through `fusermount3`, with the authority of the server.
#[test]
fn an_ordinary_user_mounts_over_tls() {
    let Some(mut share) = share() else { return };
    let may =
        rustix::process::geteuid().is_root() && ["setpriv", "fusermount3"].iter().all(|p| find_program(p).is_some());
    let dir = tempfile::Builder::new().prefix("corro-user-").tempdir_in("/tmp").expect("a directory");
    let as_user = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).args(words);
        command.current_dir(dir.path()).stdin(Stdio::null()).env_clear().env("HOME", dir.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    };
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).expect("root may");
    let corro = env!("CARGO_BIN_EXE_corro");
    if !may || !as_user(&[corro, "--version"]).output().is_ok_and(|output| output.status.success()) {
        return skip::unsupported_machine("no other user here could run this program with setpriv and fusermount3");
    }
    if !as_user(&["sh", "-c", "exec 3<>/dev/fuse"]).output().is_ok_and(|output| output.status.success()) {
        return skip::unsupported_machine("/dev/fuse is open to root only on this machine");
    }
    share.kill_server();
    let mut command = share.command("files --data data --account one --listen 127.0.0.1:0 --tls --name files.test");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("it speaks");
    share.server = Some(child);
    assert!(first.contains("https://files.test:"), "{first}");
    let connection = share.connection().replace("files.test", "127.0.0.1");
    let place = dir.path().join("m");
    fs::copy(share.path("data/tls/ca.pem"), dir.path().join("ca.pem")).expect("the authority");
    let mount = |words: &[&str], ca: Option<&str>| {
        let mut command = as_user(&[&[corro][..], words].concat());
        command.env("AZURE_STORAGE_CONNECTION_STRING", &connection).envs(ca.map(|ca| ("CORRO_CA", ca)));
        Ended::from(command.output().expect("it runs"))
    };
    assert!(as_user(&["mkdir", "m"]).status().expect("it runs").success());
    let words = ["mount", "share", "m", "--log-file", "m.log", "--timeout", "5"];
    mount(&words, None).fails(1, &["is not trusted"]);
    mount(&words, Some("ca.pem")).ok();
    assert!(is_mounted(&place));
    assert!(as_user(&["sh", "-c", "echo mine > m/f && cat m/f"]).status().expect("it runs").success());
    assert_eq!(fs::read_to_string(share.on_disk("f")).expect("there"), "mine\n");
    // Not even root can read a user's mount.
    fails(fs::read_dir(&place), Errno::ACCESS);
    mount(&["unmount", "m"], None).ok();
    assert!(!is_mounted(&place));
    mount(&words, Some("ca.pem")).ok();
    kill_process(mount_process(&place), Signal::KILL).expect("it runs");
    until("the end of the mount", || !is_mounted(&place));
}
