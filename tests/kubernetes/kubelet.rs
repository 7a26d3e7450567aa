//! Scripted kubelet: runs pods of the scripted API server as processes of this machine. The pod's command is the agent's, its
//! token comes from the secret as a file, and its directories are below the test's.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::Value;

use super::harness::signal;

pub struct Kubelet {
    directory: PathBuf,
    processes: Mutex<HashMap<String, u32>>,
}

impl Kubelet {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, processes: Mutex::default() }
    }

    /// Starts the pod's container unless it was started; `on_exit` receives its exit status.
    pub fn run(&self, name: &str, pod: &Value, secret: &Value, on_exit: impl FnOnce(i32) + Send + 'static) {
        let mut processes = self.processes();
        if processes.contains_key(name) {
            return;
        }
        let root = self.directory.join(name);
        let container = &pod["spec"]["containers"][0];
        for mount in container["volumeMounts"].as_array().expect("a list") {
            let path = mount["mountPath"].as_str().expect("a path");
            // The scripted machines see the server's directories, and have a /dev/shm.
            if mount["subPath"].is_null() && path != "/dev/shm" {
                fs::create_dir_all(inside(&root, path)).expect("a directory");
            }
        }
        for (file, content) in secret["data"].as_object().expect("files") {
            let path = inside(&root, "/run/corro").join(file);
            let content = STANDARD.decode(content.as_str().expect("text")).expect("base64");
            fs::write(&path, content).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("its mode");
        }
        let words = container["command"].as_array().expect("a list").iter().map(|word| word.as_str().expect("a word"));
        let words: Vec<String> = words
            .map(|word| match word.starts_with("/run/") || word.starts_with("/var/") {
                true => inside(&root, word).display().to_string(),
                false => word.to_owned(),
            })
            .collect();
        assert_eq!(words[0], "corro");
        let log = fs::File::create(root.join("log")).expect("a log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_corro"))
            .args(&words[1..])
            .current_dir(&root)
            .env("HOME", &root)
            .env("CORRO_LOG", "info")
            .env("CORRO_MPIRUN", "none")
            .env("DOCKER_HOST", format!("unix://{}", root.join("engine.sock").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the agent starts");
        processes.insert(name.to_owned(), child.id());
        drop(processes);
        std::thread::spawn(move || on_exit(child.wait().expect("it is ours").code().unwrap_or(137)));
    }

    /// Log of the pod's agent.
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name).join("log")).unwrap_or_default()
    }

    pub fn is_running(&self, name: &str) -> bool {
        let pid = self.processes().get(name).copied();
        pid.is_some_and(super::harness::is_alive)
    }

    pub fn kill(&self, name: &str) {
        if let Some(pid) = self.processes().get(name).copied().filter(|pid| super::harness::is_alive(*pid)) {
            signal(pid, Signal::KILL);
        }
    }

    pub fn signal(&self, name: &str, with: Signal) {
        if let Some(pid) = self.processes().get(name) {
            signal(*pid, with);
        }
    }

    pub fn kill_all(&self) {
        let names: Vec<_> = self.processes().keys().cloned().collect();
        names.iter().for_each(|name| self.kill(name));
    }

    /// SIGTERM, and SIGKILL after the grace period.
    pub fn stop(&self, name: &str, grace: Duration) {
        let Some(pid) = self.processes().get(name).copied() else { return };
        signal(pid, Signal::TERM);
        std::thread::spawn(move || {
            let deadline = Instant::now() + grace;
            while super::harness::is_alive(pid) && Instant::now() < deadline {
                std::thread::park_timeout(Duration::from_millis(20));
            }
            if super::harness::is_alive(pid) {
                signal(pid, Signal::KILL);
            }
        });
    }

    fn processes(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.processes.lock().expect("no test panics with it")
    }
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
