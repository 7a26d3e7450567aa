"""Models of azure-mgmt-batchai with every field set somewhere, a record of the fields that were set, and the
comparison of sent models with received ones."""

import datetime
import inspect

from azure.mgmt.batchai import models as m

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFE1i8Q3wUyDq9zR0N8aN6rU0B0iMZ0qE3nO1kZV0YQm me@example"
SECRET = "this-must-never-come-back"

# Write-only fields, by model and attribute.
SECRETS = {
    ("AzureStorageCredentialsInfo", "account_key"),
    ("AzureStorageCredentialsInfo", "account_key_secret_reference"),
    ("EnvironmentVariableWithSecretValue", "value"),
    ("EnvironmentVariableWithSecretValue", "value_secret_reference"),
    ("PrivateRegistryCredentials", "password"),
    ("PrivateRegistryCredentials", "password_secret_reference"),
    ("AppInsightsReference", "instrumentation_key"),
    ("AppInsightsReference", "instrumentation_key_secret_reference"),
    ("UserAccountSettings", "admin_user_password"),
}

# Every attribute that was set in a value that was sent and compared.
SEEN = set()


def is_model(value):
    return hasattr(value, "_attribute_map")


def differences(sent, got, path="$"):
    """Differences of `got` from `sent`. Secrets must be absent."""
    if is_model(sent):
        if got is None:
            return [path + ": missing"]
        found = []
        for name in sent._attribute_map:
            value = getattr(sent, name, None)
            if value is None:
                continue
            kind = type(sent).__name__
            SEEN.add((kind, name))
            here = "{}.{}".format(path, name)
            if (kind, name) in SECRETS:
                if is_model(value):
                    SEEN.update((type(value).__name__, inner) for inner in value._attribute_map)
                if getattr(got, name, None) is not None:
                    found.append(here + ": a secret came back")
            else:
                found += differences(value, getattr(got, name, None), here)
        return found
    if isinstance(sent, list):
        if not isinstance(got, list) or len(sent) != len(got):
            return ["{}: {!r} instead of {} items".format(path, got, len(sent))]
        pairs = enumerate(zip(sent, got))
        return [found for i, (a, b) in pairs for found in differences(a, b, "{}[{}]".format(path, i))]
    if path.endswith(".vm_size"):
        sent = sent.upper()
    return [] if sent == got else ["{}: {!r} instead of {!r}".format(path, got, sent)]


def never_set(roots):
    """Writable fields of the models below `roots` that no test has set."""
    todo, known, missing = list(roots), set(), []
    while todo:
        kind = todo.pop()
        if kind in known:
            continue
        known.add(kind)
        model = getattr(m, kind)
        for name, described in model._attribute_map.items():
            if model._validation.get(name, {}).get("readonly"):
                continue
            if (kind, name) not in SEEN:
                missing.append("{}.{}".format(kind, name))
            inner = described["type"].strip("[]{}")
            if inspect.isclass(getattr(m, inner, None)) and is_model(getattr(m, inner)):
                todo.append(inner)
    return sorted(missing)


def vault(name):
    ids = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v"
    return m.KeyVaultSecretReference(
        source_vault=m.ResourceId(id=ids), secret_url="https://v.vault.azure.net/secrets/{}/1".format(name)
    )


def mounts(account, file_server=None):
    """Volumes of all four kinds, with keys and with references to a vault."""
    key = m.AzureStorageCredentialsInfo(account_key=SECRET)
    reference = m.AzureStorageCredentialsInfo(account_key_secret_reference=vault("key"))
    url = "https://{}.file.core.windows.net/share".format(account)
    servers = [
        m.FileServerReference(
            file_server=m.ResourceId(id=file_server),
            source_directory="data",
            relative_mount_path="nfs",
            mount_options="rw",
        )
    ]
    return m.MountVolumes(
        azure_file_shares=[
            m.AzureFileShareReference(
                account_name=account,
                azure_file_url=url,
                credentials=key,
                relative_mount_path="afs",
                file_mode="0750",
                directory_mode="0755",
            ),
            m.AzureFileShareReference(
                account_name=account, azure_file_url=url, credentials=reference, relative_mount_path="afs2"
            ),
        ],
        azure_blob_file_systems=[
            m.AzureBlobFileSystemReference(
                account_name=account,
                container_name="container",
                credentials=key,
                relative_mount_path="bfs",
                mount_options="--file-cache-timeout-in-seconds=120",
            )
        ],
        file_servers=servers if file_server else None,
        unmanaged_file_systems=[
            m.UnmanagedFileSystemReference(mount_command="mount -t glusterfs 10.0.0.5:/v", relative_mount_path="gluster")
        ],
    )


def user():
    return m.UserAccountSettings(admin_user_name="me", admin_user_ssh_public_key=KEY, admin_user_password=SECRET)


def file_server(subnet):
    return m.FileServerCreateParameters(
        vm_size="Standard_D1_v2",
        ssh_configuration=m.SshConfiguration(
            public_ips_to_allow=["10.0.0.0/8", "192.168.1.1"], user_account_settings=user()
        ),
        data_disks=m.DataDisks(
            disk_size_in_gb=10, caching_type="readwrite", disk_count=2, storage_account_type="Standard_LRS"
        ),
        subnet=m.ResourceId(id=subnet),
    )


def cluster(account, server, subnet):
    """A cluster of no nodes with every field set."""
    component = "/subscriptions/s/resourceGroups/g/providers/microsoft.insights/components/c"
    return m.ClusterCreateParameters(
        vm_size="Standard_NC6",
        vm_priority="lowpriority",
        scale_settings=m.ScaleSettings(
            manual=m.ManualScaleSettings(target_node_count=0, node_deallocation_option="waitforjobcompletion")
        ),
        virtual_machine_configuration=m.VirtualMachineConfiguration(
            image_reference=m.ImageReference(
                publisher="Canonical",
                offer="UbuntuServer",
                sku="16.04-LTS",
                version="1.2.3",
                virtual_machine_image_id="/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/i",
            )
        ),
        node_setup=m.NodeSetup(
            setup_task=m.SetupTask(
                command_line="echo hello",
                environment_variables=[m.EnvironmentVariable(name="A", value="1 2")],
                secrets=[m.EnvironmentVariableWithSecretValue(name="S", value=SECRET)],
                std_out_err_path_prefix="$AZ_BATCHAI_MOUNT_ROOT/afs",
            ),
            mount_volumes=mounts(account, server),
            performance_counters_settings=m.PerformanceCountersSettings(
                app_insights_reference=m.AppInsightsReference(
                    component=m.ResourceId(id=component), instrumentation_key=SECRET
                )
            ),
        ),
        user_account_settings=user(),
        subnet=m.ResourceId(id=subnet),
    )


def toolkits():
    """Settings of all nine toolkits by field name, with the resulting tool type."""
    script = dict(python_script_file_path="a.py", python_interpreter_path="/usr/bin/python3", command_line_args="--x 1")
    return {
        "cntk_settings": ("cntk", m.CNTKsettings(language_type="Python", process_count=2, **script)),
        "py_torch_settings": ("pytorch", m.PyTorchSettings(process_count=2, communication_backend="gloo", **script)),
        "tensor_flow_settings": (
            "tensorflow",
            m.TensorFlowSettings(
                python_script_file_path="a.py",
                python_interpreter_path="/usr/bin/python3",
                master_command_line_args="--m",
                worker_command_line_args="--w",
                parameter_server_command_line_args="--p",
                worker_count=2,
                parameter_server_count=1,
            ),
        ),
        "caffe_settings": ("caffe", m.CaffeSettings(process_count=2, **script)),
        "caffe2_settings": ("caffe2", m.Caffe2Settings(**script)),
        "chainer_settings": ("chainer", m.ChainerSettings(process_count=2, **script)),
        "custom_toolkit_settings": ("custom", m.CustomToolkitSettings(command_line="echo $A")),
        "custom_mpi_settings": ("custommpi", m.CustomMpiSettings(command_line="hostname", process_count=2)),
        "horovod_settings": ("horovod", m.HorovodSettings(process_count=2, **script)),
    }


def job(cluster_id, **more):
    fields = dict(
        cluster=m.ResourceId(id=cluster_id), node_count=1, std_out_err_path_prefix="$AZ_BATCHAI_JOB_MOUNT_ROOT/afs"
    )
    fields.update(more)
    return m.JobCreateParameters(**fields)


def whole_job(cluster_id, account, server, **toolkit):
    """A job with every field set except its toolkit."""
    registry = m.PrivateRegistryCredentials(username="u", password=SECRET)
    return job(
        cluster_id,
        scheduling_priority="high",
        node_count=2,
        mount_volumes=mounts(account, server),
        container_settings=m.ContainerSettings(
            image_source_registry=m.ImageSourceRegistry(
                server_url="example.org", image="ubuntu:16.04", credentials=registry
            ),
            shm_size="16gb",
        ),
        job_preparation=m.JobPreparation(command_line="true"),
        input_directories=[m.InputDirectory(id="IN", path="$AZ_BATCHAI_JOB_MOUNT_ROOT/afs/in")],
        output_directories=[
            m.OutputDirectory(id="OUT", path_prefix="$AZ_BATCHAI_JOB_MOUNT_ROOT/afs", path_suffix="models")
        ],
        environment_variables=[m.EnvironmentVariable(name="A", value="ünï © 1")],
        secrets=[
            m.EnvironmentVariableWithSecretValue(name="S", value=SECRET),
            m.EnvironmentVariableWithSecretValue(name="V", value_secret_reference=vault("s")),
        ],
        constraints=m.JobBasePropertiesConstraints(max_wall_clock_time=datetime.timedelta(days=1, hours=2, seconds=3)),
        **toolkit
    )
