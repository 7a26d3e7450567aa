//! Checkpoint directories: retention, finding the latest, damaged files.

use super::super::keras::tests::{SCHEDULE, some_weights};
use super::*;

fn a_checkpoint(epoch: usize) -> Checkpoint {
    Checkpoint {
        weights: some_weights(epoch as u64),
        accumulators: some_weights(1000 + epoch as u64),
        iterations: 1563 * epoch as u64,
        epoch,
        seed: u64::MAX - 1,
        ranks: 4,
        precision: "bf16".to_owned(),
        training: "{\"batch\":32}".to_owned(),
        schedule: SCHEDULE,
    }
}

#[test]
fn the_latest_checkpoint_is_found() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path().join("made/on/the/way");
    let none = find_latest(&directory).expect("no directory is an empty one");
    assert!(none.checkpoint.is_none() && none.skipped.is_empty());
    for epoch in [2, 10, 9] {
        let path = write(&directory, &a_checkpoint(epoch), None).expect("it can be written");
        assert_eq!(path, directory.join(format!("checkpoint-{epoch}.h5")));
    }
    let last = find_latest(&directory).expect("they can be listed");
    assert_eq!(last.checkpoint, Some((directory.join("checkpoint-10.h5"), a_checkpoint(10))));
    assert!(last.skipped.is_empty());
    assert_eq!(
        super::super::keras::read(&directory.join("checkpoint-2.h5")).expect("a checkpoint is a model"),
        a_checkpoint(2).weights
    );
}

#[test]
fn damaged_checkpoints_are_skipped_with_the_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let paths: Vec<PathBuf> =
        (1..=4).map(|epoch| write(directory, &a_checkpoint(epoch), None).expect("it can be written")).collect();
    // A truncated file, a changed weight, and a model without training state.
    let half = fs::metadata(&paths[3]).expect("it is there").len() / 2;
    fs::File::options().write(true).open(&paths[3]).and_then(|file| file.set_len(half)).expect("it can be cut");
    let mut bytes = fs::read(&paths[2]).expect("it is there");
    let middle = bytes.len() / 4;
    bytes[middle] ^= 1;
    fs::write(&paths[2], bytes).expect("it can be changed");
    super::super::keras::write(&paths[1], &some_weights(2), SCHEDULE).expect("a model");

    let last = find_latest(directory).expect("they can be listed");
    assert_eq!(last.checkpoint, Some((paths[0].clone(), a_checkpoint(1))));
    let reasons: Vec<String> = last.skipped.iter().map(ToString::to_string).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons[0].starts_with(&format!("{} is damaged or not a Keras model", paths[3].display())), "{reasons:?}");
    assert_eq!(reasons[1], format!("{} is damaged: its checksum does not match", paths[2].display()));
    assert!(reasons[2].starts_with(&format!("{} is a model, not a checkpoint", paths[1].display())), "{reasons:?}");
}

#[test]
fn the_newest_are_kept_and_partial_files_removed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let others =
        [".checkpoint-x.h5.partial", "checkpoint-007.h5", "checkpoint-1.h5.old", "checkpoint-50.h5", "notes.txt"];
    for name in others.into_iter().chain([".checkpoint-1.h5.partial", ".checkpoint-12.h5.partial"]) {
        fs::write(directory.join(name), "half").expect("a file");
    }
    let check = |epoch: usize, keep: Option<usize>, kept: &[usize]| {
        write(directory, &a_checkpoint(epoch), keep).expect("it can be written");
        let mut there = file_names(directory).expect("a directory");
        there.sort();
        let mut wanted: Vec<String> =
            kept.iter().map(|epoch| file_name(*epoch)).chain(others.map(str::to_owned)).collect();
        wanted.sort();
        assert_eq!(there, wanted);
    };
    check(1, None, &[1]);
    check(2, None, &[1, 2]);
    check(9, Some(3), &[1, 2, 9]);
    check(10, Some(2), &[9, 10]);
    check(11, Some(0), &[9, 10, 11]);
    check(12, Some(1), &[12]);
}
