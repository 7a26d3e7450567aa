//! The GPUs of a machine that a task, or the nodes of a host, may use: by number or by name. Pure.

use corro_model::gpu::{GpuReading, MAX_GPUS};

use super::MachineGpu;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuSelection {
    /// Numbers as in `CUDA_VISIBLE_DEVICES`.
    Numbers(Vec<u16>),
    /// Beginnings of names: `GPU-5b8a`.
    Names(Vec<String>),
}

impl Default for GpuSelection {
    /// None.
    fn default() -> GpuSelection {
        GpuSelection::Numbers(Vec::new())
    }
}

impl GpuSelection {
    pub fn is_empty(&self) -> bool {
        match self {
            GpuSelection::Numbers(numbers) => numbers.is_empty(),
            GpuSelection::Names(names) => names.is_empty(),
        }
    }

    /// The chosen GPUs, at most [`MAX_GPUS`].
    pub fn choose<'a>(&self, gpus: &'a [MachineGpu]) -> Vec<&'a MachineGpu> {
        let mut chosen: Vec<&MachineGpu> = match self {
            GpuSelection::Numbers(numbers) => {
                numbers.iter().filter_map(|number| find(gpus, u32::from(*number))).collect()
            }
            GpuSelection::Names(names) => gpus
                .iter()
                .filter(|gpu| names.iter().any(|name| !name.is_empty() && gpu.uuid.starts_with(name.as_str())))
                .collect(),
        };
        chosen.sort_by_key(|gpu| gpu.reading.gpu);
        chosen.dedup_by_key(|gpu| (gpu.reading.gpu, gpu.uuid.clone()));
        chosen.truncate(MAX_GPUS);
        chosen
    }

    pub fn readings(&self, gpus: &[MachineGpu]) -> Vec<GpuReading> {
        self.choose(gpus).into_iter().map(|gpu| gpu.reading.clone()).collect()
    }
}

/// The GPU of this number. Where the machine shows only some of its GPUs, as in a container, the driver numbers these from
/// 0 while their device files keep their numbers.
fn find(gpus: &[MachineGpu], number: u32) -> Option<&MachineGpu> {
    let with_number = gpus.iter().find(|gpu| gpu.reading.gpu == number);
    with_number.or_else(|| gpus.iter().find(|gpu| gpu.device_number == Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(number: u32, uuid: &str, device_number: u32) -> MachineGpu {
        let reading = GpuReading { gpu: number, ..GpuReading::default() };
        MachineGpu { reading, uuid: uuid.to_owned(), device_number: Some(device_number) }
    }

    #[track_caller]
    fn check(selection: &GpuSelection, gpus: &[MachineGpu], expected: &[u32]) {
        let chosen: Vec<u32> = selection.readings(gpus).iter().map(|reading| reading.gpu).collect();
        assert_eq!(chosen, expected, "{selection:?}");
    }

    #[test]
    fn only_the_tasks_gpus_are_shown() {
        let gpus = [gpu(0, "GPU-aa11", 0), gpu(1, "GPU-bb22", 1), gpu(2, "GPU-cc33", 2)];
        check(&GpuSelection::Numbers(vec![2, 0, 2]), &gpus, &[0, 2]);
        check(&GpuSelection::default(), &gpus, &[]);
        check(&GpuSelection::Numbers(vec![7]), &gpus, &[]);
        check(&GpuSelection::Names(vec!["GPU-bb".into()]), &gpus, &[1]);
        check(&GpuSelection::Names(vec!["MIG-bb".into(), String::new()]), &gpus, &[]);
        let many: Vec<MachineGpu> = (0..99).map(|number| gpu(number, "GPU-a", number)).collect();
        assert_eq!(GpuSelection::Names(vec!["GPU-".into()]).choose(&many).len(), MAX_GPUS);
    }

    #[test]
    fn device_files_number_gpus_of_a_container() {
        let gpus = [gpu(0, "GPU-aa11", 5), gpu(1, "GPU-bb22", 6)];
        check(&GpuSelection::Numbers(vec![6]), &gpus, &[1]);
        check(&GpuSelection::Numbers(vec![0]), &gpus, &[0]);
    }
}
