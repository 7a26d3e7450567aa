//! Requests about blobs: upload of a whole blob, listing, deletion.

use std::fmt::Write;

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_shares::{FlatEntry, FlatPage, FlatRequest, Link, Properties, Stat};

use crate::blobs::body_to_staging::{StagedBody, stage_body};
use crate::blobs::publication::{BlobPublication, created_response, parse_body_length};
use crate::context::OperationContext;
use crate::limits::request_body::{self, parse_content_md5};
use crate::preconditions::Preconditions;
use crate::protocol::error::StorageError;
use crate::protocol::listing::{self, page_limit};
use crate::protocol::request::StorageRequest;
use crate::protocol::{response, time_format, xml};

/// Uploads a whole blob in one request.
pub(crate) async fn put(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let params = check_type(context.request).and_then(|()| {
        let publication = BlobPublication::parse(&context)?;
        Ok((publication, parse_body_length(context.request)?, parse_content_md5(context.request)?))
    });
    let ((mut publication, len, sent), body) = request_body::or_drain(params, body).await?;
    // Azure returns the MD5 of the body, and stores it unless the request sets another one.
    let StagedBody { staged, md5 } = stage_body(&context, body, len, true).await?;
    if sent.is_some() && sent != md5 {
        return Err(StorageError::new("Md5Mismatch"));
    }
    let md5 = STANDARD.encode(md5.unwrap_or_default());
    if publication.properties.get("content-md5").is_none() {
        assert!(publication.properties.set("content-md5", &md5), "base64 is printable");
    }
    let stat = context.try_on_disk(move |shares, location| publication.publish(shares, location, staged)).await?;
    let mut response = created_response(&stat);
    response::set_header(response.headers_mut(), "content-md5", &md5);
    Ok(response)
}

/// Also discards uncommitted blocks of this name.
pub(crate) async fn delete(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let preconditions = Preconditions::parse(context.request, (context.state.now)())?;
    context
        .try_on_disk(move |shares, location| {
            let container = location.open(shares)?;
            preconditions.check_entry(&container, &location.path)?;
            container.delete_file(&location.path)?;
            Ok(shares.discard_blocks(&location.account, &location.share, &location.path)?)
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    Ok(response::empty(202))
}

pub(crate) async fn list(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let request = context.request;
    let limit = page_limit(request)?;
    let (prefix, delimiter) = (request.parameter("prefix").to_owned(), request.parameter("delimiter").to_owned());
    let (from, _) = listing::parse_marker(request.parameter("marker"));
    let page = context
        .on_disk(move |shares, location| {
            let request = FlatRequest { prefix: &prefix, from: &from, delimiter: &delimiter, limit: limit.effective };
            location.open(shares)?.list_flat(request)
        })
        .await?;
    let params = listing::ListingParams {
        endpoint: request.endpoint(),
        prefix: request.parameter("prefix"),
        marker: request.parameter("marker"),
        limit: limit.requested,
        encodes_names: request.supports_encoded_names(),
    };
    let include = request.parameter("include").to_ascii_lowercase();
    let with_metadata = include.split(',').any(|word| word.trim() == "metadata");
    Ok(response::xml_document(document(
        &params,
        (&context.share, request.parameter("delimiter")),
        &page,
        with_metadata,
    )))
}

fn document(
    params: &listing::ListingParams,
    (container, delimiter): (&str, &str),
    page: &FlatPage,
    with_metadata: bool,
) -> String {
    let mut text = format!(
        "{}<EnumerationResults ServiceEndpoint=\"{}\" ContainerName=\"{}\">",
        xml::DECLARATION,
        xml::escape(&params.endpoint),
        xml::escape(container)
    );
    listing::push_params(&mut text, params);
    if !delimiter.is_empty() {
        let _ = write!(text, "<Delimiter>{}</Delimiter>", xml::escape(delimiter));
    }
    text.push_str("<Blobs>");
    for item in &page.items {
        match item {
            // A client that does not know encoded names would take it for another name.
            FlatEntry::File { name, .. } | FlatEntry::Prefix(name)
                if !params.encodes_names && !xml::is_representable(name) => {}
            FlatEntry::File { name, stat, link, properties } => {
                push_blob(&mut text, name, (stat, link.as_deref()), properties, with_metadata);
            }
            FlatEntry::Prefix(name) => {
                text.push_str("<BlobPrefix>");
                xml::push_name(&mut text, "Name", name);
                text.push_str("</BlobPrefix>");
            }
        }
    }
    text.push_str("</Blobs>");
    let next = page.next.as_deref().map(listing::encoded_marker);
    listing::close_listing(text, next.as_deref())
}

fn push_blob(
    text: &mut String,
    name: &str,
    (stat, link): (&Stat, Option<&Link>),
    properties: &Properties,
    with_metadata: bool,
) {
    text.push_str("<Blob>");
    xml::push_name(text, "Name", name);
    let _ = write!(
        text,
        "<Properties><Creation-Time>{}</Creation-Time><Last-Modified>{}</Last-Modified><Etag>{}</Etag>\
         <Content-Length>{}</Content-Length>",
        time_format::http_date(stat.created),
        time_format::http_date(stat.modified),
        // Azure lists ETags without quotes.
        stat.etag.trim_matches('"'),
        stat.len,
    );
    xml::push_link(text, link, stat);
    for (element, stored, default) in [
        ("Content-Type", "content-type", "application/octet-stream"),
        ("Content-Encoding", "content-encoding", ""),
        ("Content-Language", "content-language", ""),
        ("Content-MD5", "content-md5", ""),
        ("Cache-Control", "cache-control", ""),
        ("Content-Disposition", "content-disposition", ""),
    ] {
        match properties.get(stored).unwrap_or(default) {
            "" => {
                let _ = write!(text, "<{element} />");
            }
            value => {
                let _ = write!(text, "<{element}>{}</{element}>", xml::escape(value));
            }
        }
    }
    text.push_str(
        "<BlobType>BlockBlob</BlobType><LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>\
         <ServerEncrypted>true</ServerEncrypted></Properties>",
    );
    if with_metadata {
        xml::push_metadata(text, properties);
    }
    text.push_str("</Blob>");
}

fn check_type(request: &StorageRequest) -> Result<(), StorageError> {
    const HEADER: &str = "x-ms-blob-type";
    match request.header(HEADER) {
        None => Err(StorageError::missing_header(HEADER)),
        Some(kind) if kind.eq_ignore_ascii_case("BlockBlob") => Ok(()),
        Some(kind) if kind.eq_ignore_ascii_case("PageBlob") || kind.eq_ignore_ascii_case("AppendBlob") => {
            Err(StorageError::new("InvalidBlobType"))
        }
        Some(_) => Err(StorageError::invalid_header(HEADER)),
    }
}
