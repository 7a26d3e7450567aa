//! Nodes as real agents of a real server: how they are set up, what is mounted on them, who logs in. One room a question.

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
