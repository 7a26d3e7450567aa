//! Timeline, log and autotuning of the engine. Receives events from the progress engine and never affects its decisions, except for tuned
//! parameters.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::coordinator::{
    Coordinator, FusionKey, Kind, NegotiatedTensor, NegotiationEvent, Request, StallReport, Tuning,
};
use crate::observe::autotune::{self, Autotune, Parameters};
use crate::observe::recorder::Recorder;
use crate::observe::timeline::Timeline;
use crate::settings::{LogLevel, Settings, TimelineSetting};
use corro_base::error_chain;

/// Timelines, autotuner and log of one engine.
pub struct Instrumentation {
    pub timeline: Arc<Timeline>,
    /// Recordings requested from outside the process.
    pub recorder: Recorder,
    /// On rank 0, if `HOROVOD_AUTOTUNE` is set.
    autotune: Option<Autotune<BufWriter<File>>>,
    level: LogLevel,
    hides_time: bool,
    rank: usize,
}

impl Instrumentation {
    pub fn new(settings: &Settings, rank: usize) -> Instrumentation {
        let timeline = Arc::new(Timeline::new());
        let mut instrumentation = Instrumentation {
            timeline,
            recorder: Recorder::default(),
            autotune: None,
            level: settings.log_level,
            hides_time: settings.log_hides_time,
            rank,
        };
        if rank == 0 {
            if let TimelineSetting::File(path) = &settings.timeline {
                let started = instrumentation.timeline.start(path, settings.timeline_marks_cycles, micros_since_1970());
                if let Err(error) = started {
                    instrumentation.log(LogLevel::Error, &error_chain::join(&error));
                }
            }
            if settings.autotune.enabled {
                instrumentation.autotune = Some(instrumentation.start_tuning(settings));
            }
        }
        instrumentation
    }

    fn start_tuning(&self, settings: &Settings) -> Autotune<BufWriter<File>> {
        let config = autotune::Config::from_settings(&settings.autotune, Vec::new(), 1);
        let initial = Parameters {
            fusion_threshold: settings.fusion_threshold,
            cycle_time: settings.cycle_time,
            hierarchical_allreduce: settings.hierarchical_allreduce.unwrap_or(false),
            hierarchical_allgather: settings.hierarchical_allgather.unwrap_or(false),
            torus_allreduce: false,
            cache_enabled: settings.cache_capacity > 0,
        };
        let log = settings.autotune.log.as_ref().and_then(|path| match File::create(path) {
            Ok(file) => Some(BufWriter::new(file)),
            Err(error) => {
                self.log(LogLevel::Error, &format!("cannot create the autotune log {}: {error}", path.display()));
                None
            }
        });
        Autotune::new(config, initial, log)
    }

    /// Enables the coordinator's events while the timeline is on. Called before requests are received, so that the first operation after
    /// a start is recorded.
    pub fn enable_negotiation_events(&self, coordinator: &mut Coordinator) {
        coordinator.events().set_enabled(self.timeline.is_on());
    }

    /// Writes the coordinator's events to the timeline with the current time. Called in every poll, so that a negotiation starts at the first
    /// rank's request and not at the last one's.
    pub fn write_negotiation_events(&self, coordinator: &mut Coordinator) {
        for event in coordinator.events().drain() {
            match event {
                NegotiationEvent::Start { name, kind, .. } => self.timeline.negotiate_start(&name, kind.name()),
                NegotiationEvent::Ready { name, set_rank, .. } => self.timeline.rank_ready(&name, set_rank as usize),
                NegotiationEvent::End { name, .. } => self.timeline.negotiate_end(&name),
            }
        }
    }

    /// An operation starts.
    pub fn on_begin(&self, kind: Kind, tensors: &[NegotiatedTensor]) {
        if self.level <= LogLevel::Trace {
            let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.response.name).collect();
            self.log(LogLevel::Trace, &format!("{} of {}", kind.name(), names.join(", ")));
        }
        for timeline in self.timelines() {
            for tensor in tensors {
                timeline.operation_start(&tensor.response.name, kind.name());
                timeline.activity_start(&tensor.response.name, activity_name(kind));
            }
        }
    }

    /// An operation is over.
    pub fn on_end(&self, key: FusionKey, tensors: &[NegotiatedTensor]) {
        for timeline in self.timelines() {
            for tensor in tensors {
                let shape: Vec<usize> = tensor.response.shape.iter().map(|rows| *rows as usize).collect();
                timeline.activity_end(&tensor.response.name);
                timeline.operation_end(&tensor.response.name, key.dtype, &shape);
            }
        }
    }

    /// Timelines that are on.
    fn timelines(&self) -> impl Iterator<Item = &Timeline> {
        [&*self.timeline, &self.recorder.timeline].into_iter().filter(|timeline| timeline.is_on())
    }

    /// This rank submits requests. A recording shows how long they wait for the other ranks; the user's timeline gets this from the
    /// coordinator, for all ranks.
    pub fn on_request(&self, requests: &[Request]) {
        if self.recorder.timeline.is_on() {
            for request in requests {
                self.recorder.timeline.negotiate_start(&request.name, request.kind.name());
            }
        }
    }

    /// Reports an allreduce to the autotuner; returns new parameters if it changes them.
    pub fn record_reduction(&mut self, kind: Kind, tensors: &[NegotiatedTensor], n_bytes: usize) -> Option<Tuning> {
        let autotune = self.autotune.as_mut().filter(|_| kind == Kind::Allreduce)?;
        let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.response.name).collect();
        let parameters = autotune.observe(&names, n_bytes as u64, Instant::now())?;
        Some(Tuning {
            fusion_threshold: parameters.fusion_threshold as u64,
            cycle_time_ms: parameters.cycle_time.as_secs_f64() * 1e3,
        })
    }

    /// Logs autotuned parameters.
    pub fn on_tuning(&self, tuning: Tuning) {
        let (bytes, cycle) = (tuning.fusion_threshold, Duration::from_secs_f64(tuning.cycle_time_ms.max(0.0) / 1e3));
        self.log(LogLevel::Debug, &format!("tuned: fusion threshold {bytes} bytes, cycle time {cycle:?}"));
    }

    pub fn log_stall(&self, report: &StallReport) {
        self.log(if report.shuts_down { LogLevel::Error } else { LogLevel::Warning }, &report.text);
    }

    pub fn log_error(&self, text: &str) {
        self.log(LogLevel::Error, text);
    }

    /// Writes a log line: up to info to stdout, above to stderr, as Horovod does.
    pub fn log(&self, level: LogLevel, text: &str) {
        if level < self.level {
            return;
        }
        let time = if self.hides_time { String::new() } else { format!("{} ", time_of_day()) };
        let (level_name, rank) = (level_name(level), self.rank);
        let line = format!("[{time}{level_name}] rank {rank}: {text}\n");
        // A closed pipe must not stop the engine.
        let _ = if level <= LogLevel::Info {
            std::io::stdout().write_all(line.as_bytes())
        } else {
            std::io::stderr().write_all(line.as_bytes())
        };
    }

    /// Finishes all files.
    pub fn stop(&mut self) {
        self.recorder.finish();
        if let Err(error) = self.timeline.stop() {
            self.log(LogLevel::Error, &error_chain::join(&error));
        }
        if let Some(error) = self.autotune.take().and_then(|mut autotune| autotune.take_log_error()) {
            self.log(LogLevel::Error, &format!("cannot write the autotune log: {error}"));
        }
    }
}

pub fn micros_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn time_of_day() -> String {
    let seconds = micros_since_1970() / 1_000_000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}Z", seconds % 60)
}

fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warning",
        LogLevel::Error => "error",
        LogLevel::Fatal => "fatal",
    }
}

/// Horovod's name of the activity within an operation.
fn activity_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Allreduce | Kind::Adasum => "GLOO_ALLREDUCE",
        Kind::Allgather => "GLOO_ALLGATHER",
        Kind::Broadcast => "GLOO_BCAST",
        Kind::Alltoall => "MPI_ALLTOALL",
        Kind::Reducescatter => "GLOO_REDUCESCATTER",
        Kind::Join | Kind::Barrier => "GLOO_BARRIER",
    }
}
