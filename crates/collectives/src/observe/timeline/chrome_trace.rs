//! From events to the records of a Chrome trace, one line of JSON each. Entered by the writer. Pure. Keeps begin and end in
//! step for every tensor, also when events in between were dropped: a viewer shows nothing sensible otherwise.

use std::collections::HashMap;
use std::fmt::Write;

use crate::dtype::Dtype;

#[derive(Debug)]
pub struct Event {
    /// Since the start.
    pub micros: u64,
    /// Of the tensor.
    pub name: String,
    pub kind: EventKind,
}

#[derive(Debug)]
pub enum EventKind {
    NegotiateStart(&'static str),
    RankReady(usize),
    NegotiateEnd,
    OperationStart(&'static str),
    ActivityStart(&'static str),
    ActivityEnd,
    OperationEnd(Dtype, Vec<usize>),
    /// With how long it took until now, in microseconds.
    Span(&'static str, u64),
    Cycle,
}

/// Appends records to `out`, each behind a comma and a line break: the file begins with another.
#[derive(Debug, Default)]
pub struct Trace {
    tensors: HashMap<String, TensorTrack>,
    pub out: String,
}

#[derive(Debug)]
struct TensorTrack {
    pid: usize,
    open: Vec<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Negotiation,
    Operation,
    Activity,
}

/// The records every file begins with.
pub fn file_header(now_micros: u64) -> String {
    format!(
        "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {{\"start_time_since_epoch_in_micros\": {now_micros}}}}},\n\
         {{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, \"args\": {{\"sort_index\": 0}}}}"
    )
}

impl Trace {
    pub fn add(&mut self, event: Event) {
        let (ts, out) = (event.micros, &mut self.out);
        if let EventKind::Cycle = event.kind {
            push(out, format_args!("\"name\": \"CYCLE_START\", \"ph\": \"i\", \"ts\": {ts}, \"pid\": 0, \"s\": \"g\""));
            return;
        }
        let n_known = self.tensors.len();
        let tensor = self.tensors.entry(event.name).or_insert_with_key(|name| {
            let (pid, name) = (n_known + 1, escaped(name));
            push(out, format_args!("\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {pid}, \"args\": {{\"name\": \"{name}\"}}"));
            push(out, format_args!("\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": {pid}, \"args\": {{\"sort_index\": {pid}}}"));
            TensorTrack { pid, open: Vec::new() }
        });
        match event.kind {
            EventKind::NegotiateStart(kind) => {
                tensor.close_above(None, ts, out);
                tensor.begin(Level::Negotiation, format_args!("NEGOTIATE_{kind}"), ts, out);
            }
            EventKind::RankReady(rank) if tensor.top() == Some(Level::Negotiation) => {
                let pid = tensor.pid;
                push(
                    out,
                    format_args!("\"name\": \"{rank}\", \"ph\": \"X\", \"ts\": {ts}, \"dur\": 0, \"pid\": {pid}"),
                );
            }
            EventKind::NegotiateEnd if tensor.top() == Some(Level::Negotiation) => tensor.end(ts, "", out),
            EventKind::OperationStart(kind) => {
                tensor.close_above(None, ts, out);
                tensor.begin(Level::Operation, format_args!("{kind}"), ts, out);
            }
            EventKind::ActivityStart(activity) if tensor.open.contains(&Level::Operation) => {
                tensor.close_above(Some(Level::Operation), ts, out);
                tensor.begin(Level::Activity, format_args!("{activity}"), ts, out);
            }
            EventKind::ActivityEnd if tensor.top() == Some(Level::Activity) => tensor.end(ts, "", out),
            EventKind::OperationEnd(dtype, shape) if tensor.open.contains(&Level::Operation) => {
                tensor.close_above(Some(Level::Operation), ts, out);
                let (dtype, shape) = (dtype.name(), list(&shape));
                tensor.end(ts, &format!(", \"args\": {{\"dtype\": \"{dtype}\", \"shape\": \"{shape}\"}}"), out);
            }
            EventKind::Span(kind, micros) => {
                tensor.begin(Level::Operation, format_args!("{kind}"), ts.saturating_sub(micros), out);
                tensor.end(ts, "", out);
            }
            // Its beginning was dropped.
            EventKind::RankReady(_)
            | EventKind::NegotiateEnd
            | EventKind::ActivityStart(_)
            | EventKind::ActivityEnd
            | EventKind::OperationEnd(..) => {}
            EventKind::Cycle => unreachable!("handled above"),
        }
    }

    /// Says in the trace itself that it is not whole.
    pub fn add_dropped(&mut self, n_dropped: u64, micros: u64) {
        push(
            &mut self.out,
            format_args!(
                "\"name\": \"EVENTS_DROPPED\", \"ph\": \"i\", \"ts\": {micros}, \"pid\": 0, \"s\": \"g\", \"args\": {{\"count\": {n_dropped}}}"
            ),
        );
    }
}

impl TensorTrack {
    fn top(&self) -> Option<Level> {
        self.open.last().copied()
    }

    fn begin(&mut self, level: Level, name: std::fmt::Arguments<'_>, ts: u64, out: &mut String) {
        self.open.push(level);
        let pid = self.pid;
        push(out, format_args!("\"name\": \"{name}\", \"ph\": \"B\", \"ts\": {ts}, \"pid\": {pid}"));
    }

    fn end(&mut self, ts: u64, args: &str, out: &mut String) {
        self.open.pop();
        let pid = self.pid;
        push(out, format_args!("\"ph\": \"E\", \"ts\": {ts}, \"pid\": {pid}{args}"));
    }

    /// Ends what is open above `level`, or everything: what ought to have ended it was dropped.
    fn close_above(&mut self, level: Option<Level>, ts: u64, out: &mut String) {
        while self.top().is_some() && self.top() != level {
            self.end(ts, "", out);
        }
    }
}

fn push(out: &mut String, fields: std::fmt::Arguments<'_>) {
    write!(out, ",\n{{{fields}}}").expect("a string takes everything");
}

/// As upstream writes shapes.
fn list(shape: &[usize]) -> String {
    let dimensions: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("[{}]", dimensions.join(", "))
}

/// Names are the user's and may hold anything.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            control if u32::from(control) < 0x20 => {
                write!(escaped, "\\u{:04x}", u32::from(control)).expect("a string takes everything");
            }
            other => escaped.push(other),
        }
    }
    escaped
}
