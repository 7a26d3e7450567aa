"""Logins of the libraries: msrestazure's service principal and managed identity, then one call of azure-mgmt-batchai."""

import collections
import collections.abc
import os
import unittest

# The login library of 2018 imports these from `collections`, where Python had them in 2018.
collections.Iterable, collections.Mapping = collections.abc.Iterable, collections.abc.Mapping

import requests
from azure.mgmt.batchai import BatchAIManagementClient
from msrest.exceptions import AuthenticationError
from msrestazure.azure_active_directory import MSIAuthentication, ServicePrincipalCredentials
from msrestazure.azure_cloud import get_cloud_from_metadata_endpoint
from msrestazure.azure_exceptions import CloudError

SERVER, SUBSCRIPTION, TENANT = os.environ["SERVER"], os.environ["SUBSCRIPTION"], os.environ["TENANT"]
OWNER = os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"]
READER = os.environ["READER_ID"], os.environ["READER_SECRET"]


def log_in(identity, secret):
    cloud = get_cloud_from_metadata_endpoint(SERVER)
    return ServicePrincipalCredentials(identity, secret, tenant=TENANT, cloud_environment=cloud)


def batchai(credentials):
    return BatchAIManagementClient(credentials, SUBSCRIPTION, base_url=SERVER)


def revoke(credentials, whom):
    path = "/subscriptions/{}/providers/Corro/principals/{}/revokeTokens".format(SUBSCRIPTION, whom)
    token = "Bearer " + credentials.token["access_token"]
    answer = requests.post(SERVER + path, params={"api-version": "2018-05-01"}, headers={"Authorization": token})
    answer.raise_for_status()


class Login(unittest.TestCase):
    def test_the_cloud_is_found_and_a_service_principal_logs_in(self):
        credentials = log_in(*OWNER)
        self.assertEqual(list(batchai(credentials).workspaces.list()), [])

    def test_a_wrong_secret_is_refused_in_the_directorys_words(self):
        for identity, secret in [(OWNER[0], "wrong"), ("nobody", "wrong")]:
            with self.assertRaises(AuthenticationError) as refused:
                log_in(identity, secret)
            self.assertIn("AADSTS7000215", str(refused.exception.inner_exception.error_response))

    def test_a_reader_may_look_and_not_make(self):
        client = batchai(log_in(*READER))
        self.assertEqual(list(client.workspaces.list()), [])
        with self.assertRaises(CloudError) as refused:
            client.workspaces.create("group", "w", "eastus").result()
        self.assertEqual(refused.exception.status_code, 403)
        self.assertIn("does not have authorization", refused.exception.message)

    def test_a_revoked_token_is_refused_and_a_new_login_is_not(self):
        credentials = log_in(*READER)
        client = batchai(credentials)
        list(client.workspaces.list())
        revoke(log_in(*OWNER), READER[0])
        with self.assertRaises(CloudError) as refused:
            list(client.workspaces.list())
        self.assertEqual(refused.exception.status_code, 401)
        list(batchai(log_in(*READER)).workspaces.list())

    def test_a_managed_identity_brings_its_secret(self):
        endpoint = SERVER.replace("://", "://{}:{}@".format(*READER)) + "/oauth2/token"
        os.environ["MSI_ENDPOINT"] = endpoint
        try:
            self.assertEqual(list(batchai(MSIAuthentication(resource=SERVER)).workspaces.list()), [])
            os.environ["MSI_ENDPOINT"] = SERVER + "/oauth2/token"
            with self.assertRaises(requests.HTTPError) as refused:
                MSIAuthentication(resource=SERVER)
            self.assertEqual(refused.exception.response.status_code, 401)
        finally:
            del os.environ["MSI_ENDPOINT"]


if __name__ == "__main__":
    unittest.main()
