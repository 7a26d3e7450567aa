//! Validation of output path prefixes: a directory below a mount root or below the job's own directories, never another
//! directory of the node. The node checks again after variables are expanded and links are resolved.

use super::refuse;
use crate::error::ApiError;
use crate::mount::strip_variable;

/// Variables that a job's prefix may begin with.
pub const JOB_ROOTS: [&str; 6] = [
    "AZ_BATCHAI_JOB_MOUNT_ROOT",
    "AZ_BATCHAI_MOUNT_ROOT",
    "AZ_BATCHAI_JOB_TEMP",
    "AZ_BATCHAI_JOB_TEMP_DIR",
    "AZ_BATCHAI_SHARED_JOB_TEMP",
    "AZ_BATCHAI_STDOUTERR_DIR",
];
/// Variable that a setup task's prefix may begin with.
pub const SETUP_ROOTS: [&str; 1] = ["AZ_BATCHAI_MOUNT_ROOT"];
/// Name prefixes of the variables of input and output directories. Their values are checked on the node.
const DIRECTORIES: [&str; 2] = ["AZ_BATCHAI_INPUT_", "AZ_BATCHAI_OUTPUT_"];

pub fn check_prefix(field: &str, prefix: &str, roots: &[&str]) -> Result<(), ApiError> {
    if prefix.split('/').any(|part| part == "..") {
        return refuse(field, &format!("'{prefix}' leads out of its volume: leave '..' out"));
    }
    if prefix.contains('\0') {
        return refuse(field, "the path contains a zero byte: remove it");
    }
    let is_below_root = roots.iter().any(|root| strip_variable(prefix, root).is_some());
    if !prefix.starts_with(['/', '$']) || is_below_root || begins_with_directory(prefix) {
        return Ok(());
    }
    let message = format!(
        "'{prefix}' is not below a mounted volume or a directory of the job: begin it with ${}, or make it relative",
        roots.join(", $")
    );
    refuse(field, &message)
}

fn begins_with_directory(prefix: &str) -> bool {
    let name = prefix.trim_start_matches('$').trim_start_matches('{');
    DIRECTORIES.iter().any(|directory| name.starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_stay_below_volumes_and_the_jobs_own_directories() {
        let check = |prefix: &str, for_job: bool, for_setup: bool| {
            let good = [&JOB_ROOTS[..], &SETUP_ROOTS].map(|roots| check_prefix("f", prefix, roots).is_ok());
            assert_eq!(good, [for_job, for_setup], "{prefix}");
        };
        check("$AZ_BATCHAI_MOUNT_ROOT/external", true, true);
        check("${AZ_BATCHAI_MOUNT_ROOT}/azfiles/", true, true);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar", true, false);
        check("$AZ_BATCHAI_JOB_TEMP_DIR", true, false);
        check("$AZ_BATCHAI_JOB_TEMP/logs$NAME", true, false);
        check("$AZ_BATCHAI_INPUT_DATA/logs", true, true);
        check("logs", true, true);
        check("logs..old/./$NAME", true, true);
        for bad in [
            "/tmp",
            "//tmp",
            "$HOME/logs",
            "$NAME/etc",
            "$AZ_BATCHAI_MOUNT_ROOTS/x",
            "../x",
            "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/../../x",
            "$AZ_BATCHAI_MOUNT_ROOT/..",
            "a\0b",
        ] {
            check(bad, false, false);
        }
    }
}
