//! Requests about blobs, which are the files of a container: what the blob service has and the file service has not.
//! Whole blobs in (`put`), in blocks (`blocks`), listings, deletion. Reading, properties and metadata are those of files.
//!
//! A blob takes its name when all of it is there, in one step: an upload that breaks off changes nothing.

pub(super) mod blocks;
mod receiving;

use std::fmt::Write;

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_shares::{Draft, Flat, FlatPage, FlatRequest, Link, Properties, Shares, Stat};

use self::receiving::{Received, receive};
use super::{
    Context, Place, about,
    call::Call,
    content::replaced,
    directories::page_limit,
    guard::Guard,
    lease::Lease,
    refusal::Refusal,
    reply,
    upload::{self, sent_md5},
    xml,
};

/// The service's largest body of one request: 5000 MiB.
const MAX_BODY: u64 = 5000 << 20;

/// A whole blob in one request.
pub(super) async fn put(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let asked = check_type(context.call).and_then(|()| {
        let publication = Publication::of(&context)?;
        Ok((publication, body_length(context.call)?, sent_md5(context.call)?))
    });
    let ((mut publication, len, sent), body) = upload::with_body(asked, body).await?;
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
    reply::set(response.headers_mut(), "content-md5", &md5);
    Ok(response)
}

/// Also forgets blocks that wait for a blob of this name.
pub(super) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
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
    Ok(reply::empty(202))
}

pub(super) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let limit = page_limit(call)?;
    let (prefix, delimiter) = (call.parameter("prefix").to_owned(), call.parameter("delimiter").to_owned());
    let (from, _) = xml::marked(call.parameter("marker"));
    let page = context
        .on_disk(move |shares, place| {
            let request = FlatRequest { prefix: &prefix, from: &from, delimiter: &delimiter, limit: limit.effective };
            place.open(shares)?.list_flat(request)
        })
        .await?;
    let asked = xml::Asked {
        endpoint: call.endpoint(),
        prefix: call.parameter("prefix"),
        marker: call.parameter("marker"),
        limit: limit.asked,
        encodes: call.encodes_names(),
    };
    let include = call.parameter("include").to_ascii_lowercase();
    let with_metadata = include.split(',').any(|word| word.trim() == "metadata");
    Ok(reply::document(document(&asked, (&context.share, call.parameter("delimiter")), &page, with_metadata)))
}

fn document(asked: &xml::Asked, (container, delimiter): (&str, &str), page: &FlatPage, with_metadata: bool) -> String {
    let mut text = format!(
        "{}<EnumerationResults ServiceEndpoint=\"{}\" ContainerName=\"{}\">",
        xml::DECLARATION,
        xml::escape(&asked.endpoint),
        xml::escape(container)
    );
    xml::echo(&mut text, asked);
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
    let next = page.next.as_deref().map(xml::encoded_marker);
    xml::finish(text, next.as_deref())
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
        reply::http_date(stat.created),
        reply::http_date(stat.modified),
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

/// How a draft becomes a blob: what is kept with it, and what must hold.
struct Publication {
    properties: Properties,
    guard: Guard,
    may_replace: bool,
    /// Only if there is none of the name.
    is_new: bool,
}

impl Publication {
    fn of(context: &Context<'_>) -> Result<Self, Refusal> {
        let call = context.call;
        let is_new = call.header("if-none-match").is_some_and(|tags| tags.trim() == "*");
        let guard = Guard::of(call, (context.service.now)())?;
        // Said by the step that makes it, so that of two who ask at once one is refused.
        let guard = if is_new { guard.unconditional() } else { guard };
        Ok(Publication { properties: about::of(call)?, guard, may_replace: context.may_replace, is_new })
    }

    fn perform(self, shares: &Shares, place: &Place, draft: Draft) -> Result<Stat, Refusal> {
        let Publication { mut properties, guard, may_replace, is_new } = self;
        let container = place.open(shares)?;
        // A directory is no blob: whether it can make room for one is seen when it must.
        match guard.check_write(&container, &place.path) {
            Err(refusal) if refusal.code == "ResourceNotFound" => {}
            checked => checked?,
        }
        if let Ok((_, before)) = container.describe(&place.path) {
            Lease::carry(&before, &mut properties);
        }
        let replace = may_replace && !is_new;
        let published = draft.publish(&container, &place.path, replace, &properties);
        published.map_err(|error| if is_new { error.into() } else { replaced(error, may_replace) })
    }
}

/// The answer to one that was written.
fn written(stat: &Stat) -> Response {
    let mut response = reply::empty(201);
    reply::set_stat(response.headers_mut(), stat);
    reply::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
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

fn body_length(call: &Call) -> Result<u64, Refusal> {
    match call.number("content-length")? {
        None => Err(Refusal::new("MissingContentLengthHeader")),
        Some(len) if len > MAX_BODY => Err(Refusal::new("RequestBodyTooLarge")
            .saying("The body is larger than 5000 MiB, the most for one request: upload the blob in blocks.")),
        Some(len) => Ok(len),
    }
}
