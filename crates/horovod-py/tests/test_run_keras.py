"""The script of `corro init keras` under horovodrun. Not run by spmd.py: the test starts the ranks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("keras")

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False

TEMPLATE = Path(__file__).parents[2] / "cli" / "src" / "commands" / "init" / "keras.py"


def test_the_script_of_corro_init(tmp_path, monkeypatch):
    monkeypatch.setenv("AZ_BATCHAI_OUTPUT_MODEL", str(tmp_path))
    # Under the name that `corro init` gives it: keras.py would hide the package.
    script = tmp_path / "train.py"
    script.write_text(TEMPLATE.read_text())
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(loss) for loss in re.findall(r"loss: ([0-9.]+)", done.stdout)]
    assert len(losses) == 3 and losses[2] < losses[0], done.stdout
    assert (tmp_path / "model.keras").is_file()
