#![no_main]
//! Coverage-guided fuzzing of `targets::documents`.

#[path = "../targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::documents(data));
