//! Concurrent appends to one log: lines stay whole, none is lost.

mod common;

use std::{collections::HashMap, fs};

use common::{Fixture, code, p};

#[test]
fn concurrent_appends_keep_lines_whole() {
    const LINES: usize = 2000;
    let fixture = Fixture::new();
    fixture.share.make_dirs(&p("job/stdouterr")).expect("made");
    let log = p("job/stdouterr/stdout.txt");
    std::thread::scope(|scope| {
        for rank in 0..8 {
            let appender = fixture.share.appender(&log).expect("opened");
            scope.spawn(move || {
                for n in 0..LINES {
                    let line = format!("{rank} {n} {}\n", "x".repeat(n % 200));
                    appender.append(line.as_bytes()).expect("appended");
                }
                appender.sync().expect("flushed");
            });
        }
    });
    let text = fs::read_to_string(fixture.host().join("job/stdouterr/stdout.txt")).expect("there");
    let mut next: HashMap<&str, usize> = HashMap::new();
    for line in text.lines() {
        let parts: Vec<_> = line.split(' ').collect();
        let [rank, n, rest] = parts[..] else { panic!("torn: {line:?}") };
        let expected = next.entry(rank).or_default();
        assert_eq!(n, expected.to_string(), "rank {rank} lost a line or its order");
        assert_eq!(rest.len(), *expected % 200, "torn: {line:?}");
        *expected += 1;
    }
    assert_eq!(next.len(), 8);
    assert!(next.values().all(|n| *n == LINES));
}

#[test]
fn append_creates_the_file_but_not_its_directory() {
    let share = &Fixture::new().share;
    assert_eq!(code(share.append(&p("a/b"), b"x")), "ParentNotFound");
    share.append(&p("b"), b"one").expect("appended");
    share.append(&p("b"), b"").expect("nothing to append");
    share.append(&p("b"), b"two").expect("appended");
    assert_eq!(share.stat(&p("b")).expect("there").len, 6);
}
