//! `corro job validate`: checks a job file as `job create` does, without a server.

use std::path::PathBuf;

use clap::Args;
use corro_model::batchai::{JobCreateParameters, JobSpec, ToolType};
use corro_model::validate;

use crate::config_file;
use crate::error::CliError;
use crate::output::Shape;
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// JSON or YAML file that describes the job
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
}

pub fn run(args: &ValidateArgs) -> Result<(), CliError> {
    let file = config_file::load::<JobCreateParameters>(&args.file, Shape::Job)?;
    file.print_warnings();
    let spec = &file.content.properties;
    validate::check_job(spec).map_err(|error| file.invalid(error))?;
    let n_warnings = file.warnings.len();
    if args.strict && n_warnings > 0 {
        let noun = if n_warnings == 1 { "warning" } else { "warnings" };
        return Err(CliError::new(format!("{} has {n_warnings} {noun}", args.file.display()))
            .hint("correct the file, or leave --strict out"));
    }
    print(format_args!("{} is valid: {}", args.file.display(), summary(spec)));
    Ok(())
}

/// `a Horovod job of 4 processes on 2 nodes`.
fn summary(spec: &JobSpec) -> String {
    let toolkit = match spec.toolkit() {
        Some(ToolType::Cntk) => "a CNTK",
        Some(ToolType::PyTorch) => "a PyTorch",
        Some(ToolType::TensorFlow) => "a TensorFlow",
        Some(ToolType::Caffe) => "a Caffe",
        Some(ToolType::Caffe2) => "a Caffe2",
        Some(ToolType::Chainer) => "a Chainer",
        Some(ToolType::CustomMpi) => "an MPI",
        Some(ToolType::Horovod) => "a Horovod",
        Some(ToolType::Custom) | None => "a custom",
    };
    let n_processes = spec.rank_count() + spec.parameter_server_count();
    let elastic = spec.elastic.map_or_else(String::new, |elastic| {
        format!(", from {} to {} while it runs", elastic.min_node_count, elastic.max_node_count)
    });
    format!(
        "{toolkit} job of {} on {}{elastic}",
        count(n_processes, "process", "processes"),
        count(spec.node_count as usize, "node", "nodes")
    )
}

fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_summary_counts_processes_and_nodes() {
        let check = |settings: Value, expected: &str| {
            let mut spec = json!({"nodeCount": 2, "stdOutErrPathPrefix": "p"});
            spec.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
            let spec: JobSpec = serde_json::from_value(spec).expect("a job");
            assert_eq!(summary(&spec), expected);
        };
        let script = json!({"pythonScriptFilePath": "a.py"});
        check(json!({"horovodSettings": script}), "a Horovod job of 2 processes on 2 nodes");
        let elastic = json!({"horovodSettings": script, "elastic": {"minNodeCount": 1, "maxNodeCount": 8}});
        check(elastic, "a Horovod job of 2 processes on 2 nodes, from 1 to 8 while it runs");
        check(json!({"tensorFlowSettings": script}), "a TensorFlow job of 3 processes on 2 nodes");
        check(
            json!({"customToolkitSettings": {"commandLine": "ls"}, "nodeCount": 1}),
            "a custom job of 1 process on 1 node",
        );
    }
}
