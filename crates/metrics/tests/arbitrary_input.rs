//! Property tests with random bytes and with lines assembled from fragments of real formats: parsing never panics, does
//! not depend on how the input is split, and memory stays bounded.

use corro_metrics::query::{CurveQuery, RankSelection};
use corro_metrics::{Curves, MetricStream};
use proptest::prelude::*;

fn read(pieces: &[&[u8]]) -> Curves {
    let (mut curves, mut stream) = (Curves::default(), MetricStream::log(None, true));
    pieces.iter().for_each(|piece| stream.push(piece, None, &mut curves));
    stream.finish(&mut curves);
    curves
}

fn all(curves: &Curves) -> usize {
    let query = CurveQuery { names: Vec::new(), ranks: RankSelection::All, points: 100, after: None };
    curves.query(&query, 1).series.len()
}

/// Fragments of lines, valid and invalid.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "loss",
        "Epoch",
        " ",
        ": ",
        "=",
        "1/2",
        "[",
        "]",
        "|",
        "%|",
        "━━",
        " - ",
        "\r",
        "\n",
        "\x08",
        "\x1b[1m",
        "\x1b",
        "{",
        "}",
        "'",
        "\"",
        "nan",
        "inf",
        "-",
        "1e999",
        "1.5",
        "0",
        "/",
        "it/s",
        "ms/step",
        "step",
        "rank",
        "[1,0]<stdout>:",
        "tensor(",
        "é",
        "Test set: ",
        "{\"corro\":{\"step\":",
        "(",
        ")",
        "#",
        ",",
        "é1",
        "12it [",
        "Unknown",
        "99999999999999999999",
    ];
    prop_oneof![4 => prop::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)]
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        all(&read(&[&bytes]));
    }

    #[test]
    fn plausible_lines_parse_the_same_however_they_are_split(
        pieces in proptest::collection::vec(piece(), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = pieces.concat().into_bytes();
        let at = cut.index(log.len() + 1);
        let (whole, cut) = (read(&[&log]), read(&[&log[..at], &log[at..]]));
        prop_assert_eq!(whole.seq(), cut.seq());
        prop_assert_eq!(all(&whole), all(&cut));
    }
}

#[test]
fn the_number_of_curves_is_bounded() {
    let mut log = String::new();
    for name in 0..3_000 {
        log += &format!("step=1 loss_{name}=1\nloss_{name}=2\n");
    }
    assert!(read(&[log.as_bytes()]).iter().count() <= 1024);
}
