"""The options of horovodrun: their values, environment variables and errors. Not run by spmd.py: nothing is started."""

import pytest

from horovod.runner.common.util import config_file, config_parser, env, hosts, secret
from horovod.runner.launch import _run, is_gloo_used, parse_args, run_controller

# scripts/python-tests runs this file once, not on several ranks.
SPMD = False


def _environment(options):
    return config_parser.set_env_from_args({}, parse_args([*options.split(), "-np", "2", "python", "train.py"]))


@pytest.mark.parametrize(
    "options, expected",
    [
        ("", {}),
        ("--fusion-threshold-mb 10", {"HOROVOD_FUSION_THRESHOLD": "10485760"}),
        ("--fusion-threshold-mb 0", {"HOROVOD_FUSION_THRESHOLD": "0"}),
        ("--cycle-time-ms 20", {"HOROVOD_CYCLE_TIME": "20.0"}),
        ("--cache-capacity 512", {"HOROVOD_CACHE_CAPACITY": "512"}),
        ("--hierarchical-allreduce", {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
        ("--no-hierarchical-allreduce", {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}),
        ("--hierarchical-allgather", {"HOROVOD_HIERARCHICAL_ALLGATHER": "1"}),
        ("--no-torus-allreduce", {"HOROVOD_TORUS_ALLREDUCE": "0"}),
        ("--autotune", {"HOROVOD_AUTOTUNE": "1"}),
        ("--no-autotune --autotune-log-file a.csv", {}),
        ("--autotune-log-file a.csv --autotune-warmup-samples 1", {}),
        (
            "--autotune --autotune-log-file a.csv --autotune-warmup-samples 1 --autotune-steps-per-sample 5"
            " --autotune-bayes-opt-max-samples 10 --autotune-gaussian-process-noise 0.2",
            {
                "HOROVOD_AUTOTUNE": "1",
                "HOROVOD_AUTOTUNE_LOG": "a.csv",
                "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
                "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "5",
                "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "10",
                "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.2",
            },
        ),
        (
            "--timeline-filename t.json --timeline-mark-cycles",
            {"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"},
        ),
        ("--timeline-mark-cycles", {}),
        ("--no-stall-check", {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        ("--stall-check", {"HOROVOD_STALL_CHECK_DISABLE": "0"}),
        (
            "--stall-check-warning-time-seconds 10 --stall-check-shutdown-time-seconds 20",
            {"HOROVOD_STALL_CHECK_TIME_SECONDS": "10", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "20"},
        ),
        ("--mpi-threads-disable", {"HOROVOD_MPI_THREADS_DISABLE": "1"}),
        ("--num-nccl-streams 2", {"HOROVOD_NUM_NCCL_STREAMS": "2"}),
        ("--thread-affinity 0,1", {"HOROVOD_THREAD_AFFINITY": "0,1"}),
        ("--gloo-timeout-seconds 60", {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}),
        ("--log-level INFO", {"HOROVOD_LOG_LEVEL": "INFO"}),
        ("--log-level debug", {"HOROVOD_LOG_LEVEL": "DEBUG"}),
        ("--log-with-timestamp", {"HOROVOD_LOG_HIDE_TIME": "0"}),
        ("--log-without-timestamp", {"HOROVOD_LOG_HIDE_TIME": "1"}),
        ("--log-hide-timestamp", {"HOROVOD_LOG_HIDE_TIME": "1"}),
        ("--tcp", {"NCCL_IB_DISABLE": "1"}),
    ],
)
def test_options_set_environment_variables(options, expected):
    assert _environment(options) == expected


def test_the_command_is_the_remainder():
    args = parse_args(["-np", "2", "-H", "a:1,b:1", "python", "train.py", "-np", "7", "--verbose"])
    assert (args.num_proc, args.hosts, args.verbose) == (2, "a:1,b:1", False)
    assert args.command == ["python", "train.py", "-np", "7", "--verbose"]


@pytest.mark.parametrize(
    "options, name, value",
    [
        ("-np 4", "num_proc", 4),
        ("--num-proc 4", "num_proc", 4),
        ("-np 1 -p 2222", "ssh_port", 2222),
        ("-np 1 -i key", "ssh_identity_file", "key"),
        ("-np 1 -hostfile f", "hostfile", "f"),
        ("-np 1 --start-timeout 10", "start_timeout", 10),
        ("-np 1 --disable-cache", "disable_cache", True),
        ("-np 1 --output-filename out", "output_filename", "out"),
        ("-np 1 --network-interfaces eth0,eth1 --network-interface lo", "nics", ["eth0", "eth1", "lo"]),
        ("-np 1 --prefix-output-with-timestamp", "prefix_output_with_timestamp", True),
        ("-np 1 -prefix-timestamp", "prefix_output_with_timestamp", True),
        ("-np 1 --gloo", "use_gloo", True),
        ("-np 1 --mpi-args=--x", "mpi_args", "--x"),
        ("--min-np 2 --max-np 4 --slots-per-host 3", "slots", 3),
        ("--min-num-proc 2", "min_num_proc", 2),
        ("--host-discovery-script d.sh", "host_discovery_script", "d.sh"),
        ("-np 1 --blacklist-cooldown-range 10 100", "cooldown_range", [10, 100]),
        ("-np 1", "elastic_timeout", 600),
    ],
)
def test_option_values(options, name, value):
    assert getattr(parse_args([*options.split(), "true"]), name) == value


@pytest.mark.parametrize(
    "options, message",
    [
        ("true", "-np/--num-proc is required"),
        ("-np 0 true", "use 1 or more"),
        ("-np 2 --mpi true", "leave --mpi out"),
        ("-np 2 --jsrun true", "leave --jsrun out"),
        ("-np 2 --gloo --mpi true", "not allowed with"),
        ("-np 2 -H a:1 -hostfile f true", "not allowed with"),
        ("-np 2 --autotune --no-autotune true", "not allowed with"),
        ("-np 2 --log-level LOUD true", "invalid choice"),
        ("-np two true", "invalid int value"),
        ("-np 2 --no-such-option true", "--no-such-option"),
        ("-np 2 --host a:1 true", "ambiguous option: --host could match"),
    ],
)
def test_rejected_options_print_usage(options, message, capsys):
    with pytest.raises(SystemExit) as end:
        parse_args(options.split())
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        ("--fusion-threshold-mb -1", "fusion_threshold_mb=-1 must be >= 0"),
        ("--cycle-time-ms -1", "cycle_time_ms=-1.0 must be >= 0"),
        (
            "--autotune --autotune-gaussian-process-noise 1.5",
            r"autotune_gaussian_process_noise=1.5 must be in \[0, 1\]",
        ),
    ],
)
def test_invalid_numbers(options, message):
    with pytest.raises(ValueError, match=message):
        _environment(options)


CONFIG = """
# What upstream's own test has.
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 10.5   # milliseconds
  cache_capacity: 2048
  hierarchical_allreduce: true
autotune:
    enabled: True
    log_file: "horovod_autotune_log.txt"
    warmup_samples: 5
timeline:
  filename: 'horovod_timeline.json'
  mark_cycles: yes

stall_check:
  enabled: false
  warning_time_seconds: 120
library_options:
  thread_affinity: '0,1'
logging:
  level: INFO
  with_timestamp: off
"""


@pytest.mark.parametrize("with_yaml", [True, False])
def test_a_config_file(tmp_path, monkeypatch, with_yaml):
    if with_yaml:
        pytest.importorskip("yaml")
    else:
        monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    args = parse_args(["-np", "2", "--config-file", str(path), "--cache-capacity", "7", "--stall-check", "true"])
    assert args.use_gloo is True
    assert config_parser.set_env_from_args({}, args) == {
        "HOROVOD_FUSION_THRESHOLD": "33554432",
        "HOROVOD_CYCLE_TIME": "10.5",
        "HOROVOD_CACHE_CAPACITY": "7",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "horovod_autotune_log.txt",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
        "HOROVOD_TIMELINE": "horovod_timeline.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "0",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
        "HOROVOD_THREAD_AFFINITY": "0,1",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }


@pytest.mark.parametrize(
    "text, message",
    [
        ("params: 3\n", "params: 3 is not a section"),
        ("params:\n  cycle_time_ms: -3\n", "cycle_time_ms=-3 must be >= 0"),
        ("params:\n  cycle_time_ms: soon\n", "cycle_time_ms=soon must be a number"),
        ("controller: smoke\n", "smoke is none of gloo, mpi, jsrun"),
    ],
)
def test_invalid_config_files(tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        parse_args(["-np", "2", "--config-file", str(path), "true"])


@pytest.mark.parametrize(
    "text, message",
    [
        ("params:\n  fusion_treshold_mb: 3\n  cycle_time_ms: 2\n", "params.fusion_treshold_mb"),
        ("paramz:\n  cycle_time_ms: 3\nmore: 1\nparams:\n  cycle_time_ms: 2\n", "paramz, more"),
        ("params:\n  cycle_time_ms: 2\ntimeline:\n", None),
    ],
)
def test_unknown_entries_of_a_config_file_are_ignored_with_a_warning(tmp_path, capsys, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    args = parse_args(["-np", "2", "--config-file", str(path), "true"])
    assert config_parser.set_env_from_args({}, args) == {"HOROVOD_CYCLE_TIME": "2"}
    warned = f"horovodrun: warning: entries of the config file that are not known are ignored: {message}\n"
    assert capsys.readouterr() == ("", warned if message else "")


def test_options_may_be_abbreviated():
    args = parse_args("--num-p 2 --verb --fusion 3 --no-auto --network-interface lo python t.py --verb".split())
    assert (args.num_proc, args.verbose, args.fusion_threshold_mb, args.autotune) == (2, True, 3, False)
    assert list(args.nics) == ["lo"]
    assert args.command == ["python", "t.py", "--verb"]
    assert args.given == {"fusion_threshold_mb", "autotune"}


def test_options_without_a_command():
    args = parse_args(["-np", "2"])
    assert (args.num_proc, args.command) == (2, [])
    with pytest.raises(ValueError, match="the command to run is missing"):
        _run(args)


@pytest.mark.parametrize("text", ["params: [1, 2]", "params:\n  a:\n    b: 1", "- a", "a: &x 1", "  a: 1"])
def test_unsupported_yaml_suggests_pyyaml(text):
    with pytest.raises(ValueError, match="line [0-9].*install PyYAML"):
        config_file.parse(text)


@pytest.mark.parametrize("text", ["localhost", "a:b", "a:1,", "a b:1", "user@a:1", ":2"])
def test_invalid_hosts(text):
    with pytest.raises(
        ValueError, match="Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."
    ):
        hosts.parse_hosts(text)


def test_host_files(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# ours\nworker-0 slots=2\n\nworker-1.local   slots=4 # the big one\nlast\n")
    assert hosts.parse_host_files(str(path)) == "worker-0:2,worker-1.local:4,last:1"
    path.write_text("worker-0 slots=two\n")
    with pytest.raises(ValueError, match="line 1"):
        hosts.parse_host_files(str(path))
    path.write_text("# nobody\n")
    with pytest.raises(ValueError, match="names no host"):
        hosts.parse_host_files(str(path))


@pytest.mark.parametrize(
    "text, expected",
    [
        # By rank: host, rank, size, local rank, local size, cross rank, cross size.
        ("a:2", [("a", "0,2,0,2,0,1"), ("a", "1,2,1,2,0,1")]),
        ("a:1,b:2", [("a", "0,3,0,1,0,2"), ("b", "1,3,0,2,1,2"), ("b", "2,3,1,2,0,1")]),
        ("a:1,b:1,a:1", [("a", "0,3,0,2,0,2"), ("b", "1,3,0,1,1,2"), ("a", "2,3,1,2,0,1")]),
    ],
)
def test_ranks_are_assigned_host_by_host(text, expected):
    slots = hosts.get_host_assignments(hosts.parse_hosts(text), 1)
    assert [(slot.hostname, slot.to_response_string()) for slot in slots] == expected


def test_more_processes_than_slots():
    with pytest.raises(ValueError, match=r"Requested more processes \(5\) than there are available slots \(3\)"):
        hosts.get_host_assignments(hosts.parse_hosts("a:1,b:2"), 5)
    assert len(hosts.get_host_assignments(hosts.parse_hosts("a:1,b:2"), 1, 2)) == 2


def test_controllers():
    ran = []
    run_controller(None, lambda: ran.append("gloo"))
    assert ran == ["gloo"]
    with pytest.raises(ValueError, match="use --gloo"):
        run_controller(False, lambda: None, use_mpi=True)
    assert is_gloo_used() and is_gloo_used(use_gloo=True) and not is_gloo_used(use_mpi=True)


def test_exported_variables():
    for name, travels in [
        ("PATH", True),
        ("HOROVOD_RANK", True),
        ("CUDA_VISIBLE_DEVICES", False),
        ("CUDA_VISIBLE_DEVICES_2", True),
        ("_HOROVOD_SECRET_KEY", False),
        ("OLDPWD", False),
        ("BASH_FUNC_module%%", False),
        ("with-dash", False),
    ]:
        assert env.is_exportable(name) == travels, name


def test_rank_and_size_from_a_launcher():
    read = env.get_env_rank_and_size
    assert read({}) == (0, 1)
    assert read({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "PMI_RANK": "5", "PMI_SIZE": "9"}) == (1, 2)
    assert read({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}) == (3, 4)
    assert read({"PMI_RANK": "5", "PMI_SIZE": "9"}) == (5, 9)
    with pytest.raises(RuntimeError, match="HOROVOD_RANK and HOROVOD_SIZE"):
        read({"HOROVOD_RANK": "1"})


def test_signatures():
    key = secret.make_secret_key()
    assert secret.unsign(key, secret.sign(key, b"blob")) == b"blob"
    for forged in [secret.sign(secret.make_secret_key(), b"blob"), secret.sign(key, b"blob")[:-1], b""]:
        with pytest.raises(ValueError, match="not signed with the job's secret"):
            secret.unsign(key, forged)
