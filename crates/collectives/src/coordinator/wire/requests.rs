//! Encoding of messages from workers to the coordinator.

use super::{DecodeError, Reader, put, put_list, put_scales, put_text, scales};
use crate::coordinator::message::{RequestItem, ToCoordinator};
use crate::coordinator::request::{Kind, Request, SetId};
use crate::{Dtype, ReduceOp};

/// Appends a message to a frame.
pub fn encode_to_coordinator(message: &ToCoordinator, out: &mut Vec<u8>) {
    match message {
        ToCoordinator::CacheHit(id) => {
            out.push(0);
            put(out, *id);
        }
        ToCoordinator::Submit { grouped, items } => {
            out.push(if *grouped { 2 } else { 1 });
            put(out, items.len() as u64);
            items.iter().for_each(|item| put_submitted(out, item));
        }
        ToCoordinator::Resubmit { grouped, items } => {
            out.push(if *grouped { 10 } else { 9 });
            put(out, items.len() as u64);
            items.iter().for_each(|item| put_submitted(out, item));
        }
        ToCoordinator::Barrier(generation) => {
            out.push(3);
            put(out, *generation);
        }
        ToCoordinator::Join(generation) => {
            out.push(4);
            put(out, *generation);
        }
        ToCoordinator::RegisterSets(sets) => {
            out.push(5);
            put(out, sets.len() as u64);
            sets.iter().for_each(|ranks| put_list(out, ranks));
        }
        ToCoordinator::AddSet(ranks) => {
            out.push(6);
            put_list(out, ranks);
        }
        ToCoordinator::RemoveSet(generation) => {
            out.push(7);
            put(out, *generation);
        }
        ToCoordinator::Shutdown => out.push(8),
    }
}

/// Passes each message of the frame to `each`, in order; stops at the first malformed one.
pub fn decode_to_coordinator(frame: &[u8], mut each: impl FnMut(ToCoordinator)) -> Result<(), DecodeError> {
    let mut reader = Reader(frame);
    while !reader.is_empty() {
        each(message(&mut reader)?);
    }
    Ok(())
}

fn message(reader: &mut Reader) -> Result<ToCoordinator, DecodeError> {
    Ok(match reader.byte()? {
        0 => ToCoordinator::CacheHit(reader.number()?),
        grouped @ (1 | 2) => ToCoordinator::Submit { grouped: grouped == 2, items: reader.list(submitted)? },
        3 => ToCoordinator::Barrier(reader.number()?),
        4 => ToCoordinator::Join(reader.number()?),
        5 => ToCoordinator::RegisterSets(reader.list(Reader::ranks)?),
        6 => ToCoordinator::AddSet(reader.ranks()?),
        7 => ToCoordinator::RemoveSet(reader.number()?),
        8 => ToCoordinator::Shutdown,
        grouped @ (9 | 10) => ToCoordinator::Resubmit { grouped: grouped == 10, items: reader.list(submitted)? },
        number => return Err(DecodeError::UnknownNumber { what: "message", number: number.into() }),
    })
}

fn put_submitted(out: &mut Vec<u8>, item: &RequestItem) {
    match item {
        RequestItem::Cached(id) => {
            out.push(1);
            put(out, *id);
        }
        RequestItem::Full(generation, request) => {
            out.push(0);
            put(out, *generation);
            out.extend_from_slice(&[request.kind as u8, request.dtype as u8, request.op as u8]);
            // Zigzag encoding: -1, the CPU, takes one byte.
            let device = i64::from(request.device);
            put(out, ((device << 1) ^ (device >> 63)) as u64);
            put(out, request.root.into());
            put_scales(out, [request.prescale, request.postscale]);
            put_text(out, &request.name);
            put_list(out, &request.shape);
            put_list(out, &request.splits);
        }
    }
}

fn submitted(reader: &mut Reader) -> Result<RequestItem, DecodeError> {
    if reader.flag()? {
        return Ok(RequestItem::Cached(reader.number()?));
    }
    let generation = reader.number()?;
    let [kind, dtype, op] = [reader.byte()?, reader.byte()?, reader.byte()?];
    let unknown = |what, number: u8| DecodeError::UnknownNumber { what, number: number.into() };
    let device = reader.number()?;
    let device = (device >> 1) as i64 ^ -((device & 1) as i64);
    let device =
        i32::try_from(device).map_err(|_| DecodeError::UnknownNumber { what: "device", number: device as u64 })?;
    let root = reader.small("rank")?;
    let [prescale, postscale] = scales(reader)?;
    Ok(RequestItem::Full(
        generation,
        Box::new(Request {
            set: SetId::GLOBAL,
            kind: Kind::from_number(kind).ok_or_else(|| unknown("kind", kind))?,
            name: reader.text()?,
            dtype: Dtype::from_number(dtype).ok_or_else(|| unknown("dtype", dtype))?,
            shape: reader.numbers()?,
            root,
            device,
            prescale,
            postscale,
            op: ReduceOp::from_number(op).ok_or_else(|| unknown("reduce op", op))?,
            splits: reader.numbers()?,
        }),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_request() -> impl Strategy<Value = Request> {
        let plain = (0usize..8, 0usize..11, 0usize..6, any::<i32>(), any::<u32>());
        let rest =
            (any::<String>(), any::<Vec<u64>>(), any::<Vec<u64>>(), 0.0..9f64, prop_oneof![Just(1.0), 0.1..2f64]);
        (plain, rest).prop_map(|((kind, dtype, op, device, root), (name, shape, splits, prescale, postscale))| {
            Request {
                set: SetId::GLOBAL,
                kind: Kind::ALL[kind],
                name: name.into(),
                dtype: Dtype::ALL[dtype],
                shape,
                root,
                device,
                prescale,
                postscale,
                op: ReduceOp::ALL[op],
                splits,
            }
        })
    }

    fn any_submitted() -> impl Strategy<Value = RequestItem> {
        prop_oneof![
            any::<u64>().prop_map(RequestItem::Cached),
            (any::<u64>(), any_request())
                .prop_map(|(generation, request)| RequestItem::Full(generation, Box::new(request))),
        ]
    }

    fn any_message() -> impl Strategy<Value = ToCoordinator> {
        prop_oneof![
            any::<u64>().prop_map(ToCoordinator::CacheHit),
            (any::<bool>(), prop::collection::vec(any_submitted(), 0..5))
                .prop_map(|(grouped, items)| ToCoordinator::Submit { grouped, items }),
            (any::<bool>(), prop::collection::vec(any_submitted(), 0..5))
                .prop_map(|(grouped, items)| ToCoordinator::Resubmit { grouped, items }),
            any::<u64>().prop_map(ToCoordinator::Barrier),
            any::<u64>().prop_map(ToCoordinator::Join),
            any::<Vec<Vec<u32>>>().prop_map(ToCoordinator::RegisterSets),
            any::<Vec<u32>>().prop_map(ToCoordinator::AddSet),
            any::<u64>().prop_map(ToCoordinator::RemoveSet),
            Just(ToCoordinator::Shutdown),
        ]
    }

    proptest! {
        #[test]
        fn messages_round_trip(messages in prop::collection::vec(any_message(), 0..6)) {
            let mut frame = Vec::new();
            messages.iter().for_each(|message| encode_to_coordinator(message, &mut frame));
            let mut back = Vec::new();
            decode_to_coordinator(&frame, |message| back.push(message)).expect("an encoded message decodes");
            prop_assert_eq!(back, messages);
        }

        #[test]
        fn arbitrary_bytes_never_panic(frame in any::<Vec<u8>>()) {
            let mut frame_again = Vec::new();
            let whole = decode_to_coordinator(&frame, |message| encode_to_coordinator(&message, &mut frame_again));
            if whole.is_ok() {
                decode_to_coordinator(&frame_again, |_| ()).expect("an encoded message decodes");
            }
        }

        #[test]
        fn damaged_frames_never_panic(messages in prop::collection::vec(any_message(), 1..3), at: usize, to: u8, cut: usize) {
            let mut frame = Vec::new();
            messages.iter().for_each(|message| encode_to_coordinator(message, &mut frame));
            let n = frame.len();
            frame[at % n] = to;
            frame.truncate(cut % n + 1);
            let _ = decode_to_coordinator(&frame, |_| ());
        }
    }
}
