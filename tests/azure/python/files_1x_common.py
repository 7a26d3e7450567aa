"""azure-storage-file 1.4 and 2.1 against the server under test: how they are made, and a share for each test."""

import logging
import unittest

import files_place as place
from azure.storage.common.retry import LinearRetry
from azure.storage.file import FileService

# Refusals are not logged: tests provoke many.
logging.getLogger("azure.storage").setLevel(logging.CRITICAL)

# Handles, permissions and SMB properties came with 2.x.
IS_2X = hasattr(FileService, "list_handles")


def connect(endpoint=None, key=place.KEY, sas=None, attempts=3):
    """A client as an unchanged program makes it; retries come at once, and are counted in `retried`."""
    if endpoint is None and place.STYLE == "host":
        secret = {"sas_token": sas} if sas else {"account_key": key}
        service = FileService(account_name=place.ACCOUNT, endpoint_suffix=place.SUFFIX, **secret)
    else:
        secret = f"SharedAccessSignature={sas}" if sas else f"AccountKey={key}"
        endpoint = endpoint or place.ENDPOINT
        service = FileService(connection_string=f"AccountName={place.ACCOUNT};FileEndpoint={endpoint};{secret}")
    service.retry = LinearRetry(backoff=0, max_attempts=attempts, random_jitter_range=0).retry
    service.retried = []
    service.retry_callback = lambda context: service.retried.append(context.request.path)
    return service


class OnShare(unittest.TestCase):
    """Each test has a client and a share of its own."""

    def setUp(self):
        self.service = connect()
        self.share = place.new_name("share-")
        self.service.create_share(self.share)
        self.addCleanup(lambda: self.service.delete_share(self.share, delete_snapshots="include"))

    def put(self, name, content, directory=None, **more):
        self.service.create_file_from_bytes(self.share, directory, name, content, **more)

    def read(self, name, directory=None, **more):
        return self.service.get_file_to_bytes(self.share, directory, name, **more).content

    def names(self, directory=None, **more):
        return [entry.name for entry in self.service.list_directories_and_files(self.share, directory, **more)]

    def refused(self, status, code, call, *arguments, **named):
        """The call must end with this error, at once."""
        before = len(self.service.retried)
        with self.assertRaises(Exception) as caught:
            call(*arguments, **named)
        error = caught.exception
        self.assertEqual((getattr(error, "status_code", error), getattr(error, "error_code", None)), (status, code), error)
        self.assertEqual(len(self.service.retried), before, "a definite refusal is not retried")
        return error
