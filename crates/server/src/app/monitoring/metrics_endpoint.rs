//! Content of `/metrics` and the readiness check: jobs and nodes from the snapshot, counters of HTTP and the store, and
//! usage of this process. Requires read access to the whole subscription, because it names every cluster.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corro_base::procfs;
use corro_model::rbac::{Right, Scope};
use corro_model::vm_size;
use corro_model::{ApiError, Timestamp};
use corro_store::State;
use corro_store::latency_histogram::BUCKET_BOUNDS;

use crate::app::App;
use crate::app::monitoring::http_counters::Route;
use crate::app::monitoring::prometheus_text::{Family, Kind};

/// Maximum age of the last reconcile pass before the server is not ready. Passes run twice a second.
const MAX_PASS_AGE: Duration = Duration::from_secs(15);

impl App {
    pub fn server_metrics(&self) -> Result<Vec<Family>, ApiError> {
        if !self.request.caller.may(Right::Read, &Scope::Subscription) {
            let id = &self.request.caller.id;
            let message = format!(
                "The client '{id}' with object id '{id}' does not have authorization to read the server's metrics: give it the role Reader on the subscription."
            );
            return Err(ApiError::new(403, "AuthorizationFailed", message));
        }
        let mut families = state_metrics(&self.snapshot(), self.now());
        families.extend(self.gpu_metrics());
        families.extend(self.http_metrics());
        families.extend(self.store_metrics());
        families.extend(self.trace_metrics());
        families.extend(process_metrics());
        Ok(families)
    }

    /// Component that is not ready, if any.
    pub fn not_ready_reason(&self) -> Option<&'static str> {
        if self.store.stats().is_failing.load(Ordering::Relaxed) {
            return Some("database");
        }
        let last = self.telemetry.http_counters.last_pass();
        match last == Timestamp::default() {
            true => Some("starting"),
            false => (self.timeline().age(last) > MAX_PASS_AGE).then_some("reconciler"),
        }
    }

    fn http_metrics(&self) -> Vec<Family> {
        let counters = &self.telemetry.http_counters;
        let mut requests =
            Family::new("corro_http_requests", Kind::Counter, "HTTP requests by route and status class.");
        let mut times =
            Family::new("corro_http_request_duration_seconds", Kind::Histogram, "Time to the response headers.");
        for route in Route::ALL {
            for class in 1..=5 {
                let count = counters.requests(route, class);
                if count > 0 {
                    requests.add(&[("route", route.label()), ("code", &format!("{class}xx"))], count as f64);
                }
            }
            let (counts, sum) = counters.times[route as usize].read();
            times.add_histogram(&[("route", route.label())], &BUCKET_BOUNDS, &counts, sum);
        }
        let files = counters.files();
        let failed: u64 = files.errors.iter().sum();
        requests.add(&[("route", "files"), ("code", "2xx")], files.requests.saturating_sub(failed) as f64);
        for (class, count) in files.errors.iter().enumerate().filter(|(_, count)| **count > 0) {
            requests.add(&[("route", "files"), ("code", &format!("{}xx", class + 1))], *count as f64);
        }
        let (counts, sum) = counters.file_times.read();
        let mut sampled = Family::new(
            "corro_file_request_duration_seconds",
            Kind::Histogram,
            "Time to the response headers of file requests, of which one in 64 is timed.",
        );
        sampled.add_histogram(&[], &BUCKET_BOUNDS, &counts, sum);
        let bytes = Family::new("corro_file_bytes", Kind::Counter, "Bytes in and out of the file service.")
            .with(&[("direction", "in")], files.bytes_in as f64)
            .with(&[("direction", "out")], files.bytes_out as f64);
        let agents = Family::new("corro_agents_connected", Kind::Gauge, "Nodes whose agents are connected.");
        let streams = Family::new("corro_event_streams", Kind::Gauge, "Open event streams.");
        let passes = Family::new("corro_reconcile_passes", Kind::Counter, "Full passes of the reconciler.");
        vec![
            requests,
            times,
            sampled,
            bytes,
            agents.with(&[], self.fleet.process_stats.n_connected() as f64),
            streams.with(&[], counters.event_streams.load(Ordering::Relaxed) as f64),
            passes.with(&[], counters.passes.load(Ordering::Relaxed) as f64),
        ]
    }

    fn trace_metrics(&self) -> Option<Family> {
        let counts = self.telemetry.traces.counts()?;
        let spans = Family::new("corro_trace_spans", Kind::Counter, "Trace spans by outcome.");
        let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed) as f64;
        let spans = spans.with(&[("outcome", "sent")], count(&counts.sent));
        Some(spans.with(&[("outcome", "dropped")], count(&counts.dropped)))
    }

    fn store_metrics(&self) -> Vec<Family> {
        let figures = self.store.stats();
        let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed) as f64;
        let mut writes =
            Family::new("corro_store_write_duration_seconds", Kind::Histogram, "Duration of commits to disk.");
        let (counts, sum) = figures.writes.read();
        writes.add_histogram(&[], &BUCKET_BOUNDS, &counts, sum);
        let commits = Family::new("corro_store_commits", Kind::Counter, "Transactions that changed something.");
        let failures = Family::new("corro_store_write_failures", Kind::Counter, "Writes that failed.");
        vec![commits.with(&[], count(&figures.changes)), writes, failures.with(&[], count(&figures.failures))]
    }
}

/// Metrics of jobs, queues, nodes and cores. Pure.
pub fn state_metrics(state: &State, now: Timestamp) -> Vec<Family> {
    let mut jobs: BTreeMap<&str, u64> =
        ["queued", "running", "terminating", "succeeded", "failed"].into_iter().map(|name| (name, 0)).collect();
    for job in state.jobs.values() {
        *jobs.entry(job.state().name()).or_default() += 1;
    }
    let mut by_state = Family::new("corro_jobs", Kind::Gauge, "Jobs by state, without deleted ones.");
    jobs.into_iter().for_each(|(name, count)| by_state.add(&[("state", name)], count as f64));
    let mut queue = Family::new("corro_queue_length", Kind::Gauge, "Queued jobs by cluster.");
    let mut wait =
        Family::new("corro_queue_oldest_wait_seconds", Kind::Gauge, "Waiting time of the oldest queued job.");
    let mut nodes = Family::new("corro_nodes", Kind::Gauge, "Nodes by cluster and state.");
    let mut total = Family::new("corro_cores", Kind::Gauge, "Cores of a cluster's nodes.");
    let mut used = Family::new("corro_cores_used", Kind::Gauge, "Cores of nodes that run jobs.");
    for (key, cluster) in &state.clusters {
        let label = &[("cluster", key.as_str())];
        queue.add(label, state.queue_length(key) as f64);
        let oldest = state.queued_jobs(key).map(|(_, job)| job.since()).min();
        wait.add(label, oldest.map_or(0.0, |since| now.since(since).as_secs_f64()));
        let mut counts: BTreeMap<&str, u64> = ["allocating", "preparing", "idle", "running", "leaving", "unusable"]
            .into_iter()
            .map(|name| (name, 0))
            .collect();
        for (_, node) in state.nodes_of(key) {
            *counts.entry(node.state().name()).or_default() += 1;
        }
        let cores = vm_size::find(&cluster.spec.vm_size).map_or(0, |size| u64::from(size.cores));
        let there = ["preparing", "idle", "running"].map(|name| counts[name]).iter().sum::<u64>();
        total.add(label, (there * cores) as f64);
        used.add(label, (counts["running"] * cores) as f64);
        for (name, count) in counts {
            nodes.add(&[("cluster", key.as_str()), ("state", name)], count as f64);
        }
    }
    vec![by_state, queue, wait, nodes, total, used]
}

/// Process metrics, named as by the Prometheus client libraries.
fn process_metrics() -> Vec<Family> {
    let build = Family::new("corro_build_info", Kind::Gauge, "Version of the server.");
    let build = build.with(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut families = vec![build];
    let Some(process) = ProcessUsage::read() else { return families };
    let cpu = Family::new("process_cpu_seconds", Kind::Counter, "CPU time of this process.");
    let memory = Family::new("process_resident_memory_bytes", Kind::Gauge, "Resident memory of this process.");
    let files = Family::new("process_open_fds", Kind::Gauge, "Open files of this process.");
    families.push(cpu.with(&[], process.cpu_seconds));
    families.push(memory.with(&[], process.resident as f64));
    families.push(files.with(&[], process.files as f64));
    families
}

struct ProcessUsage {
    cpu_seconds: f64,
    resident: u64,
    files: usize,
}

/// Unit of CPU times in `/proc`; 100 on every Linux.
const USER_HZ: f64 = 100.0;

impl ProcessUsage {
    fn read() -> Option<ProcessUsage> {
        let stat = procfs::Stat::read(i32::try_from(std::process::id()).ok()?)?;
        let resident = procfs::field_bytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS")?;
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Some(ProcessUsage { cpu_seconds: stat.cpu_ticks as f64 / USER_HZ, resident, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::monitoring::prometheus_text::render;
    use crate::testing::*;

    #[test]
    fn state_metrics_count_jobs_nodes_and_cores() {
        let mut state = state(manual(2), 2);
        submit(&mut state, "a", 1, "PT1H");
        submit(&mut state, "b", 2, "PT1H");
        start(&mut state, "a", &[1]);
        let text = render(&state_metrics(&state, at(90)), false);
        for line in [
            "corro_jobs{state=\"running\"} 1",
            "corro_jobs{state=\"queued\"} 1",
            "corro_jobs{state=\"failed\"} 0",
            "corro_queue_length{cluster=\"g/w/nc6\"} 1",
            "corro_queue_oldest_wait_seconds{cluster=\"g/w/nc6\"} 90",
            "corro_nodes{cluster=\"g/w/nc6\",state=\"idle\"} 1",
            "corro_nodes{cluster=\"g/w/nc6\",state=\"running\"} 1",
            "corro_cores{cluster=\"g/w/nc6\"} 2",
            "corro_cores_used{cluster=\"g/w/nc6\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn usage_of_this_process_is_read() {
        assert!(ProcessUsage::read().is_some_and(|own| own.resident > 0 && own.files > 0));
    }
}
