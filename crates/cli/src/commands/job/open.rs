//! `corro job open`: opens a job's page of the dashboard in a browser.

use clap::Args;
use corro_model::ops::JobsGet;

use crate::commands::dashboard::{self, Page};
use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::resource::short_names::RecentJobArgs;
use crate::session::{GlobalArgs, Session};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  corro job open train-1\n  corro job open --print")]
pub struct OpenArgs {
    #[command(flatten)]
    job: RecentJobArgs,
    /// Print the link instead of opening it. It logs in anyone who has it, for up to an hour
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: OpenArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    // A page of a job that does not exist shows an error only in the browser.
    session.client()?.get::<JobsGet>(&target.values()).await.map_err(|error| target.show_error(error))?;
    let page = Page { path: &page_path(&target), is_opened: !args.print };
    dashboard::show(&session, page).await
}

/// The path of the job's page. Pure.
fn page_path(target: &ResourceRef) -> String {
    let part = |parameter: &str| encode(target.name(parameter));
    format!("/ui/jobs/{}:{}/{}/{}", part("group"), part("workspace"), part("experiment"), part("job"))
}

/// Percent-encodes what is not allowed in a segment of a path. Names of groups may have letters of other alphabets and parentheses.
fn encode(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_that_of_the_dashboards_pages() {
        let names = [("group", "g(é)"), ("workspace", "w"), ("experiment", "e_1"), ("job", "j-1")];
        let target =
            ResourceRef::from_names(&names.map(|(parameter, name)| (parameter, "", Some(name)))).expect("names");
        assert_eq!(page_path(&target), "/ui/jobs/g%28%C3%A9%29:w/e_1/j-1");
    }
}
