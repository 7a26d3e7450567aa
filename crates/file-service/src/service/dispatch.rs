//! Table of operations and the functions that perform them.

use axum::{body::Body, response::Response};
use corro_shares::Kind;

use crate::auth::Grant;
use crate::blobs::{blob_ops, blocks, containers};
use crate::context::OperationContext;
use crate::files::{copy, directories, download, file_ops, handles, range_from_url, range_write, rename, symlinks};
use crate::mount::{append, mount_ops, multi_range_write};
use crate::preconditions::lease_headers::LeaseTarget;
use crate::preconditions::lease_ops;
use crate::protocol::error::StorageError;
use crate::protocol::operation::Operation;
use crate::shares::{access_policies, permissions, service_properties, share_ops};

/// Performs an operation. [`Operation::ReadFile`] does not come through here on the hot path; see
/// `FileService::answer`.
pub(super) async fn perform(
    operation: Operation,
    context: OperationContext<'_>,
    grant: &Grant,
    body: Body,
) -> Result<Response, StorageError> {
    match operation {
        Operation::ServiceProperties => service_properties::get(context).await,
        Operation::SetServiceProperties => service_properties::set(context, body).await,
        Operation::ListShares => share_ops::list(context).await,
        Operation::CreateShare => share_ops::create(context).await,
        Operation::ShareProperties => share_ops::properties(context).await,
        Operation::SetShare => share_ops::set(context).await,
        Operation::ShareStats => share_ops::stats(context).await,
        Operation::CreateSnapshot => share_ops::snapshot(context).await,
        Operation::DeleteShare => share_ops::delete(context).await,
        Operation::UndeleteShare => share_ops::undelete(context).await,
        Operation::ShareAcl => access_policies::get(context).await,
        Operation::SetShareAcl => access_policies::set(context, body).await,
        Operation::LeaseShare => lease_ops::handle(context, LeaseTarget::Share).await,
        Operation::Permission => permissions::get(context).await,
        Operation::CreatePermission => permissions::create(context, body).await,
        Operation::AccountInformation => Ok(containers::account()),
        Operation::ListBlobs => blob_ops::list(context).await,
        Operation::PutBlob => blob_ops::put(context, body).await,
        Operation::PutBlock => blocks::put(context, body).await,
        Operation::PutBlockList => blocks::commit(context, body).await,
        Operation::BlockList => blocks::list(context).await,
        Operation::ListContainers => containers::list(context).await,
        Operation::CreateContainer => containers::create(context).await,
        Operation::SetContainer => containers::set(context).await,
        Operation::ContainerProperties => containers::properties(context).await,
        Operation::DeleteContainer => containers::delete(context).await,
        Operation::CreateDirectory => directories::create(context).await,
        Operation::DirectoryProperties => directories::properties(context).await,
        Operation::SetDirectory => directories::set(context).await,
        Operation::ListDirectory => directories::list(context).await,
        Operation::RenameDirectory => rename::rename(context, grant, Kind::Directory).await,
        Operation::DeleteDirectory => directories::delete(context).await,
        Operation::CreateFile => file_ops::create(context).await,
        Operation::CopyFile => copy::start(context, grant).await,
        Operation::AbortCopy => copy::abort(context).await,
        Operation::FileProperties => file_ops::properties(context).await,
        Operation::SetFile => file_ops::set(context).await,
        Operation::ListRanges => file_ops::ranges(context).await,
        Operation::LeaseFile => lease_ops::handle(context, LeaseTarget::File).await,
        Operation::RenameFile => rename::rename(context, grant, Kind::File).await,
        Operation::DeleteFile if context.in_container && !grant.uses_file_address(context.request) => {
            blob_ops::delete(context).await
        }
        Operation::DeleteFile => file_ops::delete(context).await,
        Operation::CreateLink => symlinks::create(context).await,
        Operation::ReadLink => symlinks::read(context).await,
        Operation::WriteRange => range_write::write(context, body).await,
        Operation::WriteRangeFromUrl => range_from_url::write(context, grant).await,
        Operation::Stat => mount_ops::stat_entry(context).await,
        Operation::ListCompact => mount_ops::list(context).await,
        Operation::Append => append::append(context, body).await,
        Operation::WriteRanges => multi_range_write::write(context, body).await,
        Operation::SetModified => mount_ops::set_modified(context).await,
        Operation::Sync => mount_ops::sync(context).await,
        Operation::SpaceUsage => mount_ops::space_usage(context).await,
        Operation::ListHandles => handles::list(context).await,
        Operation::CloseHandles => handles::close(context).await,
        Operation::ReadFile => download::read(context, grant).await,
    }
}
