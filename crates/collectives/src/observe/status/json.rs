//! JSON of the status: one object of less than a page. Durations are in nanoseconds. Points in time (`since`, `ended`) are nanoseconds before
//! the write, whose time is the file's mtime. Pure.

use std::fmt::Write;
use std::time::Duration;

use super::{EngineStatus, StatusExtras, Totals};
use crate::observe::timeline::escaped;

/// Longest name in characters. All names together are far below a page, even if every character is escaped.
const MAX_NAME_CHARS: usize = 100;
/// Largest number of missing ranks that are listed.
const MAX_MISSING_RANKS: usize = 16;

/// Formats the status.
pub fn render(status: &EngineStatus, totals: Totals, extras: &StatusExtras<'_>, now: Duration) -> String {
    let age = |at: Duration| now.saturating_sub(at).as_nanos();
    let (seq, rank, size) = (status.seq, status.rank, status.size);
    let mut out = String::with_capacity(1024);
    let mut put = |text: std::fmt::Arguments<'_>| out.write_fmt(text).expect("writing to a string cannot fail");
    put(format_args!(r#"{{"seq":{seq},"rank":{rank},"size":{size},"totals":{}"#, totals_json(totals, None, now)));
    if let Some((at, before)) = status.samples.front() {
        put(format_args!(r#","window":{}"#, totals_json(totals, Some(*before), now.saturating_sub(*at))));
    }
    if let Some(last) = &status.last {
        let (name, kind, ended) = (shortened(&last.name), last.kind.name(), age(last.ended));
        let (n_tensors, bytes) = (last.n_tensors, last.bytes);
        put(format_args!(
            r#","last":{{"name":"{name}","kind":"{kind}","tensors":{n_tensors},"bytes":{bytes},"ended":{ended}}}"#
        ));
    }
    if let Some(current_op) = &status.current_op {
        let (name, kind, since) = (shortened(&current_op.name), current_op.kind.name(), age(current_op.since));
        put(format_args!(r#","working":{{"name":"{name}","kind":"{kind}","since":{since}}}"#));
    }
    if let Some((name, since)) = extras.pending {
        put(format_args!(r#","waiting":{{"name":"{}","since":{}}}"#, shortened(name), age(since)));
    }
    if let Some(oldest_incomplete) = &extras.oldest_incomplete {
        let (name, since, count) =
            (shortened(&oldest_incomplete.name), age(oldest_incomplete.since), oldest_incomplete.missing.len());
        let ranks: Vec<String> = oldest_incomplete.missing.iter().take(MAX_MISSING_RANKS).map(u32::to_string).collect();
        let ranks = ranks.join(",");
        put(format_args!(r#","awaited":{{"name":"{name}","since":{since},"ranks":[{ranks}],"count":{count}}}"#));
    }
    if let Some((number, is_done)) = extras.recording {
        put(format_args!(r#","recording":{{"number":{number},"done":{is_done}}}"#));
    }
    put(format_args!(r#","end":{seq}}}"#));
    out
}

/// Totals over the period `over`, relative to `before`.
fn totals_json(totals: Totals, before: Option<Totals>, over: Duration) -> String {
    let before = before.unwrap_or_default();
    format!(
        r#"{{"nanos":{},"operations":{},"tensors":{},"steps":{},"bytes":{},"waited":{},"worked":{}}}"#,
        over.as_nanos(),
        totals.operations - before.operations,
        totals.tensors - before.tensors,
        totals.steps.saturating_sub(before.steps),
        totals.bytes - before.bytes,
        totals.waited.saturating_sub(before.waited).as_nanos(),
        totals.worked.saturating_sub(before.worked).as_nanos(),
    )
}

/// Escaped name; a long one keeps its end, which is more specific than its beginning.
fn shortened(name: &str) -> String {
    let n_chars = name.chars().count();
    match n_chars.checked_sub(MAX_NAME_CHARS) {
        None | Some(0) => escaped(name),
        Some(cut) => format!("…{}", escaped(&name.chars().skip(cut + 1).collect::<String>())),
    }
}
