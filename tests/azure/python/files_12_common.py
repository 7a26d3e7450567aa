"""azure-storage-file-share 12 against the server under test: how its clients are made, and a share for each test."""

import unittest

import files_place as place
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import LinearRetry, ShareServiceClient


def connect(endpoint=None, key=place.KEY, sas=None, **more):
    """A client as an unchanged program makes it, but that retries come at once."""
    more.setdefault("retry_policy", LinearRetry(backoff=0, random_jitter_range=0))
    # The client cannot derive the account name from a host name that is followed by a port.
    secret = sas or {"account_name": place.ACCOUNT, "account_key": key}
    return ShareServiceClient(endpoint or place.ENDPOINT, credential=secret, **more)


class OnShare(unittest.TestCase):
    """Each test has a client and a share of its own."""

    def setUp(self):
        self.service = connect()
        self.share = self.service.create_share(place.new_name("share-"))
        self.addCleanup(self.remove)

    def remove(self):
        self.share.delete_share(delete_snapshots=True)
        self.service.close()

    def put(self, path, content, **more):
        self.share.get_file_client(path).upload_file(content, **more)

    def read(self, path, **more):
        return self.share.get_file_client(path).download_file(**more).readall()

    def names(self, directory=None, **more):
        return [entry["name"] for entry in self.share.list_directories_and_files(directory, **more)]

    def refused(self, status, code, call, *arguments, **named):
        """The call must end with this error, at once."""
        with self.assertRaises(HttpResponseError) as caught:
            call(*arguments, **named)
        error = caught.exception
        found = getattr(error, "error_code", None)
        self.assertEqual((error.status_code, getattr(found, "value", found)), (status, code), error)
        return error
