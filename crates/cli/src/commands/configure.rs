//! `corro configure`: default names in `[defaults]` of the configuration file of `az`, which both programs read.

use std::fs;
use std::path::Path;

use clap::Args;
use corro_model::spelling::most_similar;
use serde_json::{Value, json};

use crate::defaults::{DefaultName, Defaults, Source};
use crate::error::CliError;
use crate::ini_edit;
use crate::session::{GlobalArgs, Session, az_config_file, file_setting};
use crate::stdio::{note, print};
use crate::text_file;

const SECTION: &str = "defaults";

/// The default location has no kind in [`DefaultName`]: only commands that create groups and workspaces use it, as in `az`.
const LOCATION: &str = "location";

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro configure --defaults group=batchai.horovod workspace=batchaidev\n  corro configure --defaults workspace=\n  corro configure --list-defaults"
)]
pub struct ConfigureArgs {
    /// Defaults to set, as NAME=VALUE pairs separated by spaces: group, workspace, experiment, cluster, account, share and
    /// location. An empty value removes a default
    #[arg(long, short = 'd', num_args = 1.., value_name = "NAME=VALUE", required_unless_present = "list_defaults")]
    defaults: Vec<String>,
    /// List the defaults that apply in this directory, and where each comes from
    #[arg(long, short = 'l', conflicts_with = "defaults")]
    list_defaults: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub fn run(args: ConfigureArgs) -> Result<(), CliError> {
    if args.list_defaults {
        return list(&args.global);
    }
    let changes = args.defaults.iter().map(|pair| parse_pair(pair)).collect::<Result<Vec<_>, _>>()?;
    let path = az_config_file()
        .ok_or_else(|| CliError::new("the variable HOME is not set").hint("set it, or AZURE_CONFIG_DIR"))?;
    let text = text_file::read_optional(&path)?.unwrap_or_default();
    let changed = with_changes(&text, &changes);
    if changed != text {
        write(&path, &changed)?;
    }
    for (name, value) in &changes {
        let path = path.display();
        match value.is_empty() {
            true => print(format_args!("{name} has no default in {path}")),
            false => print(format_args!("{name} is '{value}' by default, in {path}")),
        }
    }
    note_overridden(&changes)
}

/// Notes defaults from the environment or the project file, which come before those that were just set.
fn note_overridden(changes: &[(&str, &str)]) -> Result<(), CliError> {
    let defaults = Defaults::load()?;
    for kind in DefaultName::ALL.into_iter().filter(|kind| changes.iter().any(|(name, _)| *name == kind.key())) {
        if let Some((value, source @ (Source::Environment(_) | Source::ProjectFile(_)))) = defaults.name(kind) {
            note(format_args!("note: here {} is '{value}', {source}", kind.key()));
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| text_file::replace(path, text));
    written.map_err(|error| text_file::write_error(path, &error))
}

/// A name that has a default, and its value.
fn parse_pair(pair: &str) -> Result<(&str, &str), CliError> {
    let names = || DefaultName::ALL.map(DefaultName::key).into_iter().chain([LOCATION]);
    let Some((name, value)) = pair.split_once('=') else {
        return Err(CliError::usage(format!("argument --defaults/-d: '{pair}' is not NAME=VALUE"))
            .hint("for example group=batchai.horovod; group= removes the default"));
    };
    if !names().any(|known| known == name) {
        let error = CliError::usage(format!("argument --defaults/-d: there is no default '{name}'"));
        return Err(match most_similar(name, names()) {
            Some(similar) => error.hint(format!("did you mean '{similar}'?")),
            None => error.hint(format!("use one of {}", names().collect::<Vec<_>>().join(", "))),
        });
    }
    // `az` takes a pair of quotes for an empty value too.
    let value = if ["''", "\"\""].contains(&value) { "" } else { value };
    match value.chars().any(char::is_control) || value.trim() != value {
        true => Err(CliError::usage(format!("argument --defaults/-d: the value of {name} is not a name"))),
        false => Ok((name, value)),
    }
}

fn with_changes(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (name, value)| match value.is_empty() {
        true => ini_edit::without_option(&text, SECTION, name),
        false => ini_edit::with_option(&text, SECTION, name, value),
    })
}

fn list(global: &GlobalArgs) -> Result<(), CliError> {
    let session = Session::open(global)?;
    let defaults = Defaults::load()?;
    let found =
        |kind: DefaultName| defaults.name(kind).map(|(value, source)| (kind.key(), value.to_owned(), source.place()));
    let mut rows: Vec<_> = DefaultName::ALL.into_iter().filter_map(found).collect();
    if let Some(location) = file_setting(SECTION, LOCATION) {
        let place = az_config_file().unwrap_or_default().display().to_string();
        rows.push((LOCATION, location, place));
    }
    if global.is_output_chosen() {
        let row =
            |(name, value, source): &(&str, String, String)| json!({"name": name, "value": value, "source": source});
        return session.print_value(&Value::Array(rows.iter().map(row).collect()));
    }
    if rows.is_empty() {
        note("There are no defaults. Set one with 'corro configure --defaults group=GROUP'.");
    }
    let width = |column: fn(&(&str, String, String)) -> usize| rows.iter().map(column).max().unwrap_or(0);
    let (name_width, value_width) = (width(|row| row.0.len()), width(|row| row.1.len()));
    for (name, value, source) in &rows {
        print(format_args!("{name:<name_width$} = {value:<value_width$}  from {source}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_names_with_a_default() {
        let check = |pair: &str, expected: Result<(&str, &str), &str>| match (parse_pair(pair), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(expected)) => {
                let text = error.to_string();
                assert!(error.exit == 2 && text.contains(expected), "{text}");
            }
            (found, expected) => panic!("{pair}: {found:?}, not {expected:?}"),
        };
        check("group=g", Ok(("group", "g")));
        check("workspace=", Ok(("workspace", "")));
        check("workspace=''", Ok(("workspace", "")));
        check("location=eastus", Ok(("location", "eastus")));
        check("group", Err("is not NAME=VALUE"));
        check("grup=g", Err("did you mean 'group'?"));
        check("region=g", Err("use one of group, workspace, experiment, cluster, account, share, location"));
        check("group=a\nb", Err("is not a name"));
    }

    #[test]
    fn changes_keep_the_rest_of_the_file() {
        let text = "# mine\n[core]\noutput = table\n\n[defaults]\ngroup = old\n# why\nworkspace = w\n";
        let changed = with_changes(text, &[("group", "new"), ("workspace", ""), ("cluster", "c")]);
        assert_eq!(changed, "# mine\n[core]\noutput = table\n\n[defaults]\ngroup = new\n# why\ncluster = c\n");
        assert_eq!(with_changes("", &[("group", "g")]), "[defaults]\ngroup = g\n");
        assert_eq!(with_changes("[core]\na = b\n", &[("group", "")]), "[core]\na = b\n");
    }
}
