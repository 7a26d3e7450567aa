//! Permission that a shared access signature needs for each operation. Pure.

use corro_model::storage::sas::{Permission, ResourceType};

use crate::protocol::operation::Operation;

/// What a shared access signature needs for an operation: one of these permissions, for the right kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Only the account's key will do.
    Key,
    /// On the account itself: only a link to the account opens it.
    OnService(&'static [Permission]),
    /// On the share or container itself: likewise.
    OnShare(&'static [Permission]),
    /// A list of what is in the share: a link to the share will do too.
    Listing(&'static [Permission]),
    /// On a directory: likewise.
    InShare(&'static [Permission]),
    /// On a file: a link to that file will do too.
    OnFile(&'static [Permission]),
}

impl Need {
    pub fn permissions(self) -> &'static [Permission] {
        match self {
            Need::Key => &[],
            Need::OnService(any) | Need::OnShare(any) | Need::Listing(any) | Need::InShare(any) | Need::OnFile(any) => {
                any
            }
        }
    }

    /// What a link to the account must be for.
    pub fn resource_type(self) -> Option<ResourceType> {
        match self {
            Need::Key => None,
            Need::OnService(_) => Some(ResourceType::Service),
            Need::OnShare(_) | Need::Listing(_) => Some(ResourceType::Container),
            Need::InShare(_) | Need::OnFile(_) => Some(ResourceType::Object),
        }
    }
}

impl Operation {
    pub fn need(self) -> Need {
        use Permission as P;
        match self {
            // Who may change policies may give rights away.
            Self::ShareAcl | Self::SetShareAcl => Need::Key,
            Self::ServiceProperties => Need::OnService(&[P::Read]),
            Self::SetServiceProperties => Need::OnService(&[P::Write]),
            Self::ListShares | Self::ListContainers => Need::OnService(&[P::List]),
            Self::CreateShare | Self::CreateSnapshot | Self::CreateContainer => Need::OnShare(&[P::Create, P::Write]),
            Self::ShareProperties | Self::ContainerProperties | Self::Permission => Need::OnShare(&[P::Read]),
            Self::AccountInformation => Need::OnService(&[P::Read, P::List, P::Create, P::Write, P::Delete]),
            Self::ListBlobs => Need::Listing(&[P::List]),
            Self::PutBlob | Self::PutBlock | Self::PutBlockList => Need::OnFile(&[P::Create, P::Write]),
            Self::BlockList => Need::OnFile(&[P::Read]),
            Self::ShareStats => Need::OnShare(&[P::List, P::Read]),
            Self::SetShare | Self::SetContainer | Self::UndeleteShare | Self::LeaseShare => Need::OnShare(&[P::Write]),
            Self::CreatePermission => Need::OnShare(&[P::Create, P::Write]),
            Self::DeleteShare | Self::DeleteContainer => Need::OnShare(&[P::Delete]),
            // Making a directory never replaces one. Making a file with the right to create alone does not either.
            Self::CreateDirectory => Need::InShare(&[P::Create, P::Write]),
            Self::DirectoryProperties => Need::InShare(&[P::Read]),
            Self::SetDirectory | Self::RenameDirectory => Need::InShare(&[P::Write]),
            Self::ListDirectory => Need::Listing(&[P::List]),
            Self::ListHandles => Need::InShare(&[P::List, P::Read]),
            Self::CloseHandles => Need::InShare(&[P::Write]),
            Self::DeleteDirectory => Need::InShare(&[P::Delete]),
            Self::CreateFile | Self::CopyFile | Self::CreateLink => Need::OnFile(&[P::Create, P::Write]),
            Self::AbortCopy | Self::SetFile | Self::WriteRange | Self::WriteRangeFromUrl => Need::OnFile(&[P::Write]),
            Self::WriteRanges => Need::OnFile(&[P::Write]),
            Self::LeaseFile | Self::RenameFile => Need::OnFile(&[P::Write]),
            Self::FileProperties | Self::ListRanges | Self::ReadFile | Self::ReadLink => Need::OnFile(&[P::Read]),
            Self::DeleteFile => Need::OnFile(&[P::Delete]),
            Self::About | Self::Room => Need::InShare(&[P::Read]),
            Self::ListBriefly => Need::Listing(&[P::List]),
            Self::Append | Self::SetModified | Self::Sync => Need::InShare(&[P::Write]),
        }
    }
}
