"""A deadline with an error message."""

import time


class TimeoutException(Exception):
    """A deadline has passed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Timeout:
    """Ends `timeout` seconds from now. The message may contain {timeout} and {activity}; without the former, the
    timeout is appended."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._ends_at = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Remaining seconds, never below 0."""
        return max(0.0, self._ends_at - time.monotonic())

    def timed_out(self) -> bool:
        return time.monotonic() >= self._ends_at

    def check_time_out_for(self, activity: str) -> None:
        """Raises if the deadline has passed."""
        if self.timed_out():
            text = self._message.format(timeout=self._timeout, activity=activity)
            if "{timeout" not in self._message:
                text = f"{text.rstrip().rstrip('.')}. Timeout after {self._timeout} seconds."
            raise TimeoutException(text)
