"""A task's service: runs one command for clients with the job's secret, streams its output, and reports its exit code.
For packages that start workers themselves and then start ranks in them."""

import threading
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

from horovod.runner.common.util import safe_shell_exec
from horovod.runner.common.util.rpc import AckResponse, AckStreamResponse, Addresses, BasicClient, BasicService
from horovod.runner.common.util.timeout import Timeout
from horovod.runner.util.streams import Pipe
from horovod.runner.util.threads import in_thread

# Minimum interval in seconds between checks of a command.
WAIT_FOR_COMMAND_MIN_DELAY = 0.1


class RunCommandRequest:
    """Runs a command line. Only the first such request of a task is executed. Captured output must be streamed: the
    command blocks until it is."""

    def __init__(
        self,
        command: str,
        env: Optional[Mapping[str, Optional[str]]],
        capture_stdout: bool = False,
        capture_stderr: bool = False,
        prefix_output_with_timestamp: bool = False,
    ) -> None:
        self.command = command
        self.env = env
        self.capture_stdout = capture_stdout
        self.capture_stderr = capture_stderr
        self.prefix_output_with_timestamp = prefix_output_with_timestamp


class StreamCommandOutputRequest:
    """Requests captured output; see the two subclasses."""


class StreamCommandStdOutRequest(StreamCommandOutputRequest):
    """Standard output of the command."""


class StreamCommandStdErrRequest(StreamCommandOutputRequest):
    """Standard error of the command."""


class CommandOutputNotCaptured(Exception):
    """Response if the requested output is not captured."""


class AbortCommandRequest:
    """Ends the command."""


class CommandExitCodeRequest:
    """Requests the exit code without waiting."""


class CommandExitCodeResponse:
    """The exit code is None until the command has ended."""

    def __init__(self, terminated: bool, exit_code: Optional[int]) -> None:
        self.terminated = terminated
        self.exit_code = exit_code


class WaitForCommandExitCodeRequest:
    """Waits for the exit code. `delay`: seconds between checks."""

    def __init__(self, delay: float) -> None:
        self.delay = delay


class WaitForCommandExitCodeResponse:
    """The exit code of the command."""

    def __init__(self, exit_code: Optional[int]) -> None:
        self.exit_code = exit_code


class NotifyInitialRegistrationCompleteRequest:
    """All tasks have registered with the driver."""


class RegisterCodeResultRequest:
    """Result of the function that the command ran."""

    def __init__(self, result: Any) -> None:
        self.result = result


class BasicTaskService(BasicService):
    """One task. `command_env` is the environment of its command, to which the request adds; a value of None removes a
    variable."""

    def __init__(
        self,
        name: str,
        index: int,
        key: bytes,
        nics: Optional[Iterable[str]],
        command_env: Optional[Mapping[str, str]] = None,
        verbose: int = 0,
    ) -> None:
        self._index = index
        self._command_env = command_env
        self._verbose = verbose
        self._wait_cond = threading.Condition()
        self._initial_registration_complete = False
        self._command_thread: Optional[threading.Thread] = None
        self._command_abort = threading.Event()
        self._command_stdout: Optional[Pipe] = None
        self._command_stderr: Optional[Pipe] = None
        self._command_exit_code: Optional[int] = None
        self._fn_result: Any = None
        # Last, since it serves requests from here on.
        super().__init__(name, key, nics)

    def _handle(self, req: Any, client_address: Tuple[str, int]) -> Any:
        if isinstance(req, RunCommandRequest):
            self._start_command(req)
            return AckResponse()
        if isinstance(req, StreamCommandOutputRequest):
            self.wait_for_command_start()
            is_stdout = isinstance(req, StreamCommandStdOutRequest)
            return self.stream_output(self._command_stdout if is_stdout else self._command_stderr)
        if isinstance(req, AbortCommandRequest):
            self._abort_command()
            return AckResponse()
        if isinstance(req, CommandExitCodeRequest):
            is_done = self._is_command_done()
            return CommandExitCodeResponse(is_done, self._command_exit_code if is_done else None)
        if isinstance(req, WaitForCommandExitCodeRequest):
            with self._wait_cond:
                while not self._wait_cond.wait_for(
                    self._is_command_done, max(req.delay, WAIT_FOR_COMMAND_MIN_DELAY)
                ):
                    pass
            return WaitForCommandExitCodeResponse(self._command_exit_code)
        if isinstance(req, NotifyInitialRegistrationCompleteRequest):
            with self._wait_cond:
                self._initial_registration_complete = True
                self._wait_cond.notify_all()
            return AckResponse()
        if isinstance(req, RegisterCodeResultRequest):
            self._fn_result = req.result
            return AckResponse()
        return super()._handle(req, client_address)

    def fn_result(self) -> Any:
        """The result registered with RegisterCodeResultRequest."""
        return self._fn_result

    def wait_for_initial_registration(self, timeout: Timeout) -> None:
        with self._wait_cond:
            while not self._wait_cond.wait_for(lambda: self._initial_registration_complete, timeout.remaining()):
                timeout.check_time_out_for("tasks to start")

    def wait_for_command_start(self, timeout: Optional[Timeout] = None) -> None:
        """TimeoutException if the command does not start in time."""
        with self._wait_cond:
            while not self._wait_cond.wait_for(
                lambda: self._command_thread is not None, None if timeout is None else timeout.remaining()
            ):
                assert timeout is not None
                timeout.check_time_out_for("command to run")

    def check_for_command_start(self, seconds: float) -> bool:
        """Whether a command has started, waiting for at most `seconds`."""
        with self._wait_cond:
            return self._wait_cond.wait_for(lambda: self._command_thread is not None, seconds)

    def wait_for_command_termination(self) -> None:
        """Waits for the end of a started command."""
        assert self._command_thread is not None, "no command has started"
        self._command_thread.join()

    def command_exit_code(self) -> Optional[int]:
        return self._command_exit_code

    def stream_output(self, stream: Optional[Pipe]) -> Any:
        """The response to a request for this output."""
        return CommandOutputNotCaptured() if stream is None else (AckStreamResponse(), stream)

    def _start_command(self, req: RunCommandRequest) -> None:
        # Without either of them the command inherits the environment of this process.
        env: Optional[Dict[str, str]] = None
        if self._command_env or req.env is not None:
            env = dict(self._command_env or {})
            self._add_envs(env, req.env or {})
        with self._wait_cond:
            if self._command_thread is not None:
                return  # A repeated request.
            if self._verbose >= 2:
                print(f"Task service executes command: {req.command}")
            self._command_stdout = Pipe() if req.capture_stdout else None
            self._command_stderr = Pipe() if req.capture_stderr else None
            arguments = (
                req.command,
                env,
                self._command_abort,
                self._command_stdout,
                self._command_stderr,
                self._index,
                req.prefix_output_with_timestamp,
            )
            self._command_thread = in_thread(self._run_command, arguments)
            self._wait_cond.notify_all()

    def _run_command(
        self,
        command: str,
        env: Optional[Mapping[str, str]],
        event: threading.Event,
        stdout: Optional[Pipe] = None,
        stderr: Optional[Pipe] = None,
        index: Optional[int] = None,
        prefix_output_with_timestamp: bool = False,
    ) -> None:
        self._command_exit_code = safe_shell_exec.execute(
            command,
            env=env,
            stdout=stdout,
            stderr=stderr,
            index=index,
            events=[event],
            prefix_output_with_timestamp=prefix_output_with_timestamp,
        )
        for pipe in (stdout, stderr):
            if pipe is not None:
                pipe.close()

    def _abort_command(self) -> None:
        with self._wait_cond:
            if self._command_thread is None:
                return
            self._command_abort.set()
            for pipe in (self._command_stdout, self._command_stderr):
                if pipe is not None:
                    pipe.close()

    def _is_command_done(self) -> bool:
        return self._command_thread is not None and not self._command_thread.is_alive()

    @staticmethod
    def _add_envs(env: Dict[str, str], extra_env: Mapping[str, Optional[str]]) -> None:
        """Adds variables in place; a value of None removes one."""
        for name, value in extra_env.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value


class BasicTaskClient(BasicClient):
    """Client of a task service for the driver."""

    def __init__(
        self,
        service_name: str,
        task_addresses: Addresses,
        key: bytes,
        verbose: int,
        match_intf: bool = False,
        attempts: int = 3,
    ) -> None:
        super().__init__(service_name, task_addresses, key, verbose, match_intf=match_intf, attempts=attempts)

    def run_command(
        self,
        command: str,
        env: Optional[Mapping[str, Optional[str]]],
        capture_stdout: bool = False,
        capture_stderr: bool = False,
        prefix_output_with_timestamp: bool = False,
    ) -> None:
        self._send(
            RunCommandRequest(command, env, capture_stdout, capture_stderr, prefix_output_with_timestamp)
        )

    def stream_command_output(
        self, stdout: Any = None, stderr: Any = None
    ) -> Tuple[Optional[threading.Thread], Optional[threading.Thread]]:
        """Starts threads that copy captured output to text streams until it ends. If one fails, the command is ended."""

        def stream(req: StreamCommandOutputRequest, target: Any) -> None:
            try:
                self._send(req, target)
            except Exception:
                self.abort_command()
                raise

        return (
            None if stdout is None else in_thread(stream, (StreamCommandStdOutRequest(), stdout)),
            None if stderr is None else in_thread(stream, (StreamCommandStdErrRequest(), stderr)),
        )

    def abort_command(self) -> None:
        self._send(AbortCommandRequest())

    def notify_initial_registration_complete(self) -> None:
        self._send(NotifyInitialRegistrationCompleteRequest())

    def command_terminated(self) -> bool:
        return self.command_result()[0]

    def command_result(self) -> Tuple[bool, Optional[int]]:
        """Whether the command has ended, and its exit code."""
        answer = self._send(CommandExitCodeRequest())
        return answer.terminated, answer.exit_code

    def register_code_result(self, result: Any) -> None:
        self._send(RegisterCodeResultRequest(result))

    def wait_for_command_termination(self, delay: float = 1.0) -> None:
        self.wait_for_command_exit_code(delay)

    def wait_for_command_exit_code(self, delay: float = 1.0) -> Optional[int]:
        """Waits for the end of the command. None if the task has gone."""
        try:
            exit_code: Optional[int] = self._send(WaitForCommandExitCodeRequest(delay)).exit_code
            return exit_code
        except ConnectionError:
            return None
