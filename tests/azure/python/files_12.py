"""Shares, directories and files with azure-storage-file-share 12."""

import datetime
import io

import files_env as env
from azure.core.exceptions import ResourceExistsError
from azure.storage.fileshare import (
    AccessPolicy,
    ContentSettings,
    CorsRule,
    Metrics,
    NTFSAttributes,
    RetentionPolicy,
    ShareClient,
    ShareDirectoryClient,
    ShareFileClient,
    ShareSasPermissions,
    ShareServiceClient,
    generate_file_sas,
)
from files_12_common import ShareTestCase


class Clients(ShareTestCase):
    def test_every_way_to_make_one(self):
        self.put("a", b"content")
        secret = {"account_name": env.ACCOUNT, "account_key": env.KEY}
        string = f"AccountName={env.ACCOUNT};AccountKey={env.KEY};FileEndpoint={env.ENDPOINT}"
        name = self.share.share_name
        url = f"{env.ENDPOINT}/{name}"
        service = ShareServiceClient.from_connection_string(string)
        self.assertIn(name, [share.name for share in service.list_shares(name_starts_with=name)])
        for share in (ShareClient.from_connection_string(string, name), ShareClient.from_share_url(url, credential=secret)):
            self.assertEqual(share.get_share_properties().name, name)
        directory = self.share.create_directory("d")
        for directory in (
            ShareDirectoryClient.from_connection_string(string, name, "d"),
            ShareDirectoryClient.from_directory_url(f"{url}/d", credential=secret),
        ):
            self.assertTrue(directory.exists())
        for file in (
            ShareFileClient.from_connection_string(string, name, "a"),
            ShareFileClient.from_file_url(f"{url}/a", credential=secret),
        ):
            self.assertEqual(file.download_file().readall(), b"content")


class Shares(ShareTestCase):
    def test_a_share_is_made_once(self):
        share = self.service.get_share_client(env.new_name("once-"))
        share.create_share()
        with self.assertRaises(ResourceExistsError):
            share.create_share()
        share.delete_share()
        for call in (share.get_share_properties, share.delete_share, share.get_share_stats):
            self.assert_refused(404, "ShareNotFound", call)
        self.service.create_share(share.share_name)
        self.service.delete_share(share.share_name)

    def test_properties_and_metadata(self):
        share = self.service.get_share_client(env.new_name("told-"))
        share.create_share(metadata={"owner": "me"}, quota=7)
        found = share.get_share_properties()
        self.assertEqual((found.name, found.quota, found.metadata), (share.share_name, 7, {"owner": "me"}))
        share.set_share_quota(9)
        share.set_share_metadata({"next": "one"})
        found = share.get_share_properties()
        self.assertEqual((found.quota, found.metadata), (9, {"next": "one"}))
        share.set_share_properties(quota=11)
        self.assertEqual(share.get_share_properties().quota, 11)
        self.assertEqual(len({share.get_share_properties().etag for _ in range(3)}), 1)
        share.delete_share()

    def test_listing_goes_page_by_page(self):
        prefix = env.new_name("page-")
        names = [f"{prefix}-{number}" for number in range(7)]
        for name in names:
            self.service.create_share(name, metadata={"a": "b"})
        pages = self.service.list_shares(prefix, include_metadata=True, results_per_page=3).by_page()
        pages = [[(share.name, share.metadata) for share in page] for page in pages]
        self.assertEqual([len(page) for page in pages], [3, 3, 1])
        self.assertEqual(sum(pages, []), [(name, {"a": "b"}) for name in names])
        pages = self.service.list_shares(prefix, results_per_page=4).by_page()
        next(pages)
        rest = self.service.list_shares(prefix).by_page(continuation_token=pages.continuation_token)
        self.assertEqual([share.name for page in rest for share in page], names[4:])
        for name in names:
            self.service.delete_share(name)

    def test_stats(self):
        self.put("a", b"x" * 5000)
        self.assertGreaterEqual(self.share.get_share_stats(), 1)

    def test_snapshots(self):
        self.put("a", b"first")
        made = self.share.create_snapshot(metadata={"when": "first"})
        self.put("a", b"second")
        then = self.service.get_share_client(self.share.share_name, snapshot=made["snapshot"])
        self.assertEqual(then.get_file_client("a").download_file().readall(), b"first")
        self.assertEqual([entry["name"] for entry in then.list_directories_and_files()], ["a"])
        self.assertEqual(then.get_share_properties().metadata, {"when": "first"})
        listed = self.service.list_shares(self.share.share_name, include_snapshots=True)
        self.assertEqual([share.snapshot for share in listed], [made["snapshot"], None])
        self.assert_refused(409, "ShareHasSnapshots", self.share.delete_share)
        then.delete_share()
        self.assert_refused(404, "ShareSnapshotNotFound", then.get_share_properties)

    def test_ranges_since_a_snapshot(self):
        mib = 1 << 20
        file = self.share.get_file_client("a")
        file.upload_file(b"a" * (3 * mib))
        before = self.share.create_snapshot()["snapshot"]
        file.upload_range(b"b" * mib, mib, mib)
        file.clear_range(2 * mib, mib)
        changed, cleared = file.get_ranges_diff(before)
        self.assertEqual(changed, [{"start": mib, "end": 2 * mib - 1}])
        self.assertEqual(cleared, [{"start": 2 * mib, "end": 3 * mib - 1}])

    def test_stored_policies(self):
        expiry = datetime.datetime(2040, 1, 2, 3, 4, 5)
        policy = AccessPolicy(ShareSasPermissions(read=True, list=True), expiry, datetime.datetime(2020, 1, 1))
        self.share.set_share_access_policy({"readers": policy})
        [found] = self.share.get_share_access_policy()["signed_identifiers"]
        self.assertEqual((found.id, found.access_policy.permission), ("readers", "rl"))
        self.share.set_share_access_policy({})
        self.assertEqual(self.share.get_share_access_policy()["signed_identifiers"], [])

    def test_service_properties(self):
        before = self.service.get_service_properties()
        rule = CorsRule(["http://a.example"], ["GET"], max_age_in_seconds=60)
        metrics = Metrics(enabled=True, include_apis=True, retention_policy=RetentionPolicy(True, 5))
        self.service.set_service_properties(hour_metrics=metrics, cors=[rule])
        found = self.service.get_service_properties()
        self.assertTrue(found["hour_metrics"].enabled)
        self.assertEqual([rule.allowed_origins for rule in found["cors"]], ["http://a.example"])
        self.service.set_service_properties(before["hour_metrics"], before["minute_metrics"], before["cors"])

    def test_permissions(self):
        sddl = "O:SYG:SYD:(A;;FA;;;SY)"
        key = self.share.create_permission_for_share(sddl)
        self.assertEqual(self.share.get_permission_for_share(key), sddl)
        file = self.share.get_file_client("a")
        file.create_file(5, permission_key=key)
        self.assertEqual(file.get_file_properties().permission_key, key)


class Directories(ShareTestCase):
    def test_a_directory_is_made_once(self):
        directory = self.share.create_directory("d", metadata={"a": "1"})
        with self.assertRaises(ResourceExistsError):
            directory.create_directory()
        below = directory.create_subdirectory("e")
        self.assertTrue(below.exists())
        self.assertFalse(self.share.get_directory_client("x").exists())
        self.assert_refused(404, "ParentNotFound", self.share.create_directory, "no/such")
        self.assert_refused(409, "DirectoryNotEmpty", directory.delete_directory)
        directory.delete_subdirectory("e")
        self.share.delete_directory("d")
        self.assert_refused(404, "ResourceNotFound", directory.delete_directory)
        self.assertFalse(directory.exists())

    def test_properties_and_metadata(self):
        directory = self.share.create_directory("d", metadata={"a": "1"})
        found = directory.get_directory_properties()
        self.assertEqual((found.metadata, found.is_directory, found.server_encrypted), ({"a": "1"}, True, True))
        directory.set_directory_metadata({"b": "2"})
        self.assertEqual(directory.get_directory_properties().metadata, {"b": "2"})
        root = self.share.get_directory_client()
        self.assertTrue(root.get_directory_properties().etag)
        directory.set_http_headers(
            file_attributes=NTFSAttributes(directory=True, hidden=True),
            file_creation_time=datetime.datetime(2019, 7, 7, 2, 52, 46, 554016),
        )
        found = directory.get_directory_properties()
        self.assertEqual(found.creation_time.replace(tzinfo=None), datetime.datetime(2019, 7, 7, 2, 52, 46, 554016))
        self.assertIn("Hidden", str(found.file_attributes))

    def test_files_of_a_directory(self):
        directory = self.share.create_directory("d")
        file = directory.upload_file("a", b"abc")
        self.assertEqual(file.download_file().readall(), b"abc")
        self.assertEqual(directory.get_file_client("a").get_file_properties().size, 3)
        directory.get_subdirectory_client("e").create_directory()
        self.assertEqual([entry.name for entry in directory.list_directories_and_files()], ["e", "a"])
        directory.delete_file("a")
        self.assertEqual(self.names("d"), ["e"])

    def test_listing_goes_page_by_page(self):
        for number in range(3):
            self.share.create_directory(f"dir-{number}")
        for number in range(6):
            self.put(f"file-{number}", b"x" * number)
        pages = [list(page) for page in self.share.list_directories_and_files(results_per_page=2).by_page()]
        self.assertEqual([len(page) for page in pages], [2, 2, 2, 2, 1])
        entries = sum(pages, [])
        self.assertEqual([entry.is_directory for entry in entries], [True] * 3 + [False] * 6)
        self.assertEqual([entry.size for entry in entries[3:]], list(range(6)))
        self.assertEqual(self.names(name_starts_with="dir"), [f"dir-{number}" for number in range(3)])
        returned = self.share.list_directories_and_files(
            include=["Timestamps", "ETag", "Attributes", "PermissionKey"], include_extended_info=True
        )
        for entry in returned:
            self.assertTrue(entry.etag and entry.last_modified and entry.creation_time and entry.file_id, entry)
            self.assertTrue(entry.file_attributes and entry.permission_key, entry)

    def test_handles(self):
        self.put("a", b"abc")
        directory, file = self.share.get_directory_client(), self.share.get_file_client("a")
        self.assertEqual(list(directory.list_handles(recursive=True)), [])
        self.assertEqual(list(file.list_handles()), [])
        self.assertEqual(directory.close_all_handles(recursive=True)["closed_handles_count"], 0)
        self.assertEqual(file.close_all_handles()["closed_handles_count"], 0)


class Files(ShareTestCase):
    SETTINGS = dict(
        content_type="text/plain; charset=utf-8",
        content_encoding="identity",
        content_language="de",
        content_disposition="attachment; filename=a.txt",
        cache_control="no-cache",
    )

    def test_every_way_in_and_out(self):
        content = bytes(range(256)) * 50
        self.put("bytes", content)
        self.put("stream", io.BytesIO(content))
        self.put("pieces", iter([content[:100], content[100:]]), length=len(content))
        self.put("text", "schön", encoding="utf-16")
        for name in ("bytes", "stream", "pieces"):
            self.assertEqual(self.read(name), content, name)
        self.assertEqual(self.read("text").decode("utf-16"), "schön")
        self.assertEqual(self.read("bytes", offset=3, length=6), content[3:9])
        self.assertEqual(self.read("bytes", offset=12_795), content[12_795:])
        stream = io.BytesIO()
        self.share.get_file_client("bytes").download_file().readinto(stream)
        self.assertEqual(stream.getvalue(), content)
        self.assertEqual(b"".join(self.share.get_file_client("bytes").download_file().chunks()), content)
        self.assert_refused(416, "InvalidRange", self.read, "bytes", offset=len(content), length=5)

    def test_an_empty_file(self):
        self.put("none", b"")
        self.assertEqual(self.read("none"), b"")
        file = self.share.get_file_client("none")
        self.assertEqual((file.get_ranges(), file.get_file_properties().size), ([], 0))

    def test_content_settings_and_metadata(self):
        file = self.share.get_file_client("a")
        file.upload_file(b"abc", content_settings=ContentSettings(**self.SETTINGS), metadata={"b": "y z"})
        found = file.get_file_properties()
        returned = {name: value for name, value in found.content_settings.items() if name in self.SETTINGS}
        self.assertEqual((returned, found.metadata), (self.SETTINGS, {"b": "y z"}))
        file.set_http_headers(ContentSettings(content_type="text/x-python"))
        settings = file.get_file_properties().content_settings
        self.assertEqual((settings.content_type, settings.content_language), ("text/x-python", None))
        file.set_file_metadata({"other": "1"})
        self.assertEqual(file.get_file_properties().metadata, {"other": "1"})
        file.set_file_metadata({})
        self.assertEqual((file.get_file_properties().metadata, self.read("a")), ({}, b"abc"))
        for bad in ({"a": "schön"}, {"1a": "x"}):
            self.assert_refused(400, "InvalidMetadata", file.set_file_metadata, bad)

    def test_times_and_attributes(self):
        file = self.share.get_file_client("a")
        made, written = datetime.datetime(2019, 7, 7, 2, 52, 46, 554016), datetime.datetime(2019, 8, 7, 1, 2, 3, 4)
        attributes = NTFSAttributes(temporary=True, archive=True)
        file.create_file(5, attributes, file_creation_time=made, file_last_write_time=written)
        found = file.get_file_properties()
        times = found.creation_time.replace(tzinfo=None), found.last_write_time.replace(tzinfo=None)
        self.assertEqual(times, (made, written))
        self.assertIn("Temporary", str(found.file_attributes))
        self.assertTrue(found.change_time and found.file_id and found.parent_id and found.permission_key)
        file.set_http_headers(ContentSettings(), file_attributes="Hidden", file_last_write_time="preserve")
        found = file.get_file_properties()
        self.assertEqual((str(found.file_attributes), found.creation_time.replace(tzinfo=None)), ("Hidden", made))

    def test_etags_are_stable_until_something_changes(self):
        file = self.share.get_file_client("a")
        file.upload_file(b"abc")
        first = file.get_file_properties().etag
        self.assertEqual({self.share.get_file_client("a").download_file().properties.etag for _ in range(2)}, {first})
        [listed] = self.share.list_directories_and_files(include=["ETag"])
        self.assertEqual(listed.etag.strip('"'), first.strip('"'))
        file.upload_range(b"b", 0, 1)
        self.assertNotEqual(file.get_file_properties().etag, first)

    def test_ranges(self):
        mib = 1 << 20
        file = self.share.get_file_client("r")
        file.create_file(4 * mib)
        self.assertEqual(file.get_ranges(), [])
        file.upload_range(b"a" * mib, 0, mib, validate_content=True)
        file.upload_range(b"b" * mib, 2 * mib, mib)
        whole = [{"start": 0, "end": mib - 1}, {"start": 2 * mib, "end": 3 * mib - 1}]
        self.assertEqual(file.get_ranges(), whole)
        self.assertEqual(file.get_ranges(mib, 3 * mib), whole[1:])
        file.clear_range(0, mib)
        self.assertEqual(file.get_ranges(), whole[1:])
        file.resize_file(2 * mib + 10)
        self.assertEqual(self.read("r"), bytes(2 * mib) + b"b" * 10)
        self.assert_refused(416, "InvalidRange", file.upload_range, b"xx", 3 * mib, 2)
        self.put("source", b"0123456789")
        url = self.link("source")
        file.upload_range_from_url(url, offset=5, length=4, source_offset=3)
        self.assertEqual(self.read("r", offset=4, length=6), b"\x003456\x00")

    def link(self, path):
        name = self.share.share_name
        sas = generate_file_sas(
            env.ACCOUNT, name, path.split("/"), env.KEY, "r", datetime.datetime(2040, 1, 1)
        )
        return f"{self.share.get_file_client(path).url}?{sas}"

    def test_copies(self):
        self.put("a", b"content", metadata={"from": "a"})
        file = self.share.get_file_client("b")
        copy = file.start_copy_from_url(self.share.get_file_client("a").url)
        self.assertEqual(copy["copy_status"], "success")
        found = file.get_file_properties()
        self.assertEqual((found.copy.id, found.copy.status, found.copy.progress), (copy["copy_id"], "success", "7/7"))
        self.assertEqual((found.metadata, self.read("b")), ({"from": "a"}, b"content"))
        self.assert_refused(409, "NoPendingCopyOperation", file.abort_copy, copy["copy_id"])
        self.share.get_file_client("c").start_copy_from_url(self.link("a"), metadata={"to": "c"})
        self.assertEqual(self.share.get_file_client("c").get_file_properties().metadata, {"to": "c"})
        missing = self.share.get_file_client("missing").url
        self.assert_refused(404, "ResourceNotFound", file.start_copy_from_url, missing)

    def test_renames(self):
        self.put("a", b"content", metadata={"b": "c"})
        moved = self.share.get_file_client("a").rename_file("b")
        self.assertEqual((moved.download_file().readall(), self.names()), (b"content", ["b"]))
        self.assertEqual(moved.get_file_properties().metadata, {"b": "c"})
        self.put("c", b"other")
        self.assert_refused(409, "ResourceAlreadyExists", moved.rename_file, "c")
        moved.rename_file("c", overwrite=True)
        self.assertEqual((self.names(), self.read("c")), (["c"], b"content"))
        directory = self.share.create_directory("d")
        directory.upload_file("f", b"below")
        renamed = directory.rename_directory("e")
        self.assertEqual((self.names(), self.read("e/f")), (["e", "c"], b"below"))
        self.assertTrue(renamed.exists())
        self.assert_refused(404, "ResourceNotFound", self.share.get_file_client("no").rename_file, "x")

    def test_deleting(self):
        self.put("a", b"abc")
        file = self.share.get_file_client("a")
        file.delete_file()
        self.assert_refused(404, "ResourceNotFound", file.delete_file)
        self.assert_refused(404, "ResourceNotFound", self.read, "a")
        self.assert_refused(404, "ParentNotFound", self.put, "no/a", b"abc")


class SymbolicLinks(ShareTestCase):
    def test_a_tree_with_links_is_downloaded_and_deleted_without_what_they_lead_to(self):
        share = self.share.share_name
        env.plant_links(share)
        entries = list(self.share.list_directories_and_files("old"))
        self.assertEqual(sorted(entry.name for entry in entries), sorted(env.LINKS))
        for entry in entries:
            content = env.LINKS[entry.name][1]
            found = (entry.is_directory, entry.size, self.read(f"old/{entry.name}"))
            self.assertEqual(found, (False, len(content), content))
            self.share.get_file_client(f"old/{entry.name}").delete_file()
        self.share.get_directory_client("old").delete_directory()
        self.assertEqual(env.best(share), b"weights")
