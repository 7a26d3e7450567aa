//! Horovod's autotuning: finds the fusion threshold and cycle time that maximise the reduced bytes per second. Runs on rank 0. Deterministic:
//! reads no clock, and the same observations and seed give the same parameters.
//!
//! A step ends when a tensor's name recurs. Some steps form a window, and the median of five windows is a sample. Warm-up samples are
//! dropped. The first sample measures the initial parameters, so that tuning never ends with worse ones. Then Bayesian optimisation chooses
//! the parameters to measure. Last, each boolean parameter is measured with the opposite value.

mod bayes_opt;

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::settings::AutotuneSettings;
use bayes_opt::BayesOpt;

/// Tuned parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Bytes.
    pub fusion_threshold: usize,
    pub cycle_time: Duration,
    pub hierarchical_allreduce: bool,
    pub hierarchical_allgather: bool,
    pub torus_allreduce: bool,
    pub cache_enabled: bool,
}

/// Boolean parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoolParameter {
    HierarchicalAllreduce,
    HierarchicalAllgather,
    TorusAllreduce,
    CacheEnabled,
}

/// Configuration of the autotuner.
#[derive(Clone, Debug)]
pub struct Config {
    pub warmup_samples: usize,
    pub steps_per_sample: usize,
    pub max_samples: usize,
    /// Standard deviation of the measurement error, relative to that of the scores.
    pub noise: f64,
    pub tunes_fusion_threshold: bool,
    pub tunes_cycle_time: bool,
    /// Boolean parameters to try: those that matter in this job and are not fixed by the user.
    pub bool_parameters: Vec<BoolParameter>,
    pub seed: u64,
}

impl Config {
    pub fn from_settings(settings: &AutotuneSettings, bool_parameters: Vec<BoolParameter>, seed: u64) -> Config {
        Config {
            warmup_samples: settings.warmup_samples,
            steps_per_sample: settings.steps_per_sample,
            max_samples: settings.max_samples,
            noise: settings.noise,
            tunes_fusion_threshold: !settings.fusion_threshold_fixed,
            tunes_cycle_time: !settings.cycle_time_fixed,
            bool_parameters,
            seed,
        }
    }
}

#[derive(Debug)]
pub struct Autotune<W> {
    config: Config,
    current: Parameters,
    best: Option<(f64, Parameters)>,
    phase: Phase,
    bayes_opt: BayesOpt,
    window: ScoreWindow,
    /// Scores of the windows of the current sample.
    scores: Vec<f64>,
    /// Samples still to be dropped.
    warmup_left: usize,
    log: Option<W>,
    log_error: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Measuring the initial parameters.
    Baseline,
    /// Bayesian optimisation; this many points have been measured.
    Searching(usize),
    /// Measuring the boolean parameter with this index with the opposite value.
    BoolParameters(usize),
    Done,
}

/// Reductions of the current window.
#[derive(Debug, Default)]
struct ScoreWindow {
    began: Option<Instant>,
    n_bytes: u64,
    n_seen: HashMap<String, usize>,
}

const WINDOWS_PER_SAMPLE: usize = 5;
const CSV_HEADER: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
                      tensor_fusion_threshold,score";

impl<W: Write> Autotune<W> {
    /// `initial` are the parameters the job runs with until [`Autotune::observe`] returns others.
    pub fn new(config: Config, initial: Parameters, log: Option<W>) -> Autotune<W> {
        let bayes_opt =
            BayesOpt::new(config.tunes_fusion_threshold, config.tunes_cycle_time, config.noise, config.seed);
        let mut autotune = Autotune {
            warmup_left: config.warmup_samples,
            config,
            current: initial,
            best: None,
            phase: Phase::Baseline,
            bayes_opt,
            window: ScoreWindow::default(),
            scores: Vec::with_capacity(WINDOWS_PER_SAMPLE),
            log,
            log_error: None,
        };
        autotune.write_line(CSV_HEADER);
        autotune
    }

    /// Records that these tensors, `n_bytes` in total, were reduced by `now`. Returns new parameters if they change.
    pub fn observe<S: AsRef<str>>(&mut self, names: &[S], n_bytes: u64, now: Instant) -> Option<Parameters> {
        if self.phase == Phase::Done {
            return None;
        }
        let score = self.window.add(names, n_bytes, now, self.config.steps_per_sample)?;
        self.scores.push(score);
        if self.scores.len() < WINDOWS_PER_SAMPLE {
            return None;
        }
        self.scores.sort_by(f64::total_cmp);
        let median = self.scores[WINDOWS_PER_SAMPLE / 2];
        self.scores.clear();
        if self.warmup_left > 0 {
            self.warmup_left -= 1;
            return None;
        }
        self.on_sample(median)
    }

    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Removes and returns the error that stopped the log.
    pub fn take_log_error(&mut self) -> Option<io::Error> {
        self.log_error.take()
    }

    fn on_sample(&mut self, score: f64) -> Option<Parameters> {
        self.write_row(self.current, score);
        if self.best.is_none_or(|(best, _)| score > best) {
            self.best = Some((score, self.current));
        }
        let (best_score, best) = self.best.expect("a sample was recorded above");
        let before = self.current;
        self.phase = match self.phase {
            Phase::Baseline => self.after_search(0),
            Phase::Searching(n_measured) => {
                self.bayes_opt.add_sample(self.current, score);
                self.after_search(n_measured + 1)
            }
            Phase::BoolParameters(idx) => self.after_bool_parameter(idx + 1),
            Phase::Done => Phase::Done,
        };
        match self.phase {
            Phase::Baseline => unreachable!("the baseline is the first phase"),
            Phase::Searching(_) => self.current = self.bayes_opt.next_point(self.current),
            Phase::BoolParameters(idx) => self.current = best.flipped(self.config.bool_parameters[idx]),
            Phase::Done => {
                self.current = best;
                self.write_row(best, best_score);
            }
        }
        (self.current != before).then_some(self.current)
    }

    fn after_search(&self, n_measured: usize) -> Phase {
        let tunes = self.config.tunes_fusion_threshold || self.config.tunes_cycle_time;
        if tunes && n_measured < self.config.max_samples {
            Phase::Searching(n_measured)
        } else {
            self.after_bool_parameter(0)
        }
    }

    fn after_bool_parameter(&self, idx: usize) -> Phase {
        if idx < self.config.bool_parameters.len() { Phase::BoolParameters(idx) } else { Phase::Done }
    }

    fn write_row(&mut self, parameters: Parameters, score: f64) {
        let Parameters { hierarchical_allreduce, hierarchical_allgather, torus_allreduce, cache_enabled, .. } =
            parameters;
        let flags = [hierarchical_allreduce, hierarchical_allgather, torus_allreduce, cache_enabled];
        let [a, b, c, d] = flags.map(u8::from);
        let milliseconds = parameters.cycle_time.as_secs_f64() * 1000.0;
        self.write_line(&format!("{a},{b},{c},{d},{milliseconds},{},{score}", parameters.fusion_threshold));
    }

    /// Appends a line to the log. After an error the log stops and tuning continues.
    fn write_line(&mut self, line: &str) {
        if let Some(log) = &mut self.log
            && let Err(error) = writeln!(log, "{line}").and_then(|()| log.flush())
        {
            self.log_error = Some(error);
            self.log = None;
        }
    }
}

impl Parameters {
    fn flipped(mut self, parameter: BoolParameter) -> Parameters {
        let value = match parameter {
            BoolParameter::HierarchicalAllreduce => &mut self.hierarchical_allreduce,
            BoolParameter::HierarchicalAllgather => &mut self.hierarchical_allgather,
            BoolParameter::TorusAllreduce => &mut self.torus_allreduce,
            BoolParameter::CacheEnabled => &mut self.cache_enabled,
        };
        *value = !*value;
        self
    }
}

impl ScoreWindow {
    /// Records a reduction. Returns the score in bytes per microsecond of the window that it ends; the reduction itself belongs to the next one.
    fn add<S: AsRef<str>>(&mut self, names: &[S], n_bytes: u64, now: Instant, n_steps: usize) -> Option<f64> {
        let began = *self.began.get_or_insert(now);
        let mut score = None;
        if names.iter().any(|name| self.n_seen.get(name.as_ref()).is_some_and(|n_seen| *n_seen >= n_steps)) {
            // A window of zero duration is not a measurement and would have an infinite score.
            let micros = (now - began).as_secs_f64() * 1e6;
            score = (micros > 0.0).then(|| self.n_bytes as f64 / micros);
            self.began = Some(now);
            self.n_bytes = 0;
            self.n_seen.clear();
        }
        for name in names {
            match self.n_seen.get_mut(name.as_ref()) {
                Some(n_seen) => *n_seen += 1,
                None => drop(self.n_seen.insert(name.as_ref().to_owned(), 1)),
            }
        }
        self.n_bytes += n_bytes;
        score
    }
}

#[cfg(test)]
mod tests;
