"""Shared access signatures as azure-storage-file 1.4 and 2.1 make them: permitted and refused requests."""

from datetime import datetime, timedelta

import files_env as env
from azure.storage.common import AccessPolicy
from azure.storage.common.models import AccountPermissions, ResourceTypes
from azure.storage.file.models import FilePermissions, SharePermissions
from files_1x_common import ShareTestCase, connect

DENIED = "AuthorizationPermissionMismatch"


def in_minutes(minutes):
    return datetime.utcnow() + timedelta(minutes=minutes)


class SasTestCase(ShareTestCase):
    def setUp(self):
        super().setUp()
        self.service.create_directory(self.share, "d e")
        self.put("a b", b"content", "d e")

    def of_file(self, permission="r", **more):
        more.setdefault("expiry", in_minutes(10))
        sas = self.service.generate_file_shared_access_signature(self.share, "d e", "a b", permission, **more)
        return connect(sas=sas)

    def of_share(self, permission="rl", **more):
        more.setdefault("expiry", in_minutes(10))
        return connect(sas=self.service.generate_share_shared_access_signature(self.share, permission, **more))

    def of_account(self, types="sco", permission="rl", **more):
        more.setdefault("expiry", in_minutes(10))
        make = self.service.generate_account_shared_access_signature
        return connect(sas=make(ResourceTypes(_str=types), AccountPermissions(_str=permission), **more))

    def reads(self, linked):
        return linked.get_file_to_bytes(self.share, "d e", "a b").content

    def assert_readable(self, linked):
        self.assertEqual(self.reads(linked), b"content")

    def assert_rejected(self, linked, status=403, code="AuthenticationFailed"):
        self.assert_refused(status, code, self.reads, linked)
        self.assertEqual(linked.retried, [])


class FileSas(SasTestCase):
    def test_a_sas_permits_its_file_only(self):
        linked = self.of_file(FilePermissions.READ)
        self.assert_readable(linked)
        self.put("other", b"", "d e")
        self.assert_refused(403, "AuthenticationFailed", linked.get_file_to_bytes, self.share, "d e", "other")
        self.assert_refused(403, DENIED, linked.delete_file, self.share, "d e", "a b")
        self.assert_refused(403, DENIED, linked.update_range, self.share, "d e", "a b", b"x", 0, 0)
        self.assert_refused(403, "AuthenticationFailed", lambda: list(linked.list_directories_and_files(self.share)))

    def test_permissions_are_distinguished(self):
        self.assert_rejected(self.of_file("w"), code=DENIED)
        self.of_file("w").update_range(self.share, "d e", "a b", b"C", 0, 0)
        self.assertEqual(self.read("a b", "d e"), b"Content")
        self.assert_refused(403, DENIED, self.of_file("rcw").delete_file, self.share, "d e", "a b")
        self.of_file(FilePermissions(read=True, delete=True)).delete_file(self.share, "d e", "a b")

    def test_times(self):
        self.assert_rejected(self.of_file(expiry=in_minutes(-1)))
        self.assert_rejected(self.of_file(start=in_minutes(5)))
        self.assert_readable(self.of_file(start=in_minutes(-5)))

    def test_addresses_and_protocols(self):
        self.assert_readable(self.of_file(ip="127.0.0.1"))
        self.assert_readable(self.of_file(ip="127.0.0.0-127.0.0.9"))
        self.assert_rejected(self.of_file(ip="10.0.0.1"), code="AuthorizationSourceIPMismatch")
        self.assert_readable(self.of_file(protocol="https"))
        self.assert_readable(self.of_file(protocol="https,http"))

    def test_response_headers_of_the_sas(self):
        linked = self.of_file(
            cache_control="no-store",
            content_disposition="inline",
            content_encoding="identity",
            content_language="fr",
            content_type="text/x-chosen",
        )
        found = linked.get_file_to_bytes(self.share, "d e", "a b").properties.content_settings
        returned = found.cache_control, found.content_disposition, found.content_language, found.content_type
        self.assertEqual(returned, ("no-store", "inline", "fr", "text/x-chosen"))

    def test_a_forged_sas_is_refused(self):
        sas = self.service.generate_file_shared_access_signature(self.share, "d e", "a b", "r", in_minutes(5))
        self.assert_rejected(connect(sas=sas.replace("sp=r", "sp=rwd")))
        self.assert_rejected(connect(sas=sas.replace("sig=", "sig=A")))


class ShareSas(SasTestCase):
    def test_a_sas_permits_its_share(self):
        linked = self.of_share(SharePermissions(read=True, list=True))
        self.assert_readable(linked)
        self.assertEqual([entry.name for entry in linked.list_directories_and_files(self.share)], ["d e"])
        self.assert_refused(403, DENIED, linked.create_directory, self.share, "new", fail_on_exist=True)
        other = env.new_name("other-")
        self.service.create_share(other)
        self.assert_refused(403, "AuthenticationFailed", lambda: list(linked.list_directories_and_files(other)))
        self.service.delete_share(other)

    def test_all_permissions_permit_every_operation(self):
        linked = self.of_share("rcwdl")
        linked.create_directory(self.share, "new", fail_on_exist=True)
        linked.create_file_from_bytes(self.share, "new", "a", b"abc")
        linked.delete_file(self.share, "new", "a")
        linked.delete_directory(self.share, "new", fail_not_exist=True)
        self.assertTrue(self.service.exists(self.share))

    def test_times_addresses_and_listing(self):
        self.assert_rejected(self.of_share(expiry=in_minutes(-1)))
        self.assert_rejected(self.of_share(start=in_minutes(5)))
        self.assert_rejected(self.of_share(ip="10.0.0.1"), code="AuthorizationSourceIPMismatch")
        self.assert_refused(403, DENIED, lambda: list(self.of_share("r").list_directories_and_files(self.share)))
        self.assert_rejected(self.of_share("l"), code=DENIED)

    def test_stored_policies(self):
        policy = AccessPolicy(SharePermissions(read=True), in_minutes(10))
        self.service.set_share_acl(self.share, {"readers": policy})
        sas = self.service.generate_share_shared_access_signature(self.share, id="readers")
        self.assert_readable(connect(sas=sas))
        self.assert_rejected(connect(sas=self.service.generate_share_shared_access_signature(self.share, id="others")))
        self.service.set_share_acl(self.share)
        self.assert_rejected(connect(sas=sas))


class AccountSas(SasTestCase):
    def test_a_sas_permits_the_account(self):
        linked = self.of_account()
        self.assert_readable(linked)
        self.assertIn(self.share, [share.name for share in linked.list_shares(prefix=self.share)])
        self.assertEqual(linked.get_share_properties(self.share).name, self.share)
        self.assert_refused(403, DENIED, linked.create_share, env.new_name("no-"), fail_on_exist=True)

    def test_resource_types_are_distinguished(self):
        wrong = "AuthorizationResourceTypeMismatch"
        self.assert_rejected(self.of_account("sc"), code=wrong)
        self.assert_refused(403, wrong, lambda: list(self.of_account("co").list_shares()))
        self.assert_refused(403, wrong, self.of_account("so", "rwdl").delete_share, self.share, fail_not_exist=True)
        self.assert_readable(self.of_account("o"))

    def test_permissions_times_and_addresses(self):
        self.assert_rejected(self.of_account("sco", "wl"), code=DENIED)
        self.assert_rejected(self.of_account(expiry=in_minutes(-1)))
        self.assert_rejected(self.of_account(start=in_minutes(5)))
        self.assert_rejected(self.of_account(ip="10.0.0.1"), code="AuthorizationSourceIPMismatch")
        self.assert_readable(self.of_account(ip="127.0.0.1", protocol="https"))
        name = env.new_name("made-")
        linked = self.of_account("sco", "rwdlc")
        self.assertTrue(linked.create_share(name))
        self.assertTrue(linked.delete_share(name))
