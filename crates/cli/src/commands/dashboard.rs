//! `corro dashboard`: prints a link to the server's pages with a token of this user's login, or opens it in a browser. The browser gets a file that
//! only this user can read, because command lines are visible to everyone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use corro_client::profile;

use crate::error::CliError;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::text_file;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro dashboard --open\n  corro dashboard\n\nThe link logs in anyone who has it, for up to an hour. Do not share it."
)]
pub struct DashboardArgs {
    /// Open the dashboard in a browser on this machine, with $BROWSER, xdg-open or open
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

/// A page of the dashboard, and whether it is opened in a browser or its link is printed.
pub struct Page<'a> {
    /// Path of the page, percent-encoded.
    pub path: &'a str,
    pub is_opened: bool,
}

pub async fn run(args: DashboardArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    show(&session, Page { path: "/ui/", is_opened: args.open }).await
}

/// Opens a page of the dashboard with this user's login, or prints its link.
pub async fn show(session: &Session, page: Page<'_>) -> Result<(), CliError> {
    let client = session.client()?;
    let token = client.token().await?;
    let address = format!("{}{}", client.server(), page.path);
    let link = format!("{address}#token={}", token.expose());
    if !page.is_opened {
        print(&link);
        return Ok(());
    }
    let redirect = write_redirect_page(&profile::config_dir()?, &link)?;
    match open_in_browser(&redirect) {
        true => note(format_args!("The dashboard opens in a browser: {address}")),
        false => {
            note("No browser was found here (BROWSER, xdg-open, open). Open this link:");
            print(&link);
        }
    }
    Ok(())
}

/// Writes a page that redirects to the link, into the configuration directory, whose profile is at least as secret.
fn write_redirect_page(dir: &Path, link: &str) -> Result<PathBuf, CliError> {
    let page = dir.join("dashboard.html");
    let text = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\"><title>Corro</title>\n");
    text_file::replace(&page, &text).map_err(|error| text_file::write_error(&page, &error))?;
    Ok(page)
}

/// Opens the page with the first program that succeeds.
fn open_in_browser(page: &Path) -> bool {
    let configured = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let defaults = ["xdg-open", "open"].map(Into::into);
    let mut programs = configured.into_iter().chain(defaults);
    programs.any(|program| {
        let mut command = Command::new(program);
        let detached = command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        detached.status().is_ok_and(|status| status.success())
    })
}
