//! `corro share ls`: a directory of a share, directories first.

use clap::Args;
use corro_client::files::Entry;
use serde_json::Value;

use super::path::SharePath;
use super::{AccountPlace, open};
use crate::commands::storage::file_objects;
use crate::error::CliError;
use crate::output::TableKind;
use crate::output::text_table::{Align, TextTable};
use crate::output::units::format_bytes;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::terminal;

#[derive(Args, Debug)]
pub struct LsArgs {
    /// Share, or SHARE:PATH for a directory or file in it
    #[arg(value_name = "SHARE[:PATH]")]
    share: String,
    #[command(flatten)]
    account: AccountPlace,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: LsArgs) -> Result<(), CliError> {
    let path = SharePath::parse(&args.share)?;
    let session = Session::open(&args.global)?;
    let share = open(&session, &path, &args.account).await?;
    let entries = match share.files.list(&share.name, &path.path).await {
        Ok(entries) => entries,
        // It may be a file.
        Err(error) => match share.files.file_properties(&share.name, &path.path).await {
            Ok(found) => vec![Entry::File { name: path.file_name().to_owned(), length: found.length }],
            Err(_) if error.is_not_found() => {
                return Err(CliError { exit: 3, ..CliError::new(format!("there is no {}", path.text())) }
                    .hint(format!("see what there is with 'corro share ls {}'", path.share)));
            }
            Err(_) => return Err(error.into()),
        },
    };
    if args.global.is_output_chosen() {
        let listed: Vec<Value> = entries.iter().map(file_objects::entry).collect();
        return session.print_shaped(&listed.into(), Some(TableKind::ShareEntry));
    }
    if entries.is_empty() {
        let place = if path.path.is_empty() { format!("The share {}", share.name) } else { path.text() };
        note(format_args!("{place} is empty."));
        return Ok(());
    }
    table(entries).lines(terminal::output_width()).iter().skip(1).for_each(print);
    Ok(())
}

/// Sizes and names. Pure.
fn table(mut entries: Vec<Entry>) -> TextTable {
    entries.sort_by_key(|entry| !matches!(entry, Entry::Directory { .. }));
    let mut table = TextTable::new(&[("SIZE", Align::Right), ("NAME", Align::Left)]);
    for entry in entries {
        table.push(match entry {
            Entry::Directory { name } => vec!["-".to_owned(), format!("{name}/")],
            Entry::File { name, length } => vec![format_bytes(length), name],
            Entry::Link { name, link, .. } => vec!["-".to_owned(), format!("{name} -> {}", link.text)],
        });
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_first() {
        let file = |name: &str, length| Entry::File { name: name.to_owned(), length };
        let entries = vec![file("a.txt", 512), Entry::Directory { name: "z".to_owned() }, file("b.bin", 3 << 30)];
        let lines = table(entries).lines(None);
        assert_eq!(lines, ["     SIZE  NAME", "        -  z/", "512 bytes  a.txt", "  3.0 GiB  b.bin"]);
    }
}
