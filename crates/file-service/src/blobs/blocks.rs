//! Block blobs uploaded in blocks. Blocks arrive in any order under ids that the client chooses, and a block list says
//! which of them make up the blob. The list can also name committed blocks of the existing blob: their ids and lengths
//! are stored among its properties as long as they are few, and ignored when another writer changed the blob's length.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;

use axum::{body::Body, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use corro_shares::{Block, Properties, Share, ShareError, SharePath, Shares};

use crate::auth::hex;
use crate::blobs::body_to_staging::{StagedBody, stage_body};
use crate::blobs::publication::{BlobPublication, created_response, parse_body_length};
use crate::context::{Location, OperationContext};
use crate::limits::request_body::{self, parse_content_md5};
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::{response, xml};

/// Azure's limits.
const MAX_BLOCKS: usize = 50_000;
const MAX_ID_BYTES: usize = 64;
/// Enough for 50,000 ids of 64 bytes in XML.
const MAX_LIST_BYTES: u64 = 8 << 20;

/// Property that holds the committed blocks as `id:length` words. Never sent as a header.
const BLOCKS_PROPERTY: &str = "blocks";
/// Longer lists are not stored.
const MAX_BLOCKS_PROPERTY: usize = 6000;

pub(crate) async fn put(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let request = context.request;
    let parsed =
        parse_block_id(request).and_then(|id| Ok((id, parse_body_length(request)?, parse_content_md5(request)?)));
    let ((id, len, sent), body) = request_body::or_drain(parsed, body).await?;
    if len == 0 {
        return Err(StorageError::invalid_header("content-length").with_message("A block has at least one byte."));
    }
    let StagedBody { staged, md5 } = stage_body(&context, body, len, sent.is_some()).await?;
    if sent != md5 {
        return Err(StorageError::new("Md5Mismatch"));
    }
    context
        .on_disk(move |shares, location| {
            shares.store_block((&location.account, &location.share), &location.path, &id, staged)
        })
        .await?;
    let mut response = response::empty(201);
    response::set_header(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    if let Some(md5) = md5 {
        response::set_header(response.headers_mut(), "content-md5", &STANDARD.encode(md5));
    }
    Ok(response)
}

/// Creates the blob from the blocks in the list.
pub(crate) async fn commit(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let body = request_body::read_whole(context.request, body, MAX_LIST_BYTES).await?;
    let listed = parse(&body)?;
    let mut publication = BlobPublication::parse(&context)?;
    let stat = context
        .try_on_disk(move |shares, location| {
            let container = location.open(shares)?;
            let mut sources = BlockSources::open(&container, location)?;
            let mut staged = shares.stage_file(&location.account, &location.share)?;
            let mut parts = String::new();
            for entry in &listed {
                let Some((file, start, len)) = sources.find(shares, location, entry)? else {
                    return Err(StorageError::new("InvalidBlockList"));
                };
                if !staged.append_from(file, start, len)? {
                    return Err(StorageError::new("InvalidBlockList"));
                }
                let _ = write!(parts, "{}:{len} ", entry.id);
            }
            publication.properties.remove(BLOCKS_PROPERTY);
            if !parts.is_empty() && parts.len() <= MAX_BLOCKS_PROPERTY {
                assert!(publication.properties.set(BLOCKS_PROPERTY, parts.trim_end()), "digits are printable");
            }
            let stat = publication.publish(shares, location, staged)?;
            shares.discard_blocks(&location.account, &location.share, &location.path)?;
            Ok(stat)
        })
        .await?;
    Ok(created_response(&stat))
}

pub(crate) async fn list(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let request = context.request;
    let which = request.parameter("blocklisttype").to_ascii_lowercase();
    let (with_committed, with_uncommitted) = match which.as_str() {
        "" | "committed" => (true, false),
        "uncommitted" => (false, true),
        "all" => (true, true),
        _ => return Err(StorageError::new("InvalidQueryParameterValue")),
    };
    let (found, committed, uncommitted) = context
        .on_disk(|shares, location| {
            let container = location.open(shares)?;
            let uncommitted = shares.list_blocks(&location.account, &location.share, &location.path)?;
            let found = describe_blob(&container, &location.path)?;
            let committed = found.as_ref().map(|(stat, stored)| load_blocks(stored, stat.len)).unwrap_or_default();
            Ok((found, committed, uncommitted))
        })
        .await?;
    if found.is_none() && uncommitted.is_empty() {
        return Err(StorageError::new("BlobNotFound"));
    }
    let mut text = format!("{}<BlockList>", xml::DECLARATION);
    for (element, blocks, is_requested) in
        [("CommittedBlocks", &committed, with_committed), ("UncommittedBlocks", &uncommitted, with_uncommitted)]
    {
        if !is_requested {
            continue;
        }
        let _ = write!(text, "<{element}>");
        for Block { id, len } in blocks {
            let _ = write!(text, "<Block><Name>{}</Name><Size>{len}</Size></Block>", encode_id(id));
        }
        let _ = write!(text, "</{element}>");
    }
    text.push_str("</BlockList>");
    let mut response = response::xml_document(text);
    if let Some((stat, _)) = found {
        response::set_etag_and_modified(response.headers_mut(), &stat);
        response::set_header(response.headers_mut(), "x-ms-blob-content-length", &stat.len.to_string());
    }
    Ok(response)
}

/// Finds the bytes of the blocks that a block list names.
struct BlockSources {
    /// The existing blob, and offset and length of its committed blocks by id.
    blob: Option<File>,
    parts: HashMap<String, (u64, u64)>,
    /// Uncommitted block that was found last.
    open: Option<File>,
}

impl BlockSources {
    fn open(container: &Share, location: &Location) -> Result<Self, ShareError> {
        let (mut parts, mut blob) = (HashMap::new(), None);
        if let Some((stat, stored)) = describe_blob(container, &location.path)? {
            let mut start = 0;
            for Block { id, len } in load_blocks(&stored, stat.len) {
                parts.insert(id, (start, len));
                start += len;
            }
            blob = container.open_file(&location.path).ok().map(|(file, _)| file);
        }
        Ok(BlockSources { blob, parts, open: None })
    }

    /// File, offset and length of a block; `None` when there is no such block.
    fn find(
        &mut self,
        shares: &Shares,
        location: &Location,
        entry: &BlockRef,
    ) -> Result<Option<(&File, u64, u64)>, ShareError> {
        if entry.state != BlockState::Committed {
            let uncommitted = shares.open_block((&location.account, &location.share), &location.path, &entry.id)?;
            if let Some(file) = uncommitted {
                let len = file.metadata().map_or(0, |metadata| metadata.len());
                return Ok(Some((self.open.insert(file), 0, len)));
            }
        }
        let part = self.parts.get(&entry.id).filter(|_| entry.state != BlockState::Uncommitted);
        Ok(part.and_then(|(start, len)| Some((self.blob.as_ref()?, *start, *len))))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockState {
    Committed,
    Uncommitted,
    /// The uncommitted block if there is one, else the committed one.
    Latest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockRef {
    state: BlockState,
    id: String,
}

fn parse(body: &[u8]) -> Result<Vec<BlockRef>, StorageError> {
    let root = std::str::from_utf8(body).ok().and_then(|text| corro_model::xml::parse(text, MAX_BLOCKS + 2));
    let root = root.filter(|root| root.name == "BlockList").ok_or(StorageError::new("InvalidXmlDocument"))?;
    if root.children.len() > MAX_BLOCKS {
        return Err(StorageError::new("BlockListTooLong"));
    }
    let listed = root.children.iter().map(|element| {
        let state = match element.name.as_str() {
            "Committed" => BlockState::Committed,
            "Uncommitted" => BlockState::Uncommitted,
            "Latest" => BlockState::Latest,
            name => {
                return Err(StorageError::new("UnsupportedXmlNode")
                    .with_message(format!("The element {name} is not allowed in a block list.")));
            }
        };
        Ok(BlockRef { state, id: decode_id(element.text.trim())? })
    });
    listed.collect()
}

fn parse_block_id(request: &StorageRequest) -> Result<String, StorageError> {
    decode_id(request.parameter("blockid"))
}

/// Block id in hexadecimal, which is a valid file name.
fn decode_id(text: &str) -> Result<String, StorageError> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| (1..=MAX_ID_BYTES).contains(&bytes.len()));
    Ok(hex(&bytes.ok_or(StorageError::new("InvalidBlockId"))?))
}

/// Block id as the client sent it, in base64.
fn encode_id(id: &str) -> String {
    let bytes: Vec<u8> =
        (0..id.len() / 2).filter_map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).ok()).collect();
    STANDARD.encode(bytes)
}

/// The blob, if it exists.
fn describe_blob(container: &Share, path: &SharePath) -> Result<Option<(corro_shares::Stat, Properties)>, ShareError> {
    match container.stat_file(path).and_then(|_| container.describe(path)) {
        Ok(describe_blob) => Ok(Some(describe_blob)),
        Err(ShareError::NotFound(_) | ShareError::WrongKind(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Committed blocks of a blob of that length; empty if their lengths do not add up to it.
fn load_blocks(properties: &Properties, len: u64) -> Vec<Block> {
    let words = properties.get(BLOCKS_PROPERTY).unwrap_or_default().split_whitespace();
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
    fn block_lists_are_parsed_and_invalid_ones_rejected() {
        let text = "<?xml version=\"1.0\"?><BlockList><Latest>QUE=</Latest><Committed>QUI=</Committed>\
                    <Uncommitted> QUM= </Uncommitted></BlockList>";
        let listed = parse(text.as_bytes()).expect("a list");
        let ids: Vec<_> = listed.iter().map(|entry| (entry.state, entry.id.as_str())).collect();
        assert_eq!(
            ids,
            [(BlockState::Latest, "4141"), (BlockState::Committed, "4142"), (BlockState::Uncommitted, "4143")]
        );
        assert_eq!(encode_id("4141"), "QUE=");
        for (text, code) in [
            ("", "InvalidXmlDocument"),
            ("<Blocks/>", "InvalidXmlDocument"),
            ("<BlockList><Block>QUE=</Block></BlockList>", "UnsupportedXmlNode"),
            ("<BlockList><Latest>no!</Latest></BlockList>", "InvalidBlockId"),
            ("<BlockList><Latest></Latest></BlockList>", "InvalidBlockId"),
        ] {
            assert_eq!(parse(text.as_bytes()).map_err(|error| error.code), Err(code), "{text}");
        }
        assert_eq!(parse(b"<BlockList/>"), Ok(Vec::new()));
    }

    #[test]
    fn stored_blocks_that_do_not_add_up_are_ignored() {
        let mut properties = Properties::default();
        assert!(properties.set(BLOCKS_PROPERTY, "41:3 42:4"));
        assert_eq!(load_blocks(&properties, 7).len(), 2);
        assert_eq!(load_blocks(&properties, 8), []);
        assert!(properties.set(BLOCKS_PROPERTY, "41:x"));
        assert_eq!(load_blocks(&properties, 0), []);
    }
}
