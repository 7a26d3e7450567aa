//! Tests of the cache, with files in place of environments.

use std::fs;

use super::*;

const NO_LIMITS: CacheLimits = CacheLimits { max_environments: 100, max_bytes: u64::MAX };

fn key(number: u8) -> EnvironmentKey {
    EnvironmentKey::new(&[number; 32])
}

fn cache(base: &tempfile::TempDir, limits: CacheLimits) -> PythonCache {
    PythonCache::open(&base.path().join("environments"), limits).expect("its parent is there")
}

/// Takes the directory of a missing environment and puts a file of this size into it.
fn begin(cache: &PythonCache, key: &EnvironmentKey, bytes: usize) -> UnfinishedEnvironment {
    let Lookup::Missing(unfinished) = cache.look_up(key).expect("it can be read") else { panic!("it is there") };
    fs::create_dir(unfinished.environment()).expect("a directory");
    fs::write(unfinished.environment().join("package"), vec![1; bytes]).expect("a file");
    unfinished
}

fn make(cache: &PythonCache, key: &EnvironmentKey, bytes: usize) -> CachedEnvironment {
    let unfinished = begin(cache, key, bytes);
    cache.finish(key, unfinished).expect("it can be recorded").expect("it stays").0
}

/// Whether the cache has it, without marking it as used.
fn has(cache: &PythonCache, key: &EnvironmentKey) -> bool {
    cache.record(key).is_some()
}

#[test]
fn an_environment_is_made_once() {
    let base = tempfile::tempdir().expect("a temporary directory");
    let (cache, other) = (cache(&base, NO_LIMITS), cache(&base, NO_LIMITS));
    let unfinished = begin(&cache, &key(1), 10);
    let place = unfinished.environment();
    assert!(matches!(other.look_up(&key(1)).expect("it can be read"), Lookup::Busy), "its maker is at work");
    assert!(matches!(other.look_up(&key(2)).expect("it can be read"), Lookup::Missing(_)), "another key is free");
    let (made, bytes) = cache.finish(&key(1), unfinished).expect("recorded").expect("it stays");
    assert!(bytes > 0, "{bytes}");
    let Lookup::Complete(found) = other.look_up(&key(1)).expect("it can be read") else { panic!("it is complete") };
    assert_eq!((found.environment(), made.environment()), (place.clone(), place.clone()));
    drop((found, made));
    let Lookup::Complete(found) = other.look_up(&key(1)).expect("it can be read") else { panic!("it is complete") };
    assert!(found.environment().join("package").exists() && found.directory().starts_with(cache.root()));
}

#[test]
fn an_environment_whose_maker_was_killed_is_not_used() {
    let base = tempfile::tempdir().expect("a temporary directory");
    let cache = cache(&base, NO_LIMITS);
    // A killed process releases its locks and removes nothing.
    let abandoned = begin(&cache, &key(1), 10);
    let half_done = abandoned.environment();
    drop(abandoned);
    assert!(half_done.exists());
    let again = begin(&cache, &key(1), 10);
    assert!(!half_done.exists() && again.environment() != half_done, "{}", half_done.display());
    drop((again, begin(&cache, &key(2), 10), make(&cache, &key(3), 10)));
    let at_work = begin(&cache, &key(4), 10);
    cache.remove_unfinished().expect("swept");
    let mut left: Vec<String> = fs::read_dir(cache.root())
        .expect("a directory")
        .map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, [key(3).0, format!("{}.lock", key(3).0), key(4).0, format!("{}.lock", key(4).0)]);
    cache.finish(&key(4), at_work).expect("recorded").expect("it stays");
}

#[test]
fn a_failed_environment_leaves_nothing() {
    let base = tempfile::tempdir().expect("a temporary directory");
    let cache = cache(&base, NO_LIMITS);
    let failed = begin(&cache, &key(1), 10);
    cache.discard(&key(1), failed).expect("removed");
    assert_eq!(fs::read_dir(cache.root()).expect("a directory").count(), 0);
}

#[test]
fn the_cache_stays_within_its_bounds_and_keeps_what_is_in_use() {
    let base = tempfile::tempdir().expect("a temporary directory");
    let two = cache(&base, CacheLimits { max_environments: 2, max_bytes: u64::MAX });
    let used = make(&two, &key(1), 10);
    drop(make(&two, &key(2), 10));
    drop(make(&two, &key(3), 10));
    assert_eq!([1, 2, 3].map(|number| has(&two, &key(number))), [true, false, true]);
    // Nothing can be removed for it: both others are in use.
    let Lookup::Complete(also_used) = two.look_up(&key(3)).expect("it can be read") else { panic!("it is complete") };
    drop(make(&two, &key(4), 10));
    assert_eq!([1, 3, 4].map(|number| has(&two, &key(number))), [true, true, true]);
    drop((used, also_used));
    // The last use counts, not when they were made.
    drop(two.look_up(&key(1)).expect("it can be read"));
    drop(make(&two, &key(5), 10));
    assert_eq!([1, 3, 4, 5].map(|number| has(&two, &key(number))), [true, false, false, true]);
}

#[test]
fn bytes_are_bounded_too() {
    let base = tempfile::tempdir().expect("a temporary directory");
    let small = cache(&base, CacheLimits { max_environments: 100, max_bytes: 300_000 });
    drop(make(&small, &key(1), 100_000));
    drop(make(&small, &key(2), 100_000));
    drop(make(&small, &key(3), 150_000));
    assert_eq!([1, 2, 3].map(|number| has(&small, &key(number))), [false, true, true]);
    // Larger than the whole cache: it serves the job that made it.
    let large = make(&small, &key(4), 1_000_000);
    assert_eq!([2, 3, 4].map(|number| has(&small, &key(number))), [false, false, true]);
    assert!(large.environment().join("package").exists());
}
