"""Shared access signatures as azure-storage-file-share 12 makes them: permitted and refused requests."""

from datetime import datetime, timedelta

import files_env as env
from azure.storage.fileshare import (
    AccessPolicy,
    AccountSasPermissions,
    FileSasPermissions,
    ResourceTypes,
    ShareFileClient,
    ShareSasPermissions,
    generate_account_sas,
    generate_file_sas,
    generate_share_sas,
)
from files_12_common import ShareTestCase, connect

DENIED = "AuthorizationPermissionMismatch"
PATH = "d e/a b"


def in_minutes(minutes):
    return datetime.utcnow() + timedelta(minutes=minutes)


class SasTestCase(ShareTestCase):
    def setUp(self):
        super().setUp()
        self.share.create_directory("d e")
        self.put(PATH, b"content")

    def file_sas(self, permission=FileSasPermissions(read=True), **more):
        more.setdefault("expiry", in_minutes(10))
        return generate_file_sas(
            env.ACCOUNT, self.share.share_name, PATH.split("/"), env.KEY, permission, **more
        )

    def share_sas(self, permission=ShareSasPermissions(read=True, list=True), **more):
        if "policy_id" not in more:
            more.setdefault("expiry", in_minutes(10))
        return generate_share_sas(env.ACCOUNT, self.share.share_name, env.KEY, permission, **more)

    def account_sas(self, types="sco", permission="rl", **more):
        more.setdefault("expiry", in_minutes(10))
        types, permission = ResourceTypes.from_string(types), AccountSasPermissions.from_string(permission)
        return generate_account_sas(env.ACCOUNT, env.KEY, types, permission, **more)

    def at(self, sas, path=PATH):
        return connect(sas=sas).get_share_client(self.share.share_name).get_file_client(path)

    def assert_readable(self, sas):
        self.assertEqual(self.at(sas).download_file().readall(), b"content")

    def assert_rejected(self, sas, code="AuthenticationFailed"):
        self.assert_refused(403, code, self.at(sas).download_file)


class FileSas(SasTestCase):
    def test_a_sas_permits_its_file_only(self):
        sas = self.file_sas()
        self.assert_readable(sas)
        url = self.share.get_file_client(PATH).url
        self.assertEqual(ShareFileClient.from_file_url(f"{url}?{sas}").download_file().readall(), b"content")
        self.put("d e/other", b"")
        self.assert_refused(403, "AuthenticationFailed", self.at(sas, "d e/other").download_file)
        self.assert_refused(403, DENIED, self.at(sas).delete_file)
        self.assert_refused(403, DENIED, self.at(sas).upload_range, b"x", 0, 1)

    def test_permissions_are_distinguished(self):
        self.assert_rejected(self.file_sas("w"), DENIED)
        self.at(self.file_sas("w")).upload_range(b"C", 0, 1)
        self.assertEqual(self.read(PATH), b"Content")
        self.assert_refused(403, DENIED, self.at(self.file_sas("rcw")).delete_file)
        self.at(self.file_sas("d")).delete_file()

    def test_times_addresses_and_protocols(self):
        self.assert_rejected(self.file_sas(expiry=in_minutes(-1)))
        self.assert_rejected(self.file_sas(start=in_minutes(5)))
        self.assert_readable(self.file_sas(start=in_minutes(-5)))
        self.assert_readable(self.file_sas(ip="127.0.0.1"))
        self.assert_readable(self.file_sas(ip="127.0.0.0-127.0.0.9"))
        self.assert_rejected(self.file_sas(ip="10.0.0.1"), "AuthorizationSourceIPMismatch")
        self.assert_readable(self.file_sas(protocol="https"))

    def test_response_headers_of_the_sas(self):
        sas = self.file_sas(
            cache_control="no-store", content_disposition="inline", content_language="fr", content_type="text/x-chosen"
        )
        found = self.at(sas).download_file().properties.content_settings
        returned = found.cache_control, found.content_disposition, found.content_language, found.content_type
        self.assertEqual(returned, ("no-store", "inline", "fr", "text/x-chosen"))

    def test_a_forged_sas_is_refused(self):
        self.assert_rejected(self.file_sas().replace("sp=r", "sp=rwd"))
        self.assert_rejected(self.file_sas().replace("sig=", "sig=A"))


class ShareSas(SasTestCase):
    def test_a_sas_permits_its_share(self):
        sas = self.share_sas()
        self.assert_readable(sas)
        share = connect(sas=sas).get_share_client(self.share.share_name)
        self.assertEqual([entry.name for entry in share.list_directories_and_files()], ["d e"])
        self.assert_refused(403, DENIED, share.create_directory, "new")
        other = self.service.create_share(env.new_name("other-"))
        stranger = connect(sas=sas).get_share_client(other.share_name)
        self.assert_refused(403, "AuthenticationFailed", lambda: list(stranger.list_directories_and_files()))
        other.delete_share()

    def test_all_permissions_permit_every_operation(self):
        share = connect(sas=self.share_sas("rcwdl")).get_share_client(self.share.share_name)
        directory = share.create_directory("new")
        directory.upload_file("a", b"abc")
        directory.get_file_client("a").rename_file("new/b")
        directory.delete_file("b")
        directory.delete_directory()

    def test_times_addresses_and_listing(self):
        self.assert_rejected(self.share_sas(expiry=in_minutes(-1)))
        self.assert_rejected(self.share_sas(start=in_minutes(5)))
        self.assert_rejected(self.share_sas(ip="10.0.0.1"), "AuthorizationSourceIPMismatch")
        self.assert_rejected(self.share_sas("l"), DENIED)
        share = connect(sas=self.share_sas("r")).get_share_client(self.share.share_name)
        self.assert_refused(403, DENIED, lambda: list(share.list_directories_and_files()))

    def test_stored_policies(self):
        policy = AccessPolicy(ShareSasPermissions(read=True), in_minutes(10))
        self.share.set_share_access_policy({"readers": policy})
        sas = self.share_sas(None, policy_id="readers")
        self.assert_readable(sas)
        self.assert_readable(self.file_sas(None, expiry=None, policy_id="readers"))
        self.assert_rejected(self.share_sas(None, policy_id="others"))
        self.share.set_share_access_policy({})
        self.assert_rejected(sas)


class AccountSas(SasTestCase):
    def test_a_sas_permits_the_account(self):
        linked = connect(sas=self.account_sas())
        self.assert_readable(self.account_sas())
        name = self.share.share_name
        self.assertEqual([share.name for share in linked.list_shares(name)], [name])
        self.assert_refused(403, DENIED, linked.create_share, env.new_name("no-"))
        linked = connect(sas=self.account_sas("sco", "rwdlc"))
        linked.create_share(env.new_name("made-")).delete_share()

    def test_resource_types_are_distinguished(self):
        wrong = "AuthorizationResourceTypeMismatch"
        self.assert_rejected(self.account_sas("sc"), wrong)
        self.assert_refused(403, wrong, lambda: list(connect(sas=self.account_sas("co")).list_shares()))
        self.assert_readable(self.account_sas("o"))

    def test_permissions_times_and_addresses(self):
        self.assert_rejected(self.account_sas("sco", "wl"), DENIED)
        self.assert_rejected(self.account_sas(expiry=in_minutes(-1)))
        self.assert_rejected(self.account_sas(start=in_minutes(5)))
        self.assert_rejected(self.account_sas(ip="10.0.0.1"), "AuthorizationSourceIPMismatch")
        self.assert_readable(self.account_sas(ip="127.0.0.1", protocol="https"))
