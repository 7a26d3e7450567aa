//! Counters of HTTP requests, latencies and file bytes, and the time of the last reconcile pass. On the hot path: a
//! file request costs two atomic additions to a shard that few threads share, and only a sample is timed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corro_store::LatencyHistogram;

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Login,
    Nodes,
    Reads,
    Writes,
    Events,
    Pages,
    Watch,
}

impl Route {
    pub const ALL: [Route; 7] =
        [Route::Login, Route::Nodes, Route::Reads, Route::Writes, Route::Events, Route::Pages, Route::Watch];

    pub fn label(self) -> &'static str {
        match self {
            Route::Login => "login",
            Route::Nodes => "nodes",
            Route::Reads => "read",
            Route::Writes => "write",
            Route::Events => "events",
            Route::Pages => "pages",
            Route::Watch => "watch",
        }
    }
}

/// Status classes 1xx to 5xx.
const STATUS_CLASSES: usize = 5;
/// Number of shards that threads are spread over.
const SHARDS: usize = 16;
/// One in this many file requests is timed.
const TIMING_SAMPLE_INTERVAL: u64 = 64;

#[derive(Default)]
pub struct HttpCounters {
    requests: [[AtomicU64; STATUS_CLASSES]; Route::ALL.len()],
    pub times: [LatencyHistogram; Route::ALL.len()],
    files: [Shard; SHARDS],
    /// Failed file requests by status class.
    file_errors: [AtomicU64; STATUS_CLASSES],
    pub file_times: LatencyHistogram,
    pub event_streams: AtomicU64,
    pub passes: AtomicU64,
    /// Unix time in milliseconds.
    last_pass: AtomicU64,
}

/// Aligned to avoid false sharing of cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    requests: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// Counters of the file service.
#[derive(Debug, PartialEq, Eq)]
pub struct FileCounters {
    pub requests: u64,
    pub errors: [u64; STATUS_CLASSES],
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl HttpCounters {
    pub fn record_response(&self, route: Route, status: u16, took: Duration) {
        self.requests[route as usize][class(status)].fetch_add(1, Ordering::Relaxed);
        self.times[route as usize].record(took);
    }

    /// Number of requests of a route with status class `class` (1 to 5).
    pub fn requests(&self, route: Route, class: usize) -> u64 {
        self.requests[route as usize][class - 1].load(Ordering::Relaxed)
    }

    /// Counts a file request. Returns the start time if the request is to be timed.
    pub fn begin_file_request(&self, bytes: u64) -> Option<Instant> {
        let shard = self.shard();
        if bytes > 0 {
            shard.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        }
        let number = shard.requests.fetch_add(1, Ordering::Relaxed);
        number.is_multiple_of(TIMING_SAMPLE_INTERVAL).then(Instant::now)
    }

    pub fn end_file_request(&self, status: u16, bytes: u64, since: Option<Instant>) {
        if bytes > 0 {
            self.shard().bytes_out.fetch_add(bytes, Ordering::Relaxed);
        }
        if status >= 400 {
            self.file_errors[class(status)].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(since) = since {
            self.file_times.record(since.elapsed());
        }
    }

    pub fn files(&self) -> FileCounters {
        let sum = |of: fn(&Shard) -> &AtomicU64| self.files.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum();
        FileCounters {
            requests: sum(|shard| &shard.requests),
            errors: std::array::from_fn(|idx| self.file_errors[idx].load(Ordering::Relaxed)),
            bytes_in: sum(|shard| &shard.bytes_in),
            bytes_out: sum(|shard| &shard.bytes_out),
        }
    }

    pub fn record_pass(&self, now: corro_model::Timestamp) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        self.last_pass.store(now.millis().max(0) as u64, Ordering::Relaxed);
    }

    pub fn last_pass(&self) -> corro_model::Timestamp {
        corro_model::Timestamp::from_millis(self.last_pass.load(Ordering::Relaxed) as i64)
    }

    fn shard(&self) -> &Shard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        let own = OWN.get();
        let own = if own == usize::MAX { NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS } else { own };
        OWN.set(own);
        &self.files[own]
    }
}

fn class(status: u16) -> usize {
    usize::from(status / 100).clamp(1, STATUS_CLASSES) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_threads_add_up() {
        let counters = HttpCounters::default();
        let timed: usize = std::thread::scope(|scope| {
            let count = || {
                let one = |_| {
                    let since = counters.begin_file_request(3);
                    counters.end_file_request(if since.is_some() { 404 } else { 206 }, 5, since);
                    usize::from(since.is_some())
                };
                (0..1000).map(one).sum::<usize>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        let errors = [0, 0, 0, timed as u64, 0];
        assert_eq!(counters.files(), FileCounters { requests: 4000, errors, bytes_in: 12_000, bytes_out: 20_000 });
        assert!((60..=80).contains(&timed), "{timed}");
        counters.record_response(Route::Reads, 200, Duration::ZERO);
        counters.record_response(Route::Reads, 599, Duration::ZERO);
        assert_eq!([2, 3, 5].map(|class| counters.requests(Route::Reads, class)), [1, 0, 1]);
    }
}
