//! Encoding of messages from the coordinator to workers.

use std::sync::Arc;

use super::{DecodeError, Reader, put, put_list, put_scales, put_text, scales};
use crate::coordinator::error_messages::ProcessSetError;
use crate::coordinator::message::{FusionKey, ProcessSet, Response, ResponseItem, ShutdownReason, ToWorker, Tuning};
use crate::coordinator::request::{Kind, SetId};
use crate::{Dtype, ReduceOp};

/// Appends a message to a frame.
pub fn encode_to_worker(message: &ToWorker, out: &mut Vec<u8>) {
    match message {
        ToWorker::Execute { items, zeros } => {
            // The common case has no zeros and spends no byte on them.
            out.push(if zeros.is_empty() { 0 } else { 1 });
            put(out, items.len() as u64);
            items.iter().for_each(|item| put_item(out, item));
            if !zeros.is_empty() {
                put_list(out, zeros);
            }
        }
        ToWorker::Error { generation, names, text } => {
            out.push(2);
            put(out, *generation);
            put(out, names.len() as u64);
            names.iter().for_each(|name| put_text(out, name));
            put_text(out, text);
        }
        ToWorker::Barrier(generation) => {
            out.push(3);
            put(out, *generation);
        }
        ToWorker::Joined { generation, last } => {
            out.push(4);
            put(out, *generation);
            put(out, (*last).into());
        }
        ToWorker::Evicted(ids) => {
            out.push(5);
            put_list(out, ids);
        }
        ToWorker::Resend(submission) => {
            out.push(6);
            put(out, *submission);
        }
        ToWorker::SetsAdded(sets) => {
            out.push(7);
            put(out, sets.len() as u64);
            for set in sets.iter() {
                put(out, set.id.0.into());
                put(out, set.generation);
                put_list(out, &set.ranks);
            }
        }
        ToWorker::SetRemoved(generation) => {
            out.push(8);
            put(out, *generation);
        }
        ToWorker::SetRefused(error) => {
            out.push(9);
            put_set_error(out, error);
        }
        ToWorker::Tune(tuning) => {
            out.push(10);
            put(out, tuning.fusion_threshold);
            out.extend_from_slice(&tuning.cycle_time_ms.to_le_bytes());
        }
        ToWorker::Shutdown(ShutdownReason::Requested { rank }) => {
            out.push(11);
            put(out, (*rank).into());
        }
        ToWorker::Shutdown(ShutdownReason::Lost { rank, text }) => {
            out.push(12);
            put(out, (*rank).into());
            put_text(out, text);
        }
        ToWorker::Shutdown(ShutdownReason::Stalled) => out.push(13),
    }
}

/// Passes each message of the frame to `each`, in order; stops at the first malformed one.
pub fn decode_to_worker(frame: &[u8], mut each: impl FnMut(ToWorker)) -> Result<(), DecodeError> {
    let mut reader = Reader(frame);
    while !reader.is_empty() {
        each(message(&mut reader)?);
    }
    Ok(())
}

fn message(reader: &mut Reader) -> Result<ToWorker, DecodeError> {
    Ok(match reader.byte()? {
        tag @ (0 | 1) => {
            let items = reader.list(item)?.into();
            let zeros = if tag == 1 { reader.list(|reader| reader.small("item"))? } else { Vec::new() };
            ToWorker::Execute { items, zeros }
        }
        2 => ToWorker::Error { generation: reader.number()?, names: reader.list(Reader::text)?, text: reader.text()? },
        3 => ToWorker::Barrier(reader.number()?),
        4 => ToWorker::Joined { generation: reader.number()?, last: reader.small("rank")? },
        5 => ToWorker::Evicted(reader.numbers()?.into()),
        6 => ToWorker::Resend(reader.number()?),
        7 => {
            let set = |reader: &mut Reader| {
                let (id, generation) = (SetId(reader.small("process set")?), reader.number()?);
                Ok(ProcessSet { id, generation, ranks: reader.ranks()? })
            };
            ToWorker::SetsAdded(reader.list(set)?.into())
        }
        8 => ToWorker::SetRemoved(reader.number()?),
        9 => ToWorker::SetRefused(set_error(reader)?),
        10 => ToWorker::Tune(Tuning { fusion_threshold: reader.number()?, cycle_time_ms: reader.float()? }),
        11 => ToWorker::Shutdown(ShutdownReason::Requested { rank: reader.small("rank")? }),
        12 => ToWorker::Shutdown(ShutdownReason::Lost { rank: reader.small("rank")?, text: reader.text()? }),
        13 => ToWorker::Shutdown(ShutdownReason::Stalled),
        number => return Err(DecodeError::UnknownNumber { what: "message", number: number.into() }),
    })
}

/// Appends an item. Its tag is 0 for a full response without cache id, 1 for one with a cache id, otherwise the known cache id plus 2.
fn put_item(out: &mut Vec<u8>, item: &ResponseItem) {
    match item {
        ResponseItem::Cached(id) => put(out, id + 2),
        ResponseItem::New(response, id) => {
            out.push(id.is_some().into());
            id.iter().for_each(|id| put(out, *id));
            let FusionKey { generation, kind, dtype, op, root, on_cpu, prescale, postscale } = response.key;
            put(out, generation);
            out.extend_from_slice(&[kind as u8, dtype as u8, op as u8, on_cpu.into()]);
            put(out, root.into());
            put_scales(out, [prescale, postscale]);
            put_text(out, &response.name);
            put_list(out, &response.shape);
            put_list(out, &response.rows);
        }
    }
}

fn item(reader: &mut Reader) -> Result<ResponseItem, DecodeError> {
    let tag = reader.number()?;
    if tag >= 2 {
        return Ok(ResponseItem::Cached(tag - 2));
    }
    let id = if tag == 1 { Some(reader.number()?) } else { None };
    let generation = reader.number()?;
    let [kind, dtype, op] = [reader.byte()?, reader.byte()?, reader.byte()?];
    let on_cpu = reader.flag()?;
    let root = reader.small("rank")?;
    let [prescale, postscale] = scales(reader)?;
    let unknown = |what, number: u8| DecodeError::UnknownNumber { what, number: number.into() };
    let key = FusionKey {
        generation,
        kind: Kind::from_number(kind).ok_or_else(|| unknown("kind", kind))?,
        dtype: Dtype::from_number(dtype).ok_or_else(|| unknown("dtype", dtype))?,
        op: ReduceOp::from_number(op).ok_or_else(|| unknown("reduce op", op))?,
        root,
        on_cpu,
        prescale,
        postscale,
    };
    let response = Response { key, name: reader.text()?, shape: reader.numbers()?, rows: reader.numbers()? };
    Ok(ResponseItem::New(Arc::new(response), id))
}

fn put_set_error(out: &mut Vec<u8>, error: &ProcessSetError) {
    match error {
        ProcessSetError::MismatchedSize => out.push(0),
        ProcessSetError::MismatchedValues => out.push(1),
        ProcessSetError::MismatchedNumber => out.push(2),
        ProcessSetError::Empty => out.push(3),
        ProcessSetError::MismatchedRemoval => out.push(4),
        ProcessSetError::Unknown => out.push(5),
        ProcessSetError::MismatchedAction => out.push(6),
        ProcessSetError::DuplicateRank(rank) => {
            out.push(7);
            put(out, (*rank).into());
        }
        ProcessSetError::InvalidRank(rank) => {
            out.push(8);
            put(out, (*rank).into());
        }
        ProcessSetError::Exists(ranks) => {
            out.push(9);
            put_list(out, ranks);
        }
    }
}

fn set_error(reader: &mut Reader) -> Result<ProcessSetError, DecodeError> {
    Ok(match reader.byte()? {
        0 => ProcessSetError::MismatchedSize,
        1 => ProcessSetError::MismatchedValues,
        2 => ProcessSetError::MismatchedNumber,
        3 => ProcessSetError::Empty,
        4 => ProcessSetError::MismatchedRemoval,
        5 => ProcessSetError::Unknown,
        6 => ProcessSetError::MismatchedAction,
        7 => ProcessSetError::DuplicateRank(reader.small("rank")?),
        8 => ProcessSetError::InvalidRank(reader.small("rank")?),
        9 => ProcessSetError::Exists(reader.ranks()?),
        number => return Err(DecodeError::UnknownNumber { what: "process set error", number: number.into() }),
    })
}

#[cfg(test)]
#[path = "responses_tests.rs"]
mod tests;
