"""Leases, and files that change during a download, with azure-storage-file-share 12."""

import uuid

from azure.core.exceptions import ResourceModifiedError
from azure.storage.fileshare import ShareLeaseClient
from files_12_common import ShareTestCase, connect

MIB = 1 << 20


class FileLeases(ShareTestCase):
    def setUp(self):
        super().setUp()
        self.put("a", b"x" * 1024)
        self.file = self.share.get_file_client("a")

    def test_the_lease_holder_may_write(self):
        lease = self.file.acquire_lease()
        found = self.file.get_file_properties().lease
        self.assertEqual((found.status, found.state, found.duration), ("locked", "leased", "infinite"))
        self.assertEqual(self.read("a"), b"x" * 1024)
        for call in (
            lambda **lease: self.file.upload_range(b"X", 0, 1, **lease),
            lambda **lease: self.file.set_file_metadata({"a": "b"}, **lease),
            lambda **lease: self.file.resize_file(2048, **lease),
            lambda **lease: self.file.clear_range(0, 512, **lease),
        ):
            self.assert_refused(412, "LeaseIdMissing", call)
            self.assert_refused(412, "LeaseIdMismatchWithFileOperation", call, lease=str(uuid.uuid4()))
            call(lease=lease)
        self.assert_refused(412, "LeaseIdMissing", self.file.delete_file)
        self.file.delete_file(lease=lease)

    def test_a_lease_is_changed_released_and_broken(self):
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        lease = self.file.acquire_lease(first)
        self.assertEqual(lease.id, first)
        self.assert_refused(409, "LeaseAlreadyPresent", self.file.acquire_lease)
        lease.change(second)
        self.assertEqual(lease.id, second)
        self.assert_refused(409, "LeaseIdMismatchWithLeaseOperation", ShareLeaseClient(self.file, first).release)
        lease.release()
        self.assertEqual(self.file.get_file_properties().lease.state, "available")
        lease = self.file.acquire_lease()
        ShareLeaseClient(self.file).break_lease()
        self.assertEqual(self.file.get_file_properties().lease.state, "broken")
        self.file.upload_range(b"X", 0, 1)
        with self.file.acquire_lease():
            self.assert_refused(412, "LeaseIdMissing", self.file.upload_range, b"X", 0, 1)
        self.file.upload_range(b"X", 0, 1)


class ShareLeases(ShareTestCase):
    def test_a_lease_keeps_a_share(self):
        lease = self.share.acquire_lease(lease_duration=15)
        found = self.share.get_share_properties().lease
        self.assertEqual((found.status, found.state, found.duration), ("locked", "leased", "fixed"))
        self.assert_refused(412, "LeaseIdMissing", self.share.delete_share)
        lease.renew()
        self.share.set_share_metadata({"a": "b"}, lease=lease)
        self.assertEqual(self.share.get_share_properties(lease=lease).metadata, {"a": "b"})
        self.assert_refused(409, "LeaseAlreadyPresent", self.share.acquire_lease)
        lease.change(str(uuid.uuid4()))
        self.assertEqual(lease.break_lease(lease_break_period=0), 0)
        self.assertEqual(self.share.get_share_properties().lease.state, "broken")
        lease = self.share.acquire_lease(lease_duration=-1)
        self.assertEqual(self.share.get_share_properties().lease.duration, "infinite")
        lease.release()


class LeasesOfOverwrittenFiles(ShareTestCase):
    def test_a_download_never_mixes_two_contents(self):
        service = connect(max_single_get_size=MIB, max_chunk_get_size=MIB)
        file = service.get_share_client(self.share.share_name).get_file_client("a")
        self.put("a", b"a" * (5 * MIB))
        download = file.download_file()
        self.share.get_file_client("a").upload_range(b"b" * MIB, 4 * MIB, MIB)
        with self.assertRaises(ResourceModifiedError):
            download.readall()
        chunks = file.download_file().chunks()
        self.assertEqual(next(chunks), b"a" * MIB)
        self.put("a", b"c" * (5 * MIB))
        with self.assertRaises(ResourceModifiedError):
            list(chunks)
        self.assertEqual(file.download_file().readall(), b"c" * (5 * MIB))
