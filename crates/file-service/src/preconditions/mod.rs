//! Preconditions of a request on a file or share: its lease, its read-only attribute and the conditional headers.
//! Checked on the blocking thread immediately before the operation.

pub(crate) mod conditional_headers;
pub(crate) mod lease;
pub(crate) mod lease_headers;
pub(crate) mod lease_ops;

use corro_shares::{Kind, Properties, Share, ShareError, SharePath, Stat};

use crate::preconditions::conditional_headers::ConditionalHeaders;
use crate::preconditions::lease::Lease;
use crate::preconditions::lease_headers::{LeaseTarget, lease_id};
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::smb_properties;

pub(crate) struct Preconditions {
    lease_id: Option<String>,
    conditions: ConditionalHeaders,
    now: i64,
    ignores_read_only: bool,
}

impl Preconditions {
    pub fn parse(request: &StorageRequest, now: i64) -> Result<Self, StorageError> {
        Self::parse_with_lease_header(request, "x-ms-lease-id", now)
    }

    /// For requests about two files, each with a lease header of its own.
    pub fn parse_with_lease_header(
        request: &StorageRequest,
        header: &'static str,
        now: i64,
    ) -> Result<Self, StorageError> {
        let conditions = ConditionalHeaders::parse(request);
        Ok(Preconditions { lease_id: lease_id(request, header)?, conditions, now, ignores_read_only: false })
    }

    pub fn ignoring_read_only(self, ignores: bool) -> Self {
        Preconditions { ignores_read_only: ignores, ..self }
    }

    pub fn without_conditions(self) -> Self {
        Preconditions { conditions: ConditionalHeaders::default(), ..self }
    }

    /// Before a file is changed, replaced, renamed or removed. A file that does not exist has no lease.
    pub fn check_write(&self, share: &Share, path: &SharePath) -> Result<(), StorageError> {
        let (stat, properties) = match share.describe(path) {
            Err(ShareError::NotFound(_)) => return self.check_new(),
            // A file that the server cannot read has no lease. The file system decides whether it can be changed.
            Err(ShareError::PermissionDenied { .. }) => (share.stat(path)?, Properties::default()),
            described => described?,
        };
        self.check_lease(&properties, LeaseTarget::File, true)?;
        if !self.ignores_read_only && smb_properties::is_read_only(&properties) {
            return Err(StorageError::new("ReadOnlyAttribute"));
        }
        self.conditions.check_write(&stat)
    }

    /// Before a directory entry is removed, renamed or replaced. A symbolic link has neither lease nor attributes,
    /// whatever its target has; conditional headers apply to what a read of it returns.
    pub fn check_entry(&self, share: &Share, path: &SharePath) -> Result<(), StorageError> {
        match share.lstat(path) {
            Ok(entry) if entry.kind == Kind::Link => match self.lease_id {
                Some(_) => Err(StorageError::new("LeaseNotPresentWithFileOperation")),
                None => self.conditions.check_write(&share.stat_file(path).unwrap_or(entry)),
            },
            _ => self.check_write(share, path),
        }
    }

    /// Before a file is read.
    pub fn check_read(&self, stat: &Stat, properties: &Properties) -> Result<(), StorageError> {
        self.check_lease(properties, LeaseTarget::File, false)?;
        self.conditions.check_read(stat)
    }

    /// Before a share is deleted (`must_hold`), read or changed.
    pub fn check_share(&self, properties: &Properties, must_hold: bool) -> Result<(), StorageError> {
        self.check_lease(properties, LeaseTarget::Share, must_hold)
    }

    fn check_new(&self) -> Result<(), StorageError> {
        match self.lease_id {
            Some(_) => Err(StorageError::new("LeaseNotPresentWithFileOperation")),
            None => self.conditions.check_absent(),
        }
    }

    fn check_lease(&self, properties: &Properties, target: LeaseTarget, must_hold: bool) -> Result<(), StorageError> {
        let lease = Lease::load(properties, self.now);
        let code = match (self.lease_id.as_deref(), target) {
            (None, _) if must_hold && lease.is_held() => "LeaseIdMissing",
            (None, _) => return Ok(()),
            (own @ Some(_), _) if lease.is_held() && own == lease.id() => return Ok(()),
            (own @ Some(_), LeaseTarget::File) if !lease.is_held() && own == lease.id() => "LeaseLost",
            (Some(_), LeaseTarget::File) if lease.is_held() => "LeaseIdMismatchWithFileOperation",
            (Some(_), LeaseTarget::File) => "LeaseNotPresentWithFileOperation",
            // Azure uses the container codes for shares.
            (Some(_), LeaseTarget::Share) if lease.is_held() => "LeaseIdMismatchWithContainerOperation",
            (Some(_), LeaseTarget::Share) => "LeaseNotPresentWithContainerOperation",
        };
        Err(StorageError::new(code))
    }
}
