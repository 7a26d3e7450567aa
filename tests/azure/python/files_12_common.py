"""Clients of azure-storage-file-share 12 for the server under test, and a base class with a share for each test."""

import unittest

import files_env as env
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import LinearRetry, ShareServiceClient


def connect(endpoint=None, key=env.KEY, sas=None, **more):
    """A client with default settings, except that it retries without a delay."""
    more.setdefault("retry_policy", LinearRetry(backoff=0, random_jitter_range=0))
    # The client cannot derive the account name from a host name that is followed by a port.
    secret = sas or {"account_name": env.ACCOUNT, "account_key": key}
    return ShareServiceClient(endpoint or env.ENDPOINT, credential=secret, **more)


class ShareTestCase(unittest.TestCase):
    """Base class: each test has its own client and share."""

    def setUp(self):
        self.service = connect()
        self.share = self.service.create_share(env.new_name("share-"))
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

    def assert_refused(self, status, code, call, *arguments, **named):
        """Asserts that the call fails with this error, without retries."""
        with self.assertRaises(HttpResponseError) as caught:
            call(*arguments, **named)
        error = caught.exception
        found = getattr(error, "error_code", None)
        self.assertEqual((error.status_code, getattr(found, "value", found)), (status, code), error)
        return error
