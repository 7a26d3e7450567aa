"""SAS restricted to https, on a server without TLS, with azure-storage-file 1.4 and 2.1."""

from files_1x_links import SasTestCase


class PlainHttp(SasTestCase):
    def test_the_protocol_is_enforced(self):
        self.assert_readable(self.of_file())
        self.assert_readable(self.of_file(protocol="https,http"))
        for linked in (self.of_file(protocol="https"), self.of_share(protocol="https"), self.of_account(protocol="https")):
            self.assert_rejected(linked, code="AuthorizationProtocolMismatch")
