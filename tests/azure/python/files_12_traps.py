"""What goes wrong on the way, with azure-storage-file-share 12: faults and retries, wrong keys and clocks, odd names, many
files, large and sparse ones."""

import datetime
import hashlib
import os
import time
from unittest import mock

import faulty
import files_place as place
from azure.core.exceptions import AzureError
from azure.storage.fileshare import ExponentialRetry, LinearRetry, generate_file_sas
from files_12_common import OnShare, connect
from requests.exceptions import RequestException

MIB = 1 << 20


class Retries(OnShare):
    """The proxy breaks requests; the client's retries must end with the right content, and nothing twice."""

    def through(self, plan, matches, work):
        several = LinearRetry(backoff=0, random_jitter_range=0, retry_total=len(plan))
        with faulty.Faulty(plan, matches) as proxy:
            sizes = {"max_single_get_size": MIB, "max_chunk_get_size": MIB}
            with connect(proxy.endpoint, retry_policy=several, **sizes) as service:
                work(service.get_share_client(self.share.share_name))
            self.assertEqual(proxy.plan, [], "every fault has happened")

    def test_uploads(self):
        content = os.urandom(9 * MIB)
        plan = [faulty.REFUSE_500, faulty.CUT_REQUEST, faulty.LOSE_ANSWER, faulty.ANSWER_500, faulty.REFUSE_503]
        is_range = lambda request: "comp=range" in request.path
        self.through(plan, is_range, lambda share: share.get_file_client("a").upload_file(content))
        self.assertEqual(self.read("a"), content)
        self.assertEqual(os.path.getsize(place.on_disk(self.share.share_name, "a")), len(content))

    def test_downloads(self):
        content = os.urandom(5 * MIB)
        self.put("a", content)
        is_read = lambda request: request.command == "GET"

        def read(share):
            self.assertEqual(share.get_file_client("a").download_file().readall(), content)

        self.through([faulty.REFUSE_503, faulty.LOSE_ANSWER, faulty.REFUSE_500], is_read, read)

    def test_a_body_that_breaks_off_is_never_taken_for_the_whole(self):
        """This client streams what it reads, and tells that a body broke off instead of asking again."""
        self.put("a", os.urandom(4 * MIB))
        for checked in (False, True):

            def read(share):
                with self.assertRaises((AzureError, RequestException)):
                    share.get_file_client("a").download_file(validate_content=checked).readall()

            self.through([faulty.CUT_ANSWER], lambda request: request.command == "GET", read)

    def test_what_was_done_before_the_answer_was_lost(self):
        always = lambda request: True
        self.through([faulty.LOSE_ANSWER], always, lambda share: share.get_file_client("f").create_file(10))
        self.through([faulty.LOSE_ANSWER], always, lambda share: share.get_file_client("f").resize_file(20))
        self.assertEqual(self.read("f"), bytes(20))
        self.assertEqual(self.names(), ["f"])

    def test_listing(self):
        for number in range(5):
            self.put(f"f{number}", b"")

        def lists(share):
            found = [entry.name for entry in share.list_directories_and_files(results_per_page=2)]
            self.assertEqual(found, [f"f{number}" for number in range(5)])

        self.through([faulty.CUT_ANSWER, faulty.REFUSE_500], lambda request: "comp=list" in request.path, lists)


class Strangers(OnShare):
    def test_a_wrong_key_is_told_at_once(self):
        asked = []
        hook = lambda response: asked.append(response.http_response.status_code)
        # The client's own retries, which wait for 15 s and more.
        stranger = connect(key="bm90IHRoZSBrZXk=", retry_policy=ExponentialRetry())
        share = stranger.get_share_client(self.share.share_name)
        self.refused(403, "AuthenticationFailed", share.get_share_properties, raw_response_hook=hook)
        file = share.get_file_client("a")
        self.refused(403, "AuthenticationFailed", file.upload_file, b"abc", raw_response_hook=hook)
        self.assertEqual(asked, [403, 403])

    def test_the_servers_clock_is_the_truth(self):
        for minutes, status in ((-20, 403), (20, 403), (-10, 200), (10, 200)):
            shifted = time.time() + 60 * minutes
            with mock.patch("azure.storage.fileshare._shared.policies.time", lambda: shifted):
                if status == 200:
                    self.share.get_share_properties()
                else:
                    error = self.refused(403, "AuthenticationFailed", self.share.get_share_properties)
                    self.assertIn("clock", str(error))


class OddNames(OnShare):
    def test_names_come_back_as_they_went(self):
        name_of_share = self.share.share_name
        for number, name in enumerate(place.ODD_NAMES):
            with self.subTest(name=name):
                directory = self.share.get_directory_client(name)
                directory.create_directory()
                file = directory.get_file_client(name)
                file.upload_file(str(number).encode(), metadata={"number": str(number)})
                self.assertEqual(file.download_file().readall(), str(number).encode())
                self.assertEqual(file.get_file_properties().metadata, {"number": str(number)})
                self.assertEqual([entry.name for entry in directory.list_directories_and_files()], [name])
                self.assertTrue(os.path.exists(place.on_disk(name_of_share, name, name)))
                sas = generate_file_sas(
                    place.ACCOUNT, name_of_share, [name, name], place.KEY, "r", datetime.datetime(2040, 1, 1)
                )
                linked = connect(sas=sas).get_share_client(name_of_share)
                linked = linked.get_directory_client(name).get_file_client(name)
                self.assertEqual(linked.download_file().readall(), str(number).encode())
                directory.get_file_client("copy").start_copy_from_url(file.url)
                self.assertEqual(directory.get_file_client("copy").download_file().readall(), str(number).encode())
                directory.delete_file("copy")
        self.assertEqual(sorted(self.names()), sorted(place.ODD_NAMES))
        for name in place.ODD_NAMES:
            directory = self.share.get_directory_client(name)
            directory.delete_file(name)
            directory.delete_directory()
        self.assertEqual(self.names(), [])

    def test_paging_among_odd_names(self):
        for name in place.ODD_NAMES:
            open(place.on_disk(self.share.share_name, name), "wb").close()
        pages = self.share.list_directories_and_files(results_per_page=1).by_page()
        self.assertEqual(sorted(entry.name for page in pages for entry in page), sorted(place.ODD_NAMES))

    def test_nested_paths(self):
        for path in ("a", "a/b c", "a/b c/\u00fc"):
            self.share.create_directory(path)
        self.put("a/b c/\u00fc/f", b"deep")
        self.assertEqual(self.read("a/b c/\u00fc/f"), b"deep")
        self.assertEqual(self.names("a/b c"), ["\u00fc"])


class Many(OnShare):
    def test_ten_thousand_files_are_listed_once_each(self):
        names = [f"file {number:05}" for number in range(10_000)]
        os.mkdir(place.on_disk(self.share.share_name, "many"))
        for name in names:
            open(place.on_disk(self.share.share_name, "many", name), "wb").close()
        self.assertEqual(self.names("many", results_per_page=1500), names)


class Large(OnShare):
    def test_five_gigabytes_of_almost_nothing(self):
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
        stat = os.stat(place.on_disk(self.share.share_name, "sparse"))
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
        with open(place.on_disk(self.share.share_name, "big"), "rb") as file:
            self.assertEqual(hashlib.file_digest(file, "sha256").digest(), hashlib.sha256(content).digest())
        self.assertEqual(self.read("big", max_concurrency=8, validate_content=True), content)
        self.assertEqual(self.read("big", max_concurrency=8), content)
