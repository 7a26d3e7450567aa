//! `corro job top`: a table of the processes of a job's ranks, one of their GPUs ([`gpu_table`]), and one of their collective engines
//! ([`engine_table`]), refreshed until Ctrl-C. The server measures on request; nothing is stored.

mod engine_table;
mod gpu_table;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use corro_client::ClientError;
use corro_model::batchai::{JobProcesses, RankStats};
use corro_model::ops::JobsProcesses;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::units::{format_bytes, format_millis};
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{escape_lines, note, print};

#[derive(Args, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Print once and exit. This is the default if the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: TopArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let name = target.name("job").to_owned();
    let client = session.client()?;
    let values = target.values();
    let fetch = || client.get::<JobsProcesses>(&values);
    if args.global.is_output_chosen() {
        let rows = json_rows(&fetch().await.map_err(|error| target.request_error(error))?);
        return session.print_value(&Value::Array(rows));
    }
    let is_live = !args.once && io::stdout().is_terminal();
    let mut was_running = false;
    loop {
        match fetch().await {
            Ok(processes) => {
                let text = render_table(&name, &processes);
                if is_live {
                    // Cursor to the top left, clear the screen.
                    let _ = write!(io::stdout(), "\x1b[H\x1b[2J");
                }
                print(escape_lines(&text));
                was_running = true;
            }
            Err(error) if was_running && has_ended(&error) => {
                note(format_args!("The job \"{name}\" is no longer running."));
                return Ok(());
            }
            Err(error) => return Err(target.request_error(error)),
        }
        if !is_live {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.interval)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

fn has_ended(error: &ClientError) -> bool {
    error.is_not_found() || error.to_string().contains("has no processes now")
}

/// One JSON object per rank, for scripts, each with the GPUs that the job may use on its node.
fn json_rows(processes: &JobProcesses) -> Vec<Value> {
    let straggler = processes.straggler;
    let of_node = |node: &corro_model::batchai::NodeProcesses| {
        let (id, gpus) = (node.node_id.clone(), node.gpus.clone());
        node.processes.clone().into_iter().map(move |figures| {
            let mut row = json!({"node": id});
            if !gpus.is_empty() {
                row["gpus"] = json!(gpus);
            }
            if !figures.engines.is_empty() {
                row["straggler"] = figures.engines.iter().any(|engine| Some(engine.rank) == straggler).into();
            }
            if let (Value::Object(row), Ok(Value::Object(fields))) = (&mut row, serde_json::to_value(figures)) {
                row.extend(fields);
            }
            row
        })
    };
    processes.nodes.iter().flat_map(of_node).collect()
}

fn render_table(name: &str, processes: &JobProcesses) -> String {
    let all = processes.nodes.iter().flat_map(|node| &node.processes);
    let ranks = all.clone().filter(|figures| figures.rank.is_some()).count();
    let cpu: f64 = all.clone().map(|figures| figures.cpu_percent).sum();
    let memory: u64 = all.map(|figures| figures.memory_bytes).sum();
    let (nodes, ranks) = (count(processes.nodes.len(), "node"), count(ranks, "rank"));
    let mut lines = vec![
        format!("{name}, attempt {}: {ranks} on {nodes}, {cpu:.1} % CPU, {}", processes.attempt, format_bytes(memory)),
        String::new(),
        format!(
            "{:<6}{:<38}{:>8}  {:<9}{:>7}{:>11}{:>9}{:>7}  {}",
            "RANK", "NODE", "PID", "STATE", "CPU %", "MEMORY", "THREADS", "PROCS", "LAST OUTPUT"
        ),
    ];
    for node in &processes.nodes {
        let id = node.node_id.as_str();
        match (node.answered, node.processes.is_empty()) {
            (false, _) => lines.push(format!("{:<6}{id:<38}did not answer", "?")),
            (true, true) => lines.push(format!("{:<6}{id:<38}no process of the job runs here now", "-")),
            _ => lines.extend(node.processes.iter().map(|figures| process_line(id, figures))),
        }
    }
    lines.extend(gpu_table::render(processes));
    lines.extend(engine_table::render(processes));
    lines.join("\n")
}

fn process_line(node: &str, figures: &RankStats) -> String {
    let rank = figures.rank.map_or_else(|| "prep".to_owned(), |rank| rank.to_string());
    let quiet = figures.quiet_for_ms.map_or_else(|| "none yet".to_owned(), |ms| format!("{} ago", format_millis(ms)));
    let RankStats { pid, state, cpu_percent, memory_bytes, threads, processes, .. } = figures;
    let (state, memory) = (state_name(state), format_bytes(*memory_bytes));
    format!("{rank:<6}{node:<38}{pid:>8}  {state:<9}{cpu_percent:>7.1}{memory:>11}{threads:>9}{processes:>7}  {quiet}")
}

/// The state letter of `ps`, spelled out.
fn state_name(state: &str) -> &str {
    match state {
        "R" => "running",
        "S" | "I" => "sleeping",
        "D" => "disk",
        "T" | "t" => "stopped",
        "Z" | "X" => "ended",
        other => other,
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes() -> JobProcesses {
        serde_json::from_value(json!({"attempt": 2, "nodes": [
            {"nodeId": "tvm-257509324_1-20180718t174802z-p", "answered": true, "processes": [
                {"rank": 0, "pid": 4711, "state": "R", "cpuPercent": 99.5, "memoryBytes": 325058560, "threads": 12,
                 "processes": 2, "quietForMs": 400},
                {"pid": 4800, "state": "S", "cpuPercent": 0.0, "memoryBytes": 2048, "threads": 1, "processes": 1}],
             "gpus": [{"gpu": 3, "name": "T4", "powerWatts": 70.5}]},
            {"nodeId": "tvm-257509324_2-20180718t174802z-p", "answered": false, "processes": []},
            {"nodeId": "tvm-257509324_3-20180718t174802z-p", "answered": true, "processes": []}]}))
        .expect("a literal")
    }

    #[test]
    fn every_process_has_a_line() {
        assert_eq!(
            render_table("j", &processes()).lines().collect::<Vec<_>>(),
            [
                "j, attempt 2: 1 rank on 3 nodes, 99.5 % CPU, 310.0 MiB",
                "",
                "RANK  NODE                                       PID  STATE      CPU %     MEMORY  THREADS  PROCS  LAST OUTPUT",
                "0     tvm-257509324_1-20180718t174802z-p        4711  running     99.5  310.0 MiB       12      2  0.4 s ago",
                "prep  tvm-257509324_1-20180718t174802z-p        4800  sleeping     0.0    2.0 KiB        1      1  none yet",
                "?     tvm-257509324_2-20180718t174802z-p    did not answer",
                "-     tvm-257509324_3-20180718t174802z-p    no process of the job runs here now",
                "",
                "GPU   NODE                                    GPU %     MEMORY         OF    POWER   TEMP   ECC  NAME",
                "3     tvm-257509324_1-20180718t174802z-p          -          -          -     70 W      -     -  T4",
            ]
        );
    }

    #[test]
    fn json_has_one_row_per_process() {
        let rows = json_rows(&processes());
        assert_eq!(rows.len(), 2);
        assert_eq!((&rows[0]["rank"], &rows[0]["cpuPercent"]), (&json!(0), &json!(99.5)));
        assert_eq!(rows[1]["node"], "tvm-257509324_1-20180718t174802z-p");
        assert_eq!(rows[1]["gpus"], json!([{"gpu": 3, "name": "T4", "powerWatts": 70.5}]));
    }
}
