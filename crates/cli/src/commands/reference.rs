//! `corro reference` (hidden): the command line described for the documentation and for packages, from the same definitions that parse it.
//! `--markdown` prints the page `docs/src/reference/cli.md`; `--man DIR` writes manual pages.

use std::path::PathBuf;

use clap::{Arg, Args, Command};

use crate::error::CliError;
use crate::stdio::print;

/// Longest line of the Markdown page.
const MAX_COLUMNS: usize = 100;

/// Ids of options that many commands share and the page explains once.
const COMMON_OPTIONS: [&str; 7] = ["help", "version", "output", "query", "subscription", "verbose", "debug"];

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct ReferenceArgs {
    /// Print the reference as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write manual pages into this directory
    #[arg(long, value_name = "DIR")]
    man: Option<PathBuf>,
}

/// `command` is the command tree without hidden commands.
pub fn run(args: ReferenceArgs, mut command: Command) -> Result<(), CliError> {
    command.build();
    if let Some(dir) = args.man {
        let written = std::fs::create_dir_all(&dir).and_then(|()| clap_mangen::generate_to(command, &dir));
        return written
            .map_err(|error| CliError::new(format!("cannot write manual pages to '{}'", dir.display())).cause(error));
    }
    print(markdown(&command).trim_end());
    Ok(())
}

fn markdown(root: &Command) -> String {
    let mut text = String::from(
        "# Commands\n\n<!-- Made by scripts/docs from the definitions in crates/cli. Do not edit. -->\n\n\
         Every command prints its own help with `--help`. Commands that talk to a server also take these\n\
         options, as `az` does:\n\n\
         - `--output`, `-o` `FORMAT`: `json`, `jsonc`, `table`, `tsv`, `yaml` or `none`.\n\
         - `--query` `JMESPATH`: expression that is applied to the result before it is printed.\n\
         - `--subscription` `SUBSCRIPTION`: name or id of the server's only subscription.\n\
         - `--verbose`: log every request and response on standard error.\n\
         - `--debug`: log requests and responses with their bodies, without secrets.\n",
    );
    push_command(&mut text, root, "");
    text
}

fn push_command(text: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent}{}", command.get_name());
    let is_leaf = command.get_subcommands().next().is_none();
    if !parent.is_empty() {
        text.push_str(&format!("\n## {name}\n\n"));
        let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
        for paragraph in about.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            push_wrapped(text, &sentence(paragraph), "");
        }
        if is_leaf {
            push_arguments(text, command);
        }
        if let Some(after) = command.get_after_help() {
            text.push_str(&format!("\n```text\n{}\n```\n", after.to_string().trim_end()));
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        push_command(text, below, &format!("{name} "));
    }
}

fn push_arguments(text: &mut String, command: &Command) {
    let is_shown = |arg: &&Arg| !COMMON_OPTIONS.contains(&arg.get_id().as_str());
    let mut arguments: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
    arguments.sort_by_key(|arg| (!arg.is_positional(), !arg.is_required_set()));
    for (index, arg) in arguments.into_iter().enumerate() {
        if index == 0 {
            text.push('\n');
        }
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let required = if arg.is_required_set() { " (required)" } else { "" };
        let line = format!("- {}{required}: {}", spelling(arg), sentence(&help.replace('\n', " ")));
        push_wrapped(text, &line, "  ");
    }
}

/// The argument as it is typed: `` `--name`, `-n` `NAME` ``.
fn spelling(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<String> = match arg.get_action().takes_values() {
        true => values.iter().map(|name| format!("`{name}`")).collect(),
        false => Vec::new(),
    };
    let long = arg.get_long().map(|name| format!("`--{name}`"));
    let short = arg.get_short().map(|letter| format!("`-{letter}`"));
    let flags: Vec<String> = long.into_iter().chain(short).collect();
    [flags.join(", "), values.join(" ")].join(" ").trim().to_owned()
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    match text.ends_with(['.', ':', '!', '?']) || text.is_empty() {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

/// Appends a paragraph in lines of [`MAX_COLUMNS`]; `indent` is that of all lines but the first.
fn push_wrapped(text: &mut String, paragraph: &str, indent: &str) {
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > MAX_COLUMNS {
            text.push('\n');
            text.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        // Left bare, a word such as <NAME> would be HTML.
        text.push_str(&word.replace('<', "\\<"));
        column += width;
    }
    text.push('\n');
}
