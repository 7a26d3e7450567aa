"""Runs each command line with the real az and with corro against the same server; output and exit codes must be the same.
Scripts are in `../comparisons`; `compare_az.py [SCRIPT...]` runs them all, or those named here or in SCRIPTS.

  $ LINE          both run it; output and exit code must be the same
  ~ LINE          the same, but generated values (keys, signatures) may differ
  ^ LINE          only the exit codes must be the same
  = CODE          expected exit code of the command above, if not 0
  ! TEXT          text that both must have printed on standard error
  % corro LINE    corro only, as preparation; it must succeed
  % until TEXT <- LINE    corro runs LINE until its output contains TEXT
  % same FILE     both must have written the same file to their directories
  @ FILE … @      a file in both directories

`{x}` is a different word for each of them, so that both can create resources whose names must be unique.
"""

import difflib
import filecmp
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

import az_many

CORRO = os.environ["CORRO_PROGRAM"]
SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "comparisons")
WORDS = {"az": "zzaz", "corro": "zzco"}

# Patterns of values that differ from run to run, and their placeholders.
VOLATILE = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<GUID>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", "<TIME>"),
    (r"\d{4}-\d\d-\d\dT\d\d(%3A|:)\d\d((%3A|:)\d\d)?Z", "<TIME>"),
    (r"0x[0-9A-F]{14,20}", "<ETAG>"),
    (r"sig=[A-Za-z0-9%+/=]+", "sig=<SIG>"),
    # az writes its cloud's values into specifications, corro the service's; the server ignores both.
    # az reaches accounts by their hosts, corro by their paths.
    (r"https://corro\.test:\d+/(\w+account)(?=/share)", r"https://\1.file.<SUFFIX>"),
    (r"file\.(core\.windows\.net|corro\.test:\d+)(?=/share\b)", "file.<SUFFIX>"),
    (r"(?<=AccountKey=)[A-Za-z0-9+/=]{88}", "<KEY>"),
]


def normalize(text, program):
    text = text.replace(WORDS[program], "{x}")
    # az wrote letters beyond ASCII as they are only from 2.0.64 on.
    text = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found.group(1), 16)), text)
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text)
    return text


def table_cells(text):
    """Cells of a table without its layout: az up to 2.0.38 and the tutorial align numbers to the right, later ones not."""
    lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return "\n".join(" | ".join(line) for line in lines if not re.fullmatch(r"[-| ]*", " | ".join(line)))


def shape(value):
    """Structure of a JSON value, with types instead of values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


class Comparison:
    def __init__(self, name, directory):
        self.name = name
        self.directories = {program: os.path.join(directory, program) for program in WORDS}
        for path in self.directories.values():
            os.mkdir(path)
        self.differences = []

    def run(self, program, line):
        args = shlex.split(line.replace("{x}", WORDS[program]))
        if program == "az":
            return az_many.run(args, self.directories["az"])
        done = subprocess.run([CORRO] + args, cwd=self.directories["corro"], capture_output=True, stdin=subprocess.DEVNULL)
        streams = [stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr)]
        return {"code": done.returncode, "stdout": streams[0], "stderr": streams[1]}

    def run_corro(self, line):
        ended = self.run("corro", line)
        if ended["code"] != 0:
            raise SystemExit("{}: corro {}: {}".format(self.name, line, ended["stderr"]))
        return ended["stdout"]

    def add_difference(self, line, text):
        self.differences.append(line)
        print("\n--- {}: {}\n{}".format(self.name, line, text), flush=True)

    def compare(self, line, mark, code, expected_errors):
        az, corro = self.run("az", line), self.run("corro", line)
        if os.environ.get("CORRO_TALK"):
            print("$ {}\n{}{}{}".format(line, az["code"], az["stdout"], az["stderr"]), flush=True)
        outputs = "az: {}\n{}{}corro: {}\n{}{}".format(
            az["code"], az["stdout"], az["stderr"], corro["code"], corro["stdout"], corro["stderr"]
        )
        if (az["code"], corro["code"]) != (code, code):
            return self.add_difference(line, "must end with {}\n{}".format(code, outputs))
        for text in expected_errors:
            for ended in (az, corro):
                if text.lower() not in ended["stderr"].lower():
                    return self.add_difference(line, "must say {!r}\n{}".format(text, outputs))
        if mark == "^":
            return
        compared = {program: normalize(ended["stdout"], program) for program, ended in (("az", az), ("corro", corro))}
        if "-o table" in line:
            compared = {program: table_cells(text) for program, text in compared.items()}
        if mark == "~":
            try:
                compared = {program: json.dumps(shape(json.loads(text)), indent=1) for program, text in compared.items()}
            except ValueError:
                return self.add_difference(line, outputs)
        if compared["az"] != compared["corro"]:
            lines = [compared[program].splitlines() for program in ("az", "corro")]
            self.add_difference(line, "\n".join(difflib.unified_diff(*lines, "az", "corro", lineterm="")))

    def run_script(self, text):
        lines = [line.rstrip("\n") for line in text.splitlines()]
        while lines:
            line = lines.pop(0)
            mark, rest = line[:2], line[2:]
            if mark in ("$ ", "~ ", "^ "):
                code, expected_errors = 0, []
                while lines and lines[0][:2] in ("= ", "! "):
                    follows = lines.pop(0)
                    if follows[0] == "=":
                        code = int(follows[2:])
                    else:
                        expected_errors.append(follows[2:])
                self.compare(rest, mark[0], code, expected_errors)
            elif mark == "@ ":
                content = []
                while lines[0] != "@":
                    content.append(lines.pop(0))
                lines.pop(0)
                for path in self.directories.values():
                    target = os.path.join(path, rest)
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with open(target, "w") as file:
                        file.write("\n".join(content) + "\n")
            elif line.startswith("% corro "):
                self.run_corro(line[8:])
            elif line.startswith("% until "):
                text, command = line[8:].split(" <- ")
                deadline = time.monotonic() + 60
                while text not in self.run_corro(command):
                    if time.monotonic() > deadline:
                        raise SystemExit("{}: waited too long: {}".format(self.name, line))
                    time.sleep(0.1)
            elif line.startswith("% same "):
                files = [os.path.join(self.directories[program], line[7:]) for program in WORDS]
                if not all(map(os.path.exists, files)) or not filecmp.cmp(*files, shallow=False):
                    self.add_difference(line, "the files differ")
            elif line and not line.startswith("#"):
                raise SystemExit("{}: what is {!r}?".format(self.name, line))


def main(wanted):
    az_many.preload()
    scripts = sorted(name[:-4] for name in os.listdir(SCRIPTS) if name.endswith(".txt"))
    differences, begun = [], time.monotonic()
    for name in scripts:
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="corro-comparison-") as directory:
            comparison = Comparison(name, directory)
            with open(os.path.join(SCRIPTS, name + ".txt")) as file:
                comparison.run_script(file.read())
        differences += comparison.differences
        print("{}: {} ({:.0f} s)".format(name, "differs" if comparison.differences else "the same", time.monotonic() - begun), flush=True)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or os.environ.get("SCRIPTS", "").split()))
