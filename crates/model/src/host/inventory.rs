//! Inventory of a host, the capacity it offers to nodes, and the free capacity.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ApiError;
use crate::vm_size::VmSize;

/// Hardware of a host, as detected by its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory {
    pub cores: u32,
    pub memory_bytes: u64,
    pub gpus: Vec<Gpu>,
    /// Addresses at which other machines reach it.
    pub addresses: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Version of the agent.
    pub version: String,
    /// Capacity for nodes, if the operator chose another than the detected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<Capacity>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gpu {
    pub name: String,
    pub memory_bytes: u64,
}

/// Resources of a host that nodes use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    pub cores: u32,
    pub memory_bytes: u64,
    pub gpus: u32,
}

impl Inventory {
    pub fn capacity(&self) -> Capacity {
        let own = Capacity { cores: self.cores, memory_bytes: self.memory_bytes, gpus: self.gpus.len() as u32 };
        self.offered.unwrap_or(own)
    }
}

impl Capacity {
    pub fn of(size: &VmSize) -> Capacity {
        Capacity { cores: size.cores, memory_bytes: u64::from(size.memory_gib) << 30, gpus: size.gpus }
    }

    /// Whether `need` fits into this free capacity. A machine with a nominal memory size reserves some of it, so a
    /// sixteenth less is enough.
    pub fn holds(&self, need: &Capacity) -> bool {
        let memory = need.memory_bytes - need.memory_bytes / 16;
        self.cores >= need.cores && self.gpus >= need.gpus && self.memory_bytes >= memory
    }

    pub fn less(&self, taken: &Capacity) -> Capacity {
        Capacity {
            cores: self.cores.saturating_sub(taken.cores),
            memory_bytes: self.memory_bytes.saturating_sub(taken.memory_bytes),
            gpus: self.gpus.saturating_sub(taken.gpus),
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{} {cores}, {gib:.1} GiB", self.cores)?;
        match self.gpus {
            0 => Ok(()),
            1 => f.write_str(", 1 GPU"),
            gpus => write!(f, ", {gpus} GPUs"),
        }
    }
}

/// Checks the size limits of a reported inventory, since the server stores it.
pub fn check_inventory(inventory: &Inventory) -> Result<(), ApiError> {
    let wrong = |what: &str| Err(ApiError::invalid("inventory", format!("the host's inventory {what}")));
    let short = |text: &String| text.len() <= 128 && !text.chars().any(char::is_control);
    if inventory.gpus.len() > 64 || inventory.addresses.len() > 64 || inventory.labels.len() > 64 {
        return wrong("has more than 64 GPUs, addresses or labels");
    }
    let labels = inventory.labels.iter().flat_map(|(key, value)| [key, value]);
    let mut texts = inventory.gpus.iter().map(|gpu| &gpu.name).chain(&inventory.addresses).chain(labels);
    if !texts.all(short) || !short(&inventory.version) {
        return wrong("has a text of more than 128 characters, or with control characters");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm_size;

    #[test]
    fn what_fits_is_what_is_left() {
        let size = |name: &str| Capacity::of(vm_size::find(name).expect("a size"));
        let machine = Capacity { cores: 12, memory_bytes: 125 << 30, gpus: 2 };
        let node = size("STANDARD_NC6");
        assert!(machine.holds(&node) && machine.less(&node).holds(&node));
        assert!(!machine.less(&node).less(&node).holds(&size("STANDARD_D1")), "no core is left");
        assert!(!Capacity { gpus: 0, ..machine }.holds(&node));
        assert_eq!(machine.less(&node).to_string(), "6 cores, 69.0 GiB, 1 GPU");
    }
}
