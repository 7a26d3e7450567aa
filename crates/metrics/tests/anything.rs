//! Logs that nobody meant: any bytes, and lines made of the pieces that the forms are made of. Nothing panics, whatever is cut
//! wherever, and what is kept has a bound.

use corro_metrics::answer::{Question, Ranks};
use corro_metrics::{Curves, Stream};
use proptest::prelude::*;

fn read(pieces: &[&[u8]]) -> Curves {
    let (mut curves, mut stream) = (Curves::default(), Stream::log(None, true));
    pieces.iter().for_each(|piece| stream.push(piece, None, &mut curves));
    stream.finish(&mut curves);
    curves
}

fn all(curves: &Curves) -> usize {
    let question = Question { names: Vec::new(), ranks: Ranks::All, points: 100, after: None };
    curves.answer(&question, 1).series.len()
}

/// Pieces of lines, good and bad.
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
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        all(&read(&[&bytes]));
    }

    #[test]
    fn lines_like_ours_are_read_however_they_are_cut(
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
fn a_job_that_makes_up_names_is_kept_within_bounds() {
    let mut log = String::new();
    for name in 0..3_000 {
        log += &format!("step=1 loss_{name}=1\nloss_{name}=2\n");
    }
    assert!(read(&[log.as_bytes()]).iter().count() <= 1024);
}
