//! Texts of the tutorial: its commands, its files, its tables. Plain data, so the file is longer than usual.

pub const COMMANDS: [&str; 17] = [
    "az group create --name batchai.horovod --location eastus",
    "az batchai workspace create --resource-group batchai.horovod --workspace batchaidev",
    "az batchai experiment create --resource-group batchai.horovod --workspace batchaidev --name cifar",
    "az batchai cluster create --resource-group batchai.horovod --workspace batchaidev --name nc6cluster --vm-priority dedicated --vm-size Standard_NC6 --target 4 --generate-ssh-keys",
    "az batchai cluster show --name nc6cluster --workspace batchaidev --resource-group batchai.horovod --output table",
    "az storage account create --resource-group batchai.horovod --name mystorageaccount --location eastus --sku Standard_LRS",
    "az storage share create --name myshare --account-name mystorageaccount",
    "az storage directory create --name cifar --share-name myshare --account-name mystorageaccount",
    "az storage file upload --path cifar --share-name myshare --source cifar_cnn_distributed.py --account-name mystorageaccount",
    "az batchai job create --cluster nc6cluster --name cifar_distributed --resource-group batchai.horovod --workspace batchaidev --experiment cifar --config-file job.json --storage-account-name mystorageaccount",
    r#"az batchai job show --experiment cifar --name cifar_distributed --resource-group batchai.horovod --workspace batchaidev --query "executionState""#,
    r#"az batchai cluster show --name nc6cluster --workspace batchaidev --resource-group batchai.horovod --query "nodeStateCounts""#,
    "az batchai job file list --experiment cifar --job cifar_distributed --resource-group batchai.horovod --workspace batchaidev --output table",
    "az batchai job file stream --experiment cifar --file-name stdout.txt --job cifar_distributed --resource-group batchai.horovod --workspace batchaidev",
    "az storage file download --path cifar/saved_models/keras_cifar10_trained_model.h5 --share-name myshare --account-name mystorageaccount",
    "az batchai cluster resize --name nc6cluster --resource-group batchai.horovod --target 0 --workspace batchaidev",
    "az group delete --name batchai.horovod",
];

pub const JOB_JSON: &str = r#"{
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/job.json",
    "properties": {
        "nodeCount": 4,
        "horovodSettings": {
            "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/cifar_cnn_distributed.py",
            "commandLineArgs": "--dir=$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar"
        },
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
        "mountVolumes": {
            "azureFileShares": [
                {
                    "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                    "relativeMountPath": "myshare"
                }
            ]
        },
        "jobPreparation": {
            "commandLine": "apt update; apt install mpi-default-dev mpi-default-bin -y; pip install keras horovod"
        },
        "containerSettings": {
            "imageSourceRegistry": {
                "image": "tensorflow/tensorflow:1.8.0-gpu"
            }
        }
    }
}
"#;

/// Replacement of the tutorial's script without its network: every rank prints its steps, in pieces, and rank 0 saves the
/// model. Between the first line and the steps it waits for a file, so that a test can inspect the job.
pub const SCRIPT: &str = r#"from __future__ import print_function
import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("-d", "--dir", help="directory to save model to")
args = parser.parse_args()
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
print("rank %d of %d is here" % (rank, size))
sys.stdout.flush()
while not os.path.exists(os.path.join(args.dir, "go")):
    time.sleep(0.02)
for step in range(1, STEPS + 1):
    for piece in ("%4d/1563 [" % step, "." * 30, "] - rank %d - acc: 0.0312" % rank, "\n"):
        sys.stdout.write(piece)
        sys.stdout.flush()
if rank == 0:
    save_dir = os.path.join(args.dir, "saved_models")
    if not os.path.isdir(save_dir):
        os.makedirs(save_dir)
    model_path = os.path.join(save_dir, "keras_cifar10_trained_model.h5")
    with open(model_path, "wb") as model:
        model.write(bytes(bytearray((i * 7 + i // 256) % 256 for i in range(300000))))
    print("Saved trained model at %s " % model_path)
"#;

pub const CLUSTER_TABLE: &str = "\
Name        Resource Group    Workspace    VM Size       State      Idle    Running    Preparing    Leaving    Unusable
----------  ----------------  -----------  ------------  -------  ------  ---------  -----------  ---------  ----------
nc6cluster  batchai.horovod   batchaidev   STANDARD_NC6  steady        4          0            0          0           0
";

pub const COUNTS_WHILE_RUNNING: &str = "\
{
  \"idleNodeCount\": 0,
  \"leavingNodeCount\": 0,
  \"preparingNodeCount\": 0,
  \"runningNodeCount\": 4,
  \"unusableNodeCount\": 0
}
";
