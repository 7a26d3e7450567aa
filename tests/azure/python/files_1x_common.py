"""Clients of azure-storage-file 1.4 and 2.1 for the server under test, and a base class with a share for each test."""

import logging
import unittest

import files_env as env
from azure.storage.common.retry import LinearRetry
from azure.storage.file import FileService

# Refusals are not logged: tests provoke many.
logging.getLogger("azure.storage").setLevel(logging.CRITICAL)

# Handles, permissions and SMB properties came with 2.x.
IS_2X = hasattr(FileService, "list_handles")


def connect(endpoint=None, key=env.KEY, sas=None, attempts=3):
    """A client with default settings, except that it retries without a delay and records retries in `retried`."""
    if endpoint is None and env.STYLE == "host":
        secret = {"sas_token": sas} if sas else {"account_key": key}
        service = FileService(account_name=env.ACCOUNT, endpoint_suffix=env.SUFFIX, **secret)
    else:
        secret = f"SharedAccessSignature={sas}" if sas else f"AccountKey={key}"
        endpoint = endpoint or env.ENDPOINT
        service = FileService(connection_string=f"AccountName={env.ACCOUNT};FileEndpoint={endpoint};{secret}")
    service.retry = LinearRetry(backoff=0, max_attempts=attempts, random_jitter_range=0).retry
    service.retried = []
    service.retry_callback = lambda context: service.retried.append(context.request.path)
    return service


class ShareTestCase(unittest.TestCase):
    """Base class: each test has its own client and share."""

    def setUp(self):
        self.service = connect()
        self.share = env.new_name("share-")
        self.service.create_share(self.share)
        self.addCleanup(lambda: self.service.delete_share(self.share, delete_snapshots="include"))

    def put(self, name, content, directory=None, **more):
        self.service.create_file_from_bytes(self.share, directory, name, content, **more)

    def read(self, name, directory=None, **more):
        return self.service.get_file_to_bytes(self.share, directory, name, **more).content

    def names(self, directory=None, **more):
        return [entry.name for entry in self.service.list_directories_and_files(self.share, directory, **more)]

    def assert_refused(self, status, code, call, *arguments, **named):
        """Asserts that the call fails with this error, without retries."""
        before = len(self.service.retried)
        with self.assertRaises(Exception) as caught:
            call(*arguments, **named)
        error = caught.exception
        self.assertEqual((getattr(error, "status_code", error), getattr(error, "error_code", None)), (status, code), error)
        self.assertEqual(len(self.service.retried), before, "a definite refusal is not retried")
        return error
