//! The table `[submit]` of a project file: options of `corro submit` that every submission of the project has, unless its command line says otherwise.

use std::collections::BTreeMap;

use corro_model::batchai::Priority;

use super::toml_table::{TableReader, TomlProblem};

/// Values of `[submit]`. `None` and empty lists mean: not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmitOptions {
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// Number of ranks on all nodes together.
    pub processes: Option<u32>,
    /// Kind of job, such as `horovod`.
    pub kind: Option<String>,
    /// Directory to send, relative to the project file.
    pub dir: Option<String>,
    /// Container image.
    pub image: Option<String>,
    pub gpus: Option<u32>,
    pub cores: Option<u32>,
    /// Size with its unit, such as `16GiB`.
    pub memory: Option<String>,
    /// Environment variables of the job.
    pub env: BTreeMap<String, String>,
    /// Python requirements, as pip takes them.
    pub pip: Vec<String>,
    pub venv: Option<String>,
    pub conda_file: Option<String>,
    pub priority: Option<Priority>,
    /// How often a failed job is run again.
    pub retry: Option<u32>,
    /// Longest run time with its unit, such as `2h`.
    pub time: Option<String>,
    /// Shares to mount.
    pub mount: Vec<String>,
    /// URL to which the server posts, or the variable that holds it.
    pub webhook: Option<String>,
    /// Events that are posted.
    pub webhook_on: Vec<String>,
    /// Variable with the key of the signature.
    pub webhook_secret: Option<String>,
}

impl SubmitOptions {
    /// Reads the table; an unknown key is an error.
    pub fn read(mut table: TableReader<'_>) -> Result<SubmitOptions, TomlProblem> {
        let options = SubmitOptions {
            nodes: table.count("nodes", 1)?,
            processes: table.count("processes", 1)?,
            kind: table.text("kind")?,
            dir: table.text("dir")?,
            image: table.text("image")?,
            gpus: table.count("gpus", 0)?,
            cores: table.count("cores", 1)?,
            memory: table.text("memory")?,
            env: table.texts_by_name("env")?,
            pip: table.texts("pip")?,
            venv: table.text("venv")?,
            conda_file: table.text("conda_file")?,
            priority: table.one_of(
                "priority",
                &[("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)],
            )?,
            retry: table.count("retry", 0)?,
            time: table.text("time")?,
            mount: table.texts("mount")?,
            webhook: table.text("webhook")?,
            webhook_on: table.texts("webhook_on")?,
            webhook_secret: table.text("webhook_secret")?,
        };
        table.finish()?;
        Ok(options)
    }
}
