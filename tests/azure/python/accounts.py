"""Groups and storage accounts through azure-mgmt-resource and azure-mgmt-storage, in the versions that az installs, with
every storage api-version that they support."""

import unittest
import uuid

from azure.mgmt.resource.resources import ResourceManagementClient
from azure.mgmt.storage import StorageManagementClient
from msrestazure.azure_exceptions import CloudError

import arm

# Storage API versions of az 2.0.38, 2.0.46 and 2.0.64, as far as this environment has them.
VERSIONS = ("2017-10-01", "2018-02-01", "2018-03-01-preview")


class Accounts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.credentials = arm.credentials()
        cls.groups = ResourceManagementClient(cls.credentials, arm.SUBSCRIPTION, base_url=arm.URL).resource_groups
        cls.plain = arm.Plain()

    def storage(self, version):
        return StorageManagementClient(self.credentials, arm.SUBSCRIPTION, api_version=version, base_url=arm.URL)

    def assert_refused(self, status, code, call, *args, **kwargs):
        with self.assertRaises(CloudError) as caught:
            call(*args, **kwargs)
        error = caught.exception
        self.assertEqual((error.status_code, error.error.error), (status, code), str(error))
        return error

    def test_groups(self):
        groups = self.groups
        name = "Group.{}".format(uuid.uuid4().hex[:8])
        self.assertFalse(groups.check_existence(name))
        self.assert_refused(404, "ResourceGroupNotFound", groups.get, name)
        made = groups.create_or_update(name, {"location": "eastus", "tags": {"a": "1", "b": "it's"}})
        self.assertEqual((made.name, made.location, made.properties.provisioning_state), (name, "eastus", "Succeeded"))
        self.assertTrue(groups.check_existence(name.lower()))
        # az group update: the resource is written back with all fields that were read.
        again = groups.get(name.upper())
        again.tags = {"a": "2"}
        self.assertEqual(groups.create_or_update(name, again).tags, {"a": "2"})
        self.assertEqual(groups.update(name, {"tags": {"c": "3"}}).tags, {"c": "3"})
        self.assertEqual(groups.update(name, {}).tags, {"c": "3"})
        self.assertEqual([g.name for g in groups.list("tagname eq 'c' and tagvalue eq '3'")], [name])
        self.assertIn(name, [g.name for g in groups.list(top=1)])
        self.assert_refused(409, "InvalidResourceGroupLocation", groups.create_or_update, name, {"location": "westus"})
        for wrong in ("a b", "x" * 91, "dot."):
            with self.assertRaises(Exception):
                groups.create_or_update(wrong, {"location": "eastus"})
        self.assertIsNone(groups.delete(name).result())
        self.assertFalse(groups.check_existence(name))
        self.assert_refused(404, "ResourceGroupNotFound", groups.delete, name)
        self.assert_refused(404, "ResourceGroupNotFound", groups.update, name, {"tags": {}})

    def test_accounts(self):
        group = "accounts.{}".format(uuid.uuid4().hex[:8])
        self.groups.create_or_update(group, {"location": "eastus"})
        for version in VERSIONS:
            with self.subTest(version):
                self.life(version, group)
        self.groups.delete(group).wait()

    def life(self, version, group):
        storage = self.storage(version)
        client, models = storage.storage_accounts, storage.models(version)
        name = "acc" + uuid.uuid4().hex[:12]
        free = client.check_name_availability(name)
        self.assertEqual((free.name_available, free.reason, free.message), (True, None, None))
        parameters = models.StorageAccountCreateParameters(
            sku=models.Sku(name="Standard_LRS"), kind="StorageV2", location="East US", tags={"a": "b"}
        )
        parameters.access_tier = "Cool"
        parameters.enable_https_traffic_only = True
        poller = client.create(group, name, parameters)
        account = poller.result()
        self.assertEqual((account.name, account.location, account.kind), (name, "eastus", "StorageV2"))
        self.assertEqual((account.sku.name, account.sku.tier), ("Standard_LRS", "Standard"))
        self.assertEqual((account.access_tier, account.enable_https_traffic_only), ("Cool", True))
        self.assertEqual((account.provisioning_state, account.status_of_primary), ("Succeeded", "available"))
        self.assertTrue(account.primary_endpoints.file.startswith("https://"))
        self.assertTrue(account.encryption.services.file.enabled)
        self.assertEqual(account.network_rule_set.default_action, "Allow")
        self.assertEqual(client.create(group, name, parameters).result().creation_time, account.creation_time)
        taken = client.check_name_availability(name)
        self.assertEqual((taken.name_available, taken.reason), (False, "AlreadyExists"))
        self.assertIn(name, taken.message)
        self.assertEqual(client.check_name_availability("No").reason, "AccountNameInvalid")

        update = models.StorageAccountUpdateParameters(tags={"c": "d"}, sku=models.Sku(name="Standard_GRS"))
        changed = client.update(group, name, update)
        self.assertEqual((changed.tags, changed.sku.name, changed.access_tier), ({"c": "d"}, "Standard_GRS", "Cool"))
        off = models.StorageAccountUpdateParameters(enable_https_traffic_only=False)
        self.assertEqual(client.update(group, name, off).enable_https_traffic_only, False)
        self.assertEqual(client.get_properties(group, name).tags, {"c": "d"})
        closed = models.NetworkRuleSet(default_action="Deny")
        closed = models.StorageAccountUpdateParameters(network_rule_set=closed)
        self.assert_refused(400, "InvalidPropertyValue", client.update, group, name, closed)
        self.assert_refused(404, "ResourceNotFound", client.update, group, "absent1", update)

        keys = client.list_keys(group, name).keys
        self.assertEqual([key.key_name for key in keys], ["key1", "key2"])
        self.assertEqual({str(key.permissions).lower().rsplit(".", 1)[-1] for key in keys}, {"full"})
        renewed = client.regenerate_key(group, name, "key2").keys
        self.assertEqual(renewed[0].value, keys[0].value)
        self.assertNotEqual(renewed[1].value, keys[1].value)
        self.assert_refused(400, "InvalidPropertyValue", client.regenerate_key, group, name, "key3")

        self.assertIn(name, [a.name for a in client.list()])
        self.assertIn(name, [a.name for a in client.list_by_resource_group(group)])
        usages = storage.usages if version.startswith("2018-03") else storage.usage
        listed = usages.list_by_location("eastus") if hasattr(usages, "list_by_location") else usages.list()
        counted = next(usage for usage in listed if usage.name.value == "StorageAccounts")
        self.assertGreaterEqual(counted.current_value, 1)
        self.assertIsNone(client.delete(group, name))
        self.assert_refused(404, "ResourceNotFound", client.get_properties, group, name)
        self.assertIsNone(client.delete(group, name))
        account = "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Storage/storageAccounts/{}"
        wrong = {"sku": {"name": "Gold_LRS"}, "kind": "Storage", "location": "eastus"}
        refused = self.plain.send("PUT", account.format(arm.SUBSCRIPTION, group, name), version, json=wrong)
        self.assertEqual((refused.status_code, refused.json()["error"]["target"]), (400, "sku.name"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
