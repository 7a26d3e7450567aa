"""The hosts of an elastic job: what a user's script prints, or a fixed list. Runs the script; decides nothing."""

import subprocess
from typing import Dict, Optional

from horovod.runner.common.util.hosts import HostInfo


class HostDiscovery:
    """Finds the hosts that are available now."""

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """Slots by host, in the order in which they are to be used."""
        raise NotImplementedError


class DiscoveryFailed(RuntimeError):
    """The discovery script ended with an error, or printed something else than hosts."""


class HostDiscoveryScript(HostDiscovery):
    """A command that prints a line `host` or `host:slots` for every host; without a number, `default_slots`."""

    def __init__(self, discovery_script: str, default_slots: Optional[int] = None) -> None:
        self._script = discovery_script
        self._default_slots = default_slots

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        # In a shell, as upstream: the script may have arguments.
        done = subprocess.run(
            self._script, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise DiscoveryFailed(
                f"The host discovery script {self._script} ended with status {done.returncode}"
                + (f": {said[-1]}" if said else "")
            )
        return self._parse(done.stdout.decode(errors="replace"))

    def _parse(self, output: str) -> Dict[str, int]:
        slots: Dict[str, int] = {}
        for number, line in enumerate(output.splitlines(), 1):
            text = line.strip()
            if not text:
                continue
            if ":" not in text and self._default_slots is None:
                raise DiscoveryFailed(
                    f"Line {number} of the output of {self._script} has no slots: print `{text}:SLOTS`, or give"
                    " --slots-per-host"
                )
            try:
                host = HostInfo.from_string(text if ":" in text else f"{text}:{self._default_slots}")
            except ValueError:
                raise DiscoveryFailed(
                    f"Line {number} of the output of {self._script} is {text!r}: print HOST or HOST:SLOTS"
                ) from None
            slots[host.hostname] = host.slots
        return slots


class FixedHosts(HostDiscovery):
    """Hosts that never change; tests may replace them."""

    def __init__(self, available_hosts: Dict[str, int]) -> None:
        self._available_hosts = available_hosts

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        return self._available_hosts

    def set(self, available_hosts: Dict[str, int]) -> None:
        self._available_hosts = available_hosts
