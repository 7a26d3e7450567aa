//! Round trips of messages to workers, and decoding of arbitrary and damaged frames.

use proptest::prelude::*;

use super::*;

fn any_terms() -> impl Strategy<Value = FusionKey> {
    let numbers = (any::<u64>(), 0usize..8, 0usize..11, 0usize..6, any::<u32>(), any::<bool>());
    (numbers, 0.1..9f64, prop_oneof![Just(1.0), 0.1..2f64]).prop_map(
        |((generation, kind, dtype, op, root, on_cpu), prescale, postscale)| FusionKey {
            generation,
            kind: Kind::ALL[kind],
            dtype: Dtype::ALL[dtype],
            op: ReduceOp::ALL[op],
            root,
            on_cpu,
            prescale,
            postscale,
        },
    )
}

fn any_item() -> impl Strategy<Value = ResponseItem> {
    let new = (any_terms(), any::<String>(), any::<Vec<u64>>(), any::<Vec<u64>>(), any::<Option<u64>>());
    prop_oneof![
        (0..u64::MAX - 2).prop_map(ResponseItem::Cached),
        new.prop_map(|(key, name, shape, rows, id)| {
            ResponseItem::New(Arc::new(Response { key, name: name.into(), shape, rows }), id)
        }),
    ]
}

fn any_set_error() -> impl Strategy<Value = ProcessSetError> {
    prop_oneof![
        Just(ProcessSetError::MismatchedSize),
        Just(ProcessSetError::MismatchedValues),
        Just(ProcessSetError::MismatchedNumber),
        Just(ProcessSetError::Empty),
        Just(ProcessSetError::MismatchedRemoval),
        Just(ProcessSetError::Unknown),
        Just(ProcessSetError::MismatchedAction),
        any::<u32>().prop_map(ProcessSetError::DuplicateRank),
        any::<u32>().prop_map(ProcessSetError::InvalidRank),
        any::<Vec<u32>>().prop_map(ProcessSetError::Exists),
    ]
}

fn any_set() -> impl Strategy<Value = ProcessSet> {
    (any::<u32>(), any::<u64>(), any::<Vec<u32>>()).prop_map(|(id, generation, ranks)| ProcessSet {
        id: SetId(id),
        generation,
        ranks,
    })
}

fn any_message() -> impl Strategy<Value = ToWorker> {
    let text = || any::<String>().prop_map(Arc::<str>::from);
    prop_oneof![
        (prop::collection::vec(any_item(), 0..4), any::<Vec<u32>>())
            .prop_map(|(items, zeros)| ToWorker::Execute { items: items.into(), zeros }),
        (any::<u64>(), prop::collection::vec(text(), 0..4), text())
            .prop_map(|(generation, names, text)| ToWorker::Error { generation, names, text }),
        any::<u64>().prop_map(ToWorker::Barrier),
        (any::<u64>(), any::<u32>()).prop_map(|(generation, last)| ToWorker::Joined { generation, last }),
        any::<Vec<u64>>().prop_map(|ids| ToWorker::Evicted(ids.into())),
        any::<u64>().prop_map(ToWorker::Resend),
        prop::collection::vec(any_set(), 0..4).prop_map(|sets| ToWorker::SetsAdded(sets.into())),
        any::<u64>().prop_map(ToWorker::SetRemoved),
        any_set_error().prop_map(ToWorker::SetRefused),
        (any::<u64>(), 0.0..100f64)
            .prop_map(|(fusion_threshold, cycle_time_ms)| ToWorker::Tune(Tuning { fusion_threshold, cycle_time_ms })),
        any::<u32>().prop_map(|rank| ToWorker::Shutdown(ShutdownReason::Requested { rank })),
        (any::<u32>(), text()).prop_map(|(rank, text)| ToWorker::Shutdown(ShutdownReason::Lost { rank, text })),
        Just(ToWorker::Shutdown(ShutdownReason::Stalled)),
    ]
}

proptest! {
    #[test]
    fn messages_round_trip(messages in prop::collection::vec(any_message(), 0..6)) {
        let mut frame = Vec::new();
        messages.iter().for_each(|message| encode_to_worker(message, &mut frame));
        let mut back = Vec::new();
        decode_to_worker(&frame, |message| back.push(message)).expect("an encoded message decodes");
        prop_assert_eq!(back, messages);
    }

    #[test]
    fn arbitrary_bytes_never_panic(frame in any::<Vec<u8>>()) {
        let mut n_messages = 0usize;
        let _ = decode_to_worker(&frame, |_| n_messages += 1);
        prop_assert!(n_messages <= frame.len());
    }

    #[test]
    fn damaged_frames_never_panic(messages in prop::collection::vec(any_message(), 1..3), at: usize, to: u8, cut: usize) {
        let mut frame = Vec::new();
        messages.iter().for_each(|message| encode_to_worker(message, &mut frame));
        let n = frame.len();
        frame[at % n] = to;
        frame.truncate(cut % n + 1);
        let _ = decode_to_worker(&frame, |_| ());
    }
}

#[test]
fn a_cached_tensor_takes_four_bytes() {
    let mut frame = Vec::new();
    encode_to_worker(
        &ToWorker::Execute { items: vec![ResponseItem::Cached(200)].into(), zeros: Vec::new() },
        &mut frame,
    );
    assert_eq!(frame.len(), 4);
}
