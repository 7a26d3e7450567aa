//! Table of the error codes of the file and blob services: HTTP status and default message of each.

use http::StatusCode;

/// Status and default message of a code. 5xx only if a retry can succeed, because clients retry those.
pub(crate) fn status_and_message(code: &str) -> (StatusCode, &'static str) {
    let (status, message) = match code {
        "NoAuthenticationInformation" => {
            (401, "The request is neither signed with the account's key nor does it carry a shared access signature.")
        }
        "AuthenticationFailed" => (
            403,
            "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
        ),
        "AuthorizationPermissionMismatch" => {
            (403, "This request is not authorized to perform this operation using this permission.")
        }
        "AuthorizationServiceMismatch" => {
            (403, "This request is not authorized to perform this operation using this service.")
        }
        "AuthorizationResourceTypeMismatch" => {
            (403, "This request is not authorized to perform this operation using this resource type.")
        }
        "AuthorizationSourceIPMismatch" => {
            (403, "This request is not authorized to perform this operation using this source IP.")
        }
        "AuthorizationProtocolMismatch" => {
            (403, "This request is not authorized to perform this operation using this protocol. Use https.")
        }
        "CorsPreflightFailure" => {
            (403, "CORS not enabled or no matching rule found for this request. Set rules in the service's properties.")
        }
        "InsufficientAccountPermissions" => (403, "The server may not access this resource."),
        "ShareNotFound" => (404, "The specified share does not exist."),
        "ContainerNotFound" => (404, "The specified container does not exist."),
        "ShareSnapshotNotFound" => (404, "The specified share snapshot does not exist."),
        "CannotVerifyCopySource" => (404, "The specified copy source does not exist or may not be read."),
        "ResourceNotFound" => (404, "The specified resource does not exist."),
        "BlobNotFound" => (404, "The specified blob does not exist."),
        "BlobAlreadyExists" => (409, "The specified blob already exists."),
        "BlobPathConflict" => (409, "The blob name conflicts with another blob."),
        "InvalidBlobType" => (409, "The blob type is invalid for this operation: only block blobs are supported."),
        "PublicAccessNotPermitted" => {
            (409, "Public access is not permitted on this storage account. Leave it out, and give out links instead.")
        }
        "FeatureNotSupported" => (409, "This feature is not supported."),
        "InvalidBlobOrBlock" => (400, "The specified blob or block content is invalid."),
        "InvalidBlockId" => (400, "The specified block ID is invalid. The block ID must be Base64-encoded."),
        "InvalidBlockList" => (400, "The specified block list is invalid: one of its blocks was not uploaded."),
        "BlockListTooLong" => (400, "The block list may not contain more than 50,000 blocks."),
        "LeaseIdMismatchWithBlobOperation" => (412, "The lease ID specified did not match the lease ID for the blob."),
        "LeaseNotPresentWithBlobOperation" => (412, "There is currently no lease on the blob."),
        "ParentNotFound" => (404, "The specified parent path does not exist."),
        "UnsupportedHttpVerb" => (405, "The resource does not support the specified HTTP verb."),
        "OperationTimedOut" => (408, "The body of the request did not arrive in time."),
        "ServerBusy" => (503, "Too many uploads are under way: try again later."),
        "ShareAlreadyExists" => (409, "The specified share already exists."),
        "ContainerAlreadyExists" => (409, "The specified container already exists."),
        "ResourceAlreadyExists" => (409, "The specified resource already exists."),
        "ResourceTypeMismatch" => {
            (409, "The specified resource type does not match the type of the existing resource.")
        }
        "ShareHasSnapshots" => (
            409,
            "The share has snapshots. Delete them with it (x-ms-delete-snapshots: include), or each by itself first.",
        ),
        "ShareSnapshotOperationNotSupported" => (409, "A snapshot of a share can only be read."),
        "ReadOnlyAttribute" => (409, "The specified resource is read-only and cannot be modified at this time."),
        "LeaseAlreadyPresent" => (409, "There is already a lease present."),
        "LeaseIdMismatchWithLeaseOperation" => {
            (409, "The lease ID specified did not match the lease ID for the resource.")
        }
        "LeaseNotPresentWithLeaseOperation" => (409, "There is currently no lease on the resource."),
        "LeaseIsBreakingAndCannotBeAcquired" => {
            (409, "The lease is being broken and cannot be acquired until it is broken.")
        }
        "LeaseIsBreakingAndCannotBeChanged" => (409, "The lease is being broken and cannot be changed."),
        "LeaseIsBrokenAndCannotBeRenewed" => (409, "The lease was broken explicitly and cannot be renewed."),
        "LeaseIdMissing" => {
            (412, "There is currently a lease on the resource and no lease ID was specified in the request.")
        }
        "LeaseIdMismatchWithFileOperation" => (412, "The lease ID specified did not match the lease ID for the file."),
        "LeaseIdMismatchWithContainerOperation" => {
            (412, "The lease ID specified did not match the lease ID for the share.")
        }
        "LeaseNotPresentWithFileOperation" => (412, "There is currently no lease on the file."),
        "LeaseNotPresentWithContainerOperation" => (412, "There is currently no lease on the share."),
        "LeaseLost" => (412, "A lease ID was specified, but the lease for the file has been broken or has expired."),
        "SourceConditionNotMet" => (412, "The source condition specified using HTTP conditional header(s) is not met."),
        "NoPendingCopyOperation" => (409, "There is currently no pending copy operation."),
        "CopyAborted" => (409, "The copy was stopped."),
        "DirectoryNotEmpty" => (409, "The specified directory is not empty."),
        "ShareSizeLimitReached" => (409, "The share has no space left."),
        "MissingContentLengthHeader" => (411, "The Content-Length header was not specified."),
        "RequestBodyTooLarge" => {
            (413, "The size of the request body exceeds the maximum size permitted, which is 4 MiB for one range.")
        }
        "NotModified" => (304, "The resource has not been modified."),
        "ConditionNotMet" => (412, "The condition specified using HTTP conditional header(s) is not met."),
        "InvalidRange" => (416, "The range specified is invalid for the current size of the resource."),
        "InternalError" => (500, "The server encountered an internal error. Please retry the request."),
        "InvalidFileOrDirectoryPathName" => (400, "The specified file or directory path name is invalid."),
        "InvalidHeaderValue" => (400, "The value provided for one of the HTTP headers was not in the correct format."),
        "InvalidInput" => (400, "The body of the request is not as long as its Content-Length says."),
        "InvalidMetadata" => (400, "The metadata specified is invalid. It has characters that are not permitted."),
        "MetadataTooLarge" => {
            (400, "The size of the specified metadata exceeds the maximum size permitted, which is 8 KiB.")
        }
        "InvalidQueryParameterValue" => (400, "The query parameters name no operation on this resource."),
        "InvalidResourceName" => (400, "The specified resource name is invalid."),
        "InvalidUri" => (400, "The requested URI does not represent any resource on the server."),
        "Md5Mismatch" => {
            (400, "The MD5 value specified in the request did not match the MD5 value calculated by the server.")
        }
        "Crc64Mismatch" => {
            (400, "The CRC64 value specified in the request did not match the CRC64 value calculated by the server.")
        }
        "InvalidXmlDocument" => (400, "The specified XML is not syntactically or otherwise valid."),
        "InvalidXmlNodeValue" => (400, "The value provided for one of the XML nodes was not in the correct format."),
        "UnsupportedXmlNode" => (400, "One of the XML nodes specified in the request body is not supported."),
        "MissingRequiredXmlNode" => (400, "A required XML node was not specified in the request body."),
        "MissingRequiredHeader" => (400, "An HTTP header that is mandatory for this request is not specified."),
        "OutOfRangeQueryParameterValue" => {
            (400, "A query parameter specified in the request is outside the permissible range.")
        }
        _ => (500, "The server encountered an internal error. Please retry the request."),
    };
    (StatusCode::from_u16(status).expect("the table holds real statuses"), message)
}
