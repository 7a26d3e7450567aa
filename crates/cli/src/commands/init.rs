//! `corro init`: writes a job file and a script of one toolkit, to start from. Never replaces a file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::error::CliError;
use crate::stdio::print;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro init\n  corro init horovod --dir cifar\n\n'corro docs job-file' explains every field of the job file."
)]
pub struct InitArgs {
    /// What the script uses
    #[arg(value_name = "KIND", value_enum, default_value = "custom")]
    kind: Kind,
    /// Directory to write to. It is created
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// PyTorch with torch.distributed
    Pytorch,
    /// Keras with Horovod
    Keras,
    /// PyTorch with Horovod
    Horovod,
    /// A command that runs under mpirun
    Mpi,
    /// A command on one node; Python's standard library
    Custom,
}

const JOB_FILE: &str = "job.yaml";
const SCRIPT: &str = "train.py";

/// Everything of the job file after the toolkit's settings.
const DIRECTORIES: &str = include_str!("init/directories.yaml");

impl Kind {
    fn script(self) -> &'static str {
        match self {
            Kind::Pytorch => include_str!("init/pytorch.py"),
            Kind::Keras => include_str!("init/keras.py"),
            Kind::Horovod => include_str!("init/horovod.py"),
            Kind::Mpi => include_str!("init/mpi.py"),
            Kind::Custom => include_str!("init/custom.py"),
        }
    }

    fn job_file(self) -> String {
        let (node_count, settings) = match self {
            Kind::Pytorch => (2, include_str!("init/pytorch.yaml")),
            Kind::Keras | Kind::Horovod => (2, include_str!("init/horovod.yaml")),
            Kind::Mpi => (2, include_str!("init/mpi.yaml")),
            Kind::Custom => (1, include_str!("init/custom.yaml")),
        };
        let noun = if node_count == 1 { "node" } else { "nodes, which start together" };
        format!(
            "# A job of Corro. 'corro docs job-file' explains every field, and 'corro job validate {JOB_FILE}'\n\
             # checks changes. Paths on shares begin with $AZ_BATCHAI_JOB_MOUNT_ROOT.\n\
             properties:\n  nodeCount: {node_count}  # {noun}\n{settings}{DIRECTORIES}"
        )
    }
}

pub fn run(args: &InitArgs) -> Result<(), CliError> {
    let files = [(JOB_FILE, args.kind.job_file()), (SCRIPT, args.kind.script().to_owned())];
    if let Some((name, _)) = files.iter().find(|(name, _)| args.dir.join(name).symlink_metadata().is_ok()) {
        return Err(CliError::new(format!("{} exists already", args.dir.join(name).display()))
            .hint("write to another directory with --dir, or move the file away"));
    }
    let cannot_write =
        |path: &Path, error: io::Error| CliError::new(format!("cannot write {}", path.display())).cause(error);
    std::fs::create_dir_all(&args.dir).map_err(|error| cannot_write(&args.dir, error))?;
    let mut created: Vec<PathBuf> = Vec::new();
    for (name, text) in &files {
        let path = args.dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let written = file.and_then(|mut file| {
            created.push(path.clone());
            file.write_all(text.as_bytes())
        });
        if let Err(error) = written {
            // A second run must not find half of the first.
            created.iter().for_each(|path| drop(std::fs::remove_file(path)));
            return Err(cannot_write(&path, error));
        }
    }
    let [job_file, script] = [JOB_FILE, SCRIPT].map(|name| {
        let path = args.dir.join(name);
        path.strip_prefix(".").unwrap_or(&path).display().to_string()
    });
    print(format_args!(
        "Wrote {job_file} and {script}.\n\n\
         Try the script:\n  {}\n\
         Run it as a job, on a share named 'work' ('corro docs batchai' shows how to create the rest):\n  \
         corro storage file upload --share-name work --source {script} --account-name ACCOUNT\n  \
         corro batchai job create -n first -f {job_file} -c CLUSTER --storage-account-name ACCOUNT \\\n      \
         -g GROUP -w WORKSPACE -e EXPERIMENT",
        match args.kind {
            Kind::Custom => format!("python3 {script} --epochs 3"),
            _ => format!("corro run -np 2 python3 {script} --epochs 3"),
        }
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file;
    use crate::output::Shape;
    use corro_model::batchai::{JobCreateParameters, ToolType};
    use corro_model::validate;

    #[test]
    fn every_job_file_is_valid() {
        for (kind, toolkit) in [
            (Kind::Pytorch, ToolType::PyTorch),
            (Kind::Keras, ToolType::Horovod),
            (Kind::Horovod, ToolType::Horovod),
            (Kind::Mpi, ToolType::CustomMpi),
            (Kind::Custom, ToolType::Custom),
        ] {
            let dir = tempfile::tempdir().expect("temp dir");
            let dir = dir.path().join("new");
            run(&InitArgs { kind, dir: dir.clone() }).expect("written");
            let file = config_file::load::<JobCreateParameters>(&dir.join(JOB_FILE), Shape::Job).expect("well-formed");
            assert_eq!(file.warnings, [""; 0], "{kind:?}");
            validate::check_job(&file.content.properties).expect("valid");
            assert_eq!(file.content.properties.toolkit(), Some(toolkit));
            assert!(dir.join(SCRIPT).is_file());
        }
    }

    #[test]
    fn no_file_is_replaced() {
        let dir = tempfile::tempdir().expect("temp dir");
        let script = dir.path().join(SCRIPT);
        std::fs::write(&script, "mine").expect("written");
        let error = run(&InitArgs { kind: Kind::Custom, dir: dir.path().to_owned() }).expect_err("it exists");
        assert_eq!(error.message, format!("{} exists already", script.display()));
        assert!(!dir.path().join(JOB_FILE).exists(), "nothing is half done");
        assert_eq!(std::fs::read_to_string(&script).expect("read"), "mine");
    }
}
