"""Runs each command line with the real az and with corro against the same server; output and exit codes must be the same.
Scripts are in `../duets`; `duets.py [SCRIPT...]` runs them all, or those named here or in SCRIPTS.

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
SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "duets")
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


def normal(text, program):
    text = text.replace(WORDS[program], "{x}")
    # az wrote letters beyond ASCII as they are only from 2.0.64 on.
    text = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found.group(1), 16)), text)
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text)
    return text


def cells(text):
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


class Duet:
    def __init__(self, name, directory):
        self.name = name
        self.at = {program: os.path.join(directory, program) for program in WORDS}
        for path in self.at.values():
            os.mkdir(path)
        self.faults = []

    def run(self, program, line):
        args = shlex.split(line.replace("{x}", WORDS[program]))
        if program == "az":
            return az_many.run(args, self.at["az"])
        done = subprocess.run([CORRO] + args, cwd=self.at["corro"], capture_output=True, stdin=subprocess.DEVNULL)
        said = [stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr)]
        return {"code": done.returncode, "stdout": said[0], "stderr": said[1]}

    def alone(self, line):
        ended = self.run("corro", line)
        if ended["code"] != 0:
            raise SystemExit("{}: corro {}: {}".format(self.name, line, ended["stderr"]))
        return ended["stdout"]

    def fault(self, line, text):
        self.faults.append(line)
        print("\n--- {}: {}\n{}".format(self.name, line, text), flush=True)

    def both(self, line, mark, code, says):
        az, corro = self.run("az", line), self.run("corro", line)
        if os.environ.get("CORRO_TALK"):
            print("$ {}\n{}{}{}".format(line, az["code"], az["stdout"], az["stderr"]), flush=True)
        told = "az: {}\n{}{}corro: {}\n{}{}".format(
            az["code"], az["stdout"], az["stderr"], corro["code"], corro["stdout"], corro["stderr"]
        )
        if (az["code"], corro["code"]) != (code, code):
            return self.fault(line, "must end with {}\n{}".format(code, told))
        for text in says:
            for ended in (az, corro):
                if text.lower() not in ended["stderr"].lower():
                    return self.fault(line, "must say {!r}\n{}".format(text, told))
        if mark == "^":
            return
        ours = {program: normal(ended["stdout"], program) for program, ended in (("az", az), ("corro", corro))}
        if "-o table" in line:
            ours = {program: cells(text) for program, text in ours.items()}
        if mark == "~":
            try:
                ours = {program: json.dumps(shape(json.loads(text)), indent=1) for program, text in ours.items()}
            except ValueError:
                return self.fault(line, told)
        if ours["az"] != ours["corro"]:
            lines = [ours[program].splitlines() for program in ("az", "corro")]
            self.fault(line, "\n".join(difflib.unified_diff(*lines, "az", "corro", lineterm="")))

    def play(self, text):
        lines = [line.rstrip("\n") for line in text.splitlines()]
        while lines:
            line = lines.pop(0)
            mark, rest = line[:2], line[2:]
            if mark in ("$ ", "~ ", "^ "):
                code, says = 0, []
                while lines and lines[0][:2] in ("= ", "! "):
                    follows = lines.pop(0)
                    if follows[0] == "=":
                        code = int(follows[2:])
                    else:
                        says.append(follows[2:])
                self.both(rest, mark[0], code, says)
            elif mark == "@ ":
                content = []
                while lines[0] != "@":
                    content.append(lines.pop(0))
                lines.pop(0)
                for path in self.at.values():
                    target = os.path.join(path, rest)
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with open(target, "w") as file:
                        file.write("\n".join(content) + "\n")
            elif line.startswith("% corro "):
                self.alone(line[8:])
            elif line.startswith("% until "):
                text, command = line[8:].split(" <- ")
                deadline = time.monotonic() + 60
                while text not in self.alone(command):
                    if time.monotonic() > deadline:
                        raise SystemExit("{}: waited too long: {}".format(self.name, line))
                    time.sleep(0.1)
            elif line.startswith("% same "):
                files = [os.path.join(self.at[program], line[7:]) for program in WORDS]
                if not all(map(os.path.exists, files)) or not filecmp.cmp(*files, shallow=False):
                    self.fault(line, "the files differ")
            elif line and not line.startswith("#"):
                raise SystemExit("{}: what is {!r}?".format(self.name, line))


def main(wanted):
    az_many.preload()
    scripts = sorted(name[:-4] for name in os.listdir(SCRIPTS) if name.endswith(".txt"))
    faults, begun = [], time.monotonic()
    for name in scripts:
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="corro-duet-") as directory:
            duet = Duet(name, directory)
            with open(os.path.join(SCRIPTS, name + ".txt")) as file:
                duet.play(file.read())
        faults += duet.faults
        print("{}: {} ({:.0f} s)".format(name, "differs" if duet.faults else "the same", time.monotonic() - begun), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or os.environ.get("SCRIPTS", "").split()))
