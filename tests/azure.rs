//! The retired service's own clients, unchanged, against a real server with TLS: the command line and the Python libraries of
//! 2018 and later. `scripts/azure-clients` installs them; without them these tests print a notice and are skipped.

mod harness;

#[path = "azure/real.rs"]
mod real;
#[path = "tutorial/runner.rs"]
mod runner;
#[path = "tutorial/texts.rs"]
mod texts;

#[path = "azure/commands.rs"]
mod commands;
#[path = "azure/login.rs"]
mod login;
#[path = "azure/management.rs"]
mod management;
#[path = "azure/reaching.rs"]
mod reaching;
#[path = "azure/tutorial.rs"]
mod tutorial;
