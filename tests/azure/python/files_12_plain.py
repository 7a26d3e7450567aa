"""SAS restricted to https, on a server without TLS, with azure-storage-file-share 12."""

from files_12_links import SasTestCase


class PlainHttp(SasTestCase):
    def test_the_protocol_is_enforced(self):
        self.assert_readable(self.file_sas())
        self.assert_readable(self.file_sas(protocol="https,http"))
        for sas in (self.file_sas(protocol="https"), self.share_sas(protocol="https"), self.account_sas(protocol="https")):
            self.assert_rejected(sas, "AuthorizationProtocolMismatch")
