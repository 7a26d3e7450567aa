"""Workspaces, experiments, file servers and clusters through azure-mgmt-batchai; jobs are in `batchai_jobs`."""

import datetime

from azure.mgmt.batchai import BatchAIManagementClient
from azure.mgmt.batchai import models as m
from msrest.exceptions import ValidationError
from msrestazure.azure_exceptions import CloudError

import arm
import batchai_models as examples
from batchai_site import ACCOUNT, GROUP, WORKSPACE, BatchAiTestCase

class Workspaces(BatchAiTestCase):
    def test_workspace_lifecycle(self):
        client = self.client.workspaces
        parameters = m.WorkspaceCreateParameters(location="eastus", tags={"a": "1"})
        poller = client.create(GROUP, "Other_1-x", parameters.location, tags=parameters.tags)
        workspace = poller.result()
        self.assertTrue(poller.done())
        self.assert_same(parameters, workspace)
        self.assertEqual(workspace.name, "Other_1-x")
        self.assertEqual(workspace.type, "Microsoft.BatchAI/workspaces")
        self.assertEqual(workspace.provisioning_state, m.ProvisioningState.succeeded)
        self.assertIsInstance(workspace.creation_time, datetime.datetime)
        self.assertEqual(workspace.creation_time.utcoffset(), datetime.timedelta(0))
        self.assertIsNotNone(workspace.provisioning_state_transition_time)
        update = m.WorkspaceUpdateParameters(tags={"a": "2", "b": "ü"})
        updated = client.update(GROUP, "Other_1-x", tags=update.tags)
        self.assert_same(update, updated)
        self.assertEqual(client.get(GROUP, "OTHER_1-X").tags, {"a": "2", "b": "ü"})
        self.assertEqual(client.get(GROUP, "OTHER_1-X").name, "Other_1-x")
        names = [workspace.name for workspace in client.list()]
        self.assertEqual(sorted(names), sorted(w.name for w in client.list_by_resource_group(GROUP)))
        self.assertIn("Other_1-x", names)
        self.assertIsNone(client.delete(GROUP, "Other_1-x").result())
        self.assert_refused(404, "WorkspaceNotFound", client.get, GROUP, "Other_1-x")
        self.assertIsNone(client.delete(GROUP, "Other_1-x").result())

    def test_pages(self):
        for i in range(5):
            self.client.experiments.create(GROUP, WORKSPACE, "page-{}".format(i)).result()
        client = self.client.experiments
        pages = client.list_by_workspace(GROUP, WORKSPACE, m.ExperimentsListByWorkspaceOptions(max_results=2))
        sizes, names = [], []
        while True:
            try:
                page = pages.advance_page()
            except StopIteration:
                break
            sizes.append(len(page))
            names += [experiment.name for experiment in page]
        self.assertEqual(names, sorted(names))
        self.assertEqual(names, [e.name for e in client.list_by_workspace(GROUP, WORKSPACE)])
        self.assertTrue(all(size == 2 for size in sizes[:-1]) and len(sizes) > 2, sizes)
        self.refused_option(m.ExperimentsListByWorkspaceOptions(max_results=0))
        self.refused_option(m.ExperimentsListByWorkspaceOptions(max_results=1001))
        by_group = m.WorkspacesListByResourceGroupOptions(max_results=1)
        found = [w.name for w in self.client.workspaces.list_by_resource_group(GROUP, by_group)]
        self.assertEqual(found, [w.name for w in self.client.workspaces.list_by_resource_group(GROUP)])
        everywhere = [w.id for w in self.client.workspaces.list(m.WorkspacesListOptions(max_results=1))]
        self.assertEqual(everywhere, [w.id for w in self.client.workspaces.list()])

    def refused_option(self, options):
        with self.assertRaises(ValidationError):
            list(self.client.experiments.list_by_workspace(GROUP, WORKSPACE, options))

    def test_experiments(self):
        client = self.client.experiments
        first = client.create(GROUP, WORKSPACE, "twice").result()
        again = client.create(GROUP, WORKSPACE, "twice").result()
        self.assertEqual(first.creation_time, again.creation_time)
        self.assertEqual(first.id, self.id_of("experiments", "twice"))
        self.assertEqual(first.type, "Microsoft.BatchAI/workspaces/experiments")
        self.assertEqual(first.provisioning_state, "succeeded")
        client.delete(GROUP, WORKSPACE, "twice").wait()
        self.assert_refused(404, "ExperimentNotFound", client.get, GROUP, WORKSPACE, "twice")
        self.assert_refused(404, "WorkspaceNotFound", client.create, GROUP, "nowhere", "e")

    def test_names(self):
        # To Python, as to the service, `\\w` matches any Unicode letter.
        for name in ("wörk", "ワーク"):
            made_now = self.client.workspaces.create(GROUP, name, "eastus").result()
            self.assertEqual((made_now.name, self.client.workspaces.get(GROUP, name).id), (name, made_now.id))
            self.client.workspaces.delete(GROUP, name).wait()
            with self.assertRaises(CloudError) as caught:
                self.client.workspaces.get(GROUP, name)
            # The library cannot print the text of such an error; its parts are available.
            self.assertEqual((caught.exception.status_code, caught.exception.error.error), (404, "WorkspaceNotFound"))
            self.assertIn(name, caught.exception.message)
        for name in ("a b", "a.b", "", "x" * 65, "a/b"):
            with self.assertRaises((ValidationError, CloudError)):
                self.client.workspaces.create(GROUP, name, "eastus")
        self.assert_refused(404, "ResourceGroupNotFound", self.client.workspaces.create, "nogroup", "w", "eastus")
        error = self.assert_refused(400, "InvalidPropertyValue", self.client.workspaces.create, GROUP, "w", "not a place!")
        self.assertEqual(error.error.target, "location")


class Provider(BatchAiTestCase):
    def test_operations_and_usages(self):
        operations = list(self.client.operations.list())
        self.assertEqual(len(operations), 26)
        one = next(o for o in operations if o.name == "Microsoft.BatchAI/workspaces/experiments/jobs/terminate/action")
        self.assertEqual(one.display.provider, "Microsoft Batch AI")
        self.assertTrue(one.display.operation and one.display.resource and one.display.description)
        self.assertEqual(one.origin, "user,system")
        usages = list(self.client.usages.list("eastus"))
        self.assertEqual(len(usages), 17)
        self.assertEqual(usages[0].unit, m.UsageUnit.count)
        self.assertEqual((usages[0].name.value, usages[0].name.localized_value), ("Clusters", "Clusters"))
        self.assertGreaterEqual(usages[0].limit, usages[0].current_value)
        raw = self.client.workspaces.get(GROUP, WORKSPACE, raw=True)
        self.assertTrue(raw.response.headers["x-ms-request-id"])

    def test_another_subscription_is_not_found(self):
        other = BatchAIManagementClient(
            arm.credentials(), "00000000-0000-0000-0000-000000000001", base_url=arm.URL
        )
        self.assert_refused(404, "SubscriptionNotFound", lambda: list(other.workspaces.list()))


class FileServers(BatchAiTestCase):
    def test_file_server_lifecycle(self):
        client = self.client.file_servers
        subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
        sent = examples.file_server(subnet)
        poller = client.create(GROUP, WORKSPACE, "fs", sent)
        self.assertIn(poller.status(), ("InProgress", "Succeeded"))
        got = poller.result()
        self.assert_same(sent, got)
        self.assertEqual(got.provisioning_state, m.FileServerProvisioningState.succeeded)
        self.assertEqual(got.id, self.id_of("fileservers", "fs"))
        self.assertTrue(got.mount_settings.mount_point)
        self.assertTrue(got.mount_settings.file_server_internal_ip)
        self.assertEqual(client.create(GROUP, WORKSPACE, "fs", sent).result().creation_time, got.creation_time)
        sent.data_disks.disk_count = 3
        error = self.assert_refused(409, "FileServerAlreadyExists", client.create, GROUP, WORKSPACE, "fs", sent)
        self.assertEqual(error.error.target, "properties.dataDisks.diskCount")
        options = m.FileServersListByWorkspaceOptions(max_results=10)
        self.assertEqual([f.name for f in client.list_by_workspace(GROUP, WORKSPACE, options)][:1], ["fs"])
        self.assertEqual(client.get(GROUP, WORKSPACE, "fs").creation_time, got.creation_time)
        client.delete(GROUP, WORKSPACE, "fs").wait()
        self.assert_refused(404, "FileServerNotFound", client.get, GROUP, WORKSPACE, "fs")

    def test_polling_a_deleted_creation_fails(self):
        client = self.client.file_servers
        subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
        raw = client.create(GROUP, WORKSPACE, "undone", examples.file_server(subnet), raw=True, polling=False).result()
        self.assertEqual(raw.response.status_code, 202)
        headers = raw.response.headers
        gone = self.plain.send("DELETE", self.id_of("fileServers", "undone"))
        self.assertEqual(gone.status_code, 202)
        is_gone = lambda: self.plain.send("GET", self.id_of("fileServers", "undone")).status_code == 404
        arm.wait_for("the file server to be gone", is_gone)
        operation = self.plain.send("GET", headers["Azure-AsyncOperation"], version=None).json()
        by_location = self.plain.send("GET", headers["Location"], version=None)
        # It may have succeeded just before.
        if operation["status"] == "Succeeded":
            self.assertEqual(by_location.status_code, 200)
        else:
            self.assertEqual((operation["status"], operation["error"]["code"]), ("Failed", "OperationPreempted"))
            self.assertEqual((by_location.status_code, by_location.json()["error"]), (409, operation["error"]))


class Clusters(BatchAiTestCase):
    SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/c"

    def test_a_cluster_with_every_field(self):
        client = self.client.clusters
        self.client.file_servers.create(GROUP, WORKSPACE, "nfs", examples.file_server(self.SUBNET)).wait()
        sent = examples.cluster(ACCOUNT, self.id_of("fileServers", "nfs"), self.SUBNET)
        got = client.create(GROUP, WORKSPACE, "all", sent).result()
        self.assert_same(sent, got)
        self.assertEqual(got.id, self.id_of("clusters", "all"))
        self.assertEqual(got.type, "Microsoft.BatchAI/workspaces/clusters")
        self.assertEqual((got.provisioning_state, got.allocation_state), ("succeeded", m.AllocationState.steady))
        self.assertEqual(got.current_node_count, 0)
        counts = got.node_state_counts
        zero = [counts.idle_node_count, counts.running_node_count, counts.preparing_node_count]
        self.assertEqual(zero + [counts.unusable_node_count, counts.leaving_node_count], [0] * 5)
        self.assertIn("/workspaces/ws/clusters/all/", got.node_setup.setup_task.std_out_err_path_suffix)
        self.assertNotIn(examples.SECRET, self.plain.send("GET", self.id_of("clusters", "all")).text)
        self.assertEqual(client.create(GROUP, WORKSPACE, "all", sent).result().creation_time, got.creation_time)

        reference = m.AppInsightsReference(
            component=m.ResourceId(id="/subscriptions/s/resourceGroups/g/providers/microsoft.insights/components/c"),
            instrumentation_key_secret_reference=examples.vault("app"),
        )
        sent.node_setup.performance_counters_settings.app_insights_reference = reference
        self.assert_refused(409, "ClusterAlreadyExists", client.create, GROUP, WORKSPACE, "all", sent)
        secret = m.EnvironmentVariableWithSecretValue(name="V", value_secret_reference=examples.vault("s"))
        sent.node_setup.setup_task.secrets.append(secret)
        error = self.assert_refused(400, "InvalidPropertyValue", client.create, GROUP, WORKSPACE, "vault", sent)
        self.assertEqual(error.error.target, "properties.nodeSetup.setupTask.secrets")
        sent.node_setup.setup_task.secrets.pop()
        sent.scale_settings = m.ScaleSettings(
            auto_scale=m.AutoScaleSettings(minimum_node_count=0, maximum_node_count=3, initial_node_count=0)
        )
        self.assert_same(sent, client.create(GROUP, WORKSPACE, "auto", sent).result())
        update = m.ClusterUpdateParameters(
            scale_settings=m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=0))
        )
        got = client.update(GROUP, WORKSPACE, "auto", scale_settings=update.scale_settings)
        self.assert_same(update, got)
        self.assertIsNone(got.scale_settings.auto_scale)
        options = m.ClustersListByWorkspaceOptions(max_results=1)
        self.assertEqual([c.name for c in client.list_by_workspace(GROUP, WORKSPACE, options)][:2], ["all", "auto"])
        self.assertEqual(list(client.list_remote_login_information(GROUP, WORKSPACE, "all")), [])
        for name in ("all", "auto"):
            client.delete(GROUP, WORKSPACE, name).wait()
            self.assert_refused(404, "ClusterNotFound", client.get, GROUP, WORKSPACE, name)

    def test_refusals(self):
        client = self.client.clusters

        def check_refused(field, **more):
            fields = dict(vm_size="Standard_NC6", user_account_settings=examples.user())
            fields["scale_settings"] = m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=0))
            fields.update(more)
            parameters = m.ClusterCreateParameters(**fields)
            error = self.assert_refused(400, "InvalidPropertyValue", client.create, GROUP, WORKSPACE, "bad", parameters)
            self.assertEqual(error.error.target, field)

        check_refused("properties.vmSize", vm_size="Standard_A0")
        check_refused("properties.scaleSettings", scale_settings=m.ScaleSettings())
        both = m.ScaleSettings(
            manual=m.ManualScaleSettings(target_node_count=1),
            auto_scale=m.AutoScaleSettings(minimum_node_count=1, maximum_node_count=2),
        )
        check_refused("properties.scaleSettings", scale_settings=both)
        without_login = m.UserAccountSettings(admin_user_name="me")
        check_refused("properties.userAccountSettings", user_account_settings=without_login)
        self.assert_refused(404, "ClusterNotFound", client.update, GROUP, WORKSPACE, "absent", scale_settings=None)

