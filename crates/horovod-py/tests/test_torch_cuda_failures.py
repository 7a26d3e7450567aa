"""Ranks that are killed while the GPU works for them: the others are told which, and nothing hangs. Starts ranks of its own. Skipped without a
GPU."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch

SPMD = False

if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

RANK_SCRIPT = """
import os, sys, time
import torch
import horovod.torch as hvd

case = sys.argv[1]
hvd.init()
torch.cuda.set_device(0)
given = torch.ones(1 << 22, device="cuda")
hvd.allreduce_(given, op=hvd.Average, name="first")
torch.cuda.synchronize()
try:
    if case == "pending kernel":
        # The killed rank has submitted the operation, but its input is not ready: the GPUs of the others wait.
        if hvd.rank() == 1:
            torch.cuda._sleep(1 << 36)
        handle = hvd.allreduce_async_(given, op=hvd.Average, name="pending")
        hvd.synchronize(handle)
        print("running", flush=True)
        torch.cuda.synchronize()
        hvd.allreduce_(given, op=hvd.Average, name="after")
        torch.cuda.synchronize()
    else:
        print("running", flush=True)
        for step in range(1_000_000):
            hvd.allreduce_(given, op=hvd.Average, name=f"step.{step % 7}")
            if step % 50 == 0:
                torch.cuda.synchronize()
except hvd.HorovodInternalError as error:
    torch.cuda.synchronize()
    print(f"error: {error}", flush=True)
    sys.exit(0)
sys.exit(3)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_ranks(size, case, variables):
    port = free_port()
    ranks = []
    for rank in range(size):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
        environment.update(LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        environment.update(NCCL_HOSTID=f"rank-{rank}", **variables)
        command = [sys.executable, "-c", RANK_SCRIPT, case]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return ranks


def read_until(process, wanted):
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith(wanted):
            return text
    raise AssertionError(f"the rank ended without {wanted!r}:\n{text}")


@pytest.mark.parametrize("transport", ["ipc", "nccl", "host"])
@pytest.mark.parametrize("case", ["in a loop", "pending kernel"])
def test_a_killed_rank_is_named(transport, case):
    if (transport, case) == ("host", "pending kernel"):
        pytest.skip("the killed rank itself waits for its kernel")
    ranks = start_ranks(3, case, {"CORRO_GPU_TRANSPORT": transport})
    try:
        for process in ranks:
            read_until(process, "running")
        ranks[1].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        for survivor in (ranks[0], ranks[2]):
            text = read_until(survivor, "error")
            assert "rank 1 on host" in text, text
            assert survivor.wait(timeout=30) == 0, text
        print(f"{transport}, {case}: both survivors were told and ended after {time.monotonic() - killed:.2f} s")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert not [name for name in os.listdir("/dev/shm") if "corro" in name]


def test_exhausted_memory_names_the_size_and_ends_all_ranks():
    script = RANK_SCRIPT.split("try:")[0] + """
filler = []
if hvd.rank() == 1:
    while True:
        try:
            filler.append(torch.empty(1 << 28, device="cuda"))
        except torch.OutOfMemoryError:
            break
    while True:
        try:
            filler.append(torch.empty(1 << 18, device="cuda"))
        except torch.OutOfMemoryError:
            break
try:
    hvd.allgather(torch.ones(1 << 24, device="cuda") if hvd.rank() != 1 else filler[0][: 1 << 24], name="large")
    torch.cuda.synchronize()
except hvd.HorovodInternalError as error:
    print(f"error: {error}", flush=True)
    sys.exit(0)
sys.exit(3)
"""
    port = free_port()
    ranks = []
    for rank in range(2):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        command = [sys.executable, "-c", script, ""]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        outputs = [process.communicate(timeout=90)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    print(outputs[0])
    assert "rank 1: Allgather of allgather.large failed on the GPU: no memory for a result of" in outputs[1], outputs[1]
    assert "error: " in outputs[0], outputs[0]
