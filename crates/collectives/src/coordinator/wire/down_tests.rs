//! Every message to a rank comes back, and no bytes break the reader.

use proptest::prelude::*;

use super::*;

fn any_terms() -> impl Strategy<Value = Terms> {
    let numbers = (any::<u64>(), 0usize..8, 0usize..11, 0usize..6, any::<u32>(), any::<bool>());
    (numbers, 0.1..9f64, prop_oneof![Just(1.0), 0.1..2f64]).prop_map(
        |((area, kind, dtype, op, root, on_cpu), prescale, postscale)| Terms {
            area,
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

fn any_item() -> impl Strategy<Value = Item> {
    let new = (any_terms(), any::<String>(), any::<Vec<u64>>(), any::<Vec<u64>>(), any::<Option<u64>>());
    prop_oneof![
        (0..u64::MAX - 2).prop_map(Item::Cached),
        new.prop_map(|(terms, name, shape, rows, id)| {
            Item::New(Arc::new(Agreed { terms, name: name.into(), shape, rows }), id)
        }),
    ]
}

fn any_refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::MismatchedSize),
        Just(Refusal::MismatchedValues),
        Just(Refusal::MismatchedNumber),
        Just(Refusal::Empty),
        Just(Refusal::MismatchedRemoval),
        Just(Refusal::Unknown),
        Just(Refusal::MismatchedAction),
        any::<u32>().prop_map(Refusal::DuplicateRank),
        any::<u32>().prop_map(Refusal::InvalidRank),
        any::<Vec<u32>>().prop_map(Refusal::Exists),
    ]
}

fn any_set() -> impl Strategy<Value = SetMade> {
    (any::<u32>(), any::<u64>(), any::<Vec<u32>>()).prop_map(|(id, area, ranks)| SetMade { id: SetId(id), area, ranks })
}

fn any_message() -> impl Strategy<Value = ToMember> {
    let text = || any::<String>().prop_map(Arc::<str>::from);
    prop_oneof![
        (prop::collection::vec(any_item(), 0..4), any::<Vec<u32>>())
            .prop_map(|(items, zeros)| ToMember::Perform { items: items.into(), zeros }),
        (any::<u64>(), prop::collection::vec(text(), 0..4), text()).prop_map(|(area, names, text)| ToMember::Error {
            area,
            names,
            text
        }),
        any::<u64>().prop_map(ToMember::Barrier),
        (any::<u64>(), any::<u32>()).prop_map(|(area, last)| ToMember::Joined { area, last }),
        any::<Vec<u64>>().prop_map(|ids| ToMember::Evicted(ids.into())),
        any::<u64>().prop_map(ToMember::Resend),
        prop::collection::vec(any_set(), 0..4).prop_map(|sets| ToMember::SetsAdded(sets.into())),
        any::<u64>().prop_map(ToMember::SetRemoved),
        any_refusal().prop_map(ToMember::SetRefused),
        (any::<u64>(), 0.0..100f64)
            .prop_map(|(fusion_threshold, cycle_time_ms)| ToMember::Tune(Tuning { fusion_threshold, cycle_time_ms })),
        any::<u32>().prop_map(|rank| ToMember::Shutdown(ShutdownReason::Asked { rank })),
        (any::<u32>(), text()).prop_map(|(rank, text)| ToMember::Shutdown(ShutdownReason::Lost { rank, text })),
        Just(ToMember::Shutdown(ShutdownReason::Stalled)),
    ]
}

proptest! {
    #[test]
    fn messages_come_back(messages in prop::collection::vec(any_message(), 0..6)) {
        let mut frame = Vec::new();
        messages.iter().for_each(|message| encode_to_member(message, &mut frame));
        let mut back = Vec::new();
        decode_to_member(&frame, |message| back.push(message)).expect("what was written can be read");
        prop_assert_eq!(back, messages);
    }

    #[test]
    fn any_bytes_are_read_or_refused(frame in any::<Vec<u8>>()) {
        let mut n_messages = 0usize;
        let _ = decode_to_member(&frame, |_| n_messages += 1);
        prop_assert!(n_messages <= frame.len());
    }

    #[test]
    fn a_broken_frame_is_read_or_refused(messages in prop::collection::vec(any_message(), 1..3), at: usize, to: u8, cut: usize) {
        let mut frame = Vec::new();
        messages.iter().for_each(|message| encode_to_member(message, &mut frame));
        let n = frame.len();
        frame[at % n] = to;
        frame.truncate(cut % n + 1);
        let _ = decode_to_member(&frame, |_| ());
    }
}

#[test]
fn a_known_tensor_takes_four_bytes() {
    let mut frame = Vec::new();
    encode_to_member(&ToMember::Perform { items: vec![Item::Cached(200)].into(), zeros: Vec::new() }, &mut frame);
    assert_eq!(frame.len(), 4);
}
