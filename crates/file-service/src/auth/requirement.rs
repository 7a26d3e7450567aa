//! Permission that a shared access signature needs for each operation. Pure.

use corro_model::storage::sas::{Permission, ResourceType};

use crate::protocol::operation::Operation;

/// Permission that an operation requires of a SAS: one of the listed permissions, on the right resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// No SAS is enough; the request must be signed with the account key.
    AccountKey,
    /// On the account itself: an account SAS.
    OnService(&'static [Permission]),
    /// On the share or container itself: an account SAS.
    OnShare(&'static [Permission]),
    /// Listing of a share or directory: an account SAS, or a SAS for the share.
    Listing(&'static [Permission]),
    /// On a directory: an account SAS, or a SAS for the share.
    InShare(&'static [Permission]),
    /// On a file: also a SAS for that file.
    OnFile(&'static [Permission]),
}

impl Requirement {
    pub fn permissions(self) -> &'static [Permission] {
        match self {
            Requirement::AccountKey => &[],
            Requirement::OnService(any)
            | Requirement::OnShare(any)
            | Requirement::Listing(any)
            | Requirement::InShare(any)
            | Requirement::OnFile(any) => any,
        }
    }

    /// Resource type that an account SAS must include.
    pub fn resource_type(self) -> Option<ResourceType> {
        match self {
            Requirement::AccountKey => None,
            Requirement::OnService(_) => Some(ResourceType::Service),
            Requirement::OnShare(_) | Requirement::Listing(_) => Some(ResourceType::Container),
            Requirement::InShare(_) | Requirement::OnFile(_) => Some(ResourceType::Object),
        }
    }
}

impl Operation {
    pub fn requirement(self) -> Requirement {
        use Permission as P;
        match self {
            // A caller that can change policies can grant itself permissions.
            Self::ShareAcl | Self::SetShareAcl => Requirement::AccountKey,
            Self::ServiceProperties => Requirement::OnService(&[P::Read]),
            Self::SetServiceProperties => Requirement::OnService(&[P::Write]),
            Self::ListShares | Self::ListContainers => Requirement::OnService(&[P::List]),
            Self::CreateShare | Self::CreateSnapshot | Self::CreateContainer => {
                Requirement::OnShare(&[P::Create, P::Write])
            }
            Self::ShareProperties | Self::ContainerProperties | Self::Permission => Requirement::OnShare(&[P::Read]),
            Self::AccountInformation => Requirement::OnService(&[P::Read, P::List, P::Create, P::Write, P::Delete]),
            Self::ListBlobs => Requirement::Listing(&[P::List]),
            Self::PutBlob | Self::PutBlock | Self::PutBlockList => Requirement::OnFile(&[P::Create, P::Write]),
            Self::BlockList => Requirement::OnFile(&[P::Read]),
            Self::ShareStats => Requirement::OnShare(&[P::List, P::Read]),
            Self::SetShare | Self::SetContainer | Self::UndeleteShare | Self::LeaseShare => {
                Requirement::OnShare(&[P::Write])
            }
            Self::CreatePermission => Requirement::OnShare(&[P::Create, P::Write]),
            Self::DeleteShare | Self::DeleteContainer => Requirement::OnShare(&[P::Delete]),
            // Creating a directory never replaces one. Creating a file with the Create permission alone does not
            // either.
            Self::CreateDirectory => Requirement::InShare(&[P::Create, P::Write]),
            Self::DirectoryProperties => Requirement::InShare(&[P::Read]),
            Self::SetDirectory | Self::RenameDirectory => Requirement::InShare(&[P::Write]),
            Self::ListDirectory => Requirement::Listing(&[P::List]),
            Self::ListHandles => Requirement::InShare(&[P::List, P::Read]),
            Self::CloseHandles => Requirement::InShare(&[P::Write]),
            Self::DeleteDirectory => Requirement::InShare(&[P::Delete]),
            Self::CreateFile | Self::CopyFile | Self::CreateLink => Requirement::OnFile(&[P::Create, P::Write]),
            Self::AbortCopy | Self::SetFile | Self::WriteRange | Self::WriteRangeFromUrl => {
                Requirement::OnFile(&[P::Write])
            }
            Self::WriteRanges => Requirement::OnFile(&[P::Write]),
            Self::LeaseFile | Self::RenameFile => Requirement::OnFile(&[P::Write]),
            Self::FileProperties | Self::ListRanges | Self::ReadFile | Self::ReadLink => {
                Requirement::OnFile(&[P::Read])
            }
            Self::DeleteFile => Requirement::OnFile(&[P::Delete]),
            Self::Stat | Self::SpaceUsage => Requirement::InShare(&[P::Read]),
            Self::ListCompact => Requirement::Listing(&[P::List]),
            Self::Append | Self::SetModified | Self::Sync => Requirement::InShare(&[P::Write]),
        }
    }
}
