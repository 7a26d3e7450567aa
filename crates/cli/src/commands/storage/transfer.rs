//! Code that uploads and downloads share, for single files and for batches: arguments, Ctrl-C, and the error for a path that is a directory.

use clap::Args;
use corro_client::files::{ContentSettings, FileSettings};
use corro_client::{ClientError, FileService};

use crate::error::CliError;
use crate::progress::TransferBar;
use crate::resource::resource_ref::parse_tags;

/// Exit code of a command that Ctrl-C ended, as a shell reports it.
pub const INTERRUPTED: u8 = 130;

#[derive(Args, Debug)]
pub struct TransferArgs {
    /// Number of parallel connections
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub max_connections: u16,
    /// Do not show a progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// Check the MD5 digest of every range that is sent or received
    #[arg(long)]
    pub validate_content: bool,
}

/// Help heading of the content arguments. Set on each argument, because a heading of the group would also apply to the arguments after it.
const CONTENT_HEADING: &str = "Content Arguments";

/// Metadata and content settings of an uploaded file.
#[derive(Args, Debug)]
pub struct FileSettingsArgs {
    /// Metadata of the file, as KEY=VALUE pairs separated by spaces
    #[arg(long, help_heading = CONTENT_HEADING, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    #[command(flatten)]
    content: ContentArgs,
}

/// Content settings of a file: the headers of its downloads.
#[derive(Args, Debug)]
pub struct ContentArgs {
    /// MIME type [default: guessed from the file name]
    #[arg(long, help_heading = CONTENT_HEADING, value_name = "TYPE")]
    content_type: Option<String>,
    /// Content encoding, such as gzip
    #[arg(long, help_heading = CONTENT_HEADING, value_name = "ENCODING")]
    content_encoding: Option<String>,
    /// Natural language of the content, such as en
    #[arg(long, help_heading = CONTENT_HEADING, value_name = "LANGUAGE")]
    content_language: Option<String>,
    /// Content disposition, such as attachment
    #[arg(long, help_heading = CONTENT_HEADING, value_name = "TEXT")]
    content_disposition: Option<String>,
    /// Value of the Cache-Control header
    #[arg(long, help_heading = CONTENT_HEADING, alias = "content-cache", value_name = "TEXT")]
    content_cache_control: Option<String>,
    /// MD5 digest of the content, in base64
    #[arg(long, help_heading = CONTENT_HEADING, value_name = "BASE64")]
    content_md5: Option<String>,
}

impl ContentArgs {
    pub fn into_settings(self) -> ContentSettings {
        ContentSettings {
            content_type: self.content_type,
            encoding: self.content_encoding,
            language: self.content_language,
            disposition: self.content_disposition,
            cache_control: self.content_cache_control,
            md5: self.content_md5,
        }
    }
}

impl FileSettingsArgs {
    pub fn into_settings(self) -> FileSettings {
        FileSettings { content: self.content.into_settings(), metadata: parse_tags(&self.metadata) }
    }
}

/// `error`, unless the path is a directory: then an error that says so, with `hint`.
pub async fn directory_error_or(
    files: &FileService,
    (share, path): (&str, &str),
    error: CliError,
    hint: &str,
) -> CliError {
    if error.exit == INTERRUPTED || files.directory_properties(share, path).await.is_err() {
        return error;
    }
    let message = format!("{} on the share {share} is a directory, not a file", path.trim_matches('/'));
    CliError { exit: error.exit, ..CliError::new(message) }.hint(hint)
}

/// Runs a transfer until its end or Ctrl-C. A cancelled transfer is dropped, which removes the partial file of a download.
pub async fn run_transfer<T>(
    transfer: impl Future<Output = Result<T, ClientError>>,
    bar: &TransferBar,
) -> Result<T, CliError> {
    let result = tokio::select! {
        // Polled first, so that the handler is installed before the transfer creates a file.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => Err(CliError::silent(INTERRUPTED)),
        result = transfer => result.map_err(CliError::from),
    };
    match &result {
        Ok(_) => bar.finish(),
        Err(_) => bar.abandon(),
    }
    result
}

/// The last segment of a path on a share.
pub fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}
