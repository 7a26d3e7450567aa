//! Client of the campaign's workers: requests and commands against a server that may be down at any moment. Every call may
//! fail.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::fault_injection::SHARE;
use super::harness::{IN_WORKSPACE, Site};

/// Request timeout: longer than any response takes, shorter than a campaign.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct CampaignClient {
    address: String,
    token: String,
    workspace: String,
    key: String,
    dir: PathBuf,
    share: PathBuf,
}

impl CampaignClient {
    pub fn new(site: &Site) -> Self {
        // Creates the link by which commands are run.
        site.command("corro");
        Self {
            address: site.address(),
            token: site.token(),
            workspace: site.workspace(),
            key: site.account_keys().remove(0),
            dir: site.path().to_owned(),
            share: site.share(),
        }
    }

    /// `true` when the server acknowledged it: from then on the job must not be lost.
    pub fn submit(&self, name: &str, nodes: usize, steps: u64) -> bool {
        let ranks = json!({"nodeCount": nodes, "customMpiSettings": {"commandLine": rank(name, steps)}});
        matches!(self.submit_with(name, &ranks), Some(200..300))
    }

    /// Submits a job of one node with these properties beside or instead of the usual ones; returns the status.
    pub fn submit_with(&self, name: &str, more: &Value) -> Option<u16> {
        let mut properties = json!({
            "nodeCount": 1,
            "cluster": {"id": format!("{}/clusters/nc6cluster", self.workspace)},
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
            "mountVolumes": self.volumes(),
            "customMpiSettings": {"commandLine": "true"},
        });
        let more = more.as_object().expect("an object").clone();
        properties.as_object_mut().expect("an object").extend(more);
        let path = format!("{}/experiments/cifar/jobs/{name}", self.workspace);
        self.request("PUT", &path, Some(json!({ "properties": properties }))).map(|(status, _)| status)
    }

    /// Volumes that jobs mount.
    pub fn volumes(&self) -> Value {
        json!({"azureFileShares": [{
            "accountName": "mystorageaccount", "relativeMountPath": "myshare",
            "azureFileUrl": "https://mystorageaccount.file.core.windows.net/myshare",
            "credentials": {"accountKey": self.key},
        }]})
    }

    /// Returns the status.
    pub fn terminate(&self, name: &str) -> Option<u16> {
        let path = format!("{}/experiments/cifar/jobs/{name}/terminate", self.workspace);
        self.request("POST", &path, None).map(|(status, _)| status)
    }

    pub fn resize(&self, nodes: usize) -> Option<()> {
        let scale = json!({"manual": {"targetNodeCount": nodes, "nodeDeallocationOption": "requeue"}});
        let body = json!({"properties": {"scaleSettings": scale}});
        let path = format!("{}/clusters/nc6cluster", self.workspace);
        self.request("PATCH", &path, Some(body)).filter(|(status, _)| *status == 200).map(|_| ())
    }

    /// Every job of the server, page by page; `None` if a response was missing.
    pub fn jobs(&self) -> Option<Vec<Value>> {
        let mut jobs = Vec::new();
        let mut path = format!("{}/experiments/cifar/jobs", self.workspace);
        loop {
            let (status, page) = self.request("GET", &path, None)?;
            if status != 200 {
                return None;
            }
            jobs.extend(page["value"].as_array()?.iter().cloned());
            match page["nextLink"].as_str() {
                Some(next) => path = next.split_once(&self.address)?.1.to_owned(),
                None => return Some(jobs),
            }
        }
    }

    /// `job file stream` of a job's `stdout.txt`, to its end.
    pub fn stream(&self, job: &str) -> Output {
        let mut command = Command::new(self.dir.join("corro"));
        command
            .args(["batchai", "job", "file", "stream"])
            .args(IN_WORKSPACE.split(' '))
            .args(["-e", "cifar", "-j", job, "-f", "stdout.txt"])
            .current_dir(&self.dir)
            .env("HOME", self.dir.join("home"))
            .env("CORRO_CONFIG_DIR", self.dir.join("config"))
            .stdin(Stdio::null());
        command.output().expect("the command runs")
    }

    /// A file of the job on the server's disk.
    pub fn log(&self, job: &Value) -> Vec<u8> {
        let segment = job["properties"]["jobOutputDirectoryPathSegment"].as_str().expect("text");
        std::fs::read(self.share.join("cifar").join(segment).join("stdouterr/stdout.txt")).unwrap_or_default()
    }

    /// Records that ranks wrote beside their logs; an incomplete line is ignored.
    pub fn records(&self, name: &str) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.share.join(name)).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    fn request(&self, method: &str, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let mark = if path.contains('?') { "" } else { "?api-version=2018-05-01" };
        let head = format!(
            "{method} {path}{mark} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            self.token,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT)).ok()?;
        stream.write_all((head + &body).as_bytes()).ok()?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).ok()?;
        let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&response[..end]);
        let status = head.split_whitespace().nth(1)?.parse().ok()?;
        let whole =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        // A truncated response does not count.
        let body = &response[end + 4..];
        if whole.is_some_and(|whole: usize| whole != body.len()) {
            return None;
        }
        Some((status, serde_json::from_slice(body).unwrap_or(Value::Null)))
    }
}

/// Script of every rank, with times since boot: holds its own lock while it lives, prints numbered lines, and records its start
/// and end. A lock that is already held means a second rank of the same job on the same node, or an orphan; a killed `flock`
/// means neither.
fn rank(job: &str, steps: u64) -> String {
    let me = "$RANK";
    format!(
        "exec 9>{SHARE}/locks/{job}-{me}; read -r began _ </proc/uptime; run=$$-$began; \
         flock -n -E 17 9; [ $? -ne 17 ] || echo \"{job} {me} $HOROVOD_HOSTNAME\" >> {SHARE}/doubled; \
         echo \"{job} {me} $run $began\" >> {SHARE}/begun; \
         i=0; while [ $i -lt {steps} ]; do echo \"{job} {me} $run $i\"; sleep 0.05; i=$((i+1)); done; \
         echo \"{job} {me} $run\" >> {SHARE}/done"
    )
}
