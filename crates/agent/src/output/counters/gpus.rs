//! GPU counters from `nvidia-smi`.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// Header line of the GPU table.
pub const HEADER: &str = "time,gpu,utilization_percent,memory_used_mib,memory_total_mib,power_watts\n";
const QUERY: &str = "--query-gpu=index,utilization.gpu,memory.used,memory.total,power.draw";
/// A query that takes longer is dropped.
const QUERY_TIMEOUT: Duration = Duration::from_secs(4);

/// Path of `nvidia-smi`; `None` on machines without it.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("nvidia-smi")).find(|tool| tool.is_file())
}

/// Output of `nvidia-smi`; `None` if it fails or takes too long.
pub async fn query() -> Option<String> {
    let mut tool = Command::new(program()?);
    tool.args([QUERY, "--format=csv,noheader,nounits"]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let answer = timeout(QUERY_TIMEOUT, tool.output()).await.ok()?.ok()?;
    answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).into_owned())
}

/// Lines of the table from the output, one for each GPU.
pub fn lines(time: &str, answer: &str) -> String {
    let line = |line: &str| {
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        (columns.len() == 5).then(|| format!("{time},{}\n", columns.join(",")))
    };
    answer.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_has_its_line() {
        let answer = "0, 97, 1024, 81559, 312.45\n1, [N/A], 0, 81559, [N/A]\nsomething else\n";
        assert_eq!(lines("T", answer), "T,0,97,1024,81559,312.45\nT,1,[N/A],0,81559,[N/A]\n");
        let columns = HEADER.trim_end().split(',').count();
        assert!(lines("T", answer).lines().all(|line| line.split(',').count() == columns));
    }
}
