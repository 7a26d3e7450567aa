//! The GPUs of the node's running task: their state, and their errors in the kernel's log since the task began. GPUs of
//! other tasks and users are not shown.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corro_model::AttemptId;
use corro_model::gpu::{GpuReading, XidError};

use super::kernel_log::{self, KernelLog, LogPosition};
use super::sampler::{GpuSampler, Ticket};
use super::selection::GpuSelection;

/// How long a reading is waited for. A driver answers within tens of milliseconds.
pub const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the errors of a failed rank wait for a reading. A driver whose GPU is lost may hang, and the last reading has
/// the addresses too.
const ADDRESSES_TIMEOUT: Duration = Duration::from_millis(200);

/// Clones share it.
#[derive(Clone, Default)]
pub struct GpuMonitor {
    sampler: GpuSampler,
    task: Arc<Mutex<Option<TaskGpus>>>,
}

struct TaskGpus {
    attempt: AttemptId,
    selection: GpuSelection,
    log: Box<dyn KernelLog>,
    /// End of the log that has been read.
    position: LogPosition,
    /// Lines about GPUs since the task began.
    lines: Vec<String>,
}

impl fmt::Debug for GpuMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GpuMonitor")
    }
}

impl GpuMonitor {
    /// Sets the GPUs of the task that begins.
    pub fn assign(&self, attempt: &AttemptId, selection: GpuSelection) {
        let task = (!selection.is_empty()).then(|| {
            let mut log = super::kernel_log();
            let (attempt, position) = (attempt.clone(), log.position());
            TaskGpus { attempt, selection, log, position, lines: Vec::new() }
        });
        *self.lock() = task;
    }

    /// Ends the task's assignment.
    pub fn release(&self, attempt: &AttemptId) {
        self.lock().take_if(|task| task.attempt == *attempt);
    }

    /// Whether the task has GPUs.
    pub fn has_gpus(&self, attempt: &AttemptId) -> bool {
        self.selection(attempt).is_some()
    }

    /// Begins a reading of the task's GPUs; `None` if it has none.
    pub fn request(&self, attempt: &AttemptId) -> Option<Ticket> {
        self.has_gpus(attempt).then(|| self.sampler.request())
    }

    /// State of the task's GPUs. Blocks for at most [`READ_TIMEOUT`].
    pub fn wait(&self, attempt: &AttemptId, ticket: Ticket) -> Vec<GpuReading> {
        let Some(selection) = self.selection(attempt) else { return Vec::new() };
        selection.readings(&self.sampler.wait(ticket, READ_TIMEOUT))
    }

    pub fn read(&self, attempt: &AttemptId) -> Vec<GpuReading> {
        self.request(attempt).map_or_else(Vec::new, |ticket| self.wait(attempt, ticket))
    }

    /// Errors of the task's GPUs in the kernel's log since the task began, the most telling first. Blocks on the log and
    /// the driver, for less than a second together.
    pub fn errors(&self, attempt: &AttemptId) -> Vec<XidError> {
        let Some(selection) = self.selection(attempt) else { return Vec::new() };
        let readings = selection.readings(&self.sampler.read(ADDRESSES_TIMEOUT));
        let mut task = self.lock();
        let Some(task) = task.as_mut().filter(|task| task.attempt == *attempt) else { return Vec::new() };
        let new = task.log.since(&mut task.position);
        task.lines.extend(new);
        task.lines.truncate(kernel_log::MAX_LINES);
        let errors = XidError::parse_all(task.lines.iter().map(String::as_str));
        of_gpus(errors, &readings)
    }

    /// Errors of the task's GPUs that are known to be lost. Does not block.
    pub fn known_errors(&self, attempt: &AttemptId) -> Vec<XidError> {
        let readings = self.selection(attempt).map(|selection| selection.readings(&self.sampler.last()));
        readings.unwrap_or_default().into_iter().flat_map(|reading| reading.errors).collect()
    }

    fn selection(&self, attempt: &AttemptId) -> Option<GpuSelection> {
        self.lock().as_ref().filter(|task| task.attempt == *attempt).map(|task| task.selection.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<TaskGpus>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The errors of these GPUs, with their numbers. All errors if no address is known, because the driver cannot be asked.
fn of_gpus(errors: Vec<XidError>, readings: &[GpuReading]) -> Vec<XidError> {
    if readings.iter().all(|reading| reading.bus_id.is_empty()) {
        return errors;
    }
    let own = errors.into_iter().filter_map(|error| {
        let gpu = readings.iter().find(|reading| error.is_at(&reading.bus_id))?.gpu;
        Some(XidError { gpu: Some(gpu), ..error })
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_the_tasks_gpus() {
        let error = |line: &str| XidError::parse(line).expect("an error");
        let errors = || vec![error("NVRM: Xid (PCI:0000:3b:00): 79, x"), error("NVRM: Xid (PCI:0000:5e:00): 48, x")];
        let reading = |gpu, bus_id: &str| GpuReading { gpu, bus_id: bus_id.to_owned(), ..GpuReading::default() };
        let own = of_gpus(errors(), &[reading(4, "00000000:5E:00.0"), reading(5, "00000000:86:00.0")]);
        assert_eq!(own.iter().map(|error| (error.xid, error.gpu)).collect::<Vec<_>>(), [(48, Some(4))]);
        assert_eq!(of_gpus(errors(), &[]).len(), 2);
        assert_eq!(of_gpus(errors(), &[reading(0, "")]).len(), 2);
    }

    #[test]
    fn a_task_without_gpus_reads_nothing() {
        let monitor = GpuMonitor::default();
        let attempt = |number| AttemptId { job: "j".to_owned(), number };
        monitor.assign(&attempt(1), GpuSelection::default());
        assert!(!monitor.has_gpus(&attempt(1)) && monitor.read(&attempt(1)).is_empty());
        monitor.assign(&attempt(2), GpuSelection::Numbers(vec![0]));
        assert!(monitor.has_gpus(&attempt(2)) && !monitor.has_gpus(&attempt(1)));
        monitor.release(&attempt(1));
        assert!(monitor.has_gpus(&attempt(2)));
        monitor.release(&attempt(2));
        assert!(!monitor.has_gpus(&attempt(2)) && monitor.errors(&attempt(2)).is_empty());
    }
}
