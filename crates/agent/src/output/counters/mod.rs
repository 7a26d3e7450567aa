//! Performance counters of a job on this node, for clusters that configure them: a CSV file of the machine and the
//! job's processes, and one of the job's GPUs if it has any, in `counters` beside the job's logs. Values that cannot be
//! read or written are left out; nothing here fails a job.

mod gpus;
mod reading;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use corro_model::{AttemptId, NodeId};

use crate::gpu::monitor::GpuMonitor;
use crate::output::log_file::LogFile;
use crate::output::output_dir::OutputDir;
use crate::task_errors::now;
use reading::CounterReading;

/// Time between two lines.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit of the last line, so that it does not delay the job's end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Directory of the tables beside the job's logs.
pub const DIRECTORY: &str = "counters";

/// Background task that writes the files until dropped.
#[derive(Debug)]
pub struct Counters {
    end: Option<oneshot::Sender<()>>,
    work: JoinHandle<()>,
}

struct CsvFiles {
    machine: Arc<LogFile>,
    gpus: Option<GpuTable>,
    /// Tag prefix of the job's processes.
    tag: String,
}

struct GpuTable {
    file: Arc<LogFile>,
    monitor: GpuMonitor,
    attempt: AttemptId,
}

impl Counters {
    /// Starts writing. `tag` is the prefix of the job's process tags. Blocks on the disk; `None` if nothing can be
    /// written.
    pub fn start(
        logs: &OutputDir,
        node: &NodeId,
        tag: String,
        (monitor, attempt): (GpuMonitor, AttemptId),
    ) -> Option<Counters> {
        let directory = logs.child(DIRECTORY).and_then(|directory| directory.make().map(|()| directory));
        let directory = match directory {
            Ok(directory) => directory,
            Err(error) => {
                tracing::warn!(%error, "the job's performance counters cannot be written");
                return None;
            }
        };
        let table = |name: String, header: &str| {
            let file = LogFile::open(&directory, &name, node).ok()?;
            // A later attempt at the job appends.
            if file.is_empty() {
                file.append(header.as_bytes());
            }
            Some(file)
        };
        let machine = table(format!("{node}.csv"), reading::HEADER)?;
        let has_gpus = monitor.has_gpus(&attempt);
        let gpus = has_gpus.then(|| table(format!("{node}-gpus.csv"), gpus::HEADER)).flatten();
        let gpus = gpus.map(|file| GpuTable { file, monitor, attempt });
        let (end, ended) = oneshot::channel();
        let work = tokio::spawn(write(CsvFiles { machine, gpus, tag }, ended));
        Some(Counters { end: Some(end), work })
    }

    /// Writes the last line.
    pub async fn finish(mut self) {
        drop(self.end.take());
        let _ = timeout(FINISH_TIMEOUT, &mut self.work).await;
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.work.abort();
    }
}

async fn write(files: CsvFiles, mut ended: oneshot::Receiver<()>) {
    let files = Arc::new(files);
    let read = |tag: String| spawn_blocking(move || (Instant::now(), CounterReading::read(&tag)));
    let Ok(mut last) = read(files.tag.clone()).await else { return };
    loop {
        let over = timeout(SAMPLE_INTERVAL, &mut ended).await.is_ok();
        let Ok(next) = read(files.tag.clone()).await else { return };
        let line = reading::line(&last.1, &next.1, next.0 - last.0);
        let (files, time) = (Arc::clone(&files), now().whole_seconds().to_string());
        let written = spawn_blocking(move || {
            files.machine.append(format!("{time},{line}\n").as_bytes());
            if let Some(GpuTable { file, monitor, attempt }) = files.gpus.as_ref().filter(|_| !over) {
                file.append(gpus::lines(&time, &monitor.read(attempt)).as_bytes());
            }
        });
        if written.await.is_err() || over {
            return;
        }
        last = next;
    }
}
