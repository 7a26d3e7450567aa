//! Coverage-guided fuzzer in one file: inputs that reach new edges, by LLVM's edge counters (`-Cpasses=sancov-module`, inline
//! 8-bit counters), are kept and mutated further. A panic, a run longer than [`MAX_RUN_TIME`] and an input that makes the
//! target hold more than [`MAX_MEMORY_BYTES`] at once are findings. Needs only the usual compiler.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::mutate::{Random, mutate, read_corpus};

/// Limit of additional memory, beyond the amount held before the input.
const MAX_MEMORY_BYTES: usize = 128 << 20;
const MAX_RUN_TIME: Duration = Duration::from_secs(20);

/// One fuzzing run.
pub struct FuzzConfig {
    pub name: String,
    pub target: fn(&[u8]),
    pub time: Duration,
    pub max_len: usize,
    pub seed: u64,
    /// Directory of the inputs in the repository.
    pub corpus: PathBuf,
    /// Directory for inputs that reach new edges, and beside it for inputs that break the target.
    pub output: PathBuf,
}

/// Fuzzes until the time is over; returns false after a finding.
pub fn run(config: &FuzzConfig) -> bool {
    std::fs::create_dir_all(&config.output).expect("an output directory");
    let mut fuzzer = Fuzzer::new(config);
    let run_started = std::sync::Arc::new(AtomicU64::new(0));
    abort_on_timeout(config.name.clone(), run_started.clone());
    let begin = Instant::now();
    let seeds: Vec<Vec<u8>> = [read_corpus(&config.corpus), read_corpus(&config.output)].concat();
    assert!(!seeds.is_empty(), "{} has no corpus", config.name);
    for seed in seeds {
        run_started.store(begin.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        if !fuzzer.try_input(seed, true) {
            return false;
        }
    }
    let mut random = Random(config.seed);
    let mut last_report = Instant::now();
    while begin.elapsed() < config.time {
        let input = mutate(&fuzzer.corpus, &mut random, config.max_len);
        run_started.store(begin.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        if !fuzzer.try_input(input, false) {
            return false;
        }
        if last_report.elapsed() > Duration::from_secs(60) {
            last_report = Instant::now();
            fuzzer.print_stats(begin.elapsed());
        }
    }
    run_started.store(u64::MAX, Ordering::Relaxed);
    fuzzer.print_stats(begin.elapsed());
    let _ = std::fs::remove_file(fuzzer.current_path());
    true
}

/// Coverage seen so far, and the inputs that reached it.
struct Fuzzer<'a> {
    config: &'a FuzzConfig,
    ranges: Vec<(usize, usize)>,
    /// For each edge, the orders of magnitude of its count that were seen.
    seen: Vec<u8>,
    corpus: Vec<Vec<u8>>,
    n_runs: u64,
    n_edges: usize,
    peak: usize,
    current: std::fs::File,
}

impl<'a> Fuzzer<'a> {
    fn new(config: &'a FuzzConfig) -> Self {
        let ranges = COUNTER_RANGES.lock().expect("no thread panics while it holds this lock").clone();
        let n_counters = ranges.iter().map(|(start, stop)| stop - start).sum();
        if n_counters == 0 {
            eprintln!("{}: built without coverage, so mutations are blind", config.name);
        }
        let current = std::fs::File::create(config.output.with_extension("current")).expect("a file");
        Fuzzer {
            config,
            ranges,
            seen: vec![0; n_counters],
            corpus: Vec::new(),
            n_runs: 0,
            n_edges: 0,
            peak: 0,
            current,
        }
    }

    fn current_path(&self) -> PathBuf {
        self.config.output.with_extension("current")
    }

    /// Runs the target on an input; returns false when it is a finding.
    fn try_input(&mut self, input: Vec<u8>, is_seed: bool) -> bool {
        // Saved first, so that the input survives a kill of the process.
        let _ = self.current.set_len(input.len() as u64);
        let _ = self.current.write_all_at(&input, 0);
        self.counters().for_each(|counters| counters.fill(0));
        let before = ALLOCATED_BYTES.load(Ordering::Relaxed);
        PEAK_ALLOCATED_BYTES.store(before, Ordering::Relaxed);
        let ended = catch_unwind(AssertUnwindSafe(|| (self.config.target)(&input)));
        let peak = PEAK_ALLOCATED_BYTES.load(Ordering::Relaxed).saturating_sub(before);
        self.n_runs += 1;
        self.peak = self.peak.max(peak);
        if ended.is_err() || peak > MAX_MEMORY_BYTES {
            let reason = if ended.is_err() { "panic" } else { "memory" };
            let path = self.config.output.with_extension(format!("{reason}-{:016x}", hash(&input)));
            std::fs::write(&path, &input).expect("the finding can be saved");
            eprintln!(
                "{}: {reason} after {} runs ({peak} bytes held) on {}:\n{}",
                self.config.name,
                self.n_runs,
                path.display(),
                input.escape_ascii()
            );
            return false;
        }
        if self.reaches_new() || (is_seed && self.corpus.is_empty()) {
            if !is_seed {
                let path = self.config.output.join(format!("{:016x}", hash(&input)));
                let _ = std::fs::write(path, &input);
            }
            self.corpus.push(input);
        }
        true
    }

    fn counters(&self) -> impl Iterator<Item = &'static mut [u8]> + use<> {
        // SAFETY: the ranges are those of the linker's section of counters, which lives as long as the program. Other threads
        // of the target may count at the same time; a lost count is a lost hint.
        self.ranges
            .clone()
            .into_iter()
            .map(|(start, stop)| unsafe { std::slice::from_raw_parts_mut(start as *mut u8, stop - start) })
    }

    fn reaches_new(&mut self) -> bool {
        let (mut is_new, mut base) = (false, 0);
        for counters in self.counters() {
            for (at, chunk) in counters.chunks(32).enumerate() {
                if chunk.iter().all(|count| *count == 0) {
                    continue;
                }
                // Another thread may count meanwhile: each counter is read once.
                let counted =
                    chunk.iter().enumerate().filter_map(|(offset, count)| Some((offset, count.checked_ilog2()?)));
                for (offset, order) in counted {
                    let magnitude = 1u8 << order;
                    let seen = &mut self.seen[base + at * 32 + offset];
                    self.n_edges += usize::from(*seen == 0);
                    is_new |= *seen & magnitude == 0;
                    *seen |= magnitude;
                }
            }
            base += counters.len();
        }
        is_new
    }

    fn print_stats(&self, elapsed: Duration) {
        let (name, seconds) = (&self.config.name, elapsed.as_secs());
        let Fuzzer { n_runs, n_edges, corpus, peak, .. } = self;
        let kib = peak >> 10;
        println!(
            "{name}: {n_runs} runs in {seconds} s, {n_edges} edges, {} inputs kept, at most {kib} KiB held",
            corpus.len()
        );
        let _ = std::io::stdout().flush();
    }
}

/// Ends the process when one input takes too long; the file of the current input holds it.
fn abort_on_timeout(name: String, started: std::sync::Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut last = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            match started.load(Ordering::Relaxed) {
                u64::MAX => return,
                now if now != last.0 => last = (now, Instant::now()),
                0 => {}
                _ if last.1.elapsed() > MAX_RUN_TIME => {
                    eprintln!("{name}: one input takes more than {MAX_RUN_TIME:?}; see the .current file");
                    std::process::exit(1);
                }
                _ => {}
            }
        }
    });
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Address ranges of the edge counters.
static COUNTER_RANGES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called by every instrumented module before `main`.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let range = (start as usize, stop as usize);
    if let Ok(mut ranges) = COUNTER_RANGES.lock()
        && range.0 < range.1
        && !ranges.contains(&range)
    {
        ranges.push(range);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_pcs_init(_start: *const usize, _stop: *const usize) {}

/// Empty: the callee's own edges count the targets of indirect calls.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_indir(_callee: usize) {}

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which also counts the allocated bytes.
pub struct CountingAllocator;

fn add(bytes: usize) {
    let allocated = ALLOCATED_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK_ALLOCATED_BYTES.fetch_max(allocated, Ordering::Relaxed);
}

// SAFETY: every call is forwarded to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: `layout` is forwarded unchanged, so its size is non-zero as required of our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: `layout` is forwarded unchanged, so its size is non-zero as required of our caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `System` with this `layout`, since this allocator only forwards to it; `size` is
        // forwarded unchanged.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `System` with this `layout`, since this allocator only forwards to it.
        unsafe { System.dealloc(pointer, layout) }
    }
}
