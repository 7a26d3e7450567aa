//! Shows the output of several ranks on one stream, as `horovodrun` does, and keeps each rank's own copy. Entered by
//! `gang`. Writing happens on a thread of its own, so that a reader who pauses (`corro run … | less`) holds up the ranks'
//! output but never Ctrl-C. Never reorders the bytes of a rank, never mixes two ranks within a line, and never gives up
//! the stream because a copy failed.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::lines::{Assembler, Mode, Sink, ends_line};

/// Blocks waiting to be written. Full means that the ranks wait.
const QUEUE: usize = 32;

/// One shared stream. It is complete once the console and the ranks' ways to it are gone.
#[derive(Debug)]
pub struct Console {
    blocks: mpsc::Sender<Block>,
}

/// One rank's way to a console.
#[derive(Debug)]
pub struct RankConsole {
    rank: usize,
    blocks: mpsc::Sender<Block>,
}

/// What is written for one rank.
#[derive(Debug)]
pub struct Channel {
    /// Put before each line, for example `[3]<stdout>:`.
    pub prefix: String,
    /// A byte-exact copy.
    pub copy: Option<Copy>,
}

/// A file that takes everything one rank says.
#[derive(Debug)]
pub struct Copy {
    pub path: PathBuf,
    pub file: File,
}

/// What became of the output.
#[derive(Debug)]
pub struct Written {
    /// The error that ended the writing early, if any.
    pub shown: io::Result<()>,
    /// The first copy that could not be continued, and why.
    pub lost_copy: Option<(PathBuf, io::Error)>,
}

#[derive(Debug)]
struct Block {
    rank: usize,
    /// Empty: this rank has nothing more to say.
    bytes: Vec<u8>,
}

impl Console {
    /// Opens a console with one channel per rank. The receiver resolves when all is written, or cannot be.
    pub fn open(
        out: impl Write + Send + 'static,
        mode: Mode,
        channels: Vec<Channel>,
    ) -> io::Result<(Console, oneshot::Receiver<Written>)> {
        let (blocks, queue) = mpsc::channel(QUEUE);
        let (done, finished) = oneshot::channel();
        // Not a task of the runtime: its end must not wait for a reader who never comes back.
        thread::Builder::new().name("console".into()).spawn(move || {
            // Nobody listens when the gang was interrupted.
            let _ = done.send(write_all(out, mode, channels, queue));
        })?;
        Ok((Console { blocks }, finished))
    }

    /// The way for one rank. Writing fails once the stream is closed (`… | head`).
    pub fn for_rank(&self, rank: usize) -> RankConsole {
        RankConsole { rank, blocks: self.blocks.clone() }
    }
}

impl RankConsole {
    /// The rank has nothing more to say: its unfinished line is written.
    pub async fn finish(self) -> io::Result<()> {
        self.send(Vec::new()).await
    }

    async fn send(&self, bytes: Vec<u8>) -> io::Result<()> {
        let block = Block { rank: self.rank, bytes };
        self.blocks.send(block).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Sink for RankConsole {
    async fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.send(block.to_vec()).await
    }
}

fn write_all(out: impl Write, mode: Mode, channels: Vec<Channel>, queue: mpsc::Receiver<Block>) -> Written {
    let mut lost_copy = None;
    let shown = show_all(out, mode, channels, queue, &mut lost_copy);
    Written { shown, lost_copy }
}

fn show_all(
    mut out: impl Write,
    mode: Mode,
    channels: Vec<Channel>,
    mut queue: mpsc::Receiver<Block>,
    lost_copy: &mut Option<(PathBuf, io::Error)>,
) -> io::Result<()> {
    let mut channels: Vec<_> = channels
        .into_iter()
        .map(|channel| (Assembler::new(mode), Prefixer::new(channel.prefix), channel.copy))
        .collect();
    let mut shown = Vec::new();
    while let Some(Block { rank, bytes }) = queue.blocking_recv() {
        let Some((assembler, prefixer, copy)) = channels.get_mut(rank) else {
            continue;
        };
        if let Some(Err(error)) = copy.as_mut().map(|copy| copy.file.write_all(&bytes))
            && let Some(Copy { path, .. }) = copy.take()
        {
            lost_copy.get_or_insert((path, error));
        }
        let block = if bytes.is_empty() { assembler.finish() } else { assembler.push(&bytes) };
        if block.is_empty() {
            continue;
        }
        shown.clear();
        prefixer.apply(block, &mut shown);
        out.write_all(&shown)?;
        out.flush()?;
    }
    Ok(())
}

/// Puts a prefix before every line of one rank.
struct Prefixer {
    prefix: String,
    last: u8,
}

impl Prefixer {
    fn new(prefix: String) -> Prefixer {
        Prefixer { prefix, last: b'\n' }
    }

    fn apply(&mut self, block: &[u8], out: &mut Vec<u8>) {
        if self.prefix.is_empty() {
            return out.extend_from_slice(block);
        }
        for piece in block.split_inclusive(|byte| ends_line(*byte)) {
            // The second half of "\r\n" is no line of its own.
            let starts_line = ends_line(self.last) && !(self.last == b'\r' && piece == b"\n");
            if starts_line {
                out.extend_from_slice(self.prefix.as_bytes());
            }
            out.extend_from_slice(piece);
            self.last = piece[piece.len() - 1];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn check(blocks: &[&str], expected: &str) {
        let mut prefixer = Prefixer::new("[0]:".into());
        let mut out = Vec::new();
        for block in blocks {
            prefixer.apply(block.as_bytes(), &mut out);
        }
        assert_eq!(String::from_utf8_lossy(&out), expected, "{blocks:?}");
    }

    #[test]
    fn every_line_gets_one_prefix() {
        check(&["a\nb\n"], "[0]:a\n[0]:b\n");
        check(&["\n\n"], "[0]:\n[0]:\n");
        check(&["a\r\nb\r", "\n", "c\n"], "[0]:a\r\n[0]:b\r\n[0]:c\n");
        check(&["10%\r20%\r"], "[0]:10%\r[0]:20%\r");
        check(&["long", "er\nx\n"], "[0]:longer\n[0]:x\n");
    }

    /// A disk that takes so many bytes.
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

    async fn written(room: usize, copy: Option<Copy>) -> (String, Written) {
        let disk = Disk(Arc::default(), room);
        let channel = Channel { prefix: String::new(), copy };
        let (console, done) = Console::open(disk.clone(), Mode::Lines, vec![channel]).expect("opened");
        let mut rank = console.for_rank(0);
        for line in ["one\n", "two\n"] {
            // Refused when the disk is full.
            let _ = rank.write(line.as_bytes()).await;
        }
        drop((console, rank));
        let done = done.await.expect("it says how it ended");
        let shown = disk.0.lock().expect("no test panics while writing").clone();
        (String::from_utf8(shown).expect("UTF-8"), done)
    }

    #[tokio::test]
    async fn a_full_disk_is_told() {
        let (shown, done) = written(5, None).await;
        assert_eq!((shown.as_str(), done.shown.expect_err("full").kind()), ("one\n", io::ErrorKind::StorageFull));
    }

    #[tokio::test]
    async fn a_copy_that_fails_does_not_silence_the_stream() {
        // Opened for reading only, so that no write succeeds.
        let file = File::open("/dev/null").expect("there");
        let (shown, done) = written(100, Some(Copy { path: "copy".into(), file })).await;
        assert_eq!(shown, "one\ntwo\n");
        assert!(done.shown.is_ok());
        assert_eq!(done.lost_copy.expect("told").0, PathBuf::from("copy"));
    }
}
