//! Job output of any kind and size arrives unchanged, also across a server crash.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::harness::host::peak_memory;
use crate::harness::logs::wait_at;
use crate::harness::{DEADLINE, IN_WORKSPACE, Site, signal, wait_for};

/// 1 GB by a job, through the agent, the share and the server, to a client that only counts.
#[test]
fn a_gigabyte_of_output() {
    const TOTAL: u64 = 1_000_000_000;
    const MOST_MIB: u64 = 150;
    let site = Site::start();
    site.prepare(1);
    // 100 bytes per line, the last of them a line feed.
    let line = format!("{}\n", "0123456789".repeat(10).split_at(99).0);
    let command = format!("yes {} | head -c {TOTAL}", line.trim_end());
    site.submit_custom("gigabyte", 1, &command);
    let mut stream = follow(&site, "gigabyte");
    let mut out = stream.stdout.take().expect("piped");
    // A whole number of lines, so that every full buffer must look the same.
    let expected = line.repeat(10_000).into_bytes();
    let mut buffer = vec![0; expected.len()];
    let (mut read, mut filled, mut client) = (0u64, 0, None);
    loop {
        let n = out.read(&mut buffer[filled..]).expect("readable");
        read += n as u64;
        filled += n;
        if n == 0 || filled == buffer.len() {
            assert!(buffer[..filled] == expected[..filled], "wrong bytes before {read}");
            filled = 0;
        }
        if n == 0 {
            break;
        }
        if read > TOTAL * 9 / 10 && client.is_none() {
            client = Some(peak_memory(stream.id()));
        }
    }
    assert_eq!(read, TOTAL);
    assert!(stream.wait().expect("it ended").success());
    assert_eq!(site.wait_for_end("gigabyte")["executionState"], "succeeded");
    let peaks = [
        ("server", Some(peak_memory(site.up_pid()))),
        ("agent", Some(peak_memory(site.agents()[0].1))),
        ("client", client),
    ];
    assert!(peaks.iter().all(|(_, peak)| peak.is_some_and(|peak| peak < MOST_MIB)), "{peaks:?} MiB");
}

/// Binary output, and text without a final line feed.
#[test]
fn any_bytes_come_through_as_they_are() {
    let site = Site::start();
    site.prepare(2);
    let keep = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/random";
    site.submit_custom(
        "binary",
        1,
        &format!("head -c 300000 /dev/urandom > {keep}; cat {keep}; head -c 1000 {keep} >&2"),
    );
    let streamed = site.output(&format!("batchai job file stream {IN_WORKSPACE} -e cifar -j binary -f stdout.txt"));
    let random = std::fs::read(site.share().join("cifar/random")).expect("the job kept it");
    assert_eq!(random.len(), 300_000);
    assert!(streamed.stdout == random, "streamed {} bytes of {}", streamed.stdout.len(), random.len());
    let errors = site.output(&format!("batchai job file stream {IN_WORKSPACE} -e cifar -j binary -f stderr.txt"));
    assert!(errors.stdout == random[..1000]);
    let path = site.job("binary")["jobOutputDirectoryPathSegment"].as_str().expect("text").to_owned();
    site.corro(&format!(
        "storage file download -s myshare -p cifar/{path}/stdouterr/stdout.txt --dest copy.bin --account-name mystorageaccount"
    ))
    .ok();
    assert!(std::fs::read(site.path().join("copy.bin")).expect("downloaded") == random);

    site.submit_custom("unended", 1, "printf 'first\\nlast'");
    assert_eq!(site.stream("unended", "stdout.txt").ok().stdout, "first\nlast");
    site.submit_custom("silent", 1, "true");
    assert_eq!(site.stream("silent", "stdout.txt").ok().stdout, "");
    // Lines of ranks that share a file are kept apart.
    site.submit_ranks("unended-ranks", 2, "printf 'rank %s' $RANK");
    let text = site.stream("unended-ranks", "stdout.txt").ok().stdout;
    assert!(["rank 0\nrank 1\n", "rank 1\nrank 0\n"].contains(&text.as_str()), "{text:?}");
}

/// The server dies under a stream and comes back at the same address; the job is unaffected. (Not tested: a stream that gives
/// up when the server stays away, since its timeout of a minute is fixed.)
#[test]
fn a_stream_survives_the_death_of_the_server() {
    let mut site = Site::start();
    site.prepare(1);
    let numbers = |from: u32, to: u32| format!("for i in $(seq {from} {to}); do echo line $i; done");
    let command = format!("{}; {}; {}", numbers(1, 2000), wait_at("go"), numbers(2001, 5000));
    site.submit_custom("long", 1, &command);
    let mut stream = follow(&site, "long");
    let lines = |from: u32, to: u32| (from..=to).map(|i| format!("line {i}\n")).collect::<String>();
    let (sender, pieces) = mpsc::channel();
    let mut out = stream.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = out.read(&mut piece) {
            let _ = sender.send(piece[..n].to_vec());
        }
    });
    let mut text = Vec::new();
    while text.len() < lines(1, 2000).len() {
        text.extend(pieces.recv_timeout(DEADLINE).expect("the first half comes"));
    }
    let log = site.log_dir("long").join("stdout.txt");
    let address = site.address();
    site.kill_server();
    // The rest is written while the server is down.
    site.open_gate("go");
    let all = lines(1, 5000);
    wait_for("the job to go on without a server", || {
        std::fs::metadata(&log).is_ok_and(|log| log.len() == all.len() as u64)
    });
    assert!(stream.try_wait().expect("it can be asked").is_none(), "the stream waits for the server");
    site.up_at(&address);
    while let Ok(piece) = pieces.recv_timeout(Duration::from_secs(60)) {
        text.extend(piece);
    }
    reader.join().expect("it ends with the stream");
    assert_eq!(stream.wait().expect("it ended").code(), Some(0));
    let text = String::from_utf8(text).expect("text");
    assert!(text == all, "{} bytes of {}", text.len(), all.len());
    assert_eq!(site.wait_for_end("long")["executionState"], "succeeded");
}

/// The shell prompt does not follow an incomplete line.
#[test]
fn a_stream_that_is_stopped_at_a_terminal_ends_its_line() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("half", 1, &format!("printf half; {}", wait_at("go")));
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("it can be opened");
    let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
    let line = format!("batchai job file stream {IN_WORKSPACE} -e cifar -j half -f stdout.txt");
    let mut command = site.command("corro");
    let terminal = File::options().read(true).write(true).open(name).expect("the terminal");
    let mut stream = command.args(line.split(' ')).stdout(terminal).stderr(Stdio::null()).spawn().expect("it starts");
    // The stream must be the last holder of the terminal's other end: then its end is the end of the text.
    drop(command);
    let (mut shown, mut text, mut piece) = (File::from(master), Vec::new(), [0; 64]);
    while !text.ends_with(b"half") {
        let n = shown.read(&mut piece).expect("something is shown");
        text.extend(&piece[..n]);
    }
    signal(stream.id(), Signal::INT);
    while let Ok(n @ 1..) = shown.read(&mut piece) {
        text.extend(&piece[..n]);
    }
    // Nor does it keep the colour of a log.
    assert_eq!((stream.wait().expect("it ended").code(), &*text), (Some(0), &b"half\x1b[0m\r\n"[..]));
    site.open_gate("go");
}

fn follow(site: &Site, job: &str) -> Child {
    let line = format!("batchai job file stream {IN_WORKSPACE} -e cifar -j {job} -f stdout.txt");
    let mut command = site.command("corro");
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}
