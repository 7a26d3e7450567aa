//! `ElasticDriver`: the driver of elastic jobs for `horovodrun`, which does what it decides. Events in, actions out; times are seconds since it
//! was made. Actions are tuples that begin with their kind, see `_core.pyi`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use corro_elastic::{Action, Driver, Host, Member, OnFailure, Outcome, Settings};
use pyo3::prelude::*;

use crate::errors;

/// An action as Python sees it.
type ActionTuple = Py<PyAny>;

#[pyclass(module = "horovod._core", frozen)]
pub struct ElasticDriver {
    driver: Mutex<Driver>,
}

#[pymethods]
impl ElasticDriver {
    #[new]
    #[pyo3(signature = (min_np, max_np, elastic_timeout_s, reset_limit, cooldown_range_s, exclude_hosts, seed))]
    fn new(
        min_np: usize,
        max_np: Option<usize>,
        elastic_timeout_s: f64,
        reset_limit: Option<u32>,
        cooldown_range_s: Option<(f64, f64)>,
        exclude_hosts: bool,
        seed: u64,
    ) -> PyResult<ElasticDriver> {
        let cooldown = match cooldown_range_s {
            Some((lower, upper)) => Some((duration("cooldown_range_s", lower)?, duration("cooldown_range_s", upper)?)),
            None => None,
        };
        let settings = Settings {
            min: min_np.max(1),
            max: max_np,
            elastic_timeout: duration("elastic_timeout_s", elastic_timeout_s)?,
            reset_limit,
            cooldown,
            on_failure: if exclude_hosts { OnFailure::ExcludeHost } else { OnFailure::RestartOnHost },
        };
        Ok(ElasticDriver { driver: Mutex::new(Driver::new(settings, seed)) })
    }

    fn on_hosts(&self, py: Python<'_>, now_s: f64, hosts: Vec<(String, usize)>) -> PyResult<Vec<ActionTuple>> {
        let hosts: Vec<Host> = hosts.into_iter().map(|(name, slots)| Host { name, slots }).collect();
        self.act(py, now_s, |driver, now| driver.on_hosts(now, &hosts))
    }

    fn on_waiting(&self, py: Python<'_>, now_s: f64, process: u64, after: u64) -> PyResult<Vec<ActionTuple>> {
        self.act(py, now_s, |driver, now| driver.on_waiting(now, process, after))
    }

    fn on_exit(&self, py: Python<'_>, now_s: f64, process: u64, success: bool) -> PyResult<Vec<ActionTuple>> {
        self.act(py, now_s, |driver, now| driver.on_exit(now, process, success))
    }

    fn on_time(&self, py: Python<'_>, now_s: f64) -> PyResult<Vec<ActionTuple>> {
        self.act(py, now_s, |driver, now| driver.on_time(now))
    }

    fn next_timer(&self) -> Option<f64> {
        self.lock().next_timer().map(|timer| timer.as_secs_f64())
    }
}

impl ElasticDriver {
    fn act(
        &self,
        py: Python<'_>,
        now_s: f64,
        event: impl FnOnce(&mut Driver, Duration) -> Vec<Action>,
    ) -> PyResult<Vec<ActionTuple>> {
        let now = duration("now_s", now_s)?;
        let actions = event(&mut self.lock(), now);
        actions.into_iter().map(|action| tuple(py, action)).collect()
    }

    /// Held only for pure code, so that no thread waits for it with the GIL held.
    fn lock(&self) -> std::sync::MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tuple(py: Python<'_>, action: Action) -> PyResult<ActionTuple> {
    let tuple = match action {
        Action::Start { process, host, slot } => ("start", process, host, slot).into_pyobject(py)?,
        Action::Begin { generation, members } => {
            let members: Vec<_> = members.into_iter().map(member).collect();
            ("begin", generation, members).into_pyobject(py)?
        }
        Action::Dismiss { process } => ("dismiss", process).into_pyobject(py)?,
        Action::Kill { process } => ("kill", process).into_pyobject(py)?,
        Action::Notify { generation, change } => ("notify", generation, change as u8).into_pyobject(py)?,
        Action::Report { text } => ("report", text).into_pyobject(py)?,
        Action::Finish(Outcome::Succeeded) => ("finish", None::<String>).into_pyobject(py)?,
        Action::Finish(Outcome::Failed { reason }) => ("finish", Some(reason)).into_pyobject(py)?,
    };
    Ok(tuple.into_any().unbind())
}

fn member(member: Member) -> (u64, String, usize, usize, usize, usize, usize) {
    let Member { process, host, rank, local_rank, local_size, cross_rank, cross_size } = member;
    (process, host, rank, local_rank, local_size, cross_rank, cross_size)
}

fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::value_error(format!("{name} is {seconds}: give a number of seconds")))
}
