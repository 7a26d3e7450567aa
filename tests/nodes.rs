//! Nodes as real agents of a real server: setup, mounts, logins. One module per topic.

mod harness;

#[path = "nodes/containers.rs"]
mod containers;
#[path = "nodes/forwarding.rs"]
mod forwarding;
#[path = "nodes/login.rs"]
mod login;
#[path = "nodes/setup.rs"]
mod setup;
#[path = "nodes/volumes.rs"]
mod volumes;
