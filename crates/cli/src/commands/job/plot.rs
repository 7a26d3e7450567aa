//! `corro job plot`: shows the metrics of a training as curves, as a table or as CSV. The server extracts them from the job's output; this command draws
//! them.

mod draw;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use corro_client::{Client, ClientError};
use corro_model::metrics::{JobMetrics, Point, Series};
use corro_model::ops::{JobsMetrics, NoBody};

use crate::error::CliError;
use crate::output::escape_controls;
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use draw::{Canvas, Chart, draw, format_number};

#[derive(Args, Debug)]
pub struct PlotArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Plot only these metrics, such as loss,val_acc [default: all]
    #[arg(long, short = 'm', value_name = "NAMES", value_delimiter = ',')]
    metric: Vec<String>,
    /// Ranks to plot: numbers separated by commas, 'average' or 'all'
    #[arg(long, value_name = "RANKS", default_value = "all")]
    ranks: String,
    /// Keep updating the plot until the job ends or Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Print the points as CSV: name,rank,unit,axis,step,time,value
    #[arg(long)]
    csv: bool,
    /// Approximate maximum number of points per curve. The first and last points, minima and maxima are kept
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    points: u32,
    #[command(flatten)]
    global: GlobalArgs,
}

/// Pause between polls with --follow.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const CHART_ROWS: usize = 11;

pub async fn run(args: PlotArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let mut follower =
        MetricsFollower { client: session.client()?, target: &target, args: &args, known: JobMetrics::default() };
    let failed = |error| target.show_error(error);
    if args.global.is_output_chosen() {
        follower.fetch_new().await.map_err(failed)?;
        let series = serde_json::to_value(&follower.known.series).expect("plain data");
        return session.print_value(&series);
    }
    let terminal = io::stdout().is_terminal();
    let mut header = true;
    loop {
        let new_points = follower.fetch_new().await.map_err(failed)?;
        match (args.csv, terminal && args.follow) {
            (true, _) => {
                let text = new_points.csv();
                let (head, rows) = text.split_once('\n').unwrap_or_default();
                if std::mem::take(&mut header) {
                    print(head);
                }
                write_stdout(rows)?;
            }
            // Cursor to the top left, clear the screen.
            (false, true) => write_stdout(&format!("\x1b[H\x1b[2J{}\n", render(&follower.known.series, terminal)))?,
            (false, false) if !args.follow || follower.known.ended => print(render(&follower.known.series, terminal)),
            (false, false) => {}
        }
        if !args.follow || follower.known.ended {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
    if follower.known.series.is_empty() {
        let name = target.name("job");
        note(format_args!(
            "No metrics were found in the output of the job \"{name}\". 'corro job plot --help' lists the formats that are read."
        ));
    }
    Ok(())
}

/// Fetches metrics incrementally.
struct MetricsFollower<'a> {
    client: &'a Client,
    target: &'a ResourceRef,
    args: &'a PlotArgs,
    known: JobMetrics,
}

impl MetricsFollower<'_> {
    /// Requests until all current output is read. Returns the new points.
    async fn fetch_new(&mut self) -> Result<JobMetrics, ClientError> {
        let mut new_points = JobMetrics::default();
        let (names, points) = (self.args.metric.join(","), self.args.points.to_string());
        loop {
            let after = self.known.next.clone();
            let query = [("names", &*names), ("ranks", &*self.args.ranks), ("points", &*points), ("after", &*after)];
            let answer = self.client.call::<JobsMetrics>(&self.target.values(), &query, &NoBody {}).await?;
            let more = answer.more;
            merge(&mut self.known, answer.clone());
            merge(&mut new_points, answer);
            if !more {
                return Ok(new_points);
            }
        }
    }
}

/// Merges an answer: new points, or a replacement of all points (`whole`).
fn merge(known: &mut JobMetrics, answer: JobMetrics) {
    let mut series = if answer.whole { Vec::new() } else { std::mem::take(&mut known.series) };
    for new in answer.series {
        let same = |old: &&mut Series| (&old.name, old.rank) == (&new.name, new.rank);
        match series.iter_mut().find(same) {
            None => series.push(new),
            Some(old) => {
                // A repeated step replaces the earlier point.
                old.points.retain(|point| !new.points.iter().any(|other| other.step == point.step));
                old.points.extend(new.points);
                old.points.sort_by(|a, b| a.step.total_cmp(&b.step));
                old.count = new.count;
            }
        }
    }
    series.sort_by(|a, b| (&a.name, a.rank).cmp(&(&b.name, b.rank)));
    *known = JobMetrics { series, ..answer };
}

fn write_stdout(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::silent(0),
        _ => CliError::new("cannot write to standard output").cause(&error),
    })
}

fn render(series: &[Series], terminal: bool) -> String {
    if !terminal {
        return table(series);
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col));
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let braille = locale.to_ascii_lowercase().replace('-', "").contains("utf8");
    let canvas = Canvas { columns: size.clamp(20, 120), rows: CHART_ROWS, braille, colour: set("NO_COLOR").is_none() };
    charts(series, canvas).join("\n")
}

/// One chart per metric, losses first.
fn charts(series: &[Series], canvas: Canvas) -> Vec<String> {
    let mut by_name: BTreeMap<(bool, &str), Vec<&Series>> = BTreeMap::new();
    for one in series {
        by_name.entry((!one.name.contains("loss"), &one.name)).or_default().push(one);
    }
    let chart = |((_, name), group): ((bool, &str), Vec<&Series>)| {
        let unit = group[0].unit.as_deref().map_or_else(String::new, |unit| format!(" ({unit})"));
        if group.iter().all(|one| one.points.len() < 2) {
            return single_points(&format!("{name}{unit}"), &group);
        }
        let curves = group.iter().map(|one| (legend(one), one.points.as_slice())).collect();
        let title = escape_controls(&format!("{name}{unit}"));
        let mut lines = draw(&Chart { title, axis: group[0].axis.as_str(), curves }, canvas);
        lines.push(String::new());
        lines
    };
    by_name.into_iter().flat_map(chart).collect()
}

/// A metric with a single point per rank, printed as text: axes would be empty.
fn single_points(title: &str, group: &[&Series]) -> Vec<String> {
    let axis = group[0].axis.as_str();
    let answer =
        group.iter().flat_map(|one| one.points.iter().map(move |point| (one.rank, point))).map(|(rank, point)| {
            let rank_text = rank.map_or_else(|| "all".to_owned(), |rank| format!("rank {rank}"));
            format!(
                "  {rank_text}: {} at {axis} {}; a curve needs a second point",
                format_number(point.value),
                format_number(point.step)
            )
        });
    std::iter::once(escape_controls(title)).chain(answer).chain([String::new()]).collect()
}

fn legend(series: &Series) -> String {
    let rank_text = series.rank.map_or_else(|| "all".to_owned(), |rank| format!("rank {rank}"));
    let (low, high, last) = bounds(&series.points);
    format!("{rank_text}: last {last}, lowest {low}, highest {high}")
}

/// Lowest, highest and last value.
fn bounds(points: &[Point]) -> (String, String, String) {
    let numbers = || points.iter().map(|point| point.value).filter(|value| !value.is_nan());
    let (low, high) = (numbers().fold(f64::INFINITY, f64::min), numbers().fold(f64::NEG_INFINITY, f64::max));
    (format_number(low), format_number(high), format_number(points.last().map_or(f64::NAN, |point| point.value)))
}

fn table(series: &[Series]) -> String {
    let head = ["NAME", "RANK", "UNIT", "AXIS", "POINTS", "FROM", "TO", "LOWEST", "HIGHEST", "LAST"].map(str::to_owned);
    let row = |one: &Series| {
        let (low, high, last) = bounds(&one.points);
        let ends = [one.points.first(), one.points.last()].map(|point| point.map_or(f64::NAN, |point| point.step));
        let rank = one.rank.map_or_else(|| "all".to_owned(), |rank| rank.to_string());
        let unit = one.unit.clone().unwrap_or_else(|| "-".to_owned());
        let (name, axis, count) = (escape_controls(&one.name), one.axis.as_str().to_owned(), one.count.to_string());
        [name, rank, unit, axis, count, format_number(ends[0]), format_number(ends[1]), low, high, last]
    };
    let rows: Vec<[String; 10]> = std::iter::once(head).chain(series.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..10).map(width).collect();
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metrics_answer(whole: bool, points: serde_json::Value) -> JobMetrics {
        let series =
            json!([{"name": "loss", "rank": 0, "axis": "step", "source": "log", "points": points, "count": 3}]);
        serde_json::from_value(json!({"series": series, "next": "1-1", "whole": whole, "ended": false}))
            .expect("a literal")
    }

    #[test]
    fn new_points_are_merged_by_step() {
        let mut known = JobMetrics::default();
        merge(&mut known, metrics_answer(true, json!([[1.0, null, 3.0], [2.0, null, 2.0]])));
        merge(&mut known, metrics_answer(false, json!([[2.0, null, 1.5], [3.0, null, 1.0]])));
        let values: Vec<f64> = known.series[0].points.iter().map(|point| point.value).collect();
        assert_eq!(values, [3.0, 1.5, 1.0]);
        merge(&mut known, metrics_answer(true, json!([[9.0, null, 9.0]])));
        assert_eq!(known.series[0].points.len(), 1);
    }

    #[test]
    fn without_a_terminal_there_is_a_table() {
        let text = table(&metrics_answer(true, json!([[1.0, null, 3.0], [2.0, null, 2.5]])).series);
        let expected = [
            "NAME  RANK  UNIT  AXIS  POINTS  FROM  TO  LOWEST  HIGHEST  LAST",
            "loss  0     -     step  3       1     2   2.5000  3        2.5000",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn losses_come_first_and_names_are_escaped() {
        let mut all = metrics_answer(true, json!([[1.0, null, 3.0]])).series;
        all.push(Series { name: "acc\x1b[31m".into(), ..all[0].clone() });
        let canvas = Canvas { columns: 40, rows: 3, braille: true, colour: false };
        let lines = charts(&all, canvas);
        assert_eq!(lines[0], "loss");
        assert!(!lines.concat().contains('\x1b'));
    }
}
