//! What ranks tell of their training, written down as it comes: the node is the only one that knows which of several ranks wrote a line
//! of a log that all share. Entered by `ranks`. A file for each node, in `curves/` beside the job's logs, made when the
//! first figure is heard; the server reads those instead of the logs, which may be large. Never keeps a rank from writing: of
//! very much output only a part is listened to, and a file that cannot be written is given up.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corro_metrics::{Curves, MetricStream, curve_file};
use corro_model::NodeId;
use corro_model::layout::{Place, Role};
use corro_model::metrics::CURVES;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::events::Reporter;
use crate::output::output_dir::OutputDir;
use crate::output::progress_estimate::Pace;
use crate::task_errors::now;

/// Figures are written down so often.
const PAUSE: Duration = Duration::from_secs(1);
/// Of a node's output, in a second.
const MOST_HEARD: usize = 4 * 1024 * 1024;
/// An expected end is reported again when it has moved by this part of the time that remains.
const NOTEWORTHY_CHANGE: f64 = 0.05;

/// All ranks of this node. Clones share everything.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Book>>);

#[derive(Debug)]
struct Book {
    /// Beside the job's logs, if there can be such a directory.
    directory: Option<OutputDir>,
    name: String,
    file: Option<File>,
    given_up: bool,
    curves: Curves,
    /// The last point that is written down.
    written: u64,
    heard: usize,
    since: Instant,
    /// Of each stream that reports its progress.
    paces: Vec<Pace>,
    reported_end: Option<Instant>,
}

/// One stream of one process.
#[derive(Clone, Debug)]
pub struct Listener {
    recorder: Recorder,
    stream: Arc<Mutex<MetricStream>>,
    /// Its index in `Book::paces`.
    pace_idx: usize,
}

/// Both streams of one process.
#[derive(Clone, Debug)]
pub struct Hearing {
    pub stdout: Listener,
    pub stderr: Listener,
}

/// Writes down what was heard for as long as it lives.
pub struct Writing(JoinHandle<()>);

impl Recorder {
    pub fn new(logs: &OutputDir, node: &NodeId) -> Recorder {
        let book = Book {
            directory: logs.sibling(CURVES).ok(),
            name: format!("{node}.jsonl"),
            file: None,
            given_up: false,
            curves: Curves::default(),
            written: 0,
            heard: 0,
            since: Instant::now(),
            paces: Vec::new(),
            reported_end: None,
        };
        Recorder(Arc::new(Mutex::new(book)))
    }

    /// Whoever has figures of its own to tell; `n_places` are all processes of the job, on `n_nodes`.
    pub fn hearing(&self, place: &Place, n_places: usize, n_nodes: usize) -> Option<Hearing> {
        let (rank, shared) = match place.role {
            Role::ParameterServer => return None,
            // What it starts elsewhere writes through it, and nobody says who.
            Role::Mpirun => (None, true),
            Role::Command => (None, n_nodes > 1),
            Role::Rank | Role::Worker => {
                ((n_places > 1).then(|| u32::try_from(place.index).unwrap_or(u32::MAX)), false)
            }
        };
        let listener = || {
            let stream = Arc::new(Mutex::new(MetricStream::log(rank, shared)));
            let mut book = self.book();
            book.paces.push(Pace::default());
            Listener { recorder: self.clone(), stream, pace_idx: book.paces.len() - 1 }
        };
        Some(Hearing { stdout: listener(), stderr: listener() })
    }

    /// From now on, until what is given back is dropped. When the task may end is reported beside it.
    pub fn writing(&self, reporter: Reporter) -> Writing {
        let recorder = self.clone();
        Writing(tokio::spawn(async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                recorder.write_down().await;
                let news = recorder.book().new_expected_end(Instant::now());
                if let Some(end) = news {
                    reporter.expected_end(end).await;
                }
            }
        }))
    }

    /// What was heard so far. On a thread that may wait for the disk.
    pub async fn write_down(&self) {
        if self.book().has_news() {
            let recorder = self.clone();
            let _ = tokio::task::spawn_blocking(move || recorder.book().write()).await;
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    pub fn hear(&self, block: &[u8]) {
        let mut book = self.recorder.book();
        if book.may_hear(block.len()) {
            let mut stream = self.stream();
            stream.push(block, Some(now().millis()), &mut book.curves);
            if let Some(progress) = stream.progress() {
                book.paces[self.pace_idx].report(Instant::now(), progress);
            }
        }
    }

    fn stream(&self) -> MutexGuard<'_, MetricStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hearing {
    /// The process has ended: a last line may have no end.
    pub fn finish(&self) {
        for listener in [&self.stdout, &self.stderr] {
            let mut book = listener.recorder.book();
            listener.stream().finish(&mut book.curves);
        }
    }
}

impl Book {
    fn may_hear(&mut self, bytes: usize) -> bool {
        if self.since.elapsed() > Duration::from_secs(1) {
            (self.heard, self.since) = (0, Instant::now());
        }
        self.heard += bytes;
        !self.given_up && self.heard <= MOST_HEARD
    }

    /// The end of the slowest stream, if it is another than was reported.
    fn new_expected_end(&mut self, now: Instant) -> Option<Instant> {
        let end = self.paces.iter().filter_map(Pace::expected_end).max()?;
        let change = |reported: Instant| end.max(reported) - end.min(reported);
        let noteworthy = end.saturating_duration_since(now).mul_f64(NOTEWORTHY_CHANGE).max(PAUSE);
        let is_new = self.reported_end.is_none_or(|reported| change(reported) > noteworthy);
        is_new.then(|| *self.reported_end.insert(end))
    }

    fn has_news(&self) -> bool {
        !self.given_up && self.curves.seq() > self.written
    }

    fn write(&mut self) {
        let text = curve_file::encode_since(&self.curves, self.written);
        self.written = self.curves.seq();
        if let Err(error) = self.append(text.as_bytes()) {
            // Logs are still there, and are read instead.
            tracing::warn!(%error, name = self.name, "the figures of a job cannot be written down");
            self.given_up = true;
        }
    }

    fn append(&mut self, text: &[u8]) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let directory = self.directory.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
                directory.make()?;
                self.file.insert(directory.append(&self.name)?)
            }
        };
        file.write_all(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn place(role: Role, index: usize) -> Place<'static> {
        let (stdout, stderr) = ("stdout.txt".to_owned(), "stderr.txt".to_owned());
        Place { number: index, role, index, host_idx: 0, command: "x", stdout, stderr }
    }

    #[tokio::test]
    async fn each_rank_of_a_shared_log_has_curves_of_its_own() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let logs = OutputDir::of_test(directory.path(), "stdouterr");
        let recorder = Recorder::new(&logs, &testing::node(1));
        let hearings = [0, 1].map(|rank| recorder.hearing(&place(Role::Rank, rank), 2, 2).expect("a rank"));
        hearings[0].stdout.hear(b"nothing to tell\n");
        recorder.write_down().await;
        assert!(!directory.path().join(CURVES).exists(), "no file without figures");
        hearings[0].stdout.hear(b"step=1 loss=2\n");
        hearings[1].stdout.hear(b"step=1 loss=4\nstep=2 lo");
        recorder.write_down().await;
        hearings[1].stdout.hear(b"ss=3");
        hearings[1].finish();
        recorder.write_down().await;
        let file = directory.path().join(CURVES).join(format!("{}.jsonl", testing::node(1)));
        let mut lines: Vec<serde_json::Value> = std::fs::read_to_string(file)
            .expect("the file is there")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        lines.iter_mut().for_each(|line| line["points"][0][1] = serde_json::Value::Null);
        let told: Vec<String> =
            lines.iter().map(|line| format!("{} {} {}", line["name"], line["rank"], line["points"])).collect();
        assert_eq!(
            told,
            [r#""loss" 0 [[1.0,null,2.0]]"#, r#""loss" 1 [[1.0,null,4.0]]"#, r#""loss" 1 [[2.0,null,3.0]]"#]
        );
    }

    #[test]
    fn who_is_not_one_rank_is_heard_as_it_can_be_told() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let recorder = Recorder::new(&OutputDir::of_test(directory.path(), "stdouterr"), &testing::node(1));
        assert!(recorder.hearing(&place(Role::ParameterServer, 0), 3, 2).is_none());
        for (role, n_places) in [(Role::Rank, 1), (Role::Command, 1), (Role::Mpirun, 1)] {
            let hearing = recorder.hearing(&place(role, 0), n_places, 2).expect("it tells");
            hearing.stdout.hear(b"step=1 loss=2\n");
        }
        let ranks: Vec<Option<u32>> = recorder.book().curves.iter().map(|(key, _)| key.rank).collect();
        assert_eq!(ranks, [None]);
    }

    #[test]
    fn very_much_output_is_not_listened_to_whole() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let recorder = Recorder::new(&OutputDir::of_test(directory.path(), "stdouterr"), &testing::node(1));
        let hearing = recorder.hearing(&place(Role::Rank, 0), 1, 1).expect("it tells");
        recorder.book().since = Instant::now() + Duration::from_secs(3600);
        hearing.stdout.hear(&vec![b'x'; MOST_HEARD]);
        hearing.stdout.hear(b"step=1 loss=2\n");
        assert_eq!(recorder.book().curves.seq(), 0);
    }
}
