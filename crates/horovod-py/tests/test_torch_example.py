"""examples/cifar10/cifar10_torch.py on random images: a few steps on the CPU, plain and compiled. Run once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SPMD = False

np = pytest.importorskip("numpy", reason="missing: numpy")
torch = pytest.importorskip("torch", reason="missing: torch")

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "cifar10" / "cifar10_torch.py"
# Runs the script with a compiler that returns the model as it is, where PyTorch has none.
WITH_COMPILER = """
import os, runpy, sys, torch
calls = []
def compile(model, **options):
    calls.append(options)
    return model
torch.compile = compile
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
print("compiled with", calls)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images whose brightness tells their class."""
    random = np.random.default_rng(1)
    arrays = {}
    for name, n in (("train", 208), ("test", 100)):
        labels = random.integers(0, 10, (n, 1), np.uint8)
        noise = random.integers(0, 20, (n, 32, 32, 3), np.uint8)
        arrays[f"x_{name}"], arrays[f"y_{name}"] = noise + labels.reshape(n, 1, 1, 1) * 23, labels
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, **arrays)
    return path


def run(arguments, prefix=(), ranks=1):
    command = [*prefix, str(SCRIPT), *map(str, arguments)]
    if ranks > 1:
        command = ["-m", "horovod.runner.launch", "-np", str(ranks), sys.executable, *command]
    # The example is for the CPU here, also on a machine with a GPU.
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
    return subprocess.run([sys.executable, *command], env=variables, capture_output=True, text=True, timeout=300)


def figures(result):
    assert result.returncode == 0, result.stdout + result.stderr
    return [float(figure) for figure in re.findall(r"(?:loss|acc|accuracy): ([0-9.]+)$", result.stdout, re.MULTILINE)]


def options(data, directory, *more):
    return ["--dir", directory, "--data", data, "--epochs", 1, "--seed", 3, *more]


def test_all_batches_of_an_epoch_and_the_short_last_one(data, tmp_path):
    result = run(options(data, tmp_path))
    assert len(figures(result)) >= 2
    assert "7/7 [==============================]" in result.stdout
    saved = torch.load(tmp_path / "saved_models" / "torch_cifar10_trained_model.pt")
    assert all(torch.isfinite(value).all() for value in saved.values())


def test_a_compiled_training_gives_the_same_figures_as_a_plain_one(data, tmp_path):
    plain = run(options(data, tmp_path, "--steps", 3))
    compiled = run(options(data, tmp_path, "--steps", 3, "--compile", "default"), ["-c", WITH_COMPILER])
    assert "compiled with [{'mode': 'default', 'dynamic': False}]" in compiled.stdout, compiled.stdout
    assert figures(plain) == pytest.approx(figures(compiled), rel=1e-3)


def test_ranks_train_together_with_a_compiled_model(data, tmp_path):
    result = run(options(data, tmp_path, "--steps", 2, "--compile", "reduce-overhead"), ["-c", WITH_COMPILER], ranks=2)
    assert figures(result)
    assert "'mode': 'reduce-overhead'" in result.stdout


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="missing: torch.compile")
def test_the_real_compiler(data, tmp_path):
    assert figures(run(options(data, tmp_path, "--steps", 2, "--compile", "default")))


def test_what_is_impossible_is_said(data, tmp_path):
    result = run(options(data, tmp_path, "--compile", "cuda-graphs"))
    assert result.returncode == 1
    assert "--compile cuda-graphs needs a GPU, and PyTorch finds none here. Use --compile default." in result.stderr
    if not hasattr(torch, "compile"):
        result = run(options(data, tmp_path, "--compile"))
        assert result.returncode == 1
        assert f"--compile reduce-overhead needs PyTorch 2.0 or later, and this is {torch.__version__}" in result.stderr


def test_a_compiler_that_fails_is_named(data, tmp_path):
    failing = WITH_COMPILER.replace("    return model\n", '    raise RuntimeError("no C++ compiler")\n')
    result = run(options(data, tmp_path, "--compile"), ["-c", failing])
    assert result.returncode == 1
    assert "--compile reduce-overhead is impossible here: RuntimeError: no C++ compiler. Leave it out." in result.stderr
