//! Assignment of the machine's GPUs to a job: as many as its VM size has, none that another node's job has claimed. If
//! too few are free, a job gets those, and the execution log says so.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use corro_base::fnv::fnv1a_64;

use super::cpu_affinity::{ResourceClaim, claim_free};
use crate::gpu;
use crate::gpu::selection::GpuSelection;

/// Restricts CUDA programs to some GPUs. An agent that was started with it has only those to assign.
pub const VISIBLE_DEVICES_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// How CUDA programs number the GPUs.
pub const DEVICE_ORDER_VARIABLE: &str = "CUDA_DEVICE_ORDER";
/// How long a scan of the device files stays valid.
const INVENTORY_TTL: Duration = Duration::from_secs(1);

/// The GPUs of a job, claimed while it runs.
#[derive(Debug, Default)]
pub struct Gpus {
    /// The kernel's device numbers.
    pub numbers: Vec<u16>,
    /// Number of GPUs that this agent may assign; 0 if they are not known by number.
    n_on_machine: usize,
    _claim: Option<ResourceClaim>,
}

impl Gpus {
    /// Claims up to `wanted` free GPUs.
    pub fn claim(wanted: u32, usable: &[u16]) -> Gpus {
        let name = match gpu::fake_numbers() {
            None => "corro-gpu".to_owned(),
            // Tests that run at the same time have GPUs of their own.
            Some((_, path)) => format!("corro-fake-gpu-{:x}", fnv1a_64(path.as_os_str().as_bytes())),
        };
        Self::claim_as(wanted, usable, &name)
    }

    fn claim_as(wanted: u32, usable: &[u16], name: &str) -> Gpus {
        let n_on_machine = usable.len();
        match claim_free(usable, wanted as usize, name) {
            Ok(claim) => Gpus { numbers: claim.numbers.clone(), n_on_machine, _claim: Some(claim) },
            Err(_) => Gpus { numbers: Vec::new(), n_on_machine, _claim: None },
        }
    }

    /// Value of `CUDA_VISIBLE_DEVICES` for processes on the machine itself. `None` if the GPUs are not known by number.
    pub fn visible_devices(&self) -> Option<String> {
        (self.n_on_machine > 0).then(|| list(&self.numbers, ","))
    }

    /// Number of GPUs that a job that wants `wanted` has.
    pub fn count(&self, wanted: u32) -> usize {
        if self.n_on_machine > 0 { self.numbers.len() } else { max_count(wanted) }
    }

    /// The GPUs that the job may use, for showing their state.
    pub fn selection(&self, wanted: u32) -> GpuSelection {
        match self.n_on_machine > 0 || wanted == 0 {
            true => GpuSelection::Numbers(self.numbers.clone()),
            false => GpuSelection::Names(given_names(std::env::var(VISIBLE_DEVICES_VARIABLE).ok().as_deref())),
        }
    }

    /// Text for the execution log; `None` for a job that wants none.
    pub fn describe(&self, wanted: u32) -> Option<String> {
        let numbers = list(&self.numbers, ", ");
        match (wanted as usize, self.n_on_machine, self.numbers.len()) {
            (0, ..) => None,
            (_, 0, _) => Some("none, as the machine has none".to_owned()),
            (wanted, _, got) if got == wanted => Some(format!("number {numbers}")),
            (wanted, all, 0) => Some(format!("NONE of {wanted}: jobs of other nodes use all {all} of this machine")),
            (wanted, ..) => Some(format!(
                "number {numbers}, FEWER than the requested {wanted}: the others are in use by jobs of other nodes"
            )),
        }
    }
}

/// Device numbers of the machine's GPUs that this process may use.
pub fn inventory() -> Vec<u16> {
    usable(device_numbers(), std::env::var(VISIBLE_DEVICES_VARIABLE).ok().as_deref())
}

/// Device numbers with a device file. Cached for a moment, since every job asks several times.
fn device_numbers() -> Vec<u16> {
    if let Some((numbers, _)) = gpu::fake_numbers() {
        return numbers;
    }
    static RECENT: Mutex<Option<(Instant, Vec<u16>)>> = Mutex::new(None);
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((found_at, device_numbers)) = &*recent
        && found_at.elapsed() < INVENTORY_TTL
    {
        return device_numbers.clone();
    }
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut device_numbers: Vec<u16> = entries.filter_map(|entry| device_number(entry.file_name().to_str()?)).collect();
    device_numbers.sort_unstable();
    *recent = Some((Instant::now(), device_numbers.clone()));
    device_numbers
}

/// Number of GPUs that a job that wants `wanted` can have here if no other job has claimed any. GPUs given by name are
/// passed on as they are.
pub fn max_count(wanted: u32) -> usize {
    let known = inventory().len();
    (wanted as usize).min(if known > 0 {
        known
    } else {
        n_named(std::env::var(VISIBLE_DEVICES_VARIABLE).ok().as_deref())
    })
}

fn n_named(given: Option<&str>) -> usize {
    given_names(given).len()
}

fn given_names(given: Option<&str>) -> Vec<String> {
    let names = given.unwrap_or_default().split(',').map(str::trim);
    names.filter(|word| word.starts_with("GPU-") || word.starts_with("MIG-")).map(str::to_owned).collect()
}

/// The first `limit` GPUs that this process may assign to jobs, for showing their state.
pub fn assignable(limit: Option<u32>) -> GpuSelection {
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let mut numbers = inventory();
    if numbers.is_empty() {
        let mut names = given_names(std::env::var(VISIBLE_DEVICES_VARIABLE).ok().as_deref());
        names.truncate(limit);
        return GpuSelection::Names(names);
    }
    numbers.truncate(limit);
    GpuSelection::Numbers(numbers)
}

/// Environment variable that restricts an agent to the first `count` GPUs; `None` if they are not known by number.
pub fn restrict_to_first(count: u32, usable: &[u16]) -> Option<(&'static str, String)> {
    let first = &usable[..usable.len().min(count as usize)];
    (!usable.is_empty()).then(|| (VISIBLE_DEVICES_VARIABLE, list(first, ",")))
}

/// Number of GPUs, by number or name, that this process is restricted to; `None` without a restriction.
pub fn n_given() -> Option<usize> {
    let given = std::env::var(VISIBLE_DEVICES_VARIABLE).ok()?;
    Some(given.split(',').filter(|word| !word.trim().is_empty()).count())
}

/// The number in `nvidia0`.
fn device_number(name: &str) -> Option<u16> {
    name.strip_prefix("nvidia").filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// The device numbers that this process may use. If it was given names (`GPU-…`, `MIG-…`), these are passed on as they
/// are and none can be claimed.
fn usable(device_numbers: Vec<u16>, given: Option<&str>) -> Vec<u16> {
    let Some(given) = given else { return device_numbers };
    let numbers = given.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::parse::<u16>);
    let numbers: Vec<u16> = numbers.collect::<Result<_, _>>().unwrap_or_default();
    device_numbers.into_iter().filter(|number| numbers.contains(number)).collect()
}

fn list(numbers: &[u16], between: &str) -> String {
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_gpus_are_counted() {
        assert_eq!([None, Some("0,1"), Some("GPU-1f, MIG-2")].map(n_named), [0, 0, 2]);
        assert_eq!(Gpus::claim_as(2, &[], "corro-test-no-gpu").count(0), 0);
        assert_eq!(given_names(Some("GPU-1f, MIG-2,3")), ["GPU-1f", "MIG-2"]);
    }

    #[test]
    fn gpus_are_never_shared() {
        let name = format!("corro-test-gpu-{}", std::process::id());
        let claim = |wanted: u32| Gpus::claim_as(wanted, &[0, 1, 2, 5], &name);
        let first = claim(2);
        assert_eq!(
            (first.visible_devices().as_deref(), first.describe(2).as_deref()),
            (Some("0,1"), Some("number 0, 1"))
        );
        let second = claim(3);
        assert_eq!((second.numbers.as_slice(), second.count(3)), (&[2, 5][..], 2), "what is left");
        assert_eq!(second.selection(3), GpuSelection::Numbers(vec![2, 5]));
        assert!(second.describe(3).is_some_and(|text| text.contains("FEWER than the requested 3")));
        let third = claim(1);
        assert_eq!(third.visible_devices().as_deref(), Some(""), "it sees none of the others'");
        assert!(third.selection(1).is_empty());
        assert!(third.describe(1).is_some_and(|text| text.starts_with("NONE of 1")));
        drop(first);
        assert_eq!(claim(1).numbers, [0]);
        // A VM size without GPUs sees none of them.
        assert_eq!((claim(0).visible_devices().as_deref(), claim(0).describe(0)), (Some(""), None));
        let none = Gpus::claim_as(1, &[], &name);
        assert_eq!(
            (none.visible_devices(), none.describe(1).as_deref()),
            (None, Some("none, as the machine has none"))
        );
    }

    #[test]
    fn an_agent_assigns_only_its_own_gpus() {
        assert_eq!(
            [device_number("nvidia0"), device_number("nvidia12"), device_number("nvidiactl"), device_number("nvidia")],
            [Some(0), Some(12), None, None]
        );
        assert_eq!(usable(vec![0, 1, 2], None), [0, 1, 2]);
        assert_eq!(usable(vec![0, 1, 2], Some("2, 1")), [1, 2]);
        assert_eq!(restrict_to_first(2, &[1, 2, 5]), Some((VISIBLE_DEVICES_VARIABLE, "1,2".to_owned())));
        assert_eq!(restrict_to_first(0, &[1]), Some((VISIBLE_DEVICES_VARIABLE, String::new())), "none at all");
        assert_eq!(
            (restrict_to_first(9, &[3]), restrict_to_first(2, &[])),
            (Some((VISIBLE_DEVICES_VARIABLE, "3".to_owned())), None)
        );
        assert!(usable(vec![0, 1], Some("")).is_empty() && usable(vec![0], Some("GPU-8932f937")).is_empty());
    }
}
