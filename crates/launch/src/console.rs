//! Writes the output of several ranks to one stream, as `horovodrun` does, and a copy for each rank. Writing happens on a thread
//! of its own, so that a paused reader (`corro run … | less`) blocks the ranks' output but not Ctrl-C. Never reorders the bytes of a rank, never
//! mixes two ranks within a line, and never stops the stream because a copy failed.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::line_prefix::LinePrefixer;
use crate::lines::{LineAssembler, Mode, Sink};

/// Capacity of the queue of blocks. When it is full, the ranks wait.
const QUEUE_CAPACITY: usize = 32;

/// A shared stream. It is complete once the console and its `RankConsole`s are dropped.
#[derive(Debug)]
pub struct Console {
    messages: mpsc::Sender<Message>,
}

/// The writer of one rank to a console.
#[derive(Debug)]
pub struct RankConsole {
    rank: usize,
    messages: mpsc::Sender<Message>,
}

/// Settings of one rank's output.
#[derive(Debug)]
pub struct Channel {
    /// Put before each line, for example `[3]<stdout>:`.
    pub prefix: String,
    /// A byte-exact copy.
    pub copy: Option<OutputCopy>,
}

/// A file with the complete output of one rank.
#[derive(Debug)]
pub struct OutputCopy {
    pub path: PathBuf,
    pub file: File,
}

/// Result of writing the output.
#[derive(Debug)]
pub struct ConsoleResult {
    /// The error that ended writing to the stream early, if any.
    pub stream: io::Result<()>,
    /// The first copy that could not be written, and why.
    pub failed_copy: Option<(PathBuf, io::Error)>,
}

#[derive(Debug)]
enum Message {
    /// The channel of the next rank.
    Open(Box<Channel>),
    /// Output of a rank; empty at its end.
    Block { rank: usize, bytes: Vec<u8> },
}

impl Console {
    /// Opens a console with one channel per rank. The receiver resolves when everything is written, or writing has failed.
    pub fn open(
        out: impl Write + Send + 'static,
        mode: Mode,
        channels: Vec<Channel>,
    ) -> io::Result<(Console, oneshot::Receiver<ConsoleResult>)> {
        let (messages, queue) = mpsc::channel(QUEUE_CAPACITY);
        let (done, finished) = oneshot::channel();
        // Not a task of the runtime, whose shutdown would wait for a reader that never resumes.
        thread::Builder::new().name("console".into()).spawn(move || {
            // The receiver is dropped when the gang was interrupted.
            let _ = done.send(write_all(out, mode, channels, queue));
        })?;
        Ok((Console { messages }, finished))
    }

    /// Adds the channel of the next rank.
    pub async fn add_channel(&self, channel: Channel) -> io::Result<()> {
        let message = Message::Open(Box::new(channel));
        self.messages.send(message).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Resolves when nothing can be written any more: the stream was closed, or has failed.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }

    /// The writer for one rank, or for the process that takes over its rank after `finish`. Writing fails once the stream is closed (`… | head`).
    pub fn for_rank(&self, rank: usize) -> RankConsole {
        RankConsole { rank, messages: self.messages.clone() }
    }
}

impl RankConsole {
    /// Ends this rank's output: its unfinished line is written.
    pub async fn finish(self) -> io::Result<()> {
        self.send(Vec::new()).await
    }

    async fn send(&self, bytes: Vec<u8>) -> io::Result<()> {
        let block = Message::Block { rank: self.rank, bytes };
        self.messages.send(block).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Sink for RankConsole {
    async fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.send(block.to_vec()).await
    }
}

fn write_all(out: impl Write, mode: Mode, channels: Vec<Channel>, queue: mpsc::Receiver<Message>) -> ConsoleResult {
    let mut failed_copy = None;
    let stream = write_stream(out, mode, channels, queue, &mut failed_copy);
    ConsoleResult { stream, failed_copy }
}

fn write_stream(
    mut out: impl Write,
    mode: Mode,
    channels: Vec<Channel>,
    mut queue: mpsc::Receiver<Message>,
    failed_copy: &mut Option<(PathBuf, io::Error)>,
) -> io::Result<()> {
    let open = |channel: Channel| (LineAssembler::new(mode), LinePrefixer::new(channel.prefix), channel.copy);
    let mut channels: Vec<_> = channels.into_iter().map(open).collect();
    let mut prefixed = Vec::new();
    while let Some(message) = queue.blocking_recv() {
        let (rank, bytes) = match message {
            Message::Block { rank, bytes } => (rank, bytes),
            Message::Open(channel) => {
                channels.push(open(*channel));
                continue;
            }
        };
        let Some((assembler, prefixer, copy)) = channels.get_mut(rank) else {
            continue;
        };
        if let Some(Err(error)) = copy.as_mut().map(|copy| copy.file.write_all(&bytes))
            && let Some(OutputCopy { path, .. }) = copy.take()
        {
            failed_copy.get_or_insert((path, error));
        }
        let block = if bytes.is_empty() { assembler.finish() } else { assembler.push(&bytes) };
        if block.is_empty() {
            continue;
        }
        prefixed.clear();
        prefixer.apply(block, &mut prefixed);
        out.write_all(&prefixed)?;
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A disk with a limited capacity.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.lock().expect("no test panics while writing");
            if written.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn written(room: usize, copy: Option<OutputCopy>) -> (String, ConsoleResult) {
        let disk = Disk(Arc::default(), room);
        let channel = Channel { prefix: String::new(), copy };
        let (console, done) = Console::open(disk.clone(), Mode::Lines, vec![channel]).expect("opened");
        let mut rank = console.for_rank(0);
        for line in ["one\n", "two\n"] {
            // Fails when the disk is full.
            let _ = rank.write(line.as_bytes()).await;
        }
        drop((console, rank));
        let done = done.await.expect("it says how it ended");
        let shown = disk.0.lock().expect("no test panics while writing").clone();
        (String::from_utf8(shown).expect("UTF-8"), done)
    }

    #[tokio::test]
    async fn a_full_disk_is_reported() {
        let (shown, done) = written(5, None).await;
        assert_eq!((shown.as_str(), done.stream.expect_err("full").kind()), ("one\n", io::ErrorKind::StorageFull));
    }

    #[tokio::test]
    async fn a_rank_is_added_and_taken_over_by_another_process() {
        let disk = Disk(Arc::default(), 1000);
        let (console, done) = Console::open(disk.clone(), Mode::Lines, Vec::new()).expect("opened");
        for output in ["one\nunfinished", "two\n"] {
            if output.starts_with("one") {
                console.add_channel(Channel { prefix: "[0]".into(), copy: None }).await.expect("it is open");
            }
            let mut rank = console.for_rank(0);
            rank.write(output.as_bytes()).await.expect("it is open");
            rank.finish().await.expect("it is open");
        }
        drop(console);
        done.await.expect("it says how it ended").stream.expect("nothing failed");
        let shown = disk.0.lock().expect("no test panics while writing").clone();
        assert_eq!(String::from_utf8_lossy(&shown), "[0]one\n[0]unfinished\n[0]two\n");
    }

    #[tokio::test]
    async fn a_failed_copy_does_not_stop_the_stream() {
        // Opened for reading only, so that no write succeeds.
        let file = File::open("/dev/null").expect("there");
        let (shown, done) = written(100, Some(OutputCopy { path: "copy".into(), file })).await;
        assert_eq!(shown, "one\ntwo\n");
        assert!(done.stream.is_ok());
        assert_eq!(done.failed_copy.expect("told").0, PathBuf::from("copy"));
    }
}
