//! The file `server.json` in a data directory: which process serves the directory and how the last server ended. It is information for people; the
//! lock of the directory alone says whether a server runs. A record of another process than the lock's holder is ignored.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use corro_base::{atomic_file, procfs};
use corro_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::server_process::{FindServerError, ServerProcess};

const RECORD_FILE: &str = "server.json";
/// Names the process and its URL once it is ready.
const LOCK_FILE: &str = "lock";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerRecord {
    pub pid: u32,
    /// Start of the process in clock ticks since boot.
    pub start_ticks: u64,
    /// Address for clients on this machine.
    pub url: String,
    pub version: String,
    pub start_time: Timestamp,
    /// Log of a server in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// `None` while the server runs, and after it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopRecord>,
}

/// How a server ended in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRecord {
    /// Running jobs that went back to the queue.
    pub requeued: usize,
    /// Nodes that could not be stopped.
    pub nodes_left: Vec<String>,
    /// Whether nodes and jobs go on without the server.
    pub nodes_go_on: bool,
}

impl StopRecord {
    /// The end in words.
    pub fn sentence(&self) -> String {
        match self.requeued {
            _ if self.nodes_go_on => {
                "Stopped. Nodes and their jobs go on; the next 'corro server' resumes them.".to_owned()
            }
            0 => "Stopped.".to_owned(),
            1 => {
                "Stopped. One running job went back to the queue: it starts again with the next 'corro up'.".to_owned()
            }
            n => {
                format!("Stopped. {n} running jobs went back to the queue: they start again with the next 'corro up'.")
            }
        }
    }
}

impl ServerRecord {
    /// Writes the record of this process.
    pub fn write_own(data: &Path, url: &str, log: Option<&Path>) -> std::io::Result<ServerRecord> {
        let stat = i32::try_from(std::process::id()).ok().and_then(procfs::Stat::read);
        let record = ServerRecord {
            pid: std::process::id(),
            start_ticks: stat.map_or(0, |stat| stat.start_ticks),
            url: url.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start_time: Timestamp::from(SystemTime::now()),
            log: log.map(Path::to_owned),
            stop: None,
        };
        record.write(data)?;
        Ok(record)
    }

    /// Adds how the server ended.
    pub fn write_stop(self, data: &Path, stop: StopRecord) -> std::io::Result<()> {
        ServerRecord { stop: Some(stop), ..self }.write(data)
    }

    fn write(&self, data: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        atomic_file::replace(&data.join(RECORD_FILE), &text, 0o600)
    }

    /// The record of the last server of a data directory, if it can be read.
    pub fn read(data: &Path) -> Option<ServerRecord> {
        serde_json::from_slice(&fs::read(data.join(RECORD_FILE)).ok()?).ok()
    }

    /// Whether the record was written by this process.
    pub fn is_of(&self, process: &ServerProcess) -> bool {
        self.pid == process.pid() && process.start_ticks() == Some(self.start_ticks)
    }
}

/// A server that runs on a data directory of this machine.
#[derive(Debug)]
pub struct RunningServer {
    pub data: PathBuf,
    pub process: ServerProcess,
    /// `None` while it starts.
    pub url: Option<String>,
    /// `None` while it starts, and for servers of versions without records.
    pub record: Option<ServerRecord>,
}

impl RunningServer {
    /// The server of a data directory. `None`: none runs. Blocks for a fraction of a second at most.
    pub fn find(data: &Path) -> Result<Option<RunningServer>, FindServerError> {
        let Some(process) = ServerProcess::find(data)? else { return Ok(None) };
        let record = ServerRecord::read(data).filter(|record| record.is_of(&process));
        let of_lock = || url_in_lock_file(&fs::read_to_string(data.join(LOCK_FILE)).ok()?, process.pid());
        let url = record.as_ref().map(|record| record.url.clone()).or_else(of_lock);
        let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
        Ok(Some(RunningServer { data, process, url, record }))
    }
}

/// The URL in `process 4515, http://127.0.0.1:8470`, which a server writes when it is ready, if it is of this process.
fn url_in_lock_file(text: &str, pid: u32) -> Option<String> {
    let url = text.trim().strip_prefix(&format!("process {pid}, "))?;
    Some(url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::DataDir;

    #[test]
    fn a_record_counts_only_for_the_process_that_wrote_it() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let find = || RunningServer::find(dir.path()).expect("asked");
        assert!(find().is_none());
        let data = DataDir::lock(dir.path()).expect("free");
        assert!(find().is_some_and(|server| server.url.is_none() && server.record.is_none()), "it starts");
        data.write_url("http://127.0.0.1:1").expect("written");
        let found = find().expect("it runs");
        assert_eq!((found.url.as_deref(), found.record), (Some("http://127.0.0.1:1"), None));
        let record =
            ServerRecord::write_own(data.path(), "http://127.0.0.1:2", Some(Path::new("/x.log"))).expect("written");
        let found = find().expect("it runs");
        assert_eq!(found.url.as_deref(), Some("http://127.0.0.1:2"));
        assert_eq!(found.record.as_ref(), Some(&record));
        let other = ServerRecord { start_ticks: record.start_ticks + 1, ..record.clone() };
        other.write(data.path()).expect("written");
        assert_eq!(find().expect("it runs").record, None);
        let stop = StopRecord { requeued: 2, nodes_left: Vec::new(), nodes_go_on: false };
        record.write_stop(data.path(), stop.clone()).expect("written");
        assert_eq!(ServerRecord::read(data.path()).and_then(|record| record.stop), Some(stop));
        drop(data);
        assert!(find().is_none());
    }

    #[test]
    fn the_lock_file_of_another_process_has_no_url() {
        assert_eq!(url_in_lock_file("process 7, http://h:1\n", 7).as_deref(), Some("http://h:1"));
        assert_eq!(url_in_lock_file("process 7, http://h:1\n", 71), None);
        assert_eq!(url_in_lock_file("", 7), None);
    }

    #[test]
    fn the_end_is_said_in_words() {
        let sentence = |requeued, nodes_go_on| StopRecord { requeued, nodes_left: Vec::new(), nodes_go_on }.sentence();
        assert_eq!(sentence(0, false), "Stopped.");
        assert!(sentence(1, false).starts_with("Stopped. One running job went back"));
        assert!(sentence(3, false).starts_with("Stopped. 3 running jobs went back"));
        assert!(sentence(0, true).contains("the next 'corro server' resumes them"));
    }
}
