//! Error messages of the file service for people: they name the account, share and path. Responses to HEAD have only a
//! code, so their text is built here.

use corro_model::ApiError;

use super::error_of;
use crate::response::HttpResponse;

/// Target of a request. Share and path may be empty.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    pub account: &'a str,
    pub share: &'a str,
    pub path: &'a str,
    pub of_blobs: bool,
}

/// Error of a response with the target's names.
pub fn api_error(answer: &HttpResponse, about: RequestTarget<'_>) -> ApiError {
    let error = error_of(answer);
    let said = (!answer.body.is_empty()).then_some(error.message.as_str());
    let message = message(&error.code, said, error.status, about);
    ApiError { message, ..error }
}

fn message(code: &str, said: Option<&str>, status: u16, about: RequestTarget<'_>) -> String {
    let RequestTarget { account, share, path, of_blobs } = about;
    let path = path.trim_matches('/');
    let tree = if of_blobs { "container" } else { "share" };
    let place = match (share, path) {
        ("", _) => format!("the account {account}"),
        (share, "") => format!("the {tree} {share} of the account {account}"),
        (share, path) => format!("{path} on the {tree} {share} of the account {account}"),
    };
    let known = match code {
        "ResourceNotFound" => "The specified resource does not exist",
        "BlobNotFound" => "The specified blob does not exist",
        "ContainerNotFound" => {
            return format!("The specified container does not exist: {share} in the account {account}");
        }
        "ParentNotFound" => "The specified parent path does not exist",
        "ShareNotFound" => return format!("The specified share does not exist: {share} in the account {account}"),
        "ShareSnapshotNotFound" => "The specified share snapshot does not exist",
        "AuthenticationFailed" => {
            return format!(
                "Server failed to authenticate the request: the key is not one of the account {account}, the signature is \
                 wrong or has expired, or there is no such account"
            );
        }
        "AuthorizationPermissionMismatch" => {
            "This request is not authorized to perform this operation using this permission"
        }
        _ => {
            return said
                .map_or_else(|| format!("the file service answered with {status} ({code}): {place}"), str::to_owned);
        }
    };
    match said {
        // The server already named it.
        Some(said) if !path.is_empty() && said.contains(path) => said.to_owned(),
        _ => format!("{known}: {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_they_are_about() {
        let about = |share, path| RequestTarget { account: "acc", share, path, of_blobs: false };
        for (code, said, about, expected) in [
            (
                "ResourceNotFound",
                None,
                about("s", "a/b"),
                "The specified resource does not exist: a/b on the share s of the account acc",
            ),
            (
                "ResourceNotFound",
                Some("The specified resource does not exist."),
                about("s", "a"),
                "The specified resource does not exist: a on the share s of the account acc",
            ),
            ("ParentNotFound", Some("No parent of /a/b."), about("s", "/a/b"), "No parent of /a/b."),
            ("ShareNotFound", None, about("s", "a"), "The specified share does not exist: s in the account acc"),
            (
                "AuthenticationFailed",
                None,
                about("s", ""),
                "Server failed to authenticate the request: the key is not one of the account acc, the signature is wrong or has expired, or there is no such account",
            ),
            ("Odd", None, about("s", ""), "the file service answered with 400 (Odd): the share s of the account acc"),
            ("Odd", Some("Why."), about("", ""), "Why."),
        ] {
            assert_eq!(message(code, said, 400, about), expected);
        }
    }
}
