"""Containers and blobs with azure-storage-blob 1.4 and 2.1, the versions inside `az` of 2018."""

import datetime
import os
import unittest

import files_env as env
from azure.common import AzureHttpError
from azure.storage.blob import BlobBlock, BlockBlobService, ContainerPermissions, ContentSettings
from azure.storage.common.retry import no_retry


class Blobs(unittest.TestCase):
    def setUp(self):
        string = f"AccountName={env.ACCOUNT};AccountKey={env.KEY};BlobEndpoint={env.BLOBS}"
        self.blobs = BlockBlobService(connection_string=string)
        self.blobs.retry = no_retry
        self.name = env.new_name("blobs-")
        self.assertTrue(self.blobs.create_container(self.name, metadata={"owner": "me"}))
        self.addCleanup(self.blobs.delete_container, self.name)

    def assert_refused(self, status, code, call, *args, **named):
        with self.assertRaises(AzureHttpError) as caught:
            call(*args, **named)
        self.assertEqual((caught.exception.status_code, caught.exception.error_code), (status, code))

    def test_a_blob_is_uploaded_described_read_and_deleted(self):
        content = os.urandom(1 << 20)
        settings = ContentSettings(content_type="text/x-python")
        made = self.blobs.create_blob_from_bytes(self.name, "d/f.py", content, content_settings=settings, metadata={"a": "b"})
        with open(env.on_disk(".containers", self.name, "d/f.py"), "rb") as file:
            self.assertEqual(file.read(), content)
        found = self.blobs.get_blob_properties(self.name, "d/f.py")
        self.assertEqual((found.properties.content_length, found.properties.etag), (len(content), made.etag))
        self.assertEqual((found.properties.content_settings.content_type, found.metadata), ("text/x-python", {"a": "b"}))
        self.assertEqual(self.blobs.get_blob_to_bytes(self.name, "d/f.py", validate_content=True).content, content)
        part = self.blobs.get_blob_to_bytes(self.name, "d/f.py", start_range=5, end_range=9)
        self.assertEqual(part.content, content[5:10])
        self.assert_refused(409, "BlobAlreadyExists", self.blobs.create_blob_from_text, self.name, "d/f.py", "x", if_none_match="*")
        self.blobs.create_blob_from_text(self.name, "empty", "")
        self.assertEqual(self.blobs.get_blob_to_bytes(self.name, "empty").content, b"")
        self.assertTrue(self.blobs.exists(self.name, "d/f.py"))
        self.blobs.delete_blob(self.name, "d/f.py")
        self.assertFalse(self.blobs.exists(self.name, "d/f.py"))
        self.assert_refused(404, "BlobNotFound", self.blobs.delete_blob, self.name, "d/f.py")

    def test_a_large_blob_goes_in_blocks(self):
        content = os.urandom(9 << 20)
        self.blobs.MAX_SINGLE_PUT_SIZE, self.blobs.MAX_BLOCK_SIZE = 1 << 20, 1 << 20
        self.blobs.create_blob_from_bytes(self.name, "large", content, max_connections=4, validate_content=True)
        self.assertEqual(self.blobs.get_blob_to_bytes(self.name, "large", max_connections=4).content, content)
        self.blobs.put_block(self.name, "parts", b"x", "a")
        self.blobs.put_block_list(self.name, "parts", [BlobBlock("a")])
        self.assertEqual(self.blobs.get_blob_to_text(self.name, "parts").content, "x")

    def test_listings_and_containers(self):
        for name in ("b", "a/x", "a/y/z", "a-b"):
            self.blobs.create_blob_from_text(self.name, name, name)
        self.assertEqual([blob.name for blob in self.blobs.list_blobs(self.name)], ["a-b", "a/x", "a/y/z", "b"])
        self.assertEqual([item.name for item in self.blobs.list_blobs(self.name, delimiter="/")], ["a/", "a-b", "b"])
        first = self.blobs.list_blobs(self.name, num_results=3)
        rest = self.blobs.list_blobs(self.name, marker=first.next_marker)
        self.assertEqual(([blob.name for blob in first], [blob.name for blob in rest]), (["a-b", "a/x", "a/y/z"], ["b"]))
        found = list(self.blobs.list_containers(self.name, include_metadata=True))
        self.assertEqual([(container.name, container.metadata) for container in found], [(self.name, {"owner": "me"})])
        self.assertEqual(self.blobs.get_container_properties(self.name).properties.lease.state, "available")
        self.assertFalse(self.blobs.create_container(self.name))
        self.assertFalse(self.blobs.exists("none-such"))

    def test_links(self):
        self.blobs.create_blob_from_text(self.name, "open", "open")
        soon = datetime.datetime.utcnow() + datetime.timedelta(hours=1)
        # By name: 2.x has a snapshot before them.
        read, both = ContainerPermissions.READ, ContainerPermissions(read=True, list=True)
        for made, may_list in (
            (self.blobs.generate_blob_shared_access_signature(self.name, "open", permission=read, expiry=soon), False),
            (self.blobs.generate_container_shared_access_signature(self.name, permission=both, expiry=soon), True),
        ):
            string = f"SharedAccessSignature={made};BlobEndpoint={env.BLOBS}"
            reader = BlockBlobService(connection_string=string)
            reader.retry = no_retry
            self.assertEqual(reader.get_blob_to_text(self.name, "open").content, "open")
            self.assert_refused(403, "AuthorizationPermissionMismatch", reader.delete_blob, self.name, "open")
            if may_list:
                self.assertEqual([blob.name for blob in reader.list_blobs(self.name)], ["open"])
