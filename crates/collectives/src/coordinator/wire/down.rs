//! Messages from the coordinator to a rank, as bytes.

use std::sync::Arc;

use super::{DecodeError, Reader, put, put_list, put_scales, put_text, scales};
use crate::coordinator::message::{Agreed, Item, Kind, SetId, SetMade, ShutdownReason, Terms, ToMember, Tuning};
use crate::coordinator::text::Refusal;
use crate::{Dtype, ReduceOp};

pub fn encode_to_member(message: &ToMember, out: &mut Vec<u8>) {
    match message {
        ToMember::Perform { items, zeros } => {
            // Nearly all there is: no zeros, which then take no byte.
            out.push(if zeros.is_empty() { 0 } else { 1 });
            put(out, items.len() as u64);
            items.iter().for_each(|item| put_item(out, item));
            if !zeros.is_empty() {
                put_list(out, zeros);
            }
        }
        ToMember::Error { area, names, text } => {
            out.push(2);
            put(out, *area);
            put(out, names.len() as u64);
            names.iter().for_each(|name| put_text(out, name));
            put_text(out, text);
        }
        ToMember::Barrier(area) => {
            out.push(3);
            put(out, *area);
        }
        ToMember::Joined { area, last } => {
            out.push(4);
            put(out, *area);
            put(out, (*last).into());
        }
        ToMember::Evicted(ids) => {
            out.push(5);
            put_list(out, ids);
        }
        ToMember::Resend(submission) => {
            out.push(6);
            put(out, *submission);
        }
        ToMember::SetsAdded(sets) => {
            out.push(7);
            put(out, sets.len() as u64);
            for set in sets.iter() {
                put(out, set.id.0.into());
                put(out, set.area);
                put_list(out, &set.ranks);
            }
        }
        ToMember::SetRemoved(area) => {
            out.push(8);
            put(out, *area);
        }
        ToMember::SetRefused(refusal) => {
            out.push(9);
            put_refusal(out, refusal);
        }
        ToMember::Tune(tuning) => {
            out.push(10);
            put(out, tuning.fusion_threshold);
            out.extend_from_slice(&tuning.cycle_time_ms.to_le_bytes());
        }
        ToMember::Shutdown(ShutdownReason::Asked { rank }) => {
            out.push(11);
            put(out, (*rank).into());
        }
        ToMember::Shutdown(ShutdownReason::Lost { rank, text }) => {
            out.push(12);
            put(out, (*rank).into());
            put_text(out, text);
        }
        ToMember::Shutdown(ShutdownReason::Stalled) => out.push(13),
    }
}

/// Hands every message of the frame on, in order; stops at the first that cannot be read.
pub fn decode_to_member(frame: &[u8], mut each: impl FnMut(ToMember)) -> Result<(), DecodeError> {
    let mut reader = Reader(frame);
    while !reader.is_empty() {
        each(message(&mut reader)?);
    }
    Ok(())
}

fn message(reader: &mut Reader) -> Result<ToMember, DecodeError> {
    Ok(match reader.byte()? {
        tag @ (0 | 1) => {
            let items = reader.list(item)?.into();
            let zeros = if tag == 1 { reader.list(|reader| reader.small("item"))? } else { Vec::new() };
            ToMember::Perform { items, zeros }
        }
        2 => ToMember::Error { area: reader.number()?, names: reader.list(Reader::text)?, text: reader.text()? },
        3 => ToMember::Barrier(reader.number()?),
        4 => ToMember::Joined { area: reader.number()?, last: reader.small("rank")? },
        5 => ToMember::Evicted(reader.numbers()?.into()),
        6 => ToMember::Resend(reader.number()?),
        7 => {
            let set = |reader: &mut Reader| {
                let (id, area) = (SetId(reader.small("process set")?), reader.number()?);
                Ok(SetMade { id, area, ranks: reader.ranks()? })
            };
            ToMember::SetsAdded(reader.list(set)?.into())
        }
        8 => ToMember::SetRemoved(reader.number()?),
        9 => ToMember::SetRefused(refusal(reader)?),
        10 => ToMember::Tune(Tuning { fusion_threshold: reader.number()?, cycle_time_ms: reader.float()? }),
        11 => ToMember::Shutdown(ShutdownReason::Asked { rank: reader.small("rank")? }),
        12 => ToMember::Shutdown(ShutdownReason::Lost { rank: reader.small("rank")?, text: reader.text()? }),
        13 => ToMember::Shutdown(ShutdownReason::Stalled),
        number => return Err(DecodeError::UnknownNumber { what: "message", number: number.into() }),
    })
}

/// 0: in full, without an id to be remembered by; 1: in full, with one; otherwise the id that is known, plus 2.
fn put_item(out: &mut Vec<u8>, item: &Item) {
    match item {
        Item::Cached(id) => put(out, id + 2),
        Item::New(agreed, id) => {
            out.push(id.is_some().into());
            id.iter().for_each(|id| put(out, *id));
            let Terms { area, kind, dtype, op, root, on_cpu, prescale, postscale } = agreed.terms;
            put(out, area);
            out.extend_from_slice(&[kind as u8, dtype as u8, op as u8, on_cpu.into()]);
            put(out, root.into());
            put_scales(out, [prescale, postscale]);
            put_text(out, &agreed.name);
            put_list(out, &agreed.shape);
            put_list(out, &agreed.rows);
        }
    }
}

fn item(reader: &mut Reader) -> Result<Item, DecodeError> {
    let tag = reader.number()?;
    if tag >= 2 {
        return Ok(Item::Cached(tag - 2));
    }
    let id = if tag == 1 { Some(reader.number()?) } else { None };
    let area = reader.number()?;
    let [kind, dtype, op] = [reader.byte()?, reader.byte()?, reader.byte()?];
    let on_cpu = reader.flag()?;
    let root = reader.small("rank")?;
    let [prescale, postscale] = scales(reader)?;
    let unknown = |what, number: u8| DecodeError::UnknownNumber { what, number: number.into() };
    let terms = Terms {
        area,
        kind: Kind::from_number(kind).ok_or_else(|| unknown("kind", kind))?,
        dtype: Dtype::from_number(dtype).ok_or_else(|| unknown("dtype", dtype))?,
        op: ReduceOp::from_number(op).ok_or_else(|| unknown("reduce op", op))?,
        root,
        on_cpu,
        prescale,
        postscale,
    };
    let agreed = Agreed { terms, name: reader.text()?, shape: reader.numbers()?, rows: reader.numbers()? };
    Ok(Item::New(Arc::new(agreed), id))
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    match refusal {
        Refusal::MismatchedSize => out.push(0),
        Refusal::MismatchedValues => out.push(1),
        Refusal::MismatchedNumber => out.push(2),
        Refusal::Empty => out.push(3),
        Refusal::MismatchedRemoval => out.push(4),
        Refusal::Unknown => out.push(5),
        Refusal::MismatchedAction => out.push(6),
        Refusal::DuplicateRank(rank) => {
            out.push(7);
            put(out, (*rank).into());
        }
        Refusal::InvalidRank(rank) => {
            out.push(8);
            put(out, (*rank).into());
        }
        Refusal::Exists(ranks) => {
            out.push(9);
            put_list(out, ranks);
        }
    }
}

fn refusal(reader: &mut Reader) -> Result<Refusal, DecodeError> {
    Ok(match reader.byte()? {
        0 => Refusal::MismatchedSize,
        1 => Refusal::MismatchedValues,
        2 => Refusal::MismatchedNumber,
        3 => Refusal::Empty,
        4 => Refusal::MismatchedRemoval,
        5 => Refusal::Unknown,
        6 => Refusal::MismatchedAction,
        7 => Refusal::DuplicateRank(reader.small("rank")?),
        8 => Refusal::InvalidRank(reader.small("rank")?),
        9 => Refusal::Exists(reader.ranks()?),
        number => return Err(DecodeError::UnknownNumber { what: "refusal", number: number.into() }),
    })
}

#[cfg(test)]
#[path = "down_tests.rs"]
mod tests;
