//! Meaning of the driver's Xid numbers in plain words, the most telling first: what happened to the GPU, and what to do.
//! Numbers and meanings are those of NVIDIA's documentation of Xid errors. Pure.

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XidKind {
    /// The GPU, its memory, its links or its firmware.
    Hardware,
    /// The program, most often.
    Program,
    /// The end of a process, or an error before.
    Consequence,
}

#[derive(Debug)]
pub struct XidMeaning {
    pub xid: u32,
    pub kind: XidKind,
    /// What happened, as the rest of a sentence that begins with the GPU.
    pub what: &'static str,
    pub advice: &'static [&'static str],
}

const fn hardware(xid: u32, what: &'static str, advice: &'static [&'static str]) -> XidMeaning {
    XidMeaning { xid, kind: XidKind::Hardware, what, advice }
}

const fn program(xid: u32, what: &'static str, advice: &'static [&'static str]) -> XidMeaning {
    XidMeaning { xid, kind: XidKind::Program, what, advice }
}

const RESET: &str = "Tell the operator the node: the GPU has to be reset ('nvidia-smi --gpu-reset') or the machine rebooted, and \
                     replaced if it happens again.";
const ELSEWHERE: &str = "Submit the job again, to another node, until the GPU is repaired.";
const RETRY: &str = "Submit the job again: this error ended only the programs that used the broken memory.";
const RETRY_ONCE: &str = "Submit the job again once.";
const KERNEL: &str =
    "Run it with CUDA_LAUNCH_BLOCKING=1, or under 'compute-sanitizer', which names the kernel and the address.";
const OTHER_GPU: &str = "If the same script works on another node, this GPU may be failing: tell the operator.";

/// All known numbers, the most telling first.
pub const MEANINGS: &[XidMeaning] = &[
    hardware(
        79,
        "has fallen off the bus: the driver can no longer reach it, most often because of its power supply, heat or a failing GPU",
        &[
            "Tell the operator the node: its machine has to be rebooted before the GPU can be used again. If it happens again, check \
             power cables, cooling and the slot, or replace the GPU.",
            ELSEWHERE,
        ],
    ),
    hardware(
        95,
        "had an error in its memory that may have damaged other programs too (an uncontained ECC error)",
        &[RESET, ELSEWHERE],
    ),
    hardware(
        140,
        "had an error in its memory that could not be repaired (an unrecovered ECC error)",
        &[RESET, ELSEWHERE],
    ),
    hardware(
        48,
        "had an error in its memory that could not be corrected (a double bit ECC error)",
        &[RESET, ELSEWHERE],
    ),
    hardware(
        64,
        "could not retire or remap broken memory: no spare rows are left, or they could not be recorded",
        &[
            "Tell the operator the node: 'nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT' shows the state; the GPU has to be replaced.",
            ELSEWHERE,
        ],
    ),
    hardware(
        94,
        "had an error in its memory that ended the programs that used it (a contained ECC error)",
        &[RETRY, RESET],
    ),
    hardware(
        63,
        "has found broken memory and retires or remaps it at the next reset",
        &[
            "Submit the job again. Tell the operator the node: a reset of the GPU ('nvidia-smi --gpu-reset') completes the repair.",
        ],
    ),
    hardware(92, "corrects very many errors in its memory", &[RESET, ELSEWHERE]),
    hardware(
        74,
        "had an error on an NVLink, the connection to other GPUs",
        &[
            "Tell the operator the node: 'nvidia-smi nvlink --status' shows the links; cables, switch or GPU may be failing.",
            ELSEWHERE,
        ],
    ),
    hardware(119, "no longer answers: its firmware (GSP) is stuck", &[RESET, ELSEWHERE]),
    hardware(120, "no longer works: its firmware (GSP) has failed", &[RESET, ELSEWHERE]),
    hardware(62, "has stopped: its internal controller halted", &[RESET, ELSEWHERE]),
    hardware(61, "had an error in its internal controller", &[RESET, ELSEWHERE]),
    hardware(143, "could not be initialized", &[RESET, ELSEWHERE]),
    hardware(109, "did not switch between programs in time", &[RETRY_ONCE, RESET]),
    hardware(38, "had an error in its firmware", &[RESET, ELSEWHERE]),
    hardware(154, "has to be reset, says the driver", &[RESET, ELSEWHERE]),
    hardware(32, "received damaged commands: the driver or the PCI bus is failing", &[RESET, ELSEWHERE]),
    program(
        31,
        "stopped the program because it accessed memory that is not its own: an index out of range in a kernel, memory that was \
         freed too early, and rarely a failing GPU",
        &[KERNEL, OTHER_GPU],
    ),
    program(
        13,
        "stopped the program because one of its kernels crashed: an index out of range or a wrong instruction, and rarely a failing GPU",
        &[KERNEL, OTHER_GPU],
    ),
    program(69, "stopped the program because of a wrong command", &[KERNEL, OTHER_GPU]),
    XidMeaning {
        xid: 43,
        kind: XidKind::Consequence,
        what: "stopped working for the program after an error of that program; other programs go on",
        advice: &[KERNEL, OTHER_GPU],
    },
    XidMeaning {
        xid: 45,
        kind: XidKind::Consequence,
        what: "dropped the program's work because the program ended, or after an earlier error",
        advice: &[
            "Look for an earlier error in the job's stderr; by itself this one only shows that the program ended.",
            OTHER_GPU,
        ],
    },
];

/// The meaning of a number; `None` for one that is not in the table.
pub fn find(xid: u32) -> Option<&'static XidMeaning> {
    MEANINGS.iter().find(|meaning| meaning.xid == xid)
}

/// Whether the number means that the GPU itself has failed.
pub fn is_hardware(xid: u32) -> bool {
    find(xid).is_some_and(|meaning| meaning.kind == XidKind::Hardware)
}

/// Order of numbers, the most telling first; unknown ones come after errors of the hardware and of programs.
pub fn severity(xid: u32) -> usize {
    let first_consequence = || MEANINGS.iter().position(|meaning| meaning.kind == XidKind::Consequence);
    match MEANINGS.iter().position(|meaning| meaning.xid == xid) {
        Some(at) if MEANINGS[at].kind == XidKind::Consequence => at + 1,
        Some(at) => at,
        None => first_consequence().unwrap_or(MEANINGS.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_number_has_one_meaning_with_advice() {
        let numbers: HashSet<u32> = MEANINGS.iter().map(|meaning| meaning.xid).collect();
        assert_eq!(numbers.len(), MEANINGS.len());
        for meaning in MEANINGS {
            assert!((1..=3).contains(&meaning.advice.len()), "{}", meaning.xid);
            assert!(
                !meaning.what.ends_with('.') && meaning.advice.iter().all(|line| line.ends_with('.')),
                "{}",
                meaning.xid
            );
        }
        for xid in [13, 31, 43, 45, 48, 63, 64, 79, 94, 95] {
            assert!(find(xid).is_some(), "{xid}");
        }
        assert!(find(12345).is_none());
    }

    #[test]
    fn causes_come_before_their_consequences() {
        let mut numbers = vec![45, 12345, 13, 43, 94, 31, 48, 79];
        numbers.sort_by_key(|xid| severity(*xid));
        assert_eq!(numbers, [79, 48, 94, 31, 13, 12345, 43, 45]);
    }
}
