"""Runs many `az` command lines with one start of the interpreter. Reads lines of JSON, `{"args": [...], "cwd": "..."}`, and
writes `{"code": 0, "stdout": "...", "stderr": "..."}`. Modules are imported once; each command runs in a forked child, so
that commands share no state."""

import importlib
import json
import os
import pkgutil
import sys
import tempfile

import azure.cli.command_modules
from azure.cli.core import get_default_cli


def preload():
    """Imports the modules that commands import when they run."""
    for module in pkgutil.iter_modules(azure.cli.command_modules.__path__):
        package = importlib.import_module("azure.cli.command_modules." + module.name)
        for inner in pkgutil.iter_modules(package.__path__):
            if inner.name in ("commands", "custom", "_params", "_validators", "_format", "_help"):
                importlib.import_module("{}.{}".format(package.__name__, inner.name))
    for name in ("adal", "azure.mgmt.batchai", "azure.mgmt.storage", "azure.multiapi.storage.v2018_03_28.file"):
        try:
            importlib.import_module(name)
        except ImportError:
            pass


def child(args):
    """Runs a command as `azure.cli.__main__` does; handles its exit code as the interpreter does."""
    try:
        code = get_default_cli().invoke(args)
    except SystemExit as leaving:
        code = leaving.code
    if code is None or isinstance(code, int):
        return code or 0
    try:
        print(code, file=sys.stderr)
    except UnicodeError:
        pass
    return 1


def run(args, cwd):
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        pid = os.fork()
        if pid == 0:
            os.chdir(cwd)
            with open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), 0)
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            code = 70
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(encoding="utf-8")
            try:
                code = child(args)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code & 0xFF)
        _, status = os.waitpid(pid, 0)
        stdout.seek(0)
        stderr.seek(0)
        said = [stream.read().decode("utf-8", "replace") for stream in (stdout, stderr)]
        return {"code": os.waitstatus_to_exitcode(status), "stdout": said[0], "stderr": said[1]}


if __name__ == "__main__":
    preload()
    for line in sys.stdin:
        wanted = json.loads(line)
        print(json.dumps(run(wanted["args"], wanted["cwd"])), flush=True)
