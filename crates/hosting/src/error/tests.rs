//! Every error with its message, whether it is an error of usage, and the beginning of its hint. Users and their scripts see these.

use anyhow::Context;
use corro_base::error_chain;

use super::*;

fn check(error: impl Into<HostingError>, is_usage: bool, message: &str, hint: &str) {
    let error = error.into();
    assert_eq!(error.to_string(), message);
    assert_eq!(error.is_usage(), is_usage, "{message}");
    let given = error.hint().unwrap_or_default();
    assert!(given.starts_with(hint) && given.is_empty() == hint.is_empty(), "{message}: {given}");
}

fn denied() -> io::Error {
    io::Error::other("denied")
}

#[test]
fn errors_of_a_start_have_these_texts() {
    use HostingError as E;
    let (path, address) = (|| PathBuf::from("/data"), "0.0.0.0:8470".parse().expect("an address"));
    check(E::ListenAddress { text: "x".into() }, true, "'x' is not an address to listen on", "write it as 127.0.0.1");
    check(
        E::PlainTextListen { address },
        false,
        "refusing to listen on 0.0.0.0:8470 without TLS: other machines could reach it",
        "add --tls and the names",
    );
    check(
        E::WildcardWithoutName { address },
        true,
        "agents on other machines cannot connect to 0.0.0.0:8470",
        "add --name with a name",
    );
    check(
        E::NfsAddress { text: "x".into() },
        true,
        "--nfs x: it is not an address to serve NFS on",
        "write it as 10.0.0.4",
    );
    check(E::Lease { seconds: 0.5, min: 2.0, max: 3600.0 }, true, "--lease is 0.5: use 2 to 3600 seconds", "");
    check(
        E::Seconds { flag: "--scale-down-delay", seconds: -1.0, max: 86_400.0 },
        true,
        "--scale-down-delay is -1: use 0 to 86400 seconds",
        "",
    );
    check(E::Wheels { path: path(), error: denied() }, true, "--wheels /data: denied", "name the directory");
    check(
        E::DataDirUnusable { path: path(), error: denied() },
        false,
        "cannot use /data as data directory: denied",
        "choose another one with --data DIR",
    );
    check(
        E::DataDirInUse { path: path(), holder: "process 1".into() },
        false,
        "Corro is already running on /data (process 1)",
        "use that one, stop it with 'corro stop --data /data',",
    );
    check(
        E::DataDirRead { path: path() },
        false,
        "'corro admin backup' or 'corro admin check' still reads /data",
        "wait until it ends",
    );
    check(
        E::Incarnation { path: path(), error: denied() },
        false,
        "cannot record the identity of /data: denied",
        "check that the disk is not full",
    );
    check(E::UrlFile { path: path(), error: denied() }, false, "cannot write /data: denied", "");
    check(E::Signals(denied()), false, "denied", "");
    let name = TlsError::Name { name: "a b".into() };
    check(
        E::Tls(name),
        false,
        "'a b' is neither a host name nor an address that a certificate can be made for",
        "write --name as gpu-box",
    );
    check(E::Tls(TlsError::Read { path: path(), source: denied() }), false, "cannot read /data", "give --tls-cert");
    check(E::Tls(TlsError::Write { path: path(), source: denied() }), false, "cannot write /data", "");
    check(ProfileError::Write { path: path(), source: denied() }, false, "cannot write /data", "");
}

#[test]
fn errors_of_providers_have_these_texts() {
    use ProviderError as E;
    let text = || "x".to_owned();
    check(
        E::OtherProvider { flag: "--slurm-qos", provider: "slurm" },
        true,
        "--slurm-qos requires --provider slurm",
        "",
    );
    check(
        E::SlurmProgramMissing { program: "sbatch" },
        false,
        "--provider slurm needs sbatch, which is not on PATH",
        "install Slurm's client programs",
    );
    check(
        E::SlurmOption { flag: "--slurm-option", option: text() },
        true,
        "--slurm-option x: sbatch would take it for a script",
        "write option and value as one word, as in --slurm-option=--constraint=a100",
    );
    check(
        E::SlurmNodeDir { text: text() },
        true,
        "--slurm-node-dir x: use an absolute path of letters, digits and variables",
        "write it as /scratch",
    );
    check(E::RelativePath { flag: "--slurm-logs", path: "x".into() }, true, "--slurm-logs x: use an absolute path", "");
    check(E::OwnPath(denied()), false, "denied", "");
    check(
        E::KubernetesImageMissing,
        true,
        "--provider kubernetes needs an image for its nodes",
        "name it with --kubernetes-image",
    );
    check(
        E::KubernetesLabel { text: text() },
        true,
        "--kubernetes-node-selector x: it is not a label",
        "write it as KEY=VALUE",
    );
    check(
        E::KubernetesToleration { text: text() },
        true,
        "--kubernetes-toleration x: it is not a taint",
        "write it as KEY, KEY=VALUE or",
    );
    check(
        E::KubernetesServerUnnamed,
        true,
        "pods must be able to reach this server, and it has no name that they know",
        "add --tls, --listen",
    );
    check(
        E::KubernetesConfigUnreadable { origin: "$KUBECONFIG".into(), reason: text() },
        false,
        "cannot read the configuration of the Kubernetes cluster from $KUBECONFIG: x",
        "name a file with --kubernetes-config",
    );
    check(
        E::KubernetesConfigUnusable { reason: text() },
        false,
        "cannot use the configuration of the Kubernetes cluster: x",
        "",
    );
}

#[test]
fn a_port_in_use_gets_a_hint_with_another_port() {
    let listen = "127.0.0.1:8470".parse().expect("an address");
    let failed = |kind: io::ErrorKind| -> HostingError {
        let error = Err::<(), _>(io::Error::from(kind)).context("cannot listen").expect_err("an error");
        HostingError::Start(StartError::new(listen, error))
    };
    let hint =
        "another program listens on 127.0.0.1:8470; stop it, or choose another port with --listen 127.0.0.1:8471";
    check(failed(io::ErrorKind::AddrInUse), false, "cannot listen", hint);
    check(failed(io::ErrorKind::PermissionDenied), false, "cannot listen", "");
    assert_eq!(error_chain::causes(&failed(io::ErrorKind::AddrInUse)), ["address in use"]);
}
