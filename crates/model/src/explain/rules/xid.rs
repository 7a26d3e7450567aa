//! Rules for errors of GPUs that a node found in the kernel's log: those of the hardware before all others, since the
//! program's own message is only their consequence; those of programs after the rules that know the message. Pure.

use super::rule::{Answer, Failure, Finding, Found, MAX_ADVICE, Pattern, Rule};
use crate::gpu::xid_table::{self, XidKind, XidMeaning};

pub const HARDWARE: &[Rule] = &[Rule {
    key: "gpu-xid",
    pattern: Pattern::Exit(|failure| hardware(failure).is_some()),
    answer: Answer::Computed(|found, _| hardware(found.failure).map(explain)),
}];

pub const OTHERS: &[Rule] = &[Rule {
    key: "gpu-xid",
    pattern: Pattern::Exit(|failure| !failure.xids.is_empty()),
    answer: Answer::Computed(|found, _| other(found)),
}];

fn hardware(failure: &Failure<'_>) -> Option<&'static XidMeaning> {
    let known = failure.xids.iter().filter_map(|xid| xid_table::find(*xid));
    known.filter(|meaning| meaning.kind == XidKind::Hardware).min_by_key(|meaning| xid_table::severity(meaning.xid))
}

fn other(found: &Found<'_>) -> Option<Finding> {
    let xid = *found.failure.xids.iter().min_by_key(|xid| xid_table::severity(**xid))?;
    match xid_table::find(xid) {
        // The end of a process by a signal says more than its consequence on the GPU.
        Some(meaning) if meaning.kind == XidKind::Consequence && found.failure.exit.deciding_signal().is_some() => None,
        Some(meaning) => Some(explain(meaning)),
        None => Some(Finding::new(
            format!("The driver reported an error of a GPU of the job (Xid {xid})."),
            [
                format!("Look up Xid {xid} in NVIDIA's documentation of Xid errors."),
                "If the same script works on another node, this GPU may be failing: tell the operator.".to_owned(),
            ],
        )),
    }
}

fn explain(meaning: &XidMeaning) -> Finding {
    let advice = meaning.advice.iter().take(MAX_ADVICE).map(|line| (*line).to_owned()).collect();
    Finding { cause: format!("A GPU of the job {} (Xid {}).", meaning.what, meaning.xid), advice }
}
