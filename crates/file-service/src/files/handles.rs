//! List and force-close of SMB handles. The server does not speak SMB, so the list is empty and closing closes none.
//! Both requests still fail if the path does not exist.

use axum::response::Response;

use crate::context::OperationContext;
use crate::protocol::error::StorageError;
use crate::protocol::listing::page_limit;
use crate::protocol::{response, xml};

pub(crate) async fn list(context: OperationContext<'_>) -> Result<Response, StorageError> {
    page_limit(context.request)?;
    check_exists(&context).await?;
    Ok(response::xml_document(format!(
        "{}<EnumerationResults><Entries /><NextMarker /></EnumerationResults>",
        xml::DECLARATION
    )))
}

pub(crate) async fn close(context: OperationContext<'_>) -> Result<Response, StorageError> {
    context.request.header("x-ms-handle-id").ok_or(StorageError::missing_header("x-ms-handle-id"))?;
    check_exists(&context).await?;
    let mut response = response::empty(200);
    response::set_header(response.headers_mut(), "x-ms-number-of-handles-closed", "0");
    response::set_header(response.headers_mut(), "x-ms-number-of-handles-failed", "0");
    Ok(response)
}

async fn check_exists(context: &OperationContext<'_>) -> Result<(), StorageError> {
    context.on_disk(|shares, location| location.open(shares)?.stat(&location.path).map(drop)).await
}
