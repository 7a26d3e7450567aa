//! Every state with every action, as in the table of the service's documentation.

use super::*;

const NOW: i64 = 1000;

fn leased(id: &str) -> Lease {
    Lease::Leased { id: id.to_owned(), term: Term::Infinite }
}

fn fixed(id: &str, until: i64) -> Lease {
    Lease::Leased { id: id.to_owned(), term: Term::Fixed { seconds: 20, until } }
}

fn states() -> [Lease; 6] {
    let id = || "a".to_owned();
    [
        Lease::Available,
        leased("a"),
        fixed("a", NOW + 15),
        Lease::Breaking { id: id(), until: NOW + 5 },
        Lease::Broken { id: id() },
        Lease::Expired { id: id(), seconds: 20 },
    ]
}

#[test]
fn every_state_and_every_action() {
    let text = |text: &str| text.to_owned();
    let broken = || Lease::Broken { id: text("a") };
    let present = Err("LeaseAlreadyPresent");
    let mismatch = Err("LeaseIdMismatchWithLeaseOperation");
    let absent = Err("LeaseNotPresentWithLeaseOperation");
    let renewed = Err("LeaseIsBrokenAndCannotBeRenewed");
    let table = [
        (
            Action::Acquire { proposed: text("b"), seconds: Some(20) },
            [
                Ok(fixed("b", NOW + 20)),
                present.clone(),
                present.clone(),
                present.clone(),
                Ok(fixed("b", NOW + 20)),
                Ok(fixed("b", NOW + 20)),
            ],
        ),
        (
            Action::Acquire { proposed: text("a"), seconds: None },
            [
                Ok(leased("a")),
                Ok(leased("a")),
                Ok(leased("a")),
                Err("LeaseIsBreakingAndCannotBeAcquired"),
                Ok(leased("a")),
                Ok(leased("a")),
            ],
        ),
        (
            Action::Renew { id: text("a") },
            [
                mismatch.clone(),
                Ok(leased("a")),
                Ok(fixed("a", NOW + 20)),
                renewed.clone(),
                renewed,
                Ok(fixed("a", NOW + 20)),
            ],
        ),
        (Action::Renew { id: text("b") }, std::array::from_fn(|_| mismatch.clone())),
        (
            Action::Change { id: text("a"), proposed: text("b") },
            [
                absent.clone(),
                Ok(leased("b")),
                Ok(fixed("b", NOW + 15)),
                Err("LeaseIsBreakingAndCannotBeChanged"),
                absent.clone(),
                absent.clone(),
            ],
        ),
        (
            Action::Change { id: text("c"), proposed: text("b") },
            [absent.clone(), mismatch.clone(), mismatch.clone(), mismatch.clone(), absent.clone(), absent.clone()],
        ),
        (
            Action::Release { id: text("a") },
            [
                mismatch.clone(),
                Ok(Lease::Available),
                Ok(Lease::Available),
                Ok(Lease::Available),
                Ok(Lease::Available),
                Ok(Lease::Available),
            ],
        ),
        (Action::Release { id: text("b") }, std::array::from_fn(|_| mismatch.clone())),
        (
            Action::Break { after: None },
            [
                absent.clone(),
                Ok(broken()),
                Ok(Lease::Breaking { id: text("a"), until: NOW + 15 }),
                Ok(Lease::Breaking { id: text("a"), until: NOW + 5 }),
                Ok(broken()),
                Ok(broken()),
            ],
        ),
        (
            Action::Break { after: Some(3) },
            [
                absent.clone(),
                Ok(Lease::Breaking { id: text("a"), until: NOW + 3 }),
                Ok(Lease::Breaking { id: text("a"), until: NOW + 3 }),
                Ok(Lease::Breaking { id: text("a"), until: NOW + 3 }),
                Ok(broken()),
                Ok(broken()),
            ],
        ),
        (
            Action::Break { after: Some(60) },
            [
                absent,
                Ok(Lease::Breaking { id: text("a"), until: NOW + 60 }),
                Ok(Lease::Breaking { id: text("a"), until: NOW + 15 }),
                Ok(Lease::Breaking { id: text("a"), until: NOW + 5 }),
                Ok(broken()),
                Ok(broken()),
            ],
        ),
    ];
    for (action, row) in table {
        for (state, expected) in states().into_iter().zip(row) {
            assert_eq!(state.clone().apply(action.clone(), NOW), expected, "{state:?} {action:?}");
        }
    }
}

#[test]
fn a_lease_is_loaded_as_stored_and_expires() {
    for state in states() {
        let mut properties = Properties::default();
        state.store(&mut properties);
        assert_eq!(Lease::load(&properties, NOW), state);
        let mut copy = Properties::default();
        Lease::copy(&properties, &mut copy);
        assert_eq!(copy, properties);
        let later = match &state {
            Lease::Leased { term: Term::Fixed { .. }, .. } => "expired",
            Lease::Breaking { .. } => "broken",
            other => other.state(),
        };
        assert_eq!(Lease::load(&properties, NOW + 100).state(), later);
        // The clock was set back: the stored end does not count.
        assert_eq!(Lease::load(&properties, NOW - 100_000).state(), later);
    }
    for text in ["leased", "leased a", "leased a x y", "breaking a soon", "broken", "what a b", ""] {
        let mut properties = Properties::default();
        assert!(properties.set("lease", text));
        assert_eq!(Lease::load(&properties, NOW), Lease::Available, "{text}");
    }
}
