//! Compares the GPUs that were found with those that were there before: one that is missing, or that the driver can no
//! longer read, is lost, and keeps its name. Gives lost GPUs their errors from the kernel's log. Pure.

use std::collections::BTreeMap;

use corro_model::gpu::{GpuReading, XidError};

use super::{MachineGpu, ReadError};

/// How often the kernel's log is searched for a lost GPU: the error may be written after the loss.
const MAX_SEARCHES: u32 = 3;

#[derive(Debug, Default)]
pub struct GpuTracker {
    /// By [`key`].
    known: BTreeMap<String, KnownGpu>,
}

#[derive(Debug, Default)]
struct KnownGpu {
    gpu: MachineGpu,
    errors: Vec<XidError>,
    /// Searches of the kernel's log since it was lost.
    searches: u32,
    is_lost: bool,
}

/// GPUs keep their UUID when others are renumbered.
fn key(gpu: &MachineGpu) -> String {
    match gpu.uuid.is_empty() {
        true => format!("number {}", gpu.reading.gpu),
        false => gpu.uuid.clone(),
    }
}

impl GpuTracker {
    /// All GPUs after a reading, those that were found before included.
    pub fn update(&mut self, found: Result<Vec<MachineGpu>, ReadError>) -> Vec<MachineGpu> {
        let Ok(found) = found else { return self.silent() };
        let (lost, readable): (Vec<MachineGpu>, Vec<MachineGpu>) = found.into_iter().partition(|gpu| gpu.reading.lost);
        self.known.values_mut().for_each(|known| known.is_lost = true);
        for gpu in readable {
            self.known.insert(key(&gpu), KnownGpu { gpu, ..KnownGpu::default() });
        }
        for gpu in lost {
            let is_known = self.known.values().any(|known| known.is_lost && known.gpu.reading.gpu == gpu.reading.gpu);
            if !is_known {
                self.known.insert(key(&gpu), KnownGpu { gpu, is_lost: true, ..KnownGpu::default() });
            }
        }
        self.current()
    }

    /// All GPUs, without values where they are lost.
    pub fn current(&self) -> Vec<MachineGpu> {
        let shown = |known: &KnownGpu| match known.is_lost {
            true => without_values(&known.gpu, |reading| (reading.lost, reading.errors) = (true, known.errors.clone())),
            false => known.gpu.clone(),
        };
        let mut gpus: Vec<MachineGpu> = self.known.values().map(shown).collect();
        gpus.sort_by_key(|gpu| gpu.reading.gpu);
        gpus
    }

    /// All GPUs while the driver does not answer.
    fn silent(&self) -> Vec<MachineGpu> {
        silent(&self.current())
    }

    /// Whether the kernel's log may have more to say about a lost GPU.
    pub fn wants_errors(&self) -> bool {
        self.known.values().any(KnownGpu::wants_errors)
    }

    /// Takes the errors of lost GPUs from those found in the kernel's log.
    pub fn add_errors(&mut self, errors: &[XidError]) {
        for known in self.known.values_mut().filter(|known| known.wants_errors()) {
            let own = errors.iter().filter(|error| error.is_at(&known.gpu.reading.bus_id));
            known.errors.extend(own.map(|error| XidError { gpu: Some(known.gpu.reading.gpu), ..error.clone() }));
            known.searches += 1;
        }
    }
}

impl KnownGpu {
    fn wants_errors(&self) -> bool {
        self.is_lost && self.errors.is_empty() && self.searches < MAX_SEARCHES
    }
}

/// The same GPUs, of a driver that does not answer.
pub fn silent(gpus: &[MachineGpu]) -> Vec<MachineGpu> {
    let shown = |gpu: &MachineGpu| match gpu.reading.lost {
        true => gpu.clone(),
        false => without_values(gpu, |reading| reading.silent = true),
    };
    gpus.iter().map(shown).collect()
}

/// The GPU's names and its size only.
fn without_values(gpu: &MachineGpu, mark: impl FnOnce(&mut GpuReading)) -> MachineGpu {
    let GpuReading { gpu: number, name, bus_id, memory_total_bytes, .. } = gpu.reading.clone();
    let mut reading = GpuReading { gpu: number, name, bus_id, memory_total_bytes, ..GpuReading::default() };
    mark(&mut reading);
    MachineGpu { reading, ..gpu.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(number: u32, uuid: &str) -> MachineGpu {
        let reading = GpuReading {
            gpu: number,
            name: format!("card {uuid}"),
            bus_id: format!("00000000:{:02X}:00.0", number + 16),
            utilization_percent: Some(50),
            memory_total_bytes: Some(100),
            ..GpuReading::default()
        };
        MachineGpu { reading, uuid: uuid.to_owned(), device_number: None }
    }

    fn lost(number: u32) -> MachineGpu {
        let reading = GpuReading { gpu: number, lost: true, ..GpuReading::default() };
        MachineGpu { reading, ..MachineGpu::default() }
    }

    /// Number, name and state of all GPUs.
    fn shown(gpus: &[MachineGpu]) -> Vec<(u32, &str, &str)> {
        let state = |reading: &GpuReading| match (reading.lost, reading.silent, reading.utilization_percent) {
            (true, false, None) => "lost",
            (false, true, None) => "silent",
            (false, false, Some(_)) => "read",
            _ => "inconsistent",
        };
        gpus.iter().map(|gpu| (gpu.reading.gpu, gpu.reading.name.as_str(), state(&gpu.reading))).collect()
    }

    #[test]
    fn a_gpu_that_vanishes_is_lost_and_may_come_back() {
        let mut tracker = GpuTracker::default();
        assert_eq!(
            shown(&tracker.update(Ok(vec![gpu(0, "a"), gpu(1, "b")]))),
            [(0, "card a", "read"), (1, "card b", "read")]
        );
        let vanished = tracker.update(Ok(vec![gpu(0, "a")]));
        assert_eq!(shown(&vanished), [(0, "card a", "read"), (1, "card b", "lost")]);
        // Listed, and not readable.
        let unreadable = tracker.update(Ok(vec![lost(0), gpu(1, "b")]));
        assert_eq!(shown(&unreadable), [(0, "card a", "lost"), (1, "card b", "read")]);
        assert_eq!(unreadable[0].reading.memory_total_bytes, Some(100));
        // Renumbered.
        let renumbered = tracker.update(Ok(vec![gpu(0, "b")]));
        assert_eq!(shown(&renumbered), [(0, "card a", "lost"), (0, "card b", "read")]);
        // One that never could be read has no name.
        assert_eq!(shown(&GpuTracker::default().update(Ok(vec![lost(3)]))), [(3, "", "lost")]);
    }

    #[test]
    fn a_driver_that_fails_makes_its_gpus_silent_not_lost() {
        let mut tracker = GpuTracker::default();
        assert!(tracker.update(Err(ReadError::NoDriver)).is_empty());
        tracker.update(Ok(vec![gpu(0, "a"), gpu(1, "b")]));
        tracker.update(Ok(vec![gpu(0, "a")]));
        let failed = tracker.update(Err(ReadError::Failed("version mismatch".into())));
        assert_eq!(shown(&failed), [(0, "card a", "silent"), (1, "card b", "lost")]);
    }

    #[test]
    fn lost_gpus_get_their_own_errors() {
        let mut tracker = GpuTracker::default();
        tracker.update(Ok(vec![gpu(0, ""), gpu(1, "")]));
        assert!(!tracker.wants_errors());
        tracker.update(Ok(vec![gpu(0, "")]));
        let error = |line: &str| XidError::parse(line).expect("an error");
        tracker.add_errors(&[error("NVRM: Xid (PCI:0000:10:00): 31, of another")]);
        assert!(tracker.wants_errors(), "the error may come later");
        tracker.add_errors(&[error("NVRM: Xid (PCI:0000:11:00): 79, gone")]);
        assert!(!tracker.wants_errors());
        let errors = &tracker.update(Ok(vec![gpu(0, "")]))[1].reading.errors;
        assert_eq!((errors.len(), errors[0].xid, errors[0].gpu), (1, 79, Some(1)));
        // It is back.
        assert!(tracker.update(Ok(vec![gpu(0, ""), gpu(1, "")]))[1].reading.errors.is_empty());
        // The log is not searched forever.
        tracker.update(Ok(vec![gpu(0, "")]));
        (0..MAX_SEARCHES).for_each(|_| tracker.add_errors(&[]));
        assert!(!tracker.wants_errors());
    }
}
