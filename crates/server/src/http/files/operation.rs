//! The table of requests: verb, what the URL points at, `restype` and `comp` name one operation.
//! What is not in the table is refused. Pure; also says what a shared access signature must
//! permit for each.

use corro_model::storage::sas::Permission;
use http::Method;

use super::{
    call::{Call, Target},
    refusal::Refusal,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    ListShares,
    CreateShare,
    ShareProperties,
    SetShare,
    DeleteShare,
    ShareStats,
    CreateSnapshot,
    ListContainers,
    CreateContainer,
    ContainerProperties,
    SetContainer,
    DeleteContainer,
    CreateDirectory,
    DirectoryProperties,
    SetDirectory,
    ListDirectory,
    DeleteDirectory,
    CreateFile,
    CopyFile,
    AbortCopy,
    FileProperties,
    SetFile,
    ListRanges,
    DeleteFile,
    WriteRange,
    ReadFile,
}

/// What a shared access signature needs for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Only the account's key will do.
    Key,
    /// A signature for the whole share with one of these permissions.
    OnShare(&'static [Permission]),
    /// A signature for this file or its share, with this permission.
    OnFile(Permission),
}

impl Operation {
    pub fn of(call: &Call, target: &Target) -> Result<Self, Refusal> {
        let restype = call.parameter("restype").to_ascii_lowercase();
        let comp = call.parameter("comp").to_ascii_lowercase();
        let row = (&call.method, place(target), restype.as_str(), comp.as_str());
        const GET: Method = Method::GET;
        const HEAD: Method = Method::HEAD;
        const PUT: Method = Method::PUT;
        const DELETE: Method = Method::DELETE;
        use Operation as O;
        use Place::{Account, Path, ShareRoot};
        Ok(match row {
            // In path style `restype` tells containers from shares, as the host does otherwise.
            (&GET, Account, "container", "list") => O::ListContainers,
            (&GET, Account, "", "list") if call.of_blobs => O::ListContainers,
            (&PUT, ShareRoot, "container", "") => O::CreateContainer,
            (&GET | &HEAD, ShareRoot, "container", "" | "metadata") => O::ContainerProperties,
            (&PUT, ShareRoot, "container", "metadata") => O::SetContainer,
            (&DELETE, ShareRoot, "container", "") => O::DeleteContainer,
            (&GET, Path, "", "") if call.of_blobs => O::ReadFile,
            (&HEAD, Path, "", "") if call.of_blobs => O::FileProperties,
            _ if call.of_blobs => {
                let message = "Of the blob service only containers are kept here, for jobs to mount and to read from.";
                return Err(Refusal::new("InvalidQueryParameterValue").saying(message));
            }

            (&GET, Account, "", "list") => O::ListShares,

            (&PUT, ShareRoot, "share", "") => O::CreateShare,
            (&GET | &HEAD, ShareRoot, "share", "" | "metadata") => O::ShareProperties,
            (&PUT, ShareRoot, "share", "metadata" | "properties") => O::SetShare,
            (&DELETE, ShareRoot, "share", "") => O::DeleteShare,
            (&GET, ShareRoot, "share", "stats") => O::ShareStats,
            (&PUT, ShareRoot, "share", "snapshot") => O::CreateSnapshot,

            (&PUT, ShareRoot | Path, "directory", "") => O::CreateDirectory,
            (&GET | &HEAD, ShareRoot | Path, "directory", "" | "metadata") => O::DirectoryProperties,
            (&PUT, ShareRoot | Path, "directory", "metadata" | "properties") => O::SetDirectory,
            (&GET, ShareRoot | Path, "directory", "list") => O::ListDirectory,
            (&DELETE, ShareRoot | Path, "directory", "") => O::DeleteDirectory,

            (&PUT, Path, "", "") if call.headers.contains_key("x-ms-copy-source") => O::CopyFile,
            (&PUT, Path, "", "copy") => O::AbortCopy,
            (&PUT, Path, "", "") => O::CreateFile,
            (&PUT, Path, "", "range") => O::WriteRange,
            (&GET, Path, "", "") => O::ReadFile,
            (&HEAD, Path, "", "" | "metadata") | (&GET, Path, "", "metadata") => O::FileProperties,
            (&PUT, Path, "", "properties" | "metadata") => O::SetFile,
            (&GET, Path, "", "rangelist") => O::ListRanges,
            (&DELETE, Path, "", "") => O::DeleteFile,

            (&GET | &HEAD | &PUT | &DELETE, ..) => return Err(Refusal::new("InvalidQueryParameterValue")),
            _ => return Err(Refusal::new("UnsupportedHttpVerb")),
        })
    }

    pub fn need(self) -> Need {
        use Permission as P;
        match self {
            Self::ListShares | Self::CreateShare | Self::ShareProperties | Self::SetShare | Self::DeleteShare => {
                Need::Key
            }
            Self::ShareStats | Self::CreateSnapshot | Self::ListContainers | Self::CreateContainer => Need::Key,
            Self::ContainerProperties | Self::SetContainer | Self::DeleteContainer => Need::Key,
            // Making a directory never replaces one; making a file may, and so is a write.
            Self::CreateDirectory => Need::OnShare(&[P::Create, P::Write]),
            Self::DirectoryProperties => Need::OnShare(&[P::Read]),
            Self::SetDirectory => Need::OnShare(&[P::Write]),
            Self::ListDirectory => Need::OnShare(&[P::List]),
            Self::DeleteDirectory => Need::OnShare(&[P::Delete]),
            Self::CreateFile | Self::CopyFile | Self::AbortCopy | Self::SetFile | Self::WriteRange => {
                Need::OnFile(P::Write)
            }
            Self::FileProperties | Self::ListRanges | Self::ReadFile => Need::OnFile(P::Read),
            Self::DeleteFile => Need::OnFile(P::Delete),
        }
    }
}

impl Operation {
    /// A snapshot can be read, and deleted whole.
    pub fn is_for_snapshots(self) -> bool {
        match self {
            Self::ShareProperties | Self::ShareStats | Self::DeleteShare => true,
            Self::DirectoryProperties | Self::ListDirectory => true,
            Self::FileProperties | Self::ListRanges | Self::ReadFile => true,
            Self::ListShares | Self::CreateShare | Self::SetShare | Self::CreateSnapshot => false,
            Self::ListContainers | Self::CreateContainer | Self::ContainerProperties => false,
            Self::SetContainer | Self::DeleteContainer => false,
            Self::CreateDirectory | Self::SetDirectory | Self::DeleteDirectory => false,
            Self::CreateFile | Self::CopyFile | Self::AbortCopy | Self::SetFile => false,
            Self::WriteRange | Self::DeleteFile => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Account,
    ShareRoot,
    Path,
}

fn place(target: &Target) -> Place {
    match (target.share.is_empty(), target.path.is_root()) {
        (true, _) => Place::Account,
        (false, true) => Place::ShareRoot,
        (false, false) => Place::Path,
    }
}
