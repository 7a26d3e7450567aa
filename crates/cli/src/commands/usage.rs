//! `corro usage`: node-hours in a period, summed by user, experiment, cluster or job. (Quotas: `corro batchai list-usages`.)

use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use corro_model::Timestamp;
use corro_model::ops::{NoBody, UsageGet};

use crate::error::CliError;
use crate::output::TableKind;
use crate::session::{GlobalArgs, Session};
use crate::stdio::note;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro usage -o table\n  corro usage --since 30d --by experiment -o table\n  corro usage --since 2018-07-01T00:00:00Z --until 2018-08-01T00:00:00Z"
)]
pub struct UsageArgs {
    /// Start of the period: a duration before now, such as 90m, 12h, 7d or 4w, or a time such as 2018-06-07T21:16:21Z
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: String,
    /// End of the period, in the same formats [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How to group the hours
    #[arg(long, value_enum, default_value_t = GroupBy::User)]
    by: GroupBy,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GroupBy {
    User,
    Experiment,
    Cluster,
    Job,
}

impl GroupBy {
    fn as_str(self) -> &'static str {
        match self {
            GroupBy::User => "user",
            GroupBy::Experiment => "experiment",
            GroupBy::Cluster => "cluster",
            GroupBy::Job => "job",
        }
    }
}

pub async fn run(args: UsageArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let now = Timestamp::from(SystemTime::now());
    let since = parse_time("--since", &args.since, now)?.to_string();
    let until =
        args.until.as_deref().map(|text| parse_time("--until", text, now)).transpose()?.map(|time| time.to_string());
    let mut query = vec![("since", since.as_str()), ("by", args.by.as_str())];
    query.extend(until.as_deref().map(|until| ("until", until)));
    let report = session.client()?.call::<UsageGet>(&[], &query, &NoBody {}).await?;
    if let Some(first) = report.known_since {
        note(format_args!("The history begins at {}: earlier usage is unknown.", first.whole_seconds()));
    }
    let value = serde_json::to_value(&report).map_err(|error| CliError::from_error(&error))?;
    match session.prints_table() && !args.global.has_query() {
        true => {
            session.print_shaped(&value["rows"], Some(TableKind::NodeHours))?;
            note(format_args!("{:.2} node-hours in all", report.total_node_hours));
            Ok(())
        }
        false => session.print_value(&value),
    }
}

/// Parses a time, or a duration before now.
fn parse_time(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, CliError> {
    let invalid = || {
        CliError::usage(format!("{flag} is '{text}': it is neither a duration nor a time"))
            .hint("write a duration as 90m, 12h, 7d or 4w, or a time as 2018-06-07T21:16:21Z")
    };
    if let Some(time) = Timestamp::parse(text) {
        return Ok(time);
    }
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| invalid())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(invalid()),
    };
    let duration = Duration::from_secs(number.checked_mul(seconds).filter(|s| *s < 1 << 33).ok_or_else(invalid)?);
    Ok(Timestamp::from_millis(now.millis() - duration.as_millis() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_times_are_parsed() {
        let now = Timestamp::parse("2018-06-07T00:00:00Z").expect("a time");
        let read = |text: &str| parse_time("--since", text, now).map(|time| time.to_string()).ok();
        assert_eq!(read("7d").as_deref(), Some("2018-05-31T00:00:00Z"));
        assert_eq!(read("90m").as_deref(), Some("2018-06-06T22:30:00Z"));
        assert_eq!(read("2018-01-02T03:04:05Z").as_deref(), Some("2018-01-02T03:04:05Z"));
        for wrong in ["", "7", "d", "-1d", "7 d", "yesterday", "99999999999w", "18446744073709551615s"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
