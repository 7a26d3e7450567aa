//! `corro notebook`, `corro tensorboard`, `corro job port-forward` and `corro job shell` with real processes. Jupyter and TensorBoard are small programs on
//! PATH that do what these commands rely on.

mod harness;

#[path = "notebooks/notebook.rs"]
mod notebook;
#[path = "notebooks/ports.rs"]
mod ports;
#[path = "notebooks/project.rs"]
mod project;
#[path = "notebooks/shell.rs"]
mod shell;
#[path = "notebooks/tensorboard.rs"]
mod tensorboard;
