"""Converts options to environment variables of workers, and a config file to options. A table, and three functions over
it; reads no file and only changes the environment that it is given."""

import argparse
import sys
from typing import Any, Callable, Dict, List, MutableMapping, NamedTuple, Optional, Set

# Environment variables, under upstream's names.
HOROVOD_FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
HOROVOD_CYCLE_TIME = "HOROVOD_CYCLE_TIME"
HOROVOD_CACHE_CAPACITY = "HOROVOD_CACHE_CAPACITY"
HOROVOD_HIERARCHICAL_ALLREDUCE = "HOROVOD_HIERARCHICAL_ALLREDUCE"
HOROVOD_HIERARCHICAL_ALLGATHER = "HOROVOD_HIERARCHICAL_ALLGATHER"
HOROVOD_TORUS_ALLREDUCE = "HOROVOD_TORUS_ALLREDUCE"
HOROVOD_AUTOTUNE = "HOROVOD_AUTOTUNE"
HOROVOD_AUTOTUNE_LOG = "HOROVOD_AUTOTUNE_LOG"
HOROVOD_AUTOTUNE_WARMUP_SAMPLES = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"
HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"
HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"
HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE"
HOROVOD_TIMELINE = "HOROVOD_TIMELINE"
HOROVOD_TIMELINE_MARK_CYCLES = "HOROVOD_TIMELINE_MARK_CYCLES"
HOROVOD_STALL_CHECK_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
HOROVOD_STALL_CHECK_TIME_SECONDS = "HOROVOD_STALL_CHECK_TIME_SECONDS"
HOROVOD_STALL_SHUTDOWN_TIME_SECONDS = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
HOROVOD_MPI_THREADS_DISABLE = "HOROVOD_MPI_THREADS_DISABLE"
HOROVOD_NUM_NCCL_STREAMS = "HOROVOD_NUM_NCCL_STREAMS"
HOROVOD_THREAD_AFFINITY = "HOROVOD_THREAD_AFFINITY"
HOROVOD_GLOO_TIMEOUT_SECONDS = "HOROVOD_GLOO_TIMEOUT_SECONDS"
HOROVOD_LOG_LEVEL = "HOROVOD_LOG_LEVEL"
HOROVOD_LOG_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"
NCCL_IB_DISABLE = "NCCL_IB_DISABLE"
LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]


def _boolean(value: Any) -> str:
    return "1" if value else "0"


def _inverted(value: Any) -> str:
    return "0" if value else "1"


class _OptionSpec(NamedTuple):
    """An option: its name, its variable, its position in a config file, and the option that it depends on."""

    arg: str
    variable: str
    section: str
    key: str
    to_text: Callable[[Any], str] = str
    needs: Optional[str] = None
    is_number: bool = False
    most: Optional[float] = None


_KNOBS: List[_OptionSpec] = [
    _OptionSpec(
        "fusion_threshold_mb",
        HOROVOD_FUSION_THRESHOLD,
        "params",
        "fusion_threshold_mb",
        lambda value: str(int(value * 1024 * 1024)),
        is_number=True,
    ),
    _OptionSpec("cycle_time_ms", HOROVOD_CYCLE_TIME, "params", "cycle_time_ms", is_number=True),
    _OptionSpec("cache_capacity", HOROVOD_CACHE_CAPACITY, "params", "cache_capacity", is_number=True),
    _OptionSpec("hierarchical_allreduce", HOROVOD_HIERARCHICAL_ALLREDUCE, "params", "hierarchical_allreduce", _boolean),
    _OptionSpec("hierarchical_allgather", HOROVOD_HIERARCHICAL_ALLGATHER, "params", "hierarchical_allgather", _boolean),
    _OptionSpec("torus_allreduce", HOROVOD_TORUS_ALLREDUCE, "params", "torus_allreduce", _boolean),
    _OptionSpec("autotune", HOROVOD_AUTOTUNE, "autotune", "enabled", _boolean, needs="autotune"),
    _OptionSpec("autotune_log_file", HOROVOD_AUTOTUNE_LOG, "autotune", "log_file", needs="autotune"),
    _OptionSpec(
        "autotune_warmup_samples",
        HOROVOD_AUTOTUNE_WARMUP_SAMPLES,
        "autotune",
        "warmup_samples",
        needs="autotune",
        is_number=True,
    ),
    _OptionSpec(
        "autotune_steps_per_sample",
        HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE,
        "autotune",
        "steps_per_sample",
        needs="autotune",
        is_number=True,
    ),
    _OptionSpec(
        "autotune_bayes_opt_max_samples",
        HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES,
        "autotune",
        "bayes_opt_max_samples",
        needs="autotune",
        is_number=True,
    ),
    _OptionSpec(
        "autotune_gaussian_process_noise",
        HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE,
        "autotune",
        "gaussian_process_noise",
        needs="autotune",
        is_number=True,
        most=1,
    ),
    _OptionSpec("timeline_filename", HOROVOD_TIMELINE, "timeline", "filename", needs="timeline_filename"),
    _OptionSpec(
        "timeline_mark_cycles",
        HOROVOD_TIMELINE_MARK_CYCLES,
        "timeline",
        "mark_cycles",
        _boolean,
        needs="timeline_filename",
    ),
    _OptionSpec("no_stall_check", HOROVOD_STALL_CHECK_DISABLE, "stall_check", "enabled", _boolean),
    _OptionSpec(
        "stall_check_warning_time_seconds",
        HOROVOD_STALL_CHECK_TIME_SECONDS,
        "stall_check",
        "warning_time_seconds",
        is_number=True,
    ),
    _OptionSpec(
        "stall_check_shutdown_time_seconds",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS,
        "stall_check",
        "shutdown_time_seconds",
        is_number=True,
    ),
    _OptionSpec("mpi_threads_disable", HOROVOD_MPI_THREADS_DISABLE, "library_options", "mpi_threads_disable", _boolean),
    _OptionSpec("num_nccl_streams", HOROVOD_NUM_NCCL_STREAMS, "library_options", "num_nccl_streams", is_number=True),
    _OptionSpec("thread_affinity", HOROVOD_THREAD_AFFINITY, "library_options", "thread_affinity"),
    _OptionSpec(
        "gloo_timeout_seconds",
        HOROVOD_GLOO_TIMEOUT_SECONDS,
        "library_options",
        "gloo_timeout_seconds",
        is_number=True,
    ),
    _OptionSpec("log_level", HOROVOD_LOG_LEVEL, "logging", "level"),
    _OptionSpec("log_with_timestamp", HOROVOD_LOG_HIDE_TIME, "logging", "with_timestamp", _inverted),
]

_CONTROLLERS = {"gloo": "use_gloo", "mpi": "use_mpi", "jsrun": "use_jsrun"}


def set_env_from_args(env: MutableMapping[str, str], args: argparse.Namespace) -> MutableMapping[str, str]:
    """Adds the options to an environment, which is also returned. Options that were not given change nothing."""
    for knob in _KNOBS:
        value = getattr(args, knob.arg, None)
        if value is not None and (knob.needs is None or getattr(args, knob.needs, None)):
            env[knob.variable] = knob.to_text(value)
    if getattr(args, "tcp_flag", None):
        env[NCCL_IB_DISABLE] = "1"
    return env


def set_args_from_config(args: argparse.Namespace, config: Dict[str, Any], override_args: Set[str]) -> None:
    """Applies a config file, except for the options in `override_args`, which were given on the command line. Unknown
    entries are ignored with a warning on standard error: a file may be written for another version."""
    unknown = []
    for section, content in config.items():
        if section == "controller":
            _set_controller(args, content, override_args)
            continue
        keys = {knob.key: knob for knob in _KNOBS if knob.section == section}
        if not keys:
            unknown.append(str(section))
            continue
        if content is None:
            continue
        if not isinstance(content, dict):
            raise ValueError(f"{section}: {content} is not a section: its entries belong on lines of their own")
        for key, value in content.items():
            knob = keys.get(key)
            if knob is None:
                unknown.append(f"{section}.{key}")
            elif knob.arg not in override_args and value is not None:
                setattr(args, knob.arg, not value if knob.arg == "no_stall_check" else value)
    if unknown:
        print(
            "horovodrun: warning: entries of the config file that are not known are ignored:"
            f" {', '.join(unknown)}",
            file=sys.stderr,
        )


def validate_config_args(args: argparse.Namespace) -> None:
    """ValueError for invalid numbers."""
    for knob in _KNOBS:
        value = getattr(args, knob.arg, None)
        if not knob.is_number or value is None:
            continue
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ValueError(f"{knob.arg}={value} must be a number")
        if value < 0:
            raise ValueError(f"{knob.arg}={value} must be >= 0")
        if knob.most is not None and value > knob.most:
            raise ValueError(f"{knob.arg}={value} must be in [0, {knob.most:g}]")


def _set_controller(args: argparse.Namespace, name: Any, override_args: Set[str]) -> None:
    dest = _CONTROLLERS.get(str(name).lower())
    if dest is None:
        raise ValueError(f"controller: {name} is none of {', '.join(_CONTROLLERS)}")
    if not override_args & set(_CONTROLLERS.values()):
        setattr(args, dest, True)
