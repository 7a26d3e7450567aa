//! Requests of the storage protocols: finds the account in host or path and passes the request to the file service.

use axum::extract::Request;
use axum::response::Response;
use corro_file_service::{AddressStyle, CredentialSink, FileService};
use corro_model::names::{NameKind, check_name};
use http::header;

use super::connection::HttpService;
use super::connection::session_revocation::RequestAuth;

/// Serves the storage protocols only: every request needs an account key or a SAS URL. For [`crate::FileServer`].
#[derive(Clone)]
pub struct FileServiceOnly(pub FileService);

impl HttpService for FileServiceOnly {
    async fn handle(&self, request: Request) -> Response {
        // The empty name is never an account, so such requests are refused.
        let (account, style) = account_of(&request).unwrap_or((String::new(), AddressStyle::Path));
        handle_file_request(&self.0, &account, style, request).await
    }
}

/// Tells the connection of the request which storage key it is signed with.
pub(super) async fn handle_file_request(
    files: &FileService,
    account: &str,
    style: AddressStyle,
    request: Request,
) -> Response {
    let auth = request.extensions().get::<RequestAuth>().cloned();
    let sink = auth.as_ref().map(|auth| auth as &dyn CredentialSink);
    files.handle(account, style, request, sink).await
}

/// The storage account of a request, from its host or the first segment of its path (`account`, or `account.blob` for blobs).
/// Path prefixes of the resource manager are not valid account names.
pub(super) fn account_of(request: &Request) -> Option<(String, AddressStyle)> {
    let in_path = || {
        let first = request.uri().path().split('/').nth(1).unwrap_or_default();
        let (account, style) = match first.strip_suffix(".blob") {
            Some(account) => (account, AddressStyle::BlobPath),
            None => (first, AddressStyle::Path),
        };
        corro_shares::is_account_name(account).then(|| (account.to_owned(), style))
    };
    account_in_host(request).or_else(in_path)
}

/// `mystorageaccount` of `Host: mystorageaccount.file.some.suffix`, or of `.blob.` for its containers.
fn account_in_host(request: &Request) -> Option<(String, AddressStyle)> {
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let (account, rest) = host.split_once('.')?;
    let style = match rest.split_once('.')?.0 {
        "file" => AddressStyle::Host,
        "blob" => AddressStyle::BlobHost,
        _ => return None,
    };
    check_name(NameKind::StorageAccount, account).is_ok().then(|| (account.to_owned(), style))
}
