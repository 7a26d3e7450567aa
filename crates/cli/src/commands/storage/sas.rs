//! Arguments and output of `generate-sas` and `url` for shares, files, containers and blobs.

use clap::Args;
use corro_client::FileService;
use corro_model::storage::sas::{Overrides, Resource, Sas, is_time};

use crate::error::CliError;
use crate::session::Session;

#[derive(Args, Debug)]
pub struct SasArgs {
    /// Permissions to grant: (r)ead, (c)reate, (w)rite and (d)elete. For a share or container also (l)ist
    #[arg(long, value_name = "LETTERS")]
    permissions: Option<String>,
    /// Expiry time in UTC, such as 2030-01-01, 2030-01-01T12:00Z or 2030-01-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    expiry: Option<String>,
    /// Start time in UTC, in the same formats [default: now]
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// Allowed IP address, or range as FIRST-LAST
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,
    /// Allow requests over HTTPS only
    #[arg(long)]
    https_only: bool,
    /// Name of a stored access policy; the server has none
    #[arg(long, value_name = "NAME", hide = true)]
    policy_name: Option<String>,
    /// Cache-Control header of responses
    #[arg(long, value_name = "TEXT")]
    cache_control: Option<String>,
    /// Content-Disposition header of responses
    #[arg(long, value_name = "TEXT")]
    content_disposition: Option<String>,
    /// Content-Encoding header of responses
    #[arg(long, value_name = "TEXT")]
    content_encoding: Option<String>,
    /// Content-Language header of responses
    #[arg(long, value_name = "TEXT")]
    content_language: Option<String>,
    /// Content-Type header of responses
    #[arg(long, value_name = "TEXT")]
    content_type: Option<String>,
}

#[derive(Args, Debug)]
pub struct ProtocolArgs {
    /// Protocol of the URL [default: the protocol of the server]
    #[arg(long, value_name = "PROTOCOL", value_parser = ["http", "https"])]
    protocol: Option<String>,
}

impl ProtocolArgs {
    pub fn apply(&self, url: String) -> String {
        match (&self.protocol, url.split_once("://")) {
            (Some(protocol), Some((_, rest))) => format!("{protocol}://{rest}"),
            _ => url,
        }
    }
}

/// Prints the query string of a share (`path` is empty) or file.
pub fn print(
    session: &Session,
    files: &FileService,
    args: &SasArgs,
    resource: Resource,
    (share, path): (&str, &str),
) -> Result<(), CliError> {
    let sas = args.sas(resource)?;
    let token = files.sas_token(sas, share, path).ok_or_else(|| {
        CliError::new("a shared access signature can be made only with the account's key, not with another signature")
            .hint("give --account-key, or leave --sas-token out so that the key is looked up")
    })?;
    session.print_value(&token.into())
}

impl SasArgs {
    fn sas(&self, resource: Resource) -> Result<Sas, CliError> {
        if self.policy_name.is_some() {
            return Err(CliError::usage("argument --policy-name: corro does not sign with stored access policies")
                .hint("give --permissions and --expiry instead"));
        }
        let (Some(permissions), Some(expiry)) = (&self.permissions, &self.expiry) else {
            return Err(CliError::missing_arguments(&["--expiry", "--permissions"], &["--expiry", "--permissions"]));
        };
        for (flag, time) in [("--expiry", Some(expiry)), ("--start", self.start.as_ref())] {
            if let Some(time) = time.filter(|time| !is_time(time)) {
                return Err(CliError::usage(format!("argument {flag}: '{time}' is not a time"))
                    .hint("write it in UTC, as 2030-01-01T12:00Z"));
            }
        }
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Ok(Sas {
            resource,
            permissions: ordered_permissions(permissions, resource)?,
            start: text(&self.start),
            expiry: expiry.clone(),
            addresses: text(&self.ip),
            protocols: if self.https_only { "https".to_owned() } else { String::new() },
            overrides: Overrides {
                cache_control: text(&self.cache_control),
                content_disposition: text(&self.content_disposition),
                content_encoding: text(&self.content_encoding),
                content_language: text(&self.content_language),
                content_type: text(&self.content_type),
            },
            ..Sas::default()
        })
    }
}

/// The permissions in the order that the service requires, without duplicates.
fn ordered_permissions(given: &str, resource: Resource) -> Result<String, CliError> {
    let known = match resource {
        Resource::File => "rcwd",
        Resource::Share => "rcwdl",
        Resource::Blob => "racwd",
        Resource::Container => "racwdl",
    };
    match given.chars().find(|letter| !known.contains(*letter)) {
        Some(letter) => Err(CliError::usage(format!("argument --permissions: '{letter}' is not one of {known}"))),
        None if given.is_empty() => Err(CliError::usage(format!("argument --permissions: give some of {known}"))),
        None => Ok(known.chars().filter(|letter| given.contains(*letter)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_sorted_as_the_service_sorts_them() {
        let of = |text, resource| ordered_permissions(text, resource).map_err(|failure| failure.exit);
        assert_eq!(of("wr", Resource::File), Ok("rw".to_owned()));
        assert_eq!(of("ldwcr", Resource::Share), Ok("rcwdl".to_owned()));
        assert_eq!(of("rr", Resource::File), Ok("r".to_owned()));
        assert_eq!((of("rl", Resource::File), of("", Resource::Share)), (Err(2), Err(2)));
    }

    #[test]
    fn a_protocol_replaces_the_servers() {
        let of = |protocol: Option<&str>| ProtocolArgs { protocol: protocol.map(str::to_owned) };
        assert_eq!(of(None).apply("http://h/a".into()), "http://h/a");
        assert_eq!(of(Some("https")).apply("http://h/a".into()), "https://h/a");
    }
}
