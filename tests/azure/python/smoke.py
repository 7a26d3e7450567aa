"""One share and one file: a library reaches the server by host name, trusts its certificate and is authenticated."""
import os
import unittest

from azure.storage.fileshare import ShareServiceClient


class Smoke(unittest.TestCase):
    def test_a_file_is_read_back_unchanged(self):
        url = "https://%s.file.%s" % (os.environ["ACCOUNT"], os.environ["SUFFIX"])
        # It does not derive the account from hosts that are not Microsoft's.
        credential = {"account_name": os.environ["ACCOUNT"], "account_key": os.environ["KEY"]}
        share = ShareServiceClient(url, credential=credential).create_share("first")
        file = share.get_file_client("greeting.txt")
        file.upload_file(b"good day")
        self.assertEqual(file.download_file().readall(), b"good day")


if __name__ == "__main__":
    unittest.main()
