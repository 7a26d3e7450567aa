"""Containers and blobs with azure-storage-blob 12."""

import datetime
import os
import unittest

import files_env as env
from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.storage.blob import (
    AccessPolicy,
    BlobBlock,
    BlobClient,
    BlobServiceClient,
    ContainerSasPermissions,
    ContentSettings,
    generate_blob_sas,
    generate_container_sas,
)

SECRET = {"account_name": env.ACCOUNT, "account_key": env.KEY}
SOON = datetime.datetime.utcnow() + datetime.timedelta(hours=1)


class Blobs(unittest.TestCase):
    def setUp(self):
        # Without retries: refusals are permanent here.
        self.service = BlobServiceClient(env.BLOBS, credential=SECRET, retry_total=0)
        self.container = self.service.create_container(env.new_name("blobs-"), metadata={"owner": "me"})
        self.addCleanup(self.container.delete_container)

    def assert_refused(self, status, code, call, *args, **named):
        with self.assertRaises(HttpResponseError) as caught:
            call(*args, **named)
        self.assertEqual((caught.exception.status_code, caught.exception.error_code), (status, code))

    def names(self, **named):
        return [blob.name for blob in self.container.list_blobs(**named)]

    def test_a_blob_is_uploaded_described_read_and_deleted(self):
        content = os.urandom(3 << 20)
        blob = self.container.get_blob_client("deep/er/model.h5")
        self.assertFalse(blob.exists())
        settings = ContentSettings(content_type="application/x-hdf5", cache_control="no-cache")
        blob.upload_blob(content, metadata={"epoch": "3"}, content_settings=settings, validate_content=True)
        with open(env.on_disk(".containers", self.container.container_name, "deep/er/model.h5"), "rb") as file:
            self.assertEqual(file.read(), content)
        found = blob.get_blob_properties()
        self.assertEqual((found.size, found.metadata, found.blob_type), (len(content), {"epoch": "3"}, "BlockBlob"))
        self.assertEqual(found.content_settings.content_type, "application/x-hdf5")
        self.assertIsNotNone(found.content_settings.content_md5)
        self.assertEqual(blob.download_blob(validate_content=True).readall(), content)
        self.assertEqual(blob.download_blob(offset=5, length=7).readall(), content[5:12])
        blob.set_blob_metadata({"epoch": "4"})
        blob.set_http_headers(ContentSettings(content_type="text/plain"))
        found = blob.get_blob_properties()
        self.assertEqual((found.metadata, found.content_settings.content_type), ({"epoch": "4"}, "text/plain"))
        with self.assertRaises(ResourceExistsError):
            blob.upload_blob(b"other")
        self.assert_refused(412, "ConditionNotMet", blob.delete_blob, etag='"0x0"', match_condition=env.unmodified())
        blob.upload_blob(b"", overwrite=True)
        self.assertEqual(blob.download_blob().readall(), b"")
        blob.delete_blob()
        self.assert_refused(404, "BlobNotFound", blob.delete_blob)
        self.assert_refused(404, "BlobNotFound", blob.download_blob)

    def test_a_large_blob_goes_in_blocks_over_several_connections(self):
        content = os.urandom(9 << 20)
        service = BlobServiceClient(env.BLOBS, credential=SECRET, max_single_put_size=1 << 20, max_block_size=1 << 20)
        blob = service.get_blob_client(self.container.container_name, "large")
        blob.upload_blob(content, max_concurrency=4, content_settings=ContentSettings(content_type="x/y"))
        self.assertEqual(blob.download_blob(max_concurrency=4).readall(), content)
        self.assertEqual(blob.get_blob_properties().content_settings.content_type, "x/y")
        self.assertEqual(len(blob.get_block_list("all")[0]), 9)

    def test_blocks_are_a_blob_when_they_are_listed(self):
        blob = self.container.get_blob_client("parts")
        for name, text in (("b", b"world"), ("a", b"hello ")):
            blob.stage_block(name, text)
        self.assertFalse(blob.exists())
        committed, waiting = blob.get_block_list("all")
        self.assertEqual((committed, sorted(block.id for block in waiting)), ([], ["a", "b"]))
        self.assert_refused(400, "InvalidBlockList", blob.commit_block_list, [BlobBlock("none")])
        blob.commit_block_list([BlobBlock("a"), BlobBlock("b")])
        blob.stage_block("c", b"!")
        blob.commit_block_list([BlobBlock("a"), BlobBlock("c")])
        self.assertEqual(blob.download_blob().readall(), b"hello !")

    def test_listings(self):
        for name in ("b", "a/x", "a-b", "a/y/z", "ä ö+%"):
            self.container.upload_blob(name, name.encode(), metadata={"k": "v"})
        self.assertEqual(self.names(), ["a-b", "a/x", "a/y/z", "b", "ä ö+%"])
        self.assertEqual(self.names(name_starts_with="a/"), ["a/x", "a/y/z"])
        walked = [(type(item).__name__, item.name) for item in self.container.walk_blobs()]
        expected = [("BlobProperties", "a-b"), ("BlobPrefix", "a/"), ("BlobProperties", "b"), ("BlobProperties", "ä ö+%")]
        self.assertEqual(sorted(walked), sorted(expected))
        pages = self.container.list_blobs(include=["metadata"], results_per_page=2).by_page()
        pages = [[(blob.name, blob.metadata, blob.size) for blob in page] for page in pages]
        self.assertEqual([len(page) for page in pages], [2, 2, 1])
        self.assertEqual(pages[0][0], ("a-b", {"k": "v"}, 3))
        self.assertEqual(self.container.get_blob_client("ä ö+%").download_blob().readall(), "ä ö+%".encode())

    def test_containers(self):
        name = self.container.container_name
        self.assertTrue(self.container.exists())
        self.assertFalse(self.service.get_container_client("none-such").exists())
        self.assertEqual(self.container.get_container_properties().metadata, {"owner": "me"})
        self.container.set_container_metadata({"next": "one"})
        found = list(self.service.list_containers(name_starts_with=name, include_metadata=True))
        self.assertEqual([(c.name, c.metadata) for c in found], [(name, {"next": "one"})])
        self.assert_refused(409, "ContainerAlreadyExists", self.container.create_container)
        named = env.new_name("open-")
        self.assert_refused(409, "PublicAccessNotPermitted", self.service.create_container, named, public_access="blob")
        self.assertEqual(self.service.get_account_information()["sku_name"], "Standard_LRS")

    def test_links(self):
        self.container.upload_blob("open", b"open")
        self.container.upload_blob("closed", b"closed")
        name = self.container.container_name
        link = generate_blob_sas(env.ACCOUNT, name, "open", account_key=env.KEY, permission="r", expiry=SOON)
        url = f"{env.BLOBS}/{name}/open"
        self.assertEqual(BlobClient.from_blob_url(f"{url}?{link}").download_blob().readall(), b"open")
        other = BlobClient.from_blob_url(f"{env.BLOBS}/{name}/closed?{link}", retry_total=0)
        self.assert_refused(403, "AuthenticationFailed", other.download_blob)
        self.assert_refused(403, "AuthorizationPermissionMismatch", BlobClient.from_blob_url(f"{url}?{link}").delete_blob)
        policy = AccessPolicy(ContainerSasPermissions(read=True, list=True), expiry=SOON)
        self.container.set_container_access_policy({"readers": policy})
        link = generate_container_sas(env.ACCOUNT, name, account_key=env.KEY, policy_id="readers")
        reader = BlobServiceClient(env.BLOBS, credential=link).get_container_client(name)
        self.assertEqual([blob.name for blob in reader.list_blobs()], ["closed", "open"])
        self.assertEqual(reader.download_blob("closed").readall(), b"closed")
        self.assert_refused(403, "AuthorizationPermissionMismatch", reader.upload_blob, "new", b"x")
        self.container.set_container_access_policy({})
        self.assert_refused(403, "AuthenticationFailed", reader.download_blob, "closed")
