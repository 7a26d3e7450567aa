//! Blobs in parts: blocks come in any order, under ids that the client makes up, and a list says which of them are the
//! blob. The list may also name parts of the blob as it is, if they are known: they are kept with it as long as they are few,
//! and forgotten when somebody else changes its length.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_shares::{Block, Properties, Share, ShareError, SharePath, Shares};

use crate::auth::hex;
use crate::blobs::body_to_staging::{Received, receive};
use crate::blobs::publication::{Publication, body_length, written};
use crate::context::{Context, Place};
use crate::limits::request_body::{self, sent_md5};
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::{response, xml, xml_parse};

/// The service's limits.
const MAX_BLOCKS: usize = 50_000;
const MAX_ID: usize = 64;
/// 50,000 ids of 64 bytes, written in XML.
const MAX_LIST: u64 = 8 << 20;

/// The name under which the parts of a blob are kept with it: `id:length`, one after the other. Never a header.
const KEPT: &str = "blocks";
/// With more, they are not kept.
const MAX_KEPT: usize = 6000;

pub(crate) async fn put(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let call = context.call;
    let asked = id_of(call).and_then(|id| Ok((id, body_length(call)?, sent_md5(call)?)));
    let ((id, len, sent), body) = request_body::with_body(asked, body).await?;
    if len == 0 {
        return Err(Refusal::header("content-length").saying("A block has at least one byte."));
    }
    let Received { draft, md5 } = receive(&context, body, len, sent.is_some()).await?;
    if sent != md5 {
        return Err(Refusal::new("Md5Mismatch"));
    }
    context
        .on_disk(move |shares, place| shares.keep_block((&place.account, &place.share), &place.path, &id, draft))
        .await?;
    let mut response = response::empty(201);
    response::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    if let Some(md5) = md5 {
        response::set(response.headers_mut(), "content-md5", &STANDARD.encode(md5));
    }
    Ok(response)
}

/// Makes the blob out of what the list names.
pub(crate) async fn commit(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let body = request_body::read_whole(context.call, body, MAX_LIST).await?;
    let listed = parse(&body)?;
    let mut publication = Publication::of(&context)?;
    let stat = context
        .decide_on_disk(move |shares, place| {
            let container = place.open(shares)?;
            let mut sources = Sources::of(&container, place)?;
            let mut draft = shares.draft(&place.account, &place.share)?;
            let mut parts = String::new();
            for entry in &listed {
                let Some((file, start, len)) = sources.find(shares, place, entry)? else {
                    return Err(Refusal::new("InvalidBlockList"));
                };
                if !draft.append_from(file, start, len)? {
                    return Err(Refusal::new("InvalidBlockList"));
                }
                let _ = write!(parts, "{}:{len} ", entry.id);
            }
            publication.properties.remove(KEPT);
            if !parts.is_empty() && parts.len() <= MAX_KEPT {
                assert!(publication.properties.set(KEPT, parts.trim_end()), "digits are printable");
            }
            let stat = publication.perform(shares, place, draft)?;
            shares.forget_blocks(&place.account, &place.share, &place.path)?;
            Ok(stat)
        })
        .await?;
    Ok(written(&stat))
}

pub(crate) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let which = call.parameter("blocklisttype").to_ascii_lowercase();
    let (of_blob, waiting) = match which.as_str() {
        "" | "committed" => (true, false),
        "uncommitted" => (false, true),
        "all" => (true, true),
        _ => return Err(Refusal::new("InvalidQueryParameterValue")),
    };
    let (found, committed, uncommitted) = context
        .on_disk(|shares, place| {
            let container = place.open(shares)?;
            let uncommitted = shares.blocks(&place.account, &place.share, &place.path)?;
            let found = described(&container, &place.path)?;
            let committed = found.as_ref().map(|(stat, kept)| kept_in(kept, stat.len)).unwrap_or_default();
            Ok((found, committed, uncommitted))
        })
        .await?;
    if found.is_none() && uncommitted.is_empty() {
        return Err(Refusal::new("BlobNotFound"));
    }
    let mut text = format!("{}<BlockList>", xml::DECLARATION);
    for (element, blocks, is_asked) in
        [("CommittedBlocks", &committed, of_blob), ("UncommittedBlocks", &uncommitted, waiting)]
    {
        if !is_asked {
            continue;
        }
        let _ = write!(text, "<{element}>");
        for Block { id, len } in blocks {
            let _ = write!(text, "<Block><Name>{}</Name><Size>{len}</Size></Block>", shown(id));
        }
        let _ = write!(text, "</{element}>");
    }
    text.push_str("</BlockList>");
    let mut response = response::document(text);
    if let Some((stat, _)) = found {
        response::set_stat(response.headers_mut(), &stat);
        response::set(response.headers_mut(), "x-ms-blob-content-length", &stat.len.to_string());
    }
    Ok(response)
}

/// Where the bytes of a block are.
struct Sources {
    /// The blob as it is, and where its parts lie in it.
    blob: Option<File>,
    parts: HashMap<String, (u64, u64)>,
    /// The block that was found last.
    open: Option<File>,
}

impl Sources {
    fn of(container: &Share, place: &Place) -> Result<Self, ShareError> {
        let (mut parts, mut blob) = (HashMap::new(), None);
        if let Some((stat, kept)) = described(container, &place.path)? {
            let mut start = 0;
            for Block { id, len } in kept_in(&kept, stat.len) {
                parts.insert(id, (start, len));
                start += len;
            }
            blob = container.open_file(&place.path).ok().map(|(file, _)| file);
        }
        Ok(Sources { blob, parts, open: None })
    }

    /// The file, the first byte and how many; `None` when there is no such block.
    fn find(
        &mut self,
        shares: &Shares,
        place: &Place,
        entry: &Listed,
    ) -> Result<Option<(&File, u64, u64)>, ShareError> {
        if entry.from != Whence::Committed {
            let waiting = shares.open_block((&place.account, &place.share), &place.path, &entry.id)?;
            if let Some(file) = waiting {
                let len = file.metadata().map_or(0, |metadata| metadata.len());
                return Ok(Some((self.open.insert(file), 0, len)));
            }
        }
        let part = self.parts.get(&entry.id).filter(|_| entry.from != Whence::Uncommitted);
        Ok(part.and_then(|(start, len)| Some((self.blob.as_ref()?, *start, *len))))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whence {
    Committed,
    Uncommitted,
    /// Those that wait first.
    Latest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    from: Whence,
    id: String,
}

fn parse(body: &[u8]) -> Result<Vec<Listed>, Refusal> {
    let root = std::str::from_utf8(body).ok().and_then(|text| xml_parse::parse_long(text, MAX_BLOCKS + 2));
    let root = root.filter(|root| root.name == "BlockList").ok_or(Refusal::new("InvalidXmlDocument"))?;
    if root.children.len() > MAX_BLOCKS {
        return Err(Refusal::new("BlockListTooLong"));
    }
    let listed = root.children.iter().map(|element| {
        let from = match element.name.as_str() {
            "Committed" => Whence::Committed,
            "Uncommitted" => Whence::Uncommitted,
            "Latest" => Whence::Latest,
            name => return Err(Refusal::new("UnsupportedXmlNode").saying(format!("{name} names no block."))),
        };
        Ok(Listed { from, id: decoded(element.text.trim())? })
    });
    listed.collect()
}

fn id_of(call: &Call) -> Result<String, Refusal> {
    decoded(call.parameter("blockid"))
}

/// An id in hexadecimal, which can be a file's name.
fn decoded(text: &str) -> Result<String, Refusal> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| (1..=MAX_ID).contains(&bytes.len()));
    Ok(hex(&bytes.ok_or(Refusal::new("InvalidBlockId"))?))
}

/// An id as the client wrote it.
fn shown(id: &str) -> String {
    let bytes: Vec<u8> =
        (0..id.len() / 2).filter_map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).ok()).collect();
    STANDARD.encode(bytes)
}

/// The blob, if there is one.
fn described(container: &Share, path: &SharePath) -> Result<Option<(corro_shares::Stat, Properties)>, ShareError> {
    match container.stat_file(path).and_then(|_| container.describe(path)) {
        Ok(described) => Ok(Some(described)),
        Err(ShareError::NotFound(_) | ShareError::WrongKind(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The parts of a blob of that length; none if they do not add up to it.
fn kept_in(properties: &Properties, len: u64) -> Vec<Block> {
    let words = properties.get(KEPT).unwrap_or_default().split_whitespace();
    let block = |word: &str| {
        let (id, len) = word.split_once(':')?;
        Some(Block { id: id.to_owned(), len: len.parse().ok()? })
    };
    let blocks: Option<Vec<Block>> = words.map(block).collect();
    blocks.filter(|blocks| blocks.iter().map(|block| block.len).sum::<u64>() == len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_blocks_are_read_and_bad_ones_named() {
        let text = "<?xml version=\"1.0\"?><BlockList><Latest>QUE=</Latest><Committed>QUI=</Committed>\
                    <Uncommitted> QUM= </Uncommitted></BlockList>";
        let listed = parse(text.as_bytes()).expect("a list");
        let ids: Vec<_> = listed.iter().map(|entry| (entry.from, entry.id.as_str())).collect();
        assert_eq!(ids, [(Whence::Latest, "4141"), (Whence::Committed, "4142"), (Whence::Uncommitted, "4143")]);
        assert_eq!(shown("4141"), "QUE=");
        for (text, code) in [
            ("", "InvalidXmlDocument"),
            ("<Blocks/>", "InvalidXmlDocument"),
            ("<BlockList><Block>QUE=</Block></BlockList>", "UnsupportedXmlNode"),
            ("<BlockList><Latest>no!</Latest></BlockList>", "InvalidBlockId"),
            ("<BlockList><Latest></Latest></BlockList>", "InvalidBlockId"),
        ] {
            assert_eq!(parse(text.as_bytes()).map_err(|refusal| refusal.code), Err(code), "{text}");
        }
        assert_eq!(parse(b"<BlockList/>"), Ok(Vec::new()));
    }

    #[test]
    fn parts_that_do_not_add_up_are_none() {
        let mut properties = Properties::default();
        assert!(properties.set(KEPT, "41:3 42:4"));
        assert_eq!(kept_in(&properties, 7).len(), 2);
        assert_eq!(kept_in(&properties, 8), []);
        assert!(properties.set(KEPT, "41:x"));
        assert_eq!(kept_in(&properties, 0), []);
    }
}
