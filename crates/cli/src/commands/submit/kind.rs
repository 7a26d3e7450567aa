//! The kind of a submitted job: how its processes are started. Detected from the imports of the script unless `--kind` names it. Pure.

use std::fmt;

use clap::ValueEnum;

/// How the processes of a job are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Ranks with the variables of Horovod and torchrun
    Horovod,
    /// Ranks of torch.distributed
    Pytorch,
    /// Ranks of an MPI program, started by mpirun if the nodes have one
    Mpi,
    /// The command once on each node, or as often as --processes says
    Custom,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Horovod => "horovod",
            Kind::Pytorch => "pytorch",
            Kind::Mpi => "mpi",
            Kind::Custom => "custom",
        })
    }
}

/// The kind of a job and the module in its script that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedKind {
    pub kind: Kind,
    /// `None`: the script imports no known module.
    pub module: Option<&'static str>,
}

/// Modules that start as ranks, the most specific first.
const MODULES: [(&str, Kind); 6] = [
    ("horovod", Kind::Horovod),
    ("mpi4py", Kind::Mpi),
    ("torch.distributed", Kind::Pytorch),
    ("accelerate", Kind::Pytorch),
    ("deepspeed", Kind::Pytorch),
    ("lightning", Kind::Pytorch),
];

/// Detects the kind from the text of a Python script.
pub fn detect(script: &str) -> DetectedKind {
    let imports: Vec<&str> = script.lines().filter_map(imported_module).collect();
    for (module, kind) in MODULES {
        let is_imported =
            |name: &&str| **name == *module || name.strip_prefix(module).is_some_and(|r| r.starts_with('.'));
        // `import torch` is enough if the script then calls `torch.distributed.init_process_group`.
        let is_used = module == "torch.distributed" && imports.contains(&"torch") && uses(script, module);
        if imports.iter().any(is_imported) || is_used {
            return DetectedKind { kind, module: Some(module) };
        }
    }
    DetectedKind { kind: Kind::Custom, module: None }
}

/// The module of a line that begins with `import` or `from`. `from torch import distributed` counts as `torch.distributed`.
fn imported_module(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let first_word = |text: &'_ str| text.trim_start().split([' ', '\t', ',', ';', '#']).next().map(str::len);
    if let Some(rest) = line.strip_prefix("import ") {
        let rest = rest.trim_start();
        return rest.get(..first_word(rest)?).filter(|name| !name.is_empty());
    }
    let rest = line.strip_prefix("from ")?.trim_start();
    let module = rest.get(..first_word(rest)?)?;
    let names = rest[module.len()..].trim_start().strip_prefix("import ")?;
    let imports_distributed =
        names.split(['(', ')', ',']).any(|name| name.split_whitespace().next() == Some("distributed"));
    if module == "torch" && imports_distributed { Some("torch.distributed") } else { Some(module) }
}

/// Whether a line that is no comment contains `name`.
fn uses(script: &str, name: &str) -> bool {
    script.lines().any(|line| line.split('#').next().is_some_and(|code| code.contains(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, kind: Kind, module: Option<&str>) {
        let detected = detect(script);
        assert_eq!((detected.kind, detected.module), (kind, module), "{script}");
    }

    #[test]
    fn imports_decide() {
        check("import horovod.keras as hvd\n", Kind::Horovod, Some("horovod"));
        check("import numpy as np\nfrom horovod import torch as hvd", Kind::Horovod, Some("horovod"));
        check("    import horovod.torch as hvd  # later", Kind::Horovod, Some("horovod"));
        check("from mpi4py import MPI", Kind::Mpi, Some("mpi4py"));
        check("import torch.distributed as dist", Kind::Pytorch, Some("torch.distributed"));
        check("from torch import nn, distributed as dist", Kind::Pytorch, Some("torch.distributed"));
        check("import torch\ntorch.distributed.init_process_group()", Kind::Pytorch, Some("torch.distributed"));
        check("import lightning as L", Kind::Pytorch, Some("lightning"));
        check("import horovod.torch as hvd\nimport torch.distributed", Kind::Horovod, Some("horovod"));
    }

    #[test]
    fn a_script_without_a_known_module_is_custom() {
        check("", Kind::Custom, None);
        check("import torch\nprint('torch')  # torch.distributed", Kind::Custom, None);
        check("# import horovod\nimport horovodlike, os", Kind::Custom, None);
        check("text = 'import horovod'\nimport", Kind::Custom, None);
        check("from horovod", Kind::Custom, None);
        check("importhorovod", Kind::Custom, None);
    }
}
