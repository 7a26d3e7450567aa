"""Kernels for TensorFlow's GPU and XLA's handlers, on a CUDA driver without a device (fake_cuda.c). Neither framework is
needed: fake_gpu.py plays them. Run once."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SPMD = False

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from spmd import run  # noqa: E402

pytest.importorskip("numpy", reason="missing: numpy")
if shutil.which("cc") is None:
    pytest.skip("missing: a C compiler", allow_module_level=True)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("part", ["tensorflow", "xla", "old_driver"])
def test_a_part(part, ranks, tmp_path):
    library = tmp_path / "libcuda.so.1"
    flags = ["-DOLD"] if part == "old_driver" else []
    source = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", library, HERE / "fake_cuda.c"]
    subprocess.run(["cc", *flags, *source], check=True)
    assert run(ranks, [sys.executable, str(HERE / "fake_gpu.py"), part, str(library)], 120) == 0
