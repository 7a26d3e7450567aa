//! Tests of bad input and failing surroundings: wrong files, wrong names, too much output, broken connections, occupied ports,
//! absent servers. Every error must name the cause and leave everything else working.

mod harness;

#[path = "bad_input/job_files.rs"]
mod job_files;
#[path = "bad_input/outputs.rs"]
mod outputs;
#[path = "bad_input/servers.rs"]
mod servers;
#[path = "bad_input/uploads.rs"]
mod uploads;
