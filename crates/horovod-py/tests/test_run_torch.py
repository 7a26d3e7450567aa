"""An unmodified PyTorch script under horovodrun, under `corro run` and alone: the losses are the same.
Not run by spmd.py: the tests start the ranks."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

SCRIPT = """
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
samples = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
targets = samples.sum(dim=1, keepdim=True)
for epoch in range(20):
    optimizer.zero_grad()
    mine = slice(hvd.rank(), None, hvd.size())
    loss = torch.nn.functional.mse_loss(model(samples[mine]), targets[mine])
    loss.backward()
    optimizer.step()
mean = hvd.allreduce(loss.detach(), name="loss")
if hvd.rank() == 0:
    print(f"loss {mean.item():.4f} on {hvd.size()}")
"""

TEMPLATES = Path(__file__).parents[2] / "cli" / "src" / "commands" / "init"
CORRO = Path(os.environ.get("CORRO", Path(__file__).parents[3] / "target" / "debug" / "corro"))


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def _loss(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [re.split("loss[ =]", line)[1] for line in done.stdout.splitlines() if re.search("loss[ =]", line)]


def _by_horovodrun(script):
    return _loss(sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable, script)


def test_horovodrun(script):
    (loss,) = _by_horovodrun(script)
    assert loss.endswith(" on 2") and 0 < float(loss.split()[0]) < 1


def test_corro_run_gives_the_same(script):
    if not CORRO.exists():
        pytest.skip(f"missing: {CORRO}; cargo build")
    assert _loss(str(CORRO), "run", "-np", "2", sys.executable, script) == _by_horovodrun(script)


def test_alone(script):
    (loss,) = _loss(sys.executable, script)
    assert loss.endswith(" on 1")


def _losses_of_template(template, tmp_path, monkeypatch, run):
    monkeypatch.setenv("AZ_BATCHAI_OUTPUT_MODEL", str(tmp_path))
    # Under the name that `corro init` gives it: horovod.py would hide the package.
    script = tmp_path / "train.py"
    script.write_text((TEMPLATES / template).read_text())
    losses = [float(loss) for loss in run(str(script))]
    assert len(losses) == 3 and losses[2] < losses[0]
    assert (tmp_path / "model.pt").is_file()


def test_the_horovod_script_of_corro_init(tmp_path, monkeypatch):
    _losses_of_template("horovod.py", tmp_path, monkeypatch, _by_horovodrun)


def test_the_pytorch_script_of_corro_init(tmp_path, monkeypatch):
    if not CORRO.exists():
        pytest.skip(f"missing: {CORRO}; cargo build")
    # horovodrun sets no variables of torchrun.
    run = functools.partial(_loss, str(CORRO), "run", "-np", "2", sys.executable)
    _losses_of_template("pytorch.py", tmp_path, monkeypatch, run)
