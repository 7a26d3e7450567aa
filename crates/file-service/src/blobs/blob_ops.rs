//! Requests about blobs: upload of a whole blob, listing, deletion.

use std::fmt::Write;

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_shares::{Flat, FlatPage, FlatRequest, Link, Properties, Stat};

use crate::blobs::body_to_staging::{Received, receive};
use crate::blobs::publication::{Publication, body_length, written};
use crate::context::Context;
use crate::limits::request_body::{self, sent_md5};
use crate::preconditions::Guard;
use crate::protocol::error::Refusal;
use crate::protocol::listing::{self, page_limit};
use crate::protocol::request::Call;
use crate::protocol::{response, time_format, xml};

/// A whole blob in one request.
pub(crate) async fn put(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let asked = check_type(context.call).and_then(|()| {
        let publication = Publication::of(&context)?;
        Ok((publication, body_length(context.call)?, sent_md5(context.call)?))
    });
    let ((mut publication, len, sent), body) = request_body::with_body(asked, body).await?;
    // The service tells the digest of what it took, and keeps it unless another is said.
    let Received { draft, md5 } = receive(&context, body, len, true).await?;
    if sent.is_some() && sent != md5 {
        return Err(Refusal::new("Md5Mismatch"));
    }
    let md5 = STANDARD.encode(md5.unwrap_or_default());
    if publication.properties.get("content-md5").is_none() {
        assert!(publication.properties.set("content-md5", &md5), "base64 is printable");
    }
    let stat = context.decide_on_disk(move |shares, place| publication.perform(shares, place, draft)).await?;
    let mut response = written(&stat);
    response::set(response.headers_mut(), "content-md5", &md5);
    Ok(response)
}

/// Also forgets blocks that wait for a blob of this name.
pub(crate) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    let guard = Guard::of(context.call, (context.service.now)())?;
    context
        .decide_on_disk(move |shares, place| {
            let container = place.open(shares)?;
            guard.check_entry(&container, &place.path)?;
            container.delete_file(&place.path)?;
            Ok(shares.forget_blocks(&place.account, &place.share, &place.path)?)
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    Ok(response::empty(202))
}

pub(crate) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let limit = page_limit(call)?;
    let (prefix, delimiter) = (call.parameter("prefix").to_owned(), call.parameter("delimiter").to_owned());
    let (from, _) = listing::marked(call.parameter("marker"));
    let page = context
        .on_disk(move |shares, place| {
            let request = FlatRequest { prefix: &prefix, from: &from, delimiter: &delimiter, limit: limit.effective };
            place.open(shares)?.list_flat(request)
        })
        .await?;
    let asked = listing::Asked {
        endpoint: call.endpoint(),
        prefix: call.parameter("prefix"),
        marker: call.parameter("marker"),
        limit: limit.asked,
        encodes: call.encodes_names(),
    };
    let include = call.parameter("include").to_ascii_lowercase();
    let with_metadata = include.split(',').any(|word| word.trim() == "metadata");
    Ok(response::document(document(&asked, (&context.share, call.parameter("delimiter")), &page, with_metadata)))
}

fn document(
    asked: &listing::Asked,
    (container, delimiter): (&str, &str),
    page: &FlatPage,
    with_metadata: bool,
) -> String {
    let mut text = format!(
        "{}<EnumerationResults ServiceEndpoint=\"{}\" ContainerName=\"{}\">",
        xml::DECLARATION,
        xml::escape(&asked.endpoint),
        xml::escape(container)
    );
    listing::echo(&mut text, asked);
    if !delimiter.is_empty() {
        let _ = write!(text, "<Delimiter>{}</Delimiter>", xml::escape(delimiter));
    }
    text.push_str("<Blobs>");
    for item in &page.items {
        match item {
            // To others such a name would be another one.
            Flat::File { name, .. } | Flat::Prefix(name) if !asked.encodes && !xml::can_be_said(name) => {}
            Flat::File { name, stat, link, properties } => {
                blob_xml(&mut text, name, (stat, link.as_deref()), properties, with_metadata);
            }
            Flat::Prefix(name) => {
                text.push_str("<BlobPrefix>");
                xml::push_name(&mut text, "Name", name);
                text.push_str("</BlobPrefix>");
            }
        }
    }
    text.push_str("</Blobs>");
    let next = page.next.as_deref().map(listing::encoded_marker);
    listing::finish(text, next.as_deref())
}

fn blob_xml(
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
        // Without its quotes, as the service lists it.
        stat.etag.trim_matches('"'),
        stat.len,
    );
    xml::push_link(text, link, stat);
    for (element, kept, usual) in [
        ("Content-Type", "content-type", "application/octet-stream"),
        ("Content-Encoding", "content-encoding", ""),
        ("Content-Language", "content-language", ""),
        ("Content-MD5", "content-md5", ""),
        ("Cache-Control", "cache-control", ""),
        ("Content-Disposition", "content-disposition", ""),
    ] {
        match properties.get(kept).unwrap_or(usual) {
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

fn check_type(call: &Call) -> Result<(), Refusal> {
    const HEADER: &str = "x-ms-blob-type";
    match call.header(HEADER) {
        None => Err(Refusal::missing_header(HEADER)),
        Some(kind) if kind.eq_ignore_ascii_case("BlockBlob") => Ok(()),
        Some(kind) if kind.eq_ignore_ascii_case("PageBlob") || kind.eq_ignore_ascii_case("AppendBlob") => {
            Err(Refusal::new("InvalidBlobType"))
        }
        Some(_) => Err(Refusal::header(HEADER)),
    }
}
