#![no_main]
//! Coverage-guided fuzzing of `targets::job_json`.

#[path = "../targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::job_json(data));
