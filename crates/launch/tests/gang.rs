//! Whole gangs of shell ranks on this machine.

mod common;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{DEADLINE, alive, launcher, path_only};
use corro_launch::exit::Exit;
use corro_launch::gang::{self, Failure, GangSpec, Outcome};
use corro_launch::rank_assignment::Host;
use tokio::sync::mpsc;

/// A stream that records what is written.
#[derive(Clone, Default)]
struct RecordedStream(Arc<Mutex<Vec<u8>>>);

impl Write for RecordedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics while writing").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RecordedStream {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no test panics while writing")).into_owned()
    }

    fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.text().lines().map(String::from).collect();
        lines.sort();
        lines
    }
}

fn spec(slots: usize, script: &str) -> GangSpec {
    GangSpec {
        argv: ["sh", "-c", script].map(String::from).to_vec(),
        env: path_only(),
        cwd: std::env::temp_dir(),
        hosts: vec![Host { name: "localhost".into(), slots }],
        prefix: true,
        output_dir: None,
        grace: Duration::from_secs(5),
        find_cause: |_| None,
    }
}

async fn run(spec: &GangSpec, stops: mpsc::Receiver<i32>) -> (Outcome, RecordedStream, RecordedStream) {
    let (out, err) = (RecordedStream::default(), RecordedStream::default());
    let launcher = launcher();
    let running = gang::run(&launcher, spec, stops, out.clone(), err.clone());
    let outcome = tokio::time::timeout(DEADLINE, running).await.expect("the gang ends in time");
    (outcome.expect("the gang can be run"), out, err)
}

fn no_stops() -> mpsc::Receiver<i32> {
    mpsc::channel(1).1
}

#[tokio::test]
async fn output_is_prefixed_and_copied() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = "printf 'one\\ntwo %s' $RANK; echo err >&2";
    let spec = GangSpec { output_dir: Some(folder.path().join("logs")), ..spec(2, script) };
    let (outcome, out, err) = run(&spec, no_stops()).await;
    assert_eq!(outcome, Outcome::Succeeded);
    assert_eq!(out.sorted(), ["[0]<stdout>:one", "[0]<stdout>:two 0", "[1]<stdout>:one", "[1]<stdout>:two 1"]);
    assert_eq!(err.sorted(), ["[0]<stderr>:err", "[1]<stderr>:err"]);
    let copy = |name: &str| std::fs::read_to_string(folder.path().join("logs").join(name)).expect("kept");
    assert_eq!(copy("rank.0/stdout"), "one\ntwo 0", "byte for byte");
    assert_eq!(copy("rank.1/stderr"), "err\n");
}

#[tokio::test]
async fn output_of_a_single_rank_without_prefix_is_unchanged() {
    let (_, out, _) = run(&GangSpec { prefix: false, ..spec(1, "printf 'a\\0b'") }, no_stops()).await;
    assert_eq!(out.text(), "a\0b");
}

#[tokio::test]
async fn ranks_get_their_variables() {
    let hosts = vec![Host { name: "a".into(), slots: 2 }, Host { name: "b".into(), slots: 1 }];
    let mut spec = GangSpec { hosts, ..spec(0, "env") };
    spec.env.insert("USER_SAYS".into(), "hello".into());
    spec.env.insert("HOROVOD_RANK".into(), "77".into());
    let (outcome, out, _) = run(&spec, no_stops()).await;
    assert_eq!(outcome, Outcome::Succeeded);
    let mut ranks = vec![BTreeMap::new(); 3];
    for line in out.text().lines() {
        let (rank, pair) = line.strip_prefix('[').and_then(|line| line.split_once("]<stdout>:")).expect("prefixed");
        let (name, value) = pair.split_once('=').expect("a variable");
        ranks[rank.parse::<usize>().expect("a rank")].insert(name.to_owned(), value.to_owned());
    }
    let of = |rank: usize, name: &str| ranks[rank][name].as_str();
    for (rank, expected) in [(0, "0 3 0 2 0 2 a"), (1, "1 3 1 2 0 1 a"), (2, "2 3 0 1 1 2 b")] {
        let names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME"];
        let seen: Vec<_> = names.iter().map(|name| of(rank, &format!("HOROVOD_{name}"))).collect();
        assert_eq!(seen.join(" "), expected);
        assert_eq!(of(rank, "RANK"), rank.to_string());
        assert_eq!(of(rank, "HOROVOD_GLOO_RENDEZVOUS_ADDR"), "127.0.0.1");
        assert_eq!(of(rank, "HOROVOD_GLOO_IFACE"), "lo");
        assert_eq!(of(rank, "HOROVOD_CONTROLLER"), "gloo");
        assert_eq!(of(rank, "USER_SAYS"), "hello");
        assert_eq!(of(rank, "CORRO_JOB_SECRET").len(), 64);
        assert_eq!(of(rank, "CORRO_JOB_SECRET"), of(0, "CORRO_JOB_SECRET"));
        assert!(of(rank, "CORRO_PROCESS_TAG").ends_with(&format!("/{rank}")));
    }
}

#[tokio::test]
async fn the_first_failure_ends_the_rest_and_is_named() {
    let script = "if [ $RANK = 1 ]; then echo before >&2; echo the reason >&2; exit 3; fi; echo $$; exec sleep 1000";
    // Longer than the test may take, so SIGTERM must suffice.
    let spec = GangSpec { grace: 2 * DEADLINE, ..spec(3, script) };
    let (outcome, out, _) = run(&spec, no_stops()).await;
    let failure = Failure {
        rank: 1,
        host: "localhost".into(),
        exit: Exit::Code(3),
        stopped: false,
        stderr_tail: vec!["before".into(), "the reason".into()],
    };
    assert!(matches!(&outcome, Outcome::Failed(failures) if failures[0] == failure), "{outcome:?}");
    assert!(matches!(&outcome, Outcome::Failed(failures) if failures[1..].iter().all(|other| other.stopped)));
    assert_eq!(outcome.exit_code(), 3);
    for line in out.text().lines() {
        let pid = line.rsplit(':').next().and_then(|pid| pid.parse().ok()).expect("an id");
        assert!(!alive(pid));
    }
}

#[tokio::test]
async fn a_rank_killed_by_a_signal_is_reported_as_such() {
    let script = "[ $RANK = 0 ] && kill -SEGV $$; exec sleep 1000";
    let (outcome, _, _) = run(&spec(2, script), no_stops()).await;
    assert!(
        matches!(&outcome, Outcome::Failed(failures) if failures[0].rank == 0 && failures[0].exit == Exit::Signal(11))
    );
    assert_eq!(outcome.exit_code(), 139);
}

/// Rank 1 ends last. It would be stopped before, but rank 0 names it as the cause, and rank 2 names rank 0.
#[tokio::test]
async fn a_rank_that_others_name_ends_by_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let others = "if [ $RANK = 0 ]; then echo blame 1 >&2; touch 0; exit 1; fi; \
        if [ $RANK = 2 ]; then until [ -e 0 ]; do sleep 0.01; done; sleep 0.05; echo blame 0 >&2; touch 2; exit 1; fi";
    let script =
        format!("{others}; until [ -e 0 ] && [ -e 2 ]; do sleep 0.01; done; sleep 0.05; echo mine >&2; exit 7");
    let find_cause = |lines: &[String]| lines.last()?.strip_prefix("blame ")?.parse().ok();
    let spec = GangSpec { cwd: folder.path().into(), find_cause, ..spec(3, &script) };
    let (outcome, _, _) = run(&spec, no_stops()).await;
    let Outcome::Failed(failures) = &outcome else { panic!("{outcome:?}") };
    let named = failures.iter().find(|failure| failure.rank == 1).expect("it failed");
    assert_eq!(
        (named.exit, named.stopped, named.stderr_tail.as_slice()),
        (Exit::Code(7), false, &["mine".to_owned()][..])
    );
}

#[tokio::test]
async fn a_stop_terminates_and_a_second_one_kills() {
    let (stop, stops) = mpsc::channel(2);
    let script = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let spec = GangSpec { grace: 2 * DEADLINE, ..spec(2, script) };
    stop.send(2).await.expect("the gang listens");
    stop.send(2).await.expect("the gang listens");
    let (outcome, _, _) = run(&spec, stops).await;
    assert_eq!(outcome, Outcome::Stopped(2));
    assert_eq!(outcome.exit_code(), 130);
}

#[tokio::test]
async fn ranks_exchange_values_at_the_rendezvous_server() {
    // Each rank puts its name with a raw request and waits for the other's.
    let script = r#"python3 - <<'END'
import os, urllib.request
base = "http://%s:%s/global/" % (os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
rank = int(os.environ["RANK"])
urllib.request.urlopen(urllib.request.Request(base + str(rank), data=b"I am %d" % rank, method="PUT")).read()
print(urllib.request.urlopen(base + str(1 - rank) + "?wait=20").read().decode())
END"#;
    let (outcome, out, err) = run(&spec(2, script), no_stops()).await;
    assert_eq!(outcome, Outcome::Succeeded, "{}", err.text());
    assert_eq!(out.sorted(), ["[0]<stdout>:I am 1", "[1]<stdout>:I am 0"]);
}
