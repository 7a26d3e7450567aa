"""Unusual conditions with azure-storage-file-share 12: faults and retries, wrong keys and clocks, odd names, many
files, large and sparse files."""

import datetime
import hashlib
import os
import time
from unittest import mock

import fault_proxy
import files_env as env
from azure.core.exceptions import AzureError
from azure.storage.fileshare import ExponentialRetry, LinearRetry, generate_file_sas
from files_12_common import ShareTestCase, connect
from requests.exceptions import RequestException

MIB = 1 << 20


class Retries(ShareTestCase):
    """The proxy injects faults; after the client's retries the content is right and nothing was done twice."""

    def run_with_faults(self, plan, matches, work):
        several = LinearRetry(backoff=0, random_jitter_range=0, retry_total=len(plan))
        with fault_proxy.FaultProxy(plan, matches) as proxy:
            sizes = {"max_single_get_size": MIB, "max_chunk_get_size": MIB}
            with connect(proxy.endpoint, retry_policy=several, **sizes) as service:
                work(service.get_share_client(self.share.share_name))
            self.assertEqual(proxy.plan, [], "every fault has happened")

    def test_uploads(self):
        content = os.urandom(9 * MIB)
        plan = [
            fault_proxy.REFUSE_500,
            fault_proxy.CUT_REQUEST,
            fault_proxy.LOSE_RESPONSE,
            fault_proxy.RESPOND_500,
            fault_proxy.REFUSE_503,
        ]
        is_range = lambda request: "comp=range" in request.path
        self.run_with_faults(plan, is_range, lambda share: share.get_file_client("a").upload_file(content))
        self.assertEqual(self.read("a"), content)
        self.assertEqual(os.path.getsize(env.on_disk(self.share.share_name, "a")), len(content))

    def test_downloads(self):
        content = os.urandom(5 * MIB)
        self.put("a", content)
        is_read = lambda request: request.command == "GET"

        def read(share):
            self.assertEqual(share.get_file_client("a").download_file().readall(), content)

        self.run_with_faults([fault_proxy.REFUSE_503, fault_proxy.LOSE_RESPONSE, fault_proxy.REFUSE_500], is_read, read)

    def test_a_truncated_body_is_an_error(self):
        """This client streams downloads, and raises an error for a truncated body instead of retrying."""
        self.put("a", os.urandom(4 * MIB))
        for checked in (False, True):

            def read(share):
                with self.assertRaises((AzureError, RequestException)):
                    share.get_file_client("a").download_file(validate_content=checked).readall()

            self.run_with_faults([fault_proxy.CUT_RESPONSE], lambda request: request.command == "GET", read)

    def test_retries_of_executed_requests(self):
        always = lambda request: True
        self.run_with_faults([fault_proxy.LOSE_RESPONSE], always, lambda share: share.get_file_client("f").create_file(10))
        self.run_with_faults([fault_proxy.LOSE_RESPONSE], always, lambda share: share.get_file_client("f").resize_file(20))
        self.assertEqual(self.read("f"), bytes(20))
        self.assertEqual(self.names(), ["f"])

    def test_listing(self):
        for number in range(5):
            self.put(f"f{number}", b"")

        def lists(share):
            found = [entry.name for entry in share.list_directories_and_files(results_per_page=2)]
            self.assertEqual(found, [f"f{number}" for number in range(5)])

        self.run_with_faults([fault_proxy.CUT_RESPONSE, fault_proxy.REFUSE_500], lambda request: "comp=list" in request.path, lists)


class Authentication(ShareTestCase):
    def test_a_wrong_key_is_refused_without_retries(self):
        asked = []
        hook = lambda response: asked.append(response.http_response.status_code)
        # The client's own retries, which wait for 15 s and more.
        client = connect(key="bm90IHRoZSBrZXk=", retry_policy=ExponentialRetry())
        share = client.get_share_client(self.share.share_name)
        self.assert_refused(403, "AuthenticationFailed", share.get_share_properties, raw_response_hook=hook)
        file = share.get_file_client("a")
        self.assert_refused(403, "AuthenticationFailed", file.upload_file, b"abc", raw_response_hook=hook)
        self.assertEqual(asked, [403, 403])

    def test_a_wrong_clock_is_refused(self):
        for minutes, status in ((-20, 403), (20, 403), (-10, 200), (10, 200)):
            shifted = time.time() + 60 * minutes
            with mock.patch("azure.storage.fileshare._shared.policies.time", lambda: shifted):
                if status == 200:
                    self.share.get_share_properties()
                else:
                    error = self.assert_refused(403, "AuthenticationFailed", self.share.get_share_properties)
                    self.assertIn("clock", str(error))


class OddNames(ShareTestCase):
    def test_odd_names_round_trip(self):
        name_of_share = self.share.share_name
        for number, name in enumerate(env.ODD_NAMES):
            with self.subTest(name=name):
                directory = self.share.get_directory_client(name)
                directory.create_directory()
                file = directory.get_file_client(name)
                file.upload_file(str(number).encode(), metadata={"number": str(number)})
                self.assertEqual(file.download_file().readall(), str(number).encode())
                self.assertEqual(file.get_file_properties().metadata, {"number": str(number)})
                self.assertEqual([entry.name for entry in directory.list_directories_and_files()], [name])
                self.assertTrue(os.path.exists(env.on_disk(name_of_share, name, name)))
                sas = generate_file_sas(
                    env.ACCOUNT, name_of_share, [name, name], env.KEY, "r", datetime.datetime(2040, 1, 1)
                )
                linked = connect(sas=sas).get_share_client(name_of_share)
                linked = linked.get_directory_client(name).get_file_client(name)
                self.assertEqual(linked.download_file().readall(), str(number).encode())
                directory.get_file_client("copy").start_copy_from_url(file.url)
                self.assertEqual(directory.get_file_client("copy").download_file().readall(), str(number).encode())
                directory.delete_file("copy")
        self.assertEqual(sorted(self.names()), sorted(env.ODD_NAMES))
        for name in env.ODD_NAMES:
            directory = self.share.get_directory_client(name)
            directory.delete_file(name)
            directory.delete_directory()
        self.assertEqual(self.names(), [])

    def test_paging_among_odd_names(self):
        for name in env.ODD_NAMES:
            open(env.on_disk(self.share.share_name, name), "wb").close()
        pages = self.share.list_directories_and_files(results_per_page=1).by_page()
        self.assertEqual(sorted(entry.name for page in pages for entry in page), sorted(env.ODD_NAMES))

    def test_nested_paths(self):
        for path in ("a", "a/b c", "a/b c/\u00fc"):
            self.share.create_directory(path)
        self.put("a/b c/\u00fc/f", b"deep")
        self.assertEqual(self.read("a/b c/\u00fc/f"), b"deep")
        self.assertEqual(self.names("a/b c"), ["\u00fc"])


class ManyFiles(ShareTestCase):
    def test_ten_thousand_files_are_listed_once_each(self):
        names = [f"file {number:05}" for number in range(10_000)]
        os.mkdir(env.on_disk(self.share.share_name, "many"))
        for name in names:
            open(env.on_disk(self.share.share_name, "many", name), "wb").close()
        self.assertEqual(self.names("many", results_per_page=1500), names)


class LargeFiles(ShareTestCase):
    def test_a_sparse_file_of_five_gigabytes(self):
        gib = 1 << 30
        size = 5 * gib
        file = self.share.get_file_client("sparse")
        file.create_file(size)
        written = {0: b"first", 3 * gib - 2: b"over the edge", 4 * gib + 12345: b"x" * MIB, size - 4: b"last"}
        for offset, data in written.items():
            file.upload_range(data, offset, len(data), validate_content=True)
        self.assertEqual(file.get_file_properties().size, size)
        for offset, data in written.items():
            self.assertEqual(self.read("sparse", offset=offset, length=len(data)), data)
        self.assertEqual(self.read("sparse", offset=2 * gib, length=100), bytes(100))
        ranges = file.get_ranges()
        for offset, data in written.items():
            holds = lambda part: part["start"] <= offset and part["end"] >= offset + len(data) - 1
            self.assertTrue(any(map(holds, ranges)), (offset, ranges))
        self.assertLess(sum(part["end"] - part["start"] + 1 for part in ranges), 2 * MIB)
        stat = os.stat(env.on_disk(self.share.share_name, "sparse"))
        self.assertEqual(stat.st_size, size)
        self.assertLess(stat.st_blocks * 512, 4 * MIB)
        file.clear_range(4 * gib, 2 * MIB)
        self.assertEqual(self.read("sparse", offset=4 * gib + 12345, length=100), bytes(100))
        self.assertFalse(any(4 * gib <= part["start"] < 4 * gib + 2 * MIB for part in file.get_ranges()))
        file.resize_file(10)
        self.assertEqual(self.read("sparse"), b"first" + bytes(5))

    def test_parallel_with_checks(self):
        content = os.urandom(64 * MIB + 12345)
        self.put("big", content, max_concurrency=8, validate_content=True)
        with open(env.on_disk(self.share.share_name, "big"), "rb") as file:
            self.assertEqual(hashlib.file_digest(file, "sha256").digest(), hashlib.sha256(content).digest())
        self.assertEqual(self.read("big", max_concurrency=8, validate_content=True), content)
        self.assertEqual(self.read("big", max_concurrency=8), content)
