"""One share, one file: that a library reaches the server, believes it, and is believed."""
import os
import unittest

from azure.storage.fileshare import ShareServiceClient


class First(unittest.TestCase):
    def test_a_file_comes_back_as_it_went(self):
        url = "https://%s.file.%s" % (os.environ["ACCOUNT"], os.environ["SUFFIX"])
        # It does not derive the account from hosts that are not Microsoft's.
        credential = {"account_name": os.environ["ACCOUNT"], "account_key": os.environ["KEY"]}
        share = ShareServiceClient(url, credential=credential).create_share("first")
        file = share.get_file_client("greeting.txt")
        file.upload_file(b"good day")
        self.assertEqual(file.download_file().readall(), b"good day")


if __name__ == "__main__":
    unittest.main()
