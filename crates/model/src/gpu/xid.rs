//! Errors of the NVIDIA driver in the kernel's log: `NVRM: Xid (PCI:0000:3b:00): 79, …, GPU has fallen off the bus.`
//! Parses them, leaves out the processes that they name, and compares PCI addresses. Pure.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::reading::short_text;
use super::xid_table;

/// Characters of the driver's text that are kept.
const MAX_TEXT_CHARS: usize = 160;
const PREFIX: &str = "NVRM: Xid (";

/// One error of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XidError {
    pub xid: u32,
    /// PCI address as the kernel writes it, `0000:3b:00`, in lower case.
    pub bus_id: String,
    /// Number of the GPU on its machine, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// The driver's text, without processes.
    pub text: String,
}

impl XidError {
    /// The error in a line of the kernel's log, whatever precedes it; `None` for other lines.
    pub fn parse(line: &str) -> Option<XidError> {
        let (_, rest) = line.split_once(PREFIX)?;
        let (address, rest) = rest.split_once("): ")?;
        let address = address.strip_prefix("PCI:").unwrap_or(address);
        // A partition of the GPU follows its address: `0000:3b:00 GPU-I:05`.
        let bus_id = address.split_whitespace().next()?.to_ascii_lowercase();
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let xid = rest[..digits].parse().ok()?;
        let text = without_process(rest[digits..].trim_start_matches(',').trim());
        Some(XidError { xid, bus_id, gpu: None, text: text.to_owned() }.bounded())
    }

    /// The errors in lines of the kernel's log, without repetitions, the most telling first.
    pub fn parse_all<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<XidError> {
        let mut seen = HashSet::new();
        let errors = lines.into_iter().filter_map(XidError::parse);
        let mut errors: Vec<XidError> = errors.filter(|error| seen.insert((error.xid, error.bus_id.clone()))).collect();
        errors.sort_by_key(|error| xid_table::severity(error.xid));
        errors
    }

    /// Whether the error is about the GPU at this PCI address, in whatever form it is written.
    pub fn is_at(&self, bus_id: &str) -> bool {
        let own = parse_address(&self.bus_id);
        own.is_some() && own == parse_address(bus_id)
    }

    /// The error in one line: `Xid 79 of GPU 0 (0000:3b:00): GPU has fallen off the bus.`
    pub fn describe(&self) -> String {
        let gpu = self.gpu.map_or_else(|| "the GPU".to_owned(), |gpu| format!("GPU {gpu}"));
        let text = if self.text.is_empty() { String::new() } else { format!(": {}", self.text) };
        format!("Xid {} of {gpu} ({}){text}", self.xid, self.bus_id)
    }

    /// The number in a line that [`describe`](Self::describe) made.
    pub fn number_in(description: &str) -> Option<u32> {
        description.strip_prefix("Xid ")?.split(' ').next()?.parse().ok()
    }

    pub fn bounded(self) -> XidError {
        let text = self.text.chars().filter(|letter| !letter.is_control()).take(MAX_TEXT_CHARS).collect();
        XidError { bus_id: short_text(&self.bus_id), text, ..self }
    }
}

/// The text after `pid=…, name=…,`: jobs of other users may have been running.
fn without_process(mut text: &str) -> &str {
    while text.starts_with("pid=") || text.starts_with("name=") {
        text = text.split_once(", ").map_or("", |(_, rest)| rest);
    }
    text
}

/// Domain, bus and device of `0000:3b:00`, `00000000:3B:00.0` or `3b:00.0`.
fn parse_address(bus_id: &str) -> Option<(u32, u32, u32)> {
    let bus_id = bus_id.split('.').next()?;
    let parts: Vec<u32> = bus_id.split(':').map(|part| u32::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
    match parts[..] {
        [domain, bus, device] => Some((domain, bus, device)),
        [bus, device] => Some((0, bus, device)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(u32, &str, &str)>) {
        let found = XidError::parse(line);
        let found = found.as_ref().map(|error| (error.xid, error.bus_id.as_str(), error.text.as_str()));
        assert_eq!(found, expected, "{line}");
    }

    /// Lines of real machines: of the ring buffer, of `dmesg` and of the journal, of several versions of the driver.
    #[test]
    fn errors_are_found_in_lines_of_the_kernels_log() {
        check(
            "4,2417,86400123456,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            Some((79, "0000:3b:00", "GPU has fallen off the bus.")),
        );
        check(
            "[86400.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid=1412, GPU has fallen off the bus.",
            Some((79, "0000:3b:00", "GPU has fallen off the bus.")),
        );
        check(
            "Nov 19 03:12:44 gpu-1 kernel: NVRM: Xid (PCI:0000:0A:00): 31, pid=13521, name=python, Ch 00000008, intr 10000000. \
             MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_4 faulted @ 0x7f3c_5aa00000. Fault is of type FAULT_PDE ACCESS_TYPE_READ",
            Some((
                31,
                "0000:0a:00",
                "Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_4 faulted @ 0x7f3c_5aa00000. Fault is \
                 of type FAULT_PDE ACCESS_TYPE_READ",
            )),
        );
        check(
            "NVRM: Xid (PCI:0000:43:00): 13, pid=2042, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address",
            Some((13, "0000:43:00", "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address")),
        );
        check(
            "NVRM: Xid (PCI:0000:0d:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x00000000012d9b8b) \
             marked for remapping, reset gpu to activate.",
            Some((
                63,
                "0000:0d:00",
                "Row Remapper: New row (0x00000000012d9b8b) marked for remapping, reset gpu to activate.",
            )),
        );
        check(
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, name=train.py, Contained: SM (0x1). RST: No, D-RST: No",
            Some((94, "0000:01:00", "Contained: SM (0x1). RST: No, D-RST: No")),
        );
        check(
            "NVRM: Xid (PCI:0000:1b:00): 48, An uncorrectable double bit error (DBE) has been detected on GPU in the \
             framebuffer at partition 6, subpartition 0.",
            Some((
                48,
                "0000:1b:00",
                "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, \
                 subpartition 0.",
            )),
        );
        check(
            "NVRM: Xid (0000:03:00): 62, 0cb5(1234) 00000000 00000000",
            Some((62, "0000:03:00", "0cb5(1234) 00000000 00000000")),
        );
        check("NVRM: Xid (PCI:0000:03:00): 43, pid=77, name=python3", Some((43, "0000:03:00", "")));
        for other in [
            "",
            "NVRM: GPU at PCI:0000:3b:00: GPU-55a1b6f0",
            "NVRM: Xid (PCI:0000:3b:00): x",
            "NVRM: Xid (",
            "usb 1-1: new high-speed USB device",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn the_most_telling_error_comes_first_and_once() {
        let lines = [
            "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=a, Ch 00000008",
            "NVRM: Xid (PCI:0000:3b:00): 45, pid=2, name=b, Ch 00000009",
            "something else",
            "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.",
        ];
        let errors = XidError::parse_all(lines);
        let found: Vec<_> = errors.iter().map(|error| (error.xid, error.bus_id.as_str())).collect();
        assert_eq!(found, [(79, "0000:3b:00"), (79, "0000:5e:00"), (45, "0000:3b:00")]);
        assert!(!errors.iter().any(|error| error.text.contains("pid") || error.text.contains("name")));
    }

    #[test]
    fn addresses_are_compared_in_every_form() {
        let error = XidError::parse("NVRM: Xid (PCI:0000:3b:00): 79, x").expect("an error");
        assert!(["00000000:3B:00.0", "0000:3b:00", "3b:00.0"].iter().all(|bus_id| error.is_at(bus_id)));
        assert!(!["00000001:3B:00.0", "0000:3c:00", "0000:3b:01.0", "", "x"].iter().any(|bus_id| error.is_at(bus_id)));
    }

    #[test]
    fn a_description_contains_the_number() {
        let error =
            XidError { gpu: Some(2), ..XidError::parse("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, Gone.").expect("one") };
        assert_eq!(error.describe(), "Xid 79 of GPU 2 (0000:3b:00): Gone.");
        assert_eq!(XidError::number_in(&error.describe()), Some(79));
        assert_eq!((XidError::number_in("Xid x"), XidError::number_in("else")), (None, None));
    }
}
