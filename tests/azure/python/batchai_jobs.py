"""Jobs through azure-mgmt-batchai: all nine toolkits are sent and read back; real jobs run, write files, fail and are
terminated."""

import datetime

import requests
from azure.mgmt.batchai import models as m

import arm
import batchai_models as examples
from batchai_site import ACCOUNT, ACCOUNT_KEY, GROUP, WORKSPACE, BatchAiTestCase

AT = (GROUP, WORKSPACE, "exp")


class JobSpecifications(BatchAiTestCase):
    """Jobs on a cluster without nodes: they stay queued and return the fields that were sent."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        none = m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=0))
        parameters = m.ClusterCreateParameters(
            vm_size="STANDARD_NC6", user_account_settings=examples.user(), scale_settings=none
        )
        cls.cluster = cls.client.clusters.create(GROUP, WORKSPACE, "empty", parameters).result()
        subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/j"
        cls.server = cls.client.file_servers.create(GROUP, WORKSPACE, "jobs-fs", examples.file_server(subnet)).result()

    def test_all_toolkits_with_everything_a_job_can_say(self):
        client = self.client.jobs
        for field, (tool, settings) in examples.toolkits().items():
            with self.subTest(field):
                name = field.replace("_settings", "")
                sent = examples.whole_job(self.cluster.id, ACCOUNT, self.server.id, **{field: settings})
                got = client.create(*AT, name, sent).result()
                self.assert_same(sent, got)
                self.assertEqual(got.tool_type, tool)
                self.assertEqual(got.id, self.id_of("experiments", "exp", "jobs", name))
                self.assertEqual(got.type, "Microsoft.BatchAI/workspaces/experiments/jobs")
                # Accepted as by the original service; the job reports that it cannot run because of its key vault.
                self.assertEqual(got.execution_state, m.ExecutionState.failed)
                self.assertEqual([error.code for error in got.execution_info.errors], ["NotSupported"])
                self.assertEqual(got.execution_state_transition_time, got.creation_time)
                self.assertTrue(got.job_output_directory_path_segment.startswith(arm.SUBSCRIPTION + "/" + GROUP))
                others = set(examples.toolkits()) - {field}
                self.assertEqual([other for other in others if getattr(got, other) is not None], [])
                self.assertNotIn(examples.SECRET, self.plain.send("GET", got.id).text)
        names = sorted(field.replace("_settings", "") for field in examples.toolkits())
        listed = [job.name for job in client.list_by_experiment(*AT) if job.name in names]
        self.assertEqual(listed, names)
        few = client.list_by_experiment(*AT, m.JobsListByExperimentOptions(max_results=4))
        self.assertEqual([job.name for job in few if job.name in names], names)
        self.assertEqual(list(client.list_remote_login_information(*AT, "horovod")), [])
        client.delete(*AT, "caffe2").wait()
        self.assert_refused(404, "JobNotFound", client.get, *AT, "caffe2")

    def test_the_other_forms(self):
        client = self.client.jobs
        image = m.ImageSourceRegistry(
            image="i", credentials=m.PrivateRegistryCredentials(username="u", password_secret_reference=examples.vault("p"))
        )
        forms = {
            "brain": {"cntk_settings": m.CNTKsettings(language_type="BrainScript", config_file_path="a.cntk")},
            "config": {"caffe_settings": m.CaffeSettings(config_file_path="solver.prototxt")},
            "image": {
                "custom_toolkit_settings": m.CustomToolkitSettings(command_line="true"),
                "container_settings": m.ContainerSettings(image_source_registry=image),
            },
        }
        for name, more in forms.items():
            sent = examples.job(self.cluster.id, **more)
            self.assert_same(sent, client.create(*AT, name, sent).result())
        plain = client.get(*AT, "brain")
        self.assertEqual(plain.scheduling_priority, m.JobPriority.normal)
        self.assertEqual(plain.constraints.max_wall_clock_time, datetime.timedelta(days=7))
        self.assertEqual(plain.cntk_settings.process_count, 1)
        _, horovod = examples.toolkits()["horovod_settings"]
        waiting = client.create(*AT, "waits", examples.job(self.cluster.id, node_count=2, horovod_settings=horovod)).result()
        self.assertEqual(waiting.execution_state, m.ExecutionState.queued)
        self.assertEqual(waiting.execution_state_transition_time, waiting.creation_time)
        self.assertIsNone(waiting.execution_info)

    def test_the_same_again_and_another(self):
        client = self.client.jobs
        sent = examples.job(self.cluster.id, custom_toolkit_settings=m.CustomToolkitSettings(command_line="true"))
        first = client.create(*AT, "again", sent).result()
        again = client.create(*AT, "again", sent, raw=True).result()
        self.assertEqual(again.output.creation_time, first.creation_time)
        sent.node_count = 2
        error = self.assert_refused(409, "JobAlreadyExists", client.create, *AT, "again", sent)
        self.assertEqual(error.error.target, "properties.nodeCount")
        self.assertIn("Target: properties.nodeCount", str(error))

    def test_refusals(self):
        client = self.client.jobs
        custom = m.CustomToolkitSettings(command_line="true")

        def check_refused(code, field, **more):
            status = 404 if code.endswith("NotFound") else 400
            error = self.assert_refused(status, code, client.create, *AT, "bad", examples.job(self.cluster.id, **more))
            self.assertEqual(error.error.target, field)

        check_refused("InvalidPropertyValue", "properties")
        check_refused("InvalidPropertyValue", "properties.nodeCount", node_count=0, custom_toolkit_settings=custom)
        twice = dict(custom_toolkit_settings=custom, custom_mpi_settings=m.CustomMpiSettings(command_line="a"))
        check_refused("InvalidPropertyValue", "properties", **twice)
        absent = m.ResourceId(id=self.id_of("clusters", "absent"))
        check_refused("ClusterNotFound", "properties.cluster.id", cluster=absent, custom_toolkit_settings=custom)
        sent = examples.job(self.cluster.id, custom_toolkit_settings=custom)
        self.assert_refused(404, "ExperimentNotFound", client.create, GROUP, WORKSPACE, "absent", "j", sent)
        self.assert_refused(404, "JobNotFound", client.terminate, *AT, "absent")
        files = m.JobsListOutputFilesOptions(outputdirectoryid="nothing")
        self.assert_refused(404, "JobNotFound", lambda: list(client.list_output_files(*AT, "absent", files)))
        self.assertIsNone(client.delete(*AT, "absent").result())

    def test_a_waiting_job_is_terminated(self):
        client = self.client.jobs
        sent = examples.job(self.cluster.id, custom_toolkit_settings=m.CustomToolkitSettings(command_line="true"))
        client.create(*AT, "ended", sent).wait()
        for _ in range(2):
            self.assertIsNone(client.terminate(*AT, "ended").result())
        job = client.get(*AT, "ended")
        self.assertEqual(job.execution_state, m.ExecutionState.failed)
        self.assertIsNone(job.execution_info.exit_code)
        self.assertTrue(job.execution_info.start_time <= job.execution_info.end_time)
        self.assertEqual([error.code for error in job.execution_info.errors], ["JobTerminated"])


class RunningJobs(BatchAiTestCase):
    """Jobs that run on one node."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        one = m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=1))
        parameters = m.ClusterCreateParameters(
            vm_size="STANDARD_NC6", user_account_settings=examples.user(), scale_settings=one
        )
        cls.cluster = cls.client.clusters.create(GROUP, WORKSPACE, "one", parameters).result()
        nodes = lambda: cls.client.clusters.get(GROUP, WORKSPACE, "one").node_state_counts
        arm.wait_for("an idle node", lambda: nodes().idle_node_count == 1)

    def job(self, command):
        share = m.AzureFileShareReference(
            account_name=ACCOUNT,
            azure_file_url="https://{}.file.core.windows.net/share".format(ACCOUNT),
            credentials=m.AzureStorageCredentialsInfo(account_key=ACCOUNT_KEY),
            relative_mount_path="afs",
        )
        return examples.job(
            self.cluster.id,
            mount_volumes=m.MountVolumes(azure_file_shares=[share]),
            custom_toolkit_settings=m.CustomToolkitSettings(command_line=command),
            output_directories=[m.OutputDirectory(id="OUT", path_prefix="$AZ_BATCHAI_JOB_MOUNT_ROOT/afs")],
            secrets=[m.EnvironmentVariableWithSecretValue(name="S", value=examples.SECRET)],
        )

    def ended(self, name):
        def state():
            job = self.client.jobs.get(*AT, name)
            return job if job.execution_state in (m.ExecutionState.succeeded, m.ExecutionState.failed) else None

        return arm.wait_for("the end of " + name, state)

    def files(self, job, output, **more):
        options = m.JobsListOutputFilesOptions(outputdirectoryid=output, **more)
        return list(self.client.jobs.list_output_files(*AT, job, options))

    def test_a_job_that_writes(self):
        command = "mkdir $AZ_BATCHAI_OUTPUT_OUT/sub; for i in 1 2 3 4 5; do echo $i > $AZ_BATCHAI_OUTPUT_OUT/f$i; done; " \
            "printf 'grüße\\n'; echo ${#S}"
        self.client.jobs.create(*AT, "writes", self.job(command)).wait()
        job = self.ended("writes")
        self.assertEqual((job.execution_state, job.execution_info.exit_code), ("succeeded", 0))
        self.assertTrue(job.creation_time <= job.execution_info.start_time <= job.execution_info.end_time)
        files = {file.name: file for file in self.files("writes", "stdouterr")}
        self.assertTrue({"stdout.txt", "stderr.txt"} <= set(files), sorted(files))
        stdout = files["stdout.txt"]
        self.assertEqual(stdout.file_type, m.FileType.file)
        self.assertIsInstance(stdout.last_modified, datetime.datetime)
        got = requests.get(stdout.download_url, timeout=arm.DEADLINE)
        self.assertEqual((got.status_code, got.content.decode()), (200, "grüße\n{}\n".format(len(examples.SECRET))))
        self.assertEqual(stdout.content_length, len(got.content))
        rest = requests.get(stdout.download_url, headers={"Range": "bytes=8-"}, timeout=arm.DEADLINE)
        self.assertEqual((rest.status_code, rest.content), (206, got.content[8:]))
        past = {"Range": "bytes={}-".format(len(got.content))}
        self.assertEqual(requests.get(stdout.download_url, headers=past, timeout=arm.DEADLINE).status_code, 416)
        written = self.files("writes", "OUT", max_results=2)
        self.assertEqual([file.name for file in written], ["f1", "f2", "f3", "f4", "f5", "sub"])
        self.assertEqual(written[5].file_type, m.FileType.directory)
        self.assertIsNone(written[5].download_url)
        self.assertEqual(self.files("writes", "OUT", directory="sub"), [])
        self.assertEqual(self.files("writes", "OUT", directory="absent"), [])
        links = self.files("writes", "OUT", linkexpiryinminutes=5)
        self.assertEqual(requests.get(links[0].download_url, timeout=arm.DEADLINE).text, "1\n")
        with self.assertRaises(Exception):
            self.files("writes", "nothing")

    def test_a_job_that_fails(self):
        self.client.jobs.create(*AT, "fails", self.job("echo no >&2; exit 7")).wait()
        job = self.ended("fails")
        self.assertEqual((job.execution_state, job.execution_info.exit_code), ("failed", 7))
        error = job.execution_info.errors[0]
        self.assertEqual((error.code, error.message), ("JobFailed", "Job failed with non-zero exit code"))
        self.assertTrue(all(detail.name and detail.value for detail in error.details or []))

    def test_a_job_that_runs_is_found_and_terminated(self):
        self.client.jobs.create(*AT, "sleeps", self.job("sleep 1000")).wait()
        running = lambda: self.client.jobs.get(*AT, "sleeps").execution_state == "running"
        arm.wait_for("the job to run", running)
        nodes = arm.wait_for("its node", lambda: list(self.client.jobs.list_remote_login_information(*AT, "sleeps")))
        self.assertEqual([type(nodes[0].port), len(nodes)], [float, 1])
        whole = list(self.client.clusters.list_remote_login_information(GROUP, WORKSPACE, "one"))
        self.assertEqual([node.node_id for node in whole], [nodes[0].node_id])
        poller = self.client.jobs.terminate(*AT, "sleeps")
        poller.wait(arm.DEADLINE)
        self.assertEqual((poller.done(), poller.status()), (True, "Succeeded"))
        self.assertEqual(self.client.jobs.get(*AT, "sleeps").execution_state, "failed")
