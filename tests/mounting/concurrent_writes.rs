//! Random and concurrent writes: one file through several handles and two mounts, and appends to a shared log.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use super::fixture::{WRITE_MODES, start_share};

/// Programs of one machine, and in between, when they have closed everything, a writer on another: compared with a plain file.
#[test]
fn random_writes_match_a_local_file() {
    WRITE_MODES.into_iter().for_each(|mode| (0..6).for_each(|seed| check_random_writes(mode, seed)));
}

fn check_random_writes(mode: &str, seed: u64) {
    let Some(share) = start_share() else { return };
    let (here, there) = (share.mount("here", mode).join("f"), share.mount("there", "").join("f"));
    let plain = share.path("plain");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut open: Vec<(File, File)> = Vec::new();
    fs::write(&here, "").expect("made");
    fs::write(&plain, "").expect("made");
    for step in 0..250u32 {
        let context = format!("{mode} seed {seed} step {step}");
        let content = vec![step as u8; 1 + below(9_000) as usize];
        let offset = below(40_000);
        match below(9) {
            0 | 1 if open.len() < 3 => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).truncate(below(4) == 0);
                let opened =
                    [&here, &plain].map(|path| options.open(path).unwrap_or_else(|e| panic!("{context}: {e}")));
                open.push(opened.into());
            }
            2 | 3 if !open.is_empty() => {
                let (file, oracle) = &open[below(open.len() as u64) as usize];
                file.write_all_at(&content, offset).expect(&context);
                oracle.write_all_at(&content, offset).expect(&context);
            }
            4 if !open.is_empty() => {
                let (file, oracle) = &open[below(open.len() as u64) as usize];
                [file, oracle].into_iter().for_each(|file| file.set_len(offset).expect(&context));
            }
            5 if !open.is_empty() => open.swap_remove(below(open.len() as u64) as usize).0.sync_all().expect(&context),
            6 if !open.is_empty() => drop(open.swap_remove(below(open.len() as u64) as usize)),
            // Not combined with files that are open here: an append goes to the server's end of file.
            7 if open.is_empty() => [&here, &plain].into_iter().for_each(|path| {
                let mut log = OpenOptions::new().append(true).open(path).expect(&context);
                log.write_all(&content).expect(&context);
            }),
            8 if open.is_empty() => [&there, &plain].into_iter().for_each(|path| {
                let file = OpenOptions::new().write(true).open(path).expect(&context);
                match offset % 3 {
                    0 => file.set_len(offset).expect(&context),
                    _ => file.write_all_at(&content, offset).expect(&context),
                }
            }),
            _ => {}
        }
        for (file, oracle) in &open {
            let (mut seen, mut wanted) = ([0; 5_000], [0; 5_000]);
            let offset = below(45_000);
            let n = [
                file.read_at(&mut seen, offset).expect(&context),
                oracle.read_at(&mut wanted, offset).expect(&context),
            ];
            assert!(n[0] == n[1] && seen == wanted, "{context}: {n:?} bytes at {offset}");
            assert_eq!(file.metadata().expect(&context).len(), oracle.metadata().expect(&context).len(), "{context}");
        }
        if open.is_empty() {
            let wanted = fs::read(&plain).expect(&context);
            assert!(fs::read(share.on_disk("f")).expect(&context) == wanted, "{context}: what the server has");
            assert!(fs::read(&here).expect(&context) == wanted, "{context}: what is read");
            assert_eq!(fs::metadata(&here).expect(&context).len(), wanted.len() as u64, "{context}");
        }
    }
    drop(open);
    assert!(fs::read(share.on_disk("f")).expect("there") == fs::read(&plain).expect("there"), "{mode} seed {seed}");
    share.unmount("here");
    share.unmount("there");
}

#[test]
fn appended_lines_of_several_mounts_stay_whole() {
    let Some(share) = start_share() else { return };
    let mounts = [share.mount("one", ""), share.mount("two", "--write-cache")];
    File::create(mounts[0].join("log")).expect("made");
    const LINES: usize = 100;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let log = mounts[writer % 2].join("log");
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
    assert_eq!(fs::read_to_string(mounts[1].join("log")).expect("read"), text);
    share.unmount("one");
    share.unmount("two");
}
