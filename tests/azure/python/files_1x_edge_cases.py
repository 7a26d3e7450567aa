"""Unusual conditions with azure-storage-file 1.4 and 2.1: faults and retries, wrong keys and clocks, odd names, many files,
large and sparse files."""

import datetime
import hashlib
import os
import time
import urllib.parse
from unittest import mock

import files_env as env
import fault_proxy
from azure.storage.common import retry
from files_1x_common import ShareTestCase, connect

MIB = 1 << 20


class Retries(ShareTestCase):
    """The proxy injects faults; after the client's retries the content is right and nothing was done twice."""

    def run_with_faults(self, plan, matches, work):
        with fault_proxy.FaultProxy(plan, matches) as proxy:
            service = connect(proxy.endpoint, attempts=len(plan))
            work(service)
            self.assertEqual(proxy.plan, [], "every fault has happened")
            self.assertEqual(len(service.retried), len(plan), "each fault is one retry")

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
        self.run_with_faults(
            plan, is_range, lambda service: service.create_file_from_bytes(self.share, None, "a", content)
        )
        self.assertEqual(self.read("a"), content)
        self.assertEqual(os.path.getsize(env.on_disk(self.share, "a")), len(content))

    def test_downloads(self):
        content = os.urandom(5 * MIB)
        self.put("a", content)
        plan = [fault_proxy.CUT_RESPONSE, fault_proxy.REFUSE_503, fault_proxy.CUT_RESPONSE, fault_proxy.LOSE_RESPONSE]
        is_read = lambda request: request.command == "GET"

        def read(service):
            service.MAX_SINGLE_GET_SIZE = service.MAX_CHUNK_GET_SIZE = MIB
            self.assertEqual(service.get_file_to_bytes(self.share, None, "a").content, content)

        self.run_with_faults(plan, is_read, read)

    def test_retries_of_executed_requests(self):
        """A retry of a request that was executed succeeds: created once, deleted once."""
        name = env.new_name("lost-")
        always = lambda request: True
        self.run_with_faults([fault_proxy.LOSE_RESPONSE], always, lambda service: service.create_share(name))
        self.run_with_faults([fault_proxy.RESPOND_500], always, lambda service: service.create_directory(name, "d"))
        self.run_with_faults([fault_proxy.LOSE_RESPONSE], always, lambda service: service.create_file(name, "d", "f", 10))
        self.assertEqual([entry.name for entry in self.service.list_directories_and_files(name, "d")], ["f"])
        self.run_with_faults([fault_proxy.LOSE_RESPONSE], always, lambda service: service.resize_file(name, "d", "f", 20))
        self.run_with_faults([fault_proxy.LOSE_RESPONSE], always, lambda service: service.delete_share(name))
        self.assertFalse(self.service.exists(name))

    def test_listing(self):
        for number in range(5):
            self.put(f"f{number}", b"")
        plan = [fault_proxy.CUT_RESPONSE, fault_proxy.REFUSE_500]

        def lists(service):
            found, marker = [], None
            while marker or not found:
                page = service.list_directories_and_files(self.share, num_results=2, marker=marker)
                found += [entry.name for entry in page]
                marker = page.next_marker
            self.assertEqual(found, [f"f{number}" for number in range(5)])

        self.run_with_faults(plan, lambda request: "comp=list" in request.path, lists)


class Authentication(ShareTestCase):
    def test_a_wrong_key_is_refused_without_retries(self):
        client = connect(key="bm90IHRoZSBrZXk=")
        client.retry = retry.ExponentialRetry().retry  # the client's own, which waits for 15 s and more
        asked = []
        client.response_callback = lambda answer: asked.append(answer.status)
        self.assert_refused(403, "AuthenticationFailed", client.get_share_properties, self.share)
        self.assert_refused(403, "AuthenticationFailed", client.create_file_from_bytes, self.share, None, "a", b"abc")
        self.assertEqual(asked, [403, 403])

    def test_a_wrong_clock_is_refused(self):
        for minutes, status in ((-20, 403), (20, 403), (-10, 200), (10, 200)):
            service = connect()
            answers = []
            service.response_callback = lambda answer: answers.append(answer.status)
            shifted = time.time() + 60 * minutes
            with mock.patch("azure.storage.common._serialization.time", lambda: shifted):
                if status == 200:
                    service.get_share_properties(self.share)
                else:
                    error = self.assert_refused(403, "AuthenticationFailed", service.get_share_properties, self.share)
                    self.assertIn("clock", str(error))
            self.assertEqual(answers, [status], minutes)


class OddNames(ShareTestCase):
    def test_odd_names_round_trip(self):
        service = self.service
        for number, name in enumerate(env.ODD_NAMES):
            with self.subTest(name=name):
                service.create_directory(self.share, name, fail_on_exist=True)
                self.put(name, str(number).encode(), name, metadata={"number": str(number)})
                self.assertEqual(self.read(name, name), str(number).encode())
                self.assertEqual(service.get_file_metadata(self.share, name, name), {"number": str(number)})
                self.assertEqual(self.names(name), [name])
                self.assertTrue(os.path.exists(env.on_disk(self.share, name, name)))
                link = service.generate_file_shared_access_signature(
                    self.share, name, name, "r", datetime.datetime(2040, 1, 1)
                )
                linked = connect(sas=link)
                self.assertEqual(linked.get_file_to_bytes(self.share, name, name).content, str(number).encode())
                url = service.make_file_url(self.share, urllib.parse.quote(name), urllib.parse.quote(name))
                service.copy_file(self.share, None, "copy", url)
                self.assertEqual(self.read("copy"), str(number).encode())
                service.delete_file(self.share, None, "copy")
        self.assertEqual(sorted(self.names()), sorted(env.ODD_NAMES))
        self.assertEqual(sorted(os.listdir(env.on_disk(self.share))), sorted(env.ODD_NAMES))
        for name in env.ODD_NAMES:
            service.delete_file(self.share, name, name)
            service.delete_directory(self.share, name, fail_not_exist=True)
        self.assertEqual(self.names(), [])

    def test_paging_among_odd_names(self):
        for name in env.ODD_NAMES:
            open(env.on_disk(self.share, name), "wb").close()
        found, marker = [], None
        while marker or not found:
            page = self.service.list_directories_and_files(self.share, num_results=1, marker=marker)
            found += [entry.name for entry in page]
            marker = page.next_marker
        self.assertEqual(sorted(found), sorted(env.ODD_NAMES))

    def test_nested_paths(self):
        for path in ("a", "a/b c", "a/b c/d%2Fe", "a/b c/d%2Fe/\u00fc"):
            self.service.create_directory(self.share, path, fail_on_exist=True)
        self.put("f", b"deep", "a/b c/d%2Fe/\u00fc")
        self.assertEqual(self.read("f", "a/b c/d%2Fe/\u00fc"), b"deep")
        self.assertEqual(self.names("a/b c"), ["d%2Fe"])


class ManyFiles(ShareTestCase):
    def test_ten_thousand_files_are_listed_once_each(self):
        names = [f"file {number:05}" for number in range(10_000)]
        os.mkdir(env.on_disk(self.share, "many"))
        for name in names:
            open(env.on_disk(self.share, "many", name), "wb").close()
        asked = []
        self.service.response_callback = lambda answer: asked.append(answer.status)
        self.assertEqual(self.names("many"), names)
        self.assertEqual(asked, [200, 200])
        found, marker = [], None
        while marker or not found:
            page = self.service.list_directories_and_files(self.share, "many", num_results=1500, marker=marker)
            found += [entry.name for entry in page]
            marker = page.next_marker
        self.assertEqual(found, names)


class LargeFiles(ShareTestCase):
    def test_a_sparse_file_of_five_gigabytes(self):
        gib, service = 1 << 30, self.service
        size = 5 * gib
        service.create_file(self.share, None, "sparse", size)
        written = {0: b"first", 3 * gib - 2: b"over the edge", 4 * gib + 12345: b"x" * MIB, size - 4: b"last"}
        for offset, data in written.items():
            service.update_range(
                self.share, None, "sparse", data, offset, offset + len(data) - 1, validate_content=True
            )
        self.assertEqual(service.get_file_properties(self.share, None, "sparse").properties.content_length, size)
        for offset, data in written.items():
            found = self.read("sparse", start_range=offset, end_range=offset + len(data) - 1)
            self.assertEqual(found, data)
        self.assertEqual(self.read("sparse", start_range=2 * gib, end_range=2 * gib + 99), bytes(100))
        ranges = service.list_ranges(self.share, None, "sparse")
        for offset, data in written.items():
            self.assertTrue(any(r.start <= offset and r.end >= offset + len(data) - 1 for r in ranges), offset)
        self.assertLess(sum(r.end - r.start + 1 for r in ranges), 2 * MIB)
        stat = os.stat(env.on_disk(self.share, "sparse"))
        self.assertEqual(stat.st_size, size)
        self.assertLess(stat.st_blocks * 512, 4 * MIB)
        service.clear_range(self.share, None, "sparse", 4 * gib, 4 * gib + 2 * MIB - 1)
        self.assertEqual(self.read("sparse", start_range=4 * gib + 12345, end_range=4 * gib + 12444), bytes(100))
        self.assertFalse(any(4 * gib <= r.start < 4 * gib + 2 * MIB for r in service.list_ranges(self.share, None, "sparse")))
        self.assertLess(os.stat(env.on_disk(self.share, "sparse")).st_blocks, stat.st_blocks)
        service.resize_file(self.share, None, "sparse", 10)
        self.assertEqual(self.read("sparse"), b"first" + bytes(5))

    def test_parallel_with_checks(self):
        content = os.urandom(64 * MIB + 12345)
        self.service.MAX_CHUNK_GET_SIZE = 4 * MIB  # the most that a client may have checked
        self.put("big", content, max_connections=8, validate_content=True)
        with open(env.on_disk(self.share, "big"), "rb") as file:
            self.assertEqual(hashlib.file_digest(file, "sha256").digest(), hashlib.sha256(content).digest())
        self.assertEqual(self.read("big", max_connections=8, validate_content=True), content)
        self.assertEqual(self.read("big", max_connections=1), content)
        self.assertEqual(self.service.retried, [])
