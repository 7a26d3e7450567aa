//! Environment variables that configure the engine, read once at init. Pure: the variables are passed in. Variables of launchers (rank,
//! rendezvous) are read by [`crate::bootstrap`].
//!
//! | variable | default | meaning |
//! | --- | --- | --- |
//! | `HOROVOD_FUSION_THRESHOLD` | 134217728 | bytes fused into one operation; 0: no fusion |
//! | `HOROVOD_CYCLE_TIME` | 1 | milliseconds; accepted and autotuned, but no operation waits for a timer |
//! | `HOROVOD_CACHE_CAPACITY` | 1024 | responses in the cache; 0: no cache |
//! | `HOROVOD_DISABLE_GROUP_FUSION` | 0 | 1: a group is fused only within itself |
//! | `HOROVOD_DYNAMIC_PROCESS_SETS` | 0 | not 0: process sets may be added and removed after init |
//! | `HOROVOD_HIERARCHICAL_ALLREDUCE` | | accepted and written to autotune's log; the engine chooses by size and hosts |
//! | `HOROVOD_HIERARCHICAL_ALLGATHER` | | the same for allgather |
//! | `HOROVOD_TORUS_ALLREDUCE` | | accepted; upstream's needs NCCL |
//! | `HOROVOD_AUTOTUNE` | 0 | 1: tune fusion threshold and cycle time |
//! | `HOROVOD_AUTOTUNE_LOG` | | CSV file with one line per sample |
//! | `HOROVOD_AUTOTUNE_WARMUP_SAMPLES` | 3 | samples discarded at the start |
//! | `HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE` | 10 | steps per sample |
//! | `HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES` | 20 | samples until the best setting is fixed |
//! | `HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE` | 0.8 | noise of a sample, 0 to 1 |
//! | `HOROVOD_TIMELINE` | | file, or `DYNAMIC`: started by an API call |
//! | `HOROVOD_TIMELINE_MARK_CYCLES` | 0 | 1: record cycles too |
//! | `HOROVOD_STALL_CHECK_DISABLE` | 0 | 1: do not report stalls |
//! | `HOROVOD_STALL_CHECK_TIME_SECONDS` | 10 | seconds until a stall is reported (upstream: 60); 0: never |
//! | `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS` | 0 | seconds until a stall ends the job; 0: never |
//! | `HOROVOD_LOG_LEVEL` | warning | trace, debug, info, warning, error or fatal; anything else: warning |
//! | `HOROVOD_LOG_HIDE_TIME` | 0 | 1: log lines without a time stamp |
//! | `HOROVOD_THREAD_AFFINITY` | | cores for the engine's thread, one per local rank, separated by commas |
//! | `HOROVOD_GLOO_TIMEOUT_SECONDS` | 30 | timeout of connecting, and of every wait on a peer |
//! | `HOROVOD_CONTROLLER` | | `gloo` or `mpi`; accepted without effect |
//! | `CORRO_PORTS` | | `20000-20100`: ports on which a rank may listen for ranks of other hosts; unset: any |
//! | `CORRO_TRANSPORT` | auto | `auto`, `shm` or `tcp`: transport between ranks of one host |
//! | `CORRO_STREAMS` | | TCP connections between two ranks of different hosts; 2 if unset |
//! | `CORRO_ALGORITHM` | | `collective=name,...`: overrides the algorithm selection; the same on all ranks |
//! | `CORRO_GPU_TRANSPORT` | | `ipc`, `nccl` or `host`: how GPU tensors are exchanged; unset: chosen by GPUs and hosts; the same on all ranks |
//! | `CORRO_DIRECT_READ` | | 0: never read a peer's memory directly, 1: require it; unset: where the kernel allows |
//!
//! Flags are integers, as upstream: true is above 0.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::device_transport::DeviceTransport;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// In bytes; 0 turns fusion off.
    pub fusion_threshold: usize,
    pub cycle_time: Duration,
    /// In entries; 0 turns the cache off.
    pub cache_capacity: usize,
    pub group_fusion_disabled: bool,
    pub dynamic_process_sets: bool,
    /// `None`: not set.
    pub hierarchical_allreduce: Option<bool>,
    pub hierarchical_allgather: Option<bool>,
    pub torus_allreduce: Option<bool>,
    pub autotune: AutotuneSettings,
    pub timeline: TimelineSetting,
    pub timeline_marks_cycles: bool,
    /// `None`: stalls are not reported.
    pub stall_check: Option<Duration>,
    /// `None`: a stall never ends the job.
    pub stall_shutdown: Option<Duration>,
    pub log_level: LogLevel,
    pub log_hides_time: bool,
    /// Cores by local rank; empty when not set.
    pub thread_affinity: Vec<usize>,
    pub timeout: Duration,
    pub transport: TransportChoice,
    pub streams: Option<usize>,
    /// Parsed by [`crate::algorithm_override`].
    pub algorithm: Option<String>,
    pub direct_read: Option<bool>,
    /// `None`: chosen by the engine.
    pub device_transport: Option<DeviceTransport>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AutotuneSettings {
    pub enabled: bool,
    pub log: Option<PathBuf>,
    pub warmup_samples: usize,
    pub steps_per_sample: usize,
    pub max_samples: usize,
    pub noise: f64,
    /// Set by the user, and therefore not tuned.
    pub fusion_threshold_fixed: bool,
    pub cycle_time_fixed: bool,
    pub cache_capacity_fixed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimelineSetting {
    Off,
    /// Started by an API call.
    Dynamic,
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
    Fatal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    Auto,
    SharedMemory,
    Tcp,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("{variable} is `{value}`: set it to {expected}, or unset it")]
pub struct SettingsError {
    pub variable: &'static str,
    pub value: String,
    pub expected: &'static str,
}

impl Settings {
    /// Reads the environment of this process.
    pub fn from_environment() -> Result<Settings, SettingsError> {
        Settings::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        let v = Reader { read: &read };
        v.one_of("HOROVOD_CONTROLLER", "`gloo` or `mpi`", &[("gloo", ()), ("mpi", ())])?;
        let stall_check = v.seconds("HOROVOD_STALL_CHECK_TIME_SECONDS")?;
        Ok(Settings {
            fusion_threshold: v
                .number("HOROVOD_FUSION_THRESHOLD", "a number of bytes, 0 for no fusion")?
                .unwrap_or(128 << 20),
            cycle_time: v.milliseconds("HOROVOD_CYCLE_TIME")?.unwrap_or(Duration::from_millis(1)),
            cache_capacity: v.number("HOROVOD_CACHE_CAPACITY", "a number of entries, 0 for no cache")?.unwrap_or(1024),
            group_fusion_disabled: v.flag("HOROVOD_DISABLE_GROUP_FUSION")?.unwrap_or(false),
            // Upstream treats a negative number as true here, and only here.
            dynamic_process_sets: v.integer("HOROVOD_DYNAMIC_PROCESS_SETS")?.unwrap_or(0) != 0,
            hierarchical_allreduce: v.flag("HOROVOD_HIERARCHICAL_ALLREDUCE")?,
            hierarchical_allgather: v.flag("HOROVOD_HIERARCHICAL_ALLGATHER")?,
            torus_allreduce: v.flag("HOROVOD_TORUS_ALLREDUCE")?,
            autotune: AutotuneSettings::read(&v)?,
            timeline: match v.text("HOROVOD_TIMELINE") {
                None => TimelineSetting::Off,
                Some(text) if text == "DYNAMIC" => TimelineSetting::Dynamic,
                Some(path) => TimelineSetting::File(path.into()),
            },
            timeline_marks_cycles: v.flag("HOROVOD_TIMELINE_MARK_CYCLES")?.unwrap_or(false),
            stall_check: if v.flag("HOROVOD_STALL_CHECK_DISABLE")? == Some(true) {
                None
            } else {
                stall_check.or(Some(DEFAULT_STALL_CHECK)).filter(|time| !time.is_zero())
            },
            stall_shutdown: v.seconds("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")?.filter(|time| !time.is_zero()),
            log_level: LogLevel::parse(&v.text("HOROVOD_LOG_LEVEL").unwrap_or_default()),
            log_hides_time: v.flag("HOROVOD_LOG_HIDE_TIME")?.unwrap_or(false),
            thread_affinity: v.cores("HOROVOD_THREAD_AFFINITY")?,
            timeout: match v.seconds("HOROVOD_GLOO_TIMEOUT_SECONDS")? {
                Some(Duration::ZERO) => {
                    return Err(v.invalid("HOROVOD_GLOO_TIMEOUT_SECONDS", "a number of seconds above 0"));
                }
                given => given.unwrap_or(Duration::from_secs(30)),
            },
            transport: v
                .one_of("CORRO_TRANSPORT", "`auto`, `shm` or `tcp`", &TRANSPORTS)?
                .unwrap_or(TransportChoice::Auto),
            streams: match v.number("CORRO_STREAMS", STREAMS_EXPECTED)? {
                Some(n_streams) if !(1..=MAX_STREAMS).contains(&n_streams) => {
                    return Err(v.invalid("CORRO_STREAMS", STREAMS_EXPECTED));
                }
                given => given,
            },
            algorithm: v.text("CORRO_ALGORITHM"),
            direct_read: v.one_of("CORRO_DIRECT_READ", "0 or 1", &[("0", false), ("1", true)])?,
            device_transport: v.one_of(
                "CORRO_GPU_TRANSPORT",
                "`ipc`, `nccl` or `host`",
                &DeviceTransport::ALL.map(|transport| (transport.name(), transport)),
            )?,
        })
    }
}

const DEFAULT_STALL_CHECK: Duration = Duration::from_secs(10);
const TRANSPORTS: [(&str, TransportChoice); 3] =
    [("auto", TransportChoice::Auto), ("shm", TransportChoice::SharedMemory), ("tcp", TransportChoice::Tcp)];
const MAX_STREAMS: usize = 64;
const STREAMS_EXPECTED: &str = "a number of connections from 1 to 64";

impl AutotuneSettings {
    fn read(v: &Reader) -> Result<AutotuneSettings, SettingsError> {
        let at_least_one = |variable, expected, default| match v.number(variable, expected)? {
            Some(0) => Err(v.invalid(variable, expected)),
            given => Ok(given.unwrap_or(default)),
        };
        const NOISE: &str = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE";
        Ok(AutotuneSettings {
            enabled: v.flag("HOROVOD_AUTOTUNE")?.unwrap_or(false),
            log: v.text("HOROVOD_AUTOTUNE_LOG").map(PathBuf::from),
            warmup_samples: v.number("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "a number of samples")?.unwrap_or(3),
            steps_per_sample: at_least_one("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "a number of steps above 0", 10)?,
            max_samples: at_least_one("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "a number of samples above 0", 20)?,
            noise: match v.decimal(NOISE, "a number from 0 to 1")? {
                Some(noise) if noise > 1.0 => return Err(v.invalid(NOISE, "a number from 0 to 1")),
                given => given.unwrap_or(0.8),
            },
            fusion_threshold_fixed: v.text("HOROVOD_FUSION_THRESHOLD").is_some(),
            cycle_time_fixed: v.text("HOROVOD_CYCLE_TIME").is_some(),
            cache_capacity_fixed: v.text("HOROVOD_CACHE_CAPACITY").is_some(),
        })
    }
}

impl LogLevel {
    fn parse(text: &str) -> LogLevel {
        match text.to_ascii_lowercase().as_str() {
            "trace" => LogLevel::Trace,
            "debug" => LogLevel::Debug,
            "info" => LogLevel::Info,
            "error" => LogLevel::Error,
            "fatal" => LogLevel::Fatal,
            _ => LogLevel::Warning,
        }
    }
}

struct Reader<'a> {
    read: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    /// The trimmed value; `None` when unset or empty.
    fn text(&self, variable: &str) -> Option<String> {
        (self.read)(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn invalid(&self, variable: &'static str, expected: &'static str) -> SettingsError {
        SettingsError { variable, value: (self.read)(variable).unwrap_or_default(), expected }
    }

    /// `None` when unset.
    fn parsed<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(text) = self.text(variable) else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| self.invalid(variable, expected))
    }

    fn number(&self, variable: &'static str, expected: &'static str) -> Result<Option<usize>, SettingsError> {
        self.parsed(variable, expected, |text| text.parse().ok())
    }

    fn integer(&self, variable: &'static str) -> Result<Option<i64>, SettingsError> {
        self.parsed(variable, "0 or 1", |text| text.parse().ok())
    }

    fn flag(&self, variable: &'static str) -> Result<Option<bool>, SettingsError> {
        Ok(self.integer(variable)?.map(|number| number > 0))
    }

    fn decimal(&self, variable: &'static str, expected: &'static str) -> Result<Option<f64>, SettingsError> {
        self.parsed(variable, expected, |text| {
            text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
        })
    }

    fn seconds(&self, variable: &'static str) -> Result<Option<Duration>, SettingsError> {
        Ok(self
            .decimal(variable, "a number of seconds")?
            .map(|seconds| Duration::from_secs_f64(seconds.min(MAX_SECONDS))))
    }

    fn milliseconds(&self, variable: &'static str) -> Result<Option<Duration>, SettingsError> {
        let given = self.decimal(variable, "a number of milliseconds")?;
        Ok(given.map(|milliseconds| Duration::from_secs_f64((milliseconds / 1000.0).min(MAX_SECONDS))))
    }

    fn cores(&self, variable: &'static str) -> Result<Vec<usize>, SettingsError> {
        let list = |text: &str| text.split(',').map(|core| core.trim().parse().ok()).collect();
        Ok(self.parsed(variable, "numbers of cores separated by commas", list)?.unwrap_or_default())
    }

    fn one_of<T: Copy>(
        &self,
        variable: &'static str,
        expected: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, SettingsError> {
        self.parsed(variable, expected, |text| {
            choices.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, choice)| *choice)
        })
    }
}

/// One year. Adding it to a clock reading does not overflow.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &str) -> Result<Settings, SettingsError> {
        let pairs: Vec<(&str, &str)> = variables.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
        Settings::from_variables(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn defaults_are_upstreams_but_for_the_stall_check() {
        let settings = settings("").unwrap();
        assert_eq!(settings.fusion_threshold, 134_217_728);
        assert_eq!(settings.cycle_time, Duration::from_millis(1));
        assert_eq!((settings.cache_capacity, settings.timeout), (1024, Duration::from_secs(30)));
        assert_eq!((settings.stall_check, settings.stall_shutdown), (Some(Duration::from_secs(10)), None));
        assert_eq!((settings.log_level, settings.timeline), (LogLevel::Warning, TimelineSetting::Off));
        assert_eq!((settings.transport, settings.streams, settings.direct_read), (TransportChoice::Auto, None, None));
        let autotune = settings.autotune;
        assert_eq!((autotune.warmup_samples, autotune.steps_per_sample, autotune.max_samples), (3, 10, 20));
        assert!(!autotune.enabled && autotune.noise == 0.8 && !autotune.cycle_time_fixed);
    }

    #[test]
    fn set_variables_are_used() {
        let settings = settings(
            "HOROVOD_FUSION_THRESHOLD=0 HOROVOD_CYCLE_TIME=0.5 HOROVOD_CACHE_CAPACITY=0 HOROVOD_DYNAMIC_PROCESS_SETS=-1 \
             HOROVOD_DISABLE_GROUP_FUSION=-1 HOROVOD_HIERARCHICAL_ALLREDUCE=0 HOROVOD_AUTOTUNE=2 \
             HOROVOD_TIMELINE=DYNAMIC HOROVOD_STALL_CHECK_TIME_SECONDS=2.5 HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=60 \
             HOROVOD_LOG_LEVEL=DEBUG HOROVOD_THREAD_AFFINITY=3,5 HOROVOD_CONTROLLER=Gloo CORRO_TRANSPORT=shm \
             CORRO_STREAMS=4 CORRO_ALGORITHM=allreduce=ring CORRO_DIRECT_READ=0 CORRO_GPU_TRANSPORT=HOST",
        )
        .unwrap();
        assert_eq!((settings.fusion_threshold, settings.cache_capacity), (0, 0));
        assert_eq!(settings.cycle_time, Duration::from_micros(500));
        assert!(settings.dynamic_process_sets && !settings.group_fusion_disabled);
        assert_eq!((settings.hierarchical_allreduce, settings.hierarchical_allgather), (Some(false), None));
        assert!(settings.autotune.enabled && settings.autotune.fusion_threshold_fixed);
        assert_eq!(settings.timeline, TimelineSetting::Dynamic);
        assert_eq!(settings.stall_check, Some(Duration::from_millis(2500)));
        assert_eq!(settings.stall_shutdown, Some(Duration::from_secs(60)));
        assert_eq!((settings.log_level, settings.thread_affinity), (LogLevel::Debug, vec![3, 5]));
        assert_eq!((settings.transport, settings.streams), (TransportChoice::SharedMemory, Some(4)));
        assert_eq!((settings.algorithm.as_deref(), settings.direct_read), (Some("allreduce=ring"), Some(false)));
        assert_eq!(settings.device_transport, Some(DeviceTransport::Host));
    }

    #[test]
    fn the_stall_check_can_be_disabled() {
        for off in ["HOROVOD_STALL_CHECK_DISABLE=1", "HOROVOD_STALL_CHECK_TIME_SECONDS=0"] {
            assert_eq!(settings(off).unwrap().stall_check, None, "{off}");
        }
    }

    #[test]
    fn an_unknown_log_level_is_warning() {
        assert_eq!(settings("HOROVOD_LOG_LEVEL=loud").unwrap().log_level, LogLevel::Warning);
    }

    #[test]
    fn mistakes_are_named_with_their_fix() {
        for (variables, expected) in [
            ("HOROVOD_FUSION_THRESHOLD=64MB", "HOROVOD_FUSION_THRESHOLD is `64MB`: set it to a number of bytes"),
            ("HOROVOD_CYCLE_TIME=-1", "HOROVOD_CYCLE_TIME is `-1`: set it to a number of milliseconds"),
            ("HOROVOD_CYCLE_TIME=NaN", "HOROVOD_CYCLE_TIME is `NaN`"),
            ("HOROVOD_AUTOTUNE=yes", "HOROVOD_AUTOTUNE is `yes`: set it to 0 or 1, or unset it"),
            ("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=0", "a number of steps above 0"),
            ("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=1.5", "from 0 to 1"),
            ("HOROVOD_THREAD_AFFINITY=1,x", "HOROVOD_THREAD_AFFINITY is `1,x`"),
            ("HOROVOD_GLOO_TIMEOUT_SECONDS=0", "a number of seconds above 0"),
            ("HOROVOD_CONTROLLER=nccl", "HOROVOD_CONTROLLER is `nccl`: set it to `gloo` or `mpi`"),
            ("CORRO_TRANSPORT=rdma", "`auto`, `shm` or `tcp`"),
            ("CORRO_STREAMS=0", "from 1 to 64"),
            ("CORRO_DIRECT_READ=maybe", "0 or 1"),
            ("CORRO_GPU_TRANSPORT=pcie", "CORRO_GPU_TRANSPORT is `pcie`: set it to `ipc`, `nccl` or `host`"),
        ] {
            let error = settings(variables).expect_err(variables).to_string();
            assert!(error.contains(expected), "{variables}: {error}");
        }
    }
}
