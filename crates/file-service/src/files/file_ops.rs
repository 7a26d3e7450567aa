//! Requests about files that transfer no content: create, properties, resize, list of ranges, deletion.

use std::fmt::Write;

use axum::response::Response;
use corro_shares::{Kind, Properties, ShareError, Shares, SnapshotDiff};

use crate::context::{Location, OperationContext};
use crate::files::file_headers::{FileDescription, parent_id, set_file_headers};
use crate::preconditions::Preconditions;
use crate::preconditions::lease::Lease;
use crate::protocol::error::StorageError;
use crate::protocol::request::{self, StorageRequest};
use crate::protocol::smb_properties::{self, SmbProperties, SmbSettings};
use crate::protocol::xml::DECLARATION;
use crate::protocol::{metadata_headers, mount_headers, range, response};
use crate::shares::permissions;
use crate::shares::quota::check_quota;

/// Azure's limit: 4 TiB.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 42;

pub(crate) async fn create(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let request = context.request;
    match request.header("x-ms-type") {
        None => return Err(StorageError::missing_header("x-ms-type")),
        Some(kind) if !kind.eq_ignore_ascii_case("file") => return Err(StorageError::invalid_header("x-ms-type")),
        Some(_) => {}
    }
    let len = requested_length(request)?.ok_or(StorageError::missing_header("x-ms-content-length"))?;
    let create = CreateFile::parse(&context)?;
    let file = context.try_on_disk(move |shares, location| create.execute(shares, location, len)).await?;
    Ok(changed_response(201, request, &file))
}

/// Parsed request to create a file.
pub(crate) struct CreateFile {
    properties: Properties,
    smb: SmbSettings,
    preconditions: Preconditions,
    exclusive: bool,
    may_replace: bool,
    reports_parent: bool,
}

impl CreateFile {
    pub(crate) fn parse(context: &OperationContext<'_>) -> Result<CreateFile, StorageError> {
        let request = context.request;
        let exclusive = mount_headers::is_exclusive(request)?;
        Ok(CreateFile {
            properties: metadata_headers::parse_properties(request)?,
            smb: SmbSettings::parse(request, Kind::File)?,
            preconditions: Preconditions::parse(request, (context.state.now)())?,
            exclusive,
            may_replace: context.may_replace && !exclusive,
            reports_parent: request.supports_smb_headers(),
        })
    }

    /// Creates the file on disk.
    pub(crate) fn execute(
        mut self,
        shares: &Shares,
        location: &Location,
        len: u64,
    ) -> Result<FileDescription, StorageError> {
        let share = location.open(shares)?;
        self.preconditions.check_write(&share, &location.path)?;
        permissions::resolve(&mut self.smb, shares, location)?;
        check_quota(&share, &location.path, len)?;
        let mut properties = self.properties;
        let made = share.create_file_as(&location.path, len, self.may_replace, |before, stat| {
            Lease::copy(before, &mut properties);
            self.smb.apply_to_new(&mut properties, stat);
            properties.clone()
        });
        let stat = made.map_err(|error| creation_error(error, self.may_replace || self.exclusive))?;
        let parent = if self.reports_parent { parent_id(&share, &location.path) } else { 0 };
        Ok(FileDescription { stat, properties, parent })
    }
}

/// A caller that may only create files does not learn that the file exists.
pub(crate) fn creation_error(error: ShareError, may_replace: bool) -> StorageError {
    match error {
        ShareError::AlreadyExists(_) if !may_replace => StorageError::new("AuthorizationPermissionMismatch"),
        error => error.into(),
    }
}

/// Response to a successful change.
fn changed_response(
    status: u16,
    request: &StorageRequest,
    FileDescription { stat, properties, parent }: &FileDescription,
) -> Response {
    let mut response = response::empty(status);
    response::set_etag_and_modified(response.headers_mut(), stat);
    response::set_smb_headers(response.headers_mut(), request, (stat, properties), *parent);
    response::set_header(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}

pub(crate) async fn properties(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let found = context
        .on_disk(|shares, location| {
            let share = location.open(shares)?;
            let (stat, properties) = share.describe_content(&location.path)?;
            Ok(FileDescription { stat, properties, parent: parent_id(&share, &location.path) })
        })
        .await;
    let mut file = found.map_err(StorageError::type_mismatch_as_not_found)?;
    let now = (context.state.now)();
    Preconditions::parse(context.request, now)?.check_read(&file.stat, &file.properties)?;
    context.state.copies.fail_if_interrupted(&mut file.properties);
    let stat = &file.stat;
    let mut response = response::empty(200);
    set_file_headers(response.headers_mut(), context.request, &file, now);
    if context.request.method == http::Method::HEAD {
        response::set_header(response.headers_mut(), "content-length", &stat.len.to_string());
    }
    Ok(response)
}

/// `comp=metadata` replaces the metadata. `comp=properties` resizes if a length is given, sets the SMB properties, and
/// replaces all content settings unless the length is the only setting.
pub(crate) async fn set(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let request = context.request;
    let only_metadata = request.parameter("comp").eq_ignore_ascii_case("metadata");
    let len = match only_metadata {
        true => None,
        false => requested_length(request)?,
    };
    let requested = metadata_headers::parse_properties(request)?;
    let only_length = len.is_some() && !metadata_headers::has_content_settings(request);
    let mut smb = if only_metadata { SmbSettings::default() } else { SmbSettings::parse(request, Kind::File)? };
    let preserves_last_write_time =
        request.header("x-ms-file-last-write-time").is_some_and(|word| word.eq_ignore_ascii_case("preserve"));
    // The read-only attribute must not prevent its own removal.
    let preconditions = Preconditions::parse(request, (context.state.now)())?.ignoring_read_only(len.is_none());
    let file = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            share.stat_file(&location.path)?;
            preconditions.check_write(&share, &location.path)?;
            permissions::resolve(&mut smb, shares, location)?;
            if let Some(len) = len {
                check_quota(&share, &location.path, len)?;
                let (before, stored) = share.describe(&location.path)?;
                share.resize(&location.path, len)?;
                if preserves_last_write_time {
                    let written = SmbProperties::load(&before, &stored).written;
                    share.change_properties_keep_mtime(&location.path, |stored, stat| {
                        smb_properties::keep_last_write_time(stored, &written, stat);
                        Ok::<_, StorageError>(())
                    })?;
                }
            }
            if !only_length || smb != SmbSettings::default() {
                share.change_properties_with(&location.path, |stored, before, at| {
                    match (only_metadata, only_length) {
                        (true, _) => metadata_headers::replace_metadata(stored, &requested),
                        (false, false) => metadata_headers::replace_content(stored, &requested),
                        (false, true) => {}
                    }
                    smb.apply_to_existing(stored, before, at);
                })?;
            }
            let (stat, properties) = share.describe(&location.path)?;
            Ok(FileDescription { stat, properties, parent: parent_id(&share, &location.path) })
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    Ok(changed_response(200, request, &file))
}

/// Lists the ranges that have data; with `prevsharesnapshot`, the ranges that differ from that snapshot.
pub(crate) async fn ranges(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let spec = range::parse_read_range(context.request)?;
    let since = request::parse_snapshot_parameter(&context.request.raw_query, "prevsharesnapshot")?;
    let preconditions = Preconditions::parse(context.request, (context.state.now)())?;
    let (mut difference, stat) = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            let (stat, properties) = share.describe_content(&location.path)?;
            preconditions.check_read(&stat, &properties)?;
            Ok(match since {
                None => {
                    let (written, stat) = share.data_ranges(&location.path)?;
                    (corro_shares::SnapshotDiff { written, cleared: Vec::new() }, stat)
                }
                Some(id) => {
                    let earlier = shares.snapshot(&location.account, &location.share, &id)?;
                    share.diff_since(&location.path, &earlier)?
                }
            })
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    if let Some(spec) = spec {
        let range = spec.clip(stat.len).ok_or(StorageError::range_not_satisfiable(stat.len))?;
        for ranges in [&mut difference.written, &mut difference.cleared] {
            ranges.retain(|(first, last)| *first < range.end && *last >= range.start);
            for (first, last) in ranges {
                (*first, *last) = ((*first).max(range.start), (*last).min(range.end - 1));
            }
        }
    }
    let mut response = response::xml_document(ranges_document(&difference));
    response::set_etag_and_modified(response.headers_mut(), &stat);
    response::set_header(response.headers_mut(), "x-ms-content-length", &stat.len.to_string());
    Ok(response)
}

pub(crate) async fn delete(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let preconditions = Preconditions::parse(context.request, (context.state.now)())?;
    context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            preconditions.check_entry(&share, &location.path)?;
            Ok(share.delete_file(&location.path)?)
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    Ok(response::empty(202))
}

fn requested_length(request: &StorageRequest) -> Result<Option<u64>, StorageError> {
    match request.number("x-ms-content-length")? {
        Some(len) if len > MAX_FILE_BYTES => Err(StorageError::invalid_header("x-ms-content-length")),
        len => Ok(len),
    }
}

fn ranges_document(difference: &SnapshotDiff) -> String {
    let written = difference.written.iter().map(|range| ("Range", range));
    let mut all: Vec<_> = written.chain(difference.cleared.iter().map(|range| ("ClearRange", range))).collect();
    all.sort_by_key(|(_, range)| **range);
    let mut xml = format!("{DECLARATION}<Ranges>");
    for (element, (start, end)) in all {
        let _ = write!(xml, "<{element}><Start>{start}</Start><End>{end}</End></{element}>");
    }
    xml.push_str("</Ranges>");
    xml
}
