//! Ranks as real processes. The test executable starts itself once for each rank; a rank does what it is told on its standard input
//! (`rank`), line by line, and says what came of it. Everything started here ends with the test, however that ends.
#![allow(dead_code, reason = "each test executable uses its own part")]

pub mod hosts;
mod rank;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// For whatever is to happen. Nothing is expected to take as long, but machines may be busy.
pub const SOON: Duration = Duration::from_secs(30);

pub type Variables = Vec<(String, String)>;

pub fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// As torchrun sets them for a rank on one host; the port is never opened, only part of the job's identity.
pub fn torchrun(rank: usize, size: usize, job: &str) -> Variables {
    [by_hand(rank, size, job), variables(&[("TORCHELASTIC_RUN_ID", job)])].concat()
}

/// The same without a name of the run: only where they were started tells the ranks of two worlds apart.
pub fn by_hand(rank: usize, size: usize, job: &str) -> Variables {
    let [rank, size] = [rank, size].map(|number| number.to_string());
    variables(&[
        ("RANK", &rank),
        ("WORLD_SIZE", &size),
        ("LOCAL_RANK", &rank),
        ("LOCAL_WORLD_SIZE", &size),
        ("MASTER_PORT", job),
    ])
}

/// Unlike that of any other job.
pub fn new_job() -> String {
    static JOBS: AtomicU64 = AtomicU64::new(0);
    format!("{} {}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed))
}

pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a host has a name").trim().to_owned()
}

/// All ranks of a job.
pub struct Gang {
    pub ranks: Vec<Rank>,
}

impl Gang {
    /// Ranks on this host that are connected.
    pub fn connected(n: usize, more: &[(&str, &str)]) -> Gang {
        let mut gang = Gang::started(n, more);
        gang.ranks.iter_mut().for_each(|rank| drop(rank.says("ready")));
        gang
    }

    /// Ranks on this host that will connect.
    pub fn started(n: usize, more: &[(&str, &str)]) -> Gang {
        let job = new_job();
        let of = |rank| [torchrun(rank, n, &job), variables(more)].concat();
        Gang { ranks: (0..n).map(|rank| Rank::start(own_command(), &of(rank))).collect() }
    }

    pub fn others(&mut self, victim: usize) -> impl Iterator<Item = (usize, &mut Rank)> {
        self.ranks.iter_mut().enumerate().filter(move |(rank, _)| *rank != victim)
    }

    pub fn tell_all(&mut self, order: &str) {
        self.ranks.iter_mut().for_each(|rank| rank.tell(order));
    }

    pub fn all_say(&mut self, what: &str) {
        self.ranks.iter_mut().for_each(|rank| drop(rank.says(what)));
    }

    /// Every rank does it, and it ends well.
    pub fn all_do(&mut self, order: &str) {
        self.tell_all(order);
        self.all_say("done");
    }

    /// All leave and end well.
    pub fn leave(mut self) {
        self.tell_all("leave");
        self.all_say("left");
        for rank in &mut self.ranks {
            assert!(rank.child.wait().expect("a child can be waited for").success());
        }
    }
}

/// One process.
pub struct Rank {
    pub child: Child,
    orders: ChildStdin,
    said: Lines,
    complained: Lines,
}

/// This executable, as a rank.
pub fn own_command() -> Vec<OsString> {
    let own = std::env::current_exe().expect("a test has a file").into_os_string();
    [own].into_iter().chain(rank::ARGUMENTS.map(OsString::from)).collect()
}

impl Rank {
    /// `command` ends in what [`own_command`] says, with anything before it that runs a command.
    pub fn start(command: Vec<OsString>, variables: &[(String, String)]) -> Rank {
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
        start.env("PATH", std::env::var_os("PATH").expect("PATH is set"));
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let orders = child.stdin.take().expect("piped");
        let said = Lines::of(child.stdout.take().expect("piped"));
        let complained = Lines::of(child.stderr.take().expect("piped"));
        Rank { child, orders, said, complained }
    }

    pub fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("a rank that is told something lives");
    }

    /// Waits until it says something that begins so, and returns the rest. What it said before is forgotten.
    pub fn says(&mut self, what: &str) -> String {
        let wanted = format!("{}{what}", rank::MARK);
        let said = self.said.wait(|line| line.contains(&wanted));
        let said = said.unwrap_or_else(|all| panic!("never said {what}: {all}\nbut: {}", self.complained.text()));
        let at = said.find(&wanted).expect("it was looked for");
        said[at + wanted.len()..].trim().to_owned()
    }

    pub fn has_said(&self, what: &str) -> bool {
        self.said.text().contains(&format!("{}{what}", rank::MARK))
    }

    /// Waits until its standard error has a line with this, and returns it.
    pub fn complains(&mut self, what: &str) -> String {
        let found = self.complained.wait(|line| line.contains(what));
        found.unwrap_or_else(|all| panic!("never complained {what}: {all}"))
    }

    pub fn complaints(&self) -> String {
        self.complained.text()
    }

    /// Returns when none of its threads runs any more, which is a little after the signal is sent.
    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("our own child can be signalled");
        let stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, state)| state.trim_start().starts_with('T'))
        };
        let tasks = format!("/proc/{}/task", self.child.id());
        until("it is stopped", || std::fs::read_dir(&tasks).expect("it lives").flatten().all(stopped));
    }

    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("our own child can be signalled");
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("a child can be waited for");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What comes out of a process, line by line, read by a thread until its end.
struct Lines {
    shared: Arc<(Mutex<Vec<String>>, Condvar)>,
    seen: usize,
}

impl Lines {
    fn of(source: impl Read + Send + 'static) -> Lines {
        let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let writer = shared.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                writer.0.lock().expect("no reader panics").push(line);
                writer.1.notify_all();
            }
        });
        Lines { shared, seen: 0 }
    }

    /// The first new line that is wanted; in vain, everything there was.
    fn wait(&mut self, wanted: impl Fn(&str) -> bool) -> Result<String, String> {
        let deadline = Instant::now() + SOON;
        let (lines, more) = &*self.shared;
        let mut lines = lines.lock().expect("no reader panics");
        loop {
            while let Some(line) = lines.get(self.seen) {
                self.seen += 1;
                if wanted(line) {
                    return Ok(line.clone());
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(lines.join("\n"));
            }
            lines = more.wait_timeout(lines, left).expect("no reader panics").0;
        }
    }

    fn text(&self) -> String {
        self.shared.0.lock().expect("no reader panics").join("\n")
    }
}

/// Looks every few milliseconds until it is so.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Inodes of the sockets that a process holds.
pub fn sockets_of(pid: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inode = |link: std::path::PathBuf| {
        let name = link.to_string_lossy().into_owned();
        name.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    links.filter_map(inode).collect()
}
