//! Network and host faults between machines: links down, packets lost one way, connections reset, a slow link, power loss,
//! frozen agents, an absent server, a wrong clock. After each, no job has run twice at once, gangs ended or continued as a
//! whole, and nothing is left behind. Machines are network and mount namespaces; the tests are skipped with a notice where this
//! user may not create them.

mod harness;

#[path = "between_hosts/agents.rs"]
mod agents;
#[path = "between_hosts/clocks.rs"]
mod clocks;
#[path = "between_hosts/engine.rs"]
mod engine;
#[path = "between_hosts/network.rs"]
mod network;
#[path = "between_hosts/volumes.rs"]
mod volumes;

use std::fs;

use harness::fault_injection::{JoinedAgent, RankStart, SHARE, processes_of};
use harness::machines::Machines;
use harness::{Site, is_alive, wait_for};
use serde_json::Value;

/// A server, and machines that rejoin it after every fault. Fields drop in order.
struct Rack {
    agents: Vec<JoinedAgent>,
    site: Site,
    machines: Machines,
}

/// A lease of three seconds instead of ten, to save time.
const SHORT_LEASE: &[&str] = &["--no-containers", "--tls", "--lease", "3"];

fn start_rack(n: usize, server: &[&str]) -> Option<Rack> {
    start_rack_with(n, server, |_, _| Vec::new())
}

/// Like `start_rack`, with more arguments for each agent.
fn start_rack_with(n: usize, server: &[&str], words: impl Fn(&Machines, usize) -> Vec<String>) -> Option<Rack> {
    let machines = Machines::new(n)?;
    let mut site = Site::unstarted(server);
    site.start_server("server", &format!("{}:0", machines.server()), "info,corro_server::http=warn");
    let join = |machine| {
        let words = words(&machines, machine);
        machines.join_with(&site, machine, &[], &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let agents = (0..n).map(join).collect();
    site.prepare(n);
    Some(Rack { agents, site, machines })
}

/// A rank that records its start and then prints a number per line until the gate opens.
fn counting_rank() -> String {
    format!(
        "echo \"$RANK $$ $HOROVOD_HOSTNAME\" >> {SHARE}/starts; i=0; while [ ! -e {SHARE}/go ]; do i=$((i+1)); echo \"$RANK counts $i\"; sleep 0.1; done; \
         echo \"$RANK ends at $i\""
    )
}

impl Rack {
    /// Starts a gang over all machines. Returns its ranks in the order of their records.
    fn start_gang(&self) -> Vec<RankStart> {
        let n = self.agents.len();
        self.site.submit_ranks("gang", n, &counting_rank());
        let starts = self.site.wait_for_starts(n);
        self.wait_for_counting();
        starts
    }

    fn n_counted(&self) -> usize {
        self.site.log("gang", "stdout.txt").matches("counts").count()
    }

    fn wait_for_counting(&self) {
        let before = self.n_counted();
        wait_for("the ranks to go on", || self.n_counted() > before + 10);
    }

    /// The machine that runs this node now.
    fn machine_of(&self, node: &str) -> usize {
        let found = self.agents.iter().position(|agent| agent.node().as_deref() == Some(node));
        found.unwrap_or_else(|| panic!("no machine is {node}"))
    }

    /// Waits for the complete second attempt; it must not start before the first is entirely gone.
    fn second_attempt(&self, first: &[RankStart]) -> Vec<RankStart> {
        wait_for("the job to be tried again", || self.site.starts().len() > first.len());
        let left: Vec<_> = first.iter().filter(|start| is_alive(start.pid)).collect();
        assert!(left.is_empty(), "the job runs twice: {left:?}\n{}", self.logs());
        self.site.wait_for_starts(2 * first.len()).split_off(first.len())
    }

    /// Lets the ranks end; the job must have succeeded, after so many starts of ranks, with every printed number in the log.
    fn finish(&self, n_starts: usize) -> Value {
        self.site.release_ranks();
        let job = self.site.wait_for_end("gang");
        assert_eq!(job["executionState"], "succeeded", "{job:#}\n{}", self.logs());
        let starts = self.site.starts();
        assert_eq!(starts.len(), n_starts, "{starts:?}\n{}", self.logs());
        let log = self.site.log("gang", "stdout.txt");
        for rank in 0..self.agents.len() {
            let numbers = log.lines().filter_map(|line| line.strip_prefix(&format!("{rank} counts ")));
            let numbers: Vec<usize> = numbers.map(|number| number.parse().expect("a number")).collect();
            let ends = log.lines().filter_map(|line| line.strip_prefix(&format!("{rank} ends at ")));
            let ends: Vec<usize> = ends.map(|number| number.parse().expect("a number")).collect();
            assert_eq!(ends.len(), 1, "rank {rank} ends once: {log}");
            let last = numbers.len() - ends[0];
            assert!(numbers[last..].iter().copied().eq(1..=ends[0]), "rank {rank} lost lines: {log}");
        }
        job
    }

    /// Asserts that no process of the ended attempt is left on any machine, and that all are nodes again.
    fn assert_clean(&self, starts: &[RankStart]) {
        let left: Vec<_> = starts.iter().flat_map(|start| processes_of(&start.node)).collect();
        assert!(left.iter().all(|pid| !is_alive(*pid)), "{left:?}");
        self.site.wait_for_nodes(self.agents.len());
        for (machine, agent) in self.agents.iter().enumerate() {
            wait_for("nothing to be mounted", || harness::machines::mounted_on(agent.child.id()).is_empty());
            // Idle guards belong to the agent.
            let others = || {
                self.machines
                    .processes_on(machine)
                    .into_iter()
                    .filter(|pid| *pid != agent.child.id() && !is_guard(*pid))
            };
            wait_for("the agent to be alone with its guards", || others().next().is_none());
        }
    }

    fn logs(&self) -> String {
        let texts = (0..self.agents.len())
            .map(|machine| fs::read_to_string(self.site.path().join(format!("machine-{machine}.log"))));
        texts.map(Result::unwrap_or_default).collect::<Vec<_>>().join("\n")
    }

    /// The history of jobs and nodes.
    fn history(&self) -> String {
        self.site.corro("admin history -o json").ok().stdout
    }
}

fn is_guard(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"guard")
}
