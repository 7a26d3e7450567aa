//! Table tests of the rules, one file for each family: texts as the programs write them, with the key and parts of the
//! explanation that they lead to. Every text is tried a second time below the report of a launcher, shortened as a node
//! does it.

mod collectives;
mod files;
mod gpu;
mod memory;
mod network;
mod pip;
mod python;
mod shell;
mod signals;
mod xid;

use serde_json::{Value, json};

use super::*;
use crate::batchai::JobSpec;
use crate::explain::excerpt::excerpt;
use crate::explain::exit_status::ExitStatus;

/// What `torchrun` of PyTorch 2.5 writes after a worker has failed.
const TORCHRUN_REPORT: &str = r#"E0215 10:00:00.123000 4700 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 4711) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/dist-packages/torch/distributed/run.py", line 919, in main
    run(args)
  File "/usr/lib/python3/dist-packages/torch/distributed/run.py", line 910, in run
    elastic_launch(
  File "/usr/lib/python3/dist-packages/torch/distributed/launcher/api.py", line 138, in __call__
    return launch_agent(self._config, self._entrypoint, list(args))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/dist-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-02-15_10:00:00
  host      : node1
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"#;

/// A traceback up to its exception.
const FRAMES: &str = "Traceback (most recent call last):\n  File \"/jobs/a/train.py\", line 12, in <module>\n    main()\n  \
                      File \"/jobs/a/train.py\", line 8, in main\n    step(batch)\n";

/// A job of one node whose process failed.
struct Job {
    settings: Value,
    vm_size: Option<&'static str>,
    project: Option<ProjectFiles>,
    is_preparation: bool,
    limits: (bool, bool),
    xids: Vec<u32>,
}

/// A job with a command line.
fn job() -> Job {
    Job {
        settings: json!({"customToolkitSettings": {"commandLine": "python3 train.py"}}),
        vm_size: None,
        project: None,
        is_preparation: false,
        limits: (false, false),
        xids: Vec::new(),
    }
}

impl Job {
    /// Adds or replaces fields of the job file.
    fn with(mut self, fields: Value) -> Job {
        let object = self.settings.as_object_mut().expect("an object");
        if fields
            .as_object()
            .expect("an object")
            .keys()
            .any(|name| name.ends_with("Settings") && name != "containerSettings")
        {
            object.remove("customToolkitSettings");
        }
        object.extend(fields.as_object().expect("an object").clone());
        self
    }

    fn on(self, vm_size: &'static str) -> Job {
        Job { vm_size: Some(vm_size), ..self }
    }

    fn diagnose(&self, exit: ExitStatus, stderr: &str) -> Option<Diagnosis> {
        let mut spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x"});
        spec.as_object_mut().expect("an object").extend(self.settings.as_object().expect("an object").clone());
        let spec: JobSpec = serde_json::from_value(spec).expect("a job");
        let (is_out_of_memory, is_out_of_processes) = self.limits;
        let (xids, output) = (self.xids.clone(), ErrorOutput::parse(stderr));
        let failure = Failure { exit, is_out_of_memory, is_out_of_processes, xids, output };
        let (is_preparation, project) = (self.is_preparation, self.project.as_ref());
        diagnose(&failure, &JobFacts { spec: &spec, is_preparation, vm_size: self.vm_size, project })
    }

    /// The process ended with `exit`, an exit code or the negative number of a signal, after these lines. `says` are parts
    /// of the cause and the advice; no rule applies if `key` is empty.
    #[track_caller]
    fn check(&self, exit: i32, stderr: &str, key: &str, says: &[&str]) {
        let status = match exit {
            0.. => ExitStatus { code: Some(exit), signal: None },
            signal => ExitStatus { code: None, signal: Some(-signal) },
        };
        let found = self.diagnose(status, stderr);
        assert_eq!(found.as_ref().map_or("", |found| found.key), key, "{stderr}\n{found:#?}");
        if let Some(found) = &found {
            let finding = &found.finding;
            let text = format!("{}\n{}", finding.cause, finding.advice.join("\n"));
            for part in says {
                assert!(text.contains(part), "no {part:?} in {text}");
            }
            assert!((1..=3).contains(&finding.advice.len()), "{finding:#?}");
            let sentences = finding.advice.iter().chain([&finding.cause]);
            for sentence in sentences {
                assert!(
                    sentence.ends_with('.') && !sentence.contains("  ") && !sentence.contains('\n'),
                    "{sentence:?}"
                );
            }
        }
        if exit == 1 {
            let long = format!("{}{stderr}\n{TORCHRUN_REPORT}", "step 1 loss 0.5\n".repeat(100));
            let lines: Vec<String> = long.lines().map(str::to_owned).collect();
            let short = excerpt(&lines);
            assert!(short.len() <= 24, "{short:#?}");
            assert_eq!(self.diagnose(status, &short.join("\n")), found, "{short:#?}");
        }
    }

    /// The same for an exception of a Python script.
    #[track_caller]
    fn check_raised(&self, exception: &str, key: &str, says: &[&str]) {
        self.check(1, &format!("{FRAMES}{exception}"), key, says);
    }
}

#[test]
fn unknown_failures_have_no_rule() {
    job().check(1, "", "", &[]);
    job().check(3, "the disk is on fire", "", &[]);
    job().check_raised("ValueError: shapes (3,) and (4,) not aligned", "", &[]);
    // Texts of warnings, and of errors that were handled, do not explain another failure.
    let handled = format!("{FRAMES}ConnectionRefusedError: [Errno 111] Connection refused\ntrying again\n");
    job().check(1, &format!("{handled}{FRAMES}ZeroDivisionError: division by zero"), "", &[]);
    let quoted_source = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    raise ValueError('CUDA out of memory')\nValueError";
    job().check(1, quoted_source, "", &[]);
    job().check_raised("RuntimeError: tried to install without No module named", "", &[]);
}

#[test]
fn the_first_rank_explains_the_failure_below_mpirun() {
    let other = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    hvd.allreduce(x)\n\
                 horovod.common.exceptions.HorovodInternalError: rank 1 on host n1 has died\n";
    let text =
        format!("{FRAMES}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n{}", other.repeat(6));
    job().check(1, &text, "gpu-out-of-memory", &[]);
}

#[test]
fn keys_and_texts_of_the_table_are_well_formed() {
    for rule in super::rules() {
        assert!(rule.key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", rule.key);
        if let rule::Answer::Fixed { cause, advice } = &rule.answer {
            assert!((1..=rule::MAX_ADVICE).contains(&advice.len()), "{}", rule.key);
            for sentence in advice.iter().chain([cause]) {
                assert!(sentence.ends_with('.') && !sentence.contains("  "), "{}: {sentence}", rule.key);
            }
        }
    }
}
