"""Base class of the azure-mgmt-batchai tests: a shared workspace, and assertions of refused calls."""

import os
import unittest

from azure.mgmt.batchai import BatchAIManagementClient
from msrestazure.azure_exceptions import CloudError

import arm
import batchai_models as examples

GROUP = "sdk.group"
WORKSPACE = "ws"
ACCOUNT = os.environ["ACCOUNT"]
ACCOUNT_KEY = os.environ["ACCOUNT_KEY"]


class BatchAiTestCase(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.client = BatchAIManagementClient(arm.credentials(), arm.SUBSCRIPTION, base_url=arm.URL)
        cls.plain = arm.Plain()
        path = "/subscriptions/{}/resourcegroups/{}".format(arm.SUBSCRIPTION, GROUP)
        assert cls.plain.send("PUT", path, json={"location": "eastus"}).status_code in (200, 201)
        cls.client.workspaces.create(GROUP, WORKSPACE, "eastus").result()
        cls.client.experiments.create(GROUP, WORKSPACE, "exp").result()

    def assert_same(self, sent, got):
        self.assertEqual(examples.differences(sent, got), [])

    def assert_refused(self, status, code, call, *args, **kwargs):
        """Asserts that the call fails with this status and error code; returns the error."""
        with self.assertRaises(CloudError) as caught:
            call(*args, **kwargs)
        error = caught.exception
        self.assertEqual((error.status_code, error.error.error), (status, code), str(error))
        self.assertTrue(error.message and error.error.message)
        self.assertNotIn("\n", error.error.message)
        self.assertIn(code, str(error))
        return error

    def id_of(self, *below):
        start = "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.BatchAI/workspaces/{}"
        return "/".join((start.format(arm.SUBSCRIPTION, GROUP, WORKSPACE),) + below)
