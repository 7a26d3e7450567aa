"""`corro files` with azure-storage-file-share 12, configured by a connection string only.

CONNECTION_STRING_FILE: the file written by the server. CA_FILE: certificate authority of a server with TLS.
"""

import os
import unittest

from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareServiceClient


def service(text):
    ca = os.environ.get("CA_FILE")
    return ShareServiceClient.from_connection_string(text, **({"connection_verify": ca} if ca else {}))


class ConnectionString(unittest.TestCase):
    def setUp(self):
        with open(os.environ["CONNECTION_STRING_FILE"], encoding="ascii") as file:
            self.text = file.read().strip()

    def test_a_share_from_creation_to_deletion(self):
        client = service(self.text)
        share = client.create_share("alone")
        self.assertEqual([found.name for found in client.list_shares()], ["alone"])
        folder = share.create_directory("a folder")
        content = bytes(range(256)) * 40_000
        folder.upload_file("ten megabytes", content)
        file = folder.get_file_client("ten megabytes")
        self.assertEqual(file.download_file().readall(), content)
        self.assertEqual(file.download_file(offset=5_000_000, length=10).readall(), content[5_000_000:5_000_010])
        self.assertEqual([entry["name"] for entry in folder.list_directories_and_files()], ["ten megabytes"])
        client.delete_share("alone")
        self.assertEqual(list(client.list_shares()), [])

    def test_a_wrong_key_is_refused(self):
        parts = [part.split("=", 1) for part in self.text.split(";")]
        wrong = ";".join(f"{name}={'bm90IGl0' if name == 'AccountKey' else value}" for name, value in parts)
        with self.assertRaises(HttpResponseError) as refused:
            list(service(wrong).list_shares())
        self.assertEqual(refused.exception.status_code, 403)


if __name__ == "__main__":
    unittest.main()
