//! Listing of shares and containers: the page that was asked for, and the XML document of shares. Pure.

use std::fmt::Write;

use corro_shares::{Properties, SnapshotId, TreeEntry};

use crate::protocol::error::Refusal;
use crate::protocol::listing::{Asked, echo, finish, page_limit};
use crate::protocol::request::Call;
use crate::protocol::time_format::http_date;
use crate::protocol::xml::{DECLARATION, escape, push_metadata};

/// A share in a listing, or one of its snapshots.
pub(crate) struct Listed {
    pub snapshot: Option<SnapshotId>,
    pub share: TreeEntry,
}

/// The part of a listing of shares or containers that was asked for.
pub(crate) struct TreePage<'a, T> {
    pub asked: Asked<'a>,
    pub trees: Vec<T>,
    pub next: Option<String>,
}

pub(crate) fn page<T>(
    call: &Call,
    mut trees: Vec<T>,
    name: impl Fn(&T) -> &String,
) -> Result<TreePage<'_, T>, Refusal> {
    let (prefix, marker) = (call.parameter("prefix"), call.parameter("marker"));
    let limit = page_limit(call)?;
    trees.retain(|tree| name(tree).starts_with(prefix) && name(tree).as_str() >= marker);
    // A page ends between two names: snapshots stay with their share.
    let mut end = limit.effective.min(trees.len());
    while end < trees.len() && end > 0 && name(&trees[end]) == name(&trees[end - 1]) {
        end += 1;
    }
    let next = trees.get(end).map(|tree| name(tree).clone());
    trees.truncate(end);
    let asked = Asked { endpoint: call.endpoint(), prefix, marker, limit: limit.asked, encodes: call.encodes_names() };
    Ok(TreePage { asked, trees, next })
}

pub(crate) fn shares_document(
    asked: &Asked,
    shares: &[Listed],
    describe: impl Fn(&Properties) -> String,
    with_metadata: bool,
    next: Option<&str>,
) -> String {
    let mut xml = format!("{DECLARATION}<EnumerationResults ServiceEndpoint=\"{}\">", escape(&asked.endpoint));
    echo(&mut xml, asked);
    xml.push_str("<Shares>");
    for Listed { snapshot, share } in shares {
        let _ = write!(xml, "<Share><Name>{}</Name>", escape(&share.name));
        if let Some(id) = snapshot {
            let _ = write!(xml, "<Snapshot>{}</Snapshot>", id.as_str());
        }
        let _ = write!(
            xml,
            "<Properties><Last-Modified>{}</Last-Modified><Etag>{}</Etag>{}</Properties>",
            http_date(share.modified),
            escape(&share.etag),
            describe(&share.properties),
        );
        if with_metadata {
            push_metadata(&mut xml, &share.properties);
        }
        xml.push_str("</Share>");
    }
    xml.push_str("</Shares>");
    finish(xml, next)
}
