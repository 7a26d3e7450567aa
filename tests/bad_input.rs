//! What goes wrong in real life: wrong files, wrong names, too much output, broken connections, servers in the way or
//! gone. Every refusal must say what is wrong and leave everything else working.

mod harness;

#[path = "bad_input/job_files.rs"]
mod job_files;
#[path = "bad_input/outputs.rs"]
mod outputs;
#[path = "bad_input/servers.rs"]
mod servers;
#[path = "bad_input/uploads.rs"]
mod uploads;
