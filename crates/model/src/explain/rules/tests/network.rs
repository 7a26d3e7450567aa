//! Ports, connections, names.

use serde_json::json;

use super::*;

#[test]
fn a_port_is_in_use() {
    let key = "job-port-in-use";
    job().check_raised(
        "OSError: [Errno 98] Address already in use",
        key,
        &["The port on which the program wants to listen", "port 0", "'ss -ltnp'"],
    );
    job().check_raised(
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        key,
        &["Port 29500"],
    );
    let ranks = json!({"pyTorchSettings": {"pythonScriptFilePath": "a.py", "processCount": 2}});
    job().with(ranks).check_raised(
        "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        key,
        &["Port 29500", "MASTER_ADDR and MASTER_PORT as the node sets them"],
    );
    job().check(1, "Error: listen EADDRINUSE: address already in use :::3000", key, &["Port 3000"]);
    job().check_raised(
        "ValueError: Horovod initialization failed: the sockets for the other ranks at 127.0.0.1:29500 are in use, by another job or another program: choose another MASTER_PORT",
        "master-port-in-use",
        &["remove it from environmentVariables"],
    );
}

#[test]
fn ranks_do_not_find_each_other() {
    let two = || job().with(json!({"customMpiSettings": {"commandLine": "a"}, "nodeCount": 2}));
    for text in [
        "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.4, 29500).",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    ] {
        two().check_raised(text, "ranks-not-connected", &["did not all find each other", "CORRO_PORTS"]);
    }
    two().check_raised(
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:49152",
        "ranks-not-connected",
        &["the one that failed first"],
    );
    two().check_raised("RuntimeError: [../gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete", "ranks-not-connected", &["timedelta"]);
}

#[test]
fn connections_names_and_certificates() {
    job().check_raised(
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "connection-refused",
        &["'localhost' is the node's machine"],
    );
    let two = json!({"nodeCount": 2, "customMpiSettings": {"commandLine": "a"}});
    job().with(two).check_raised(
        "OSError: [Errno 113] No route to host",
        "connection-refused",
        &["does not answer", "AZ_BATCH_HOST_LIST"],
    );
    job().check_raised(
        "socket.gaierror: [Errno -2] Name or service not known",
        "host-not-found",
        &["the address of a host"],
    );
    job().check_raised(
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "host-not-found",
        &["https_proxy"],
    );
    job().check(
        6,
        "curl: (6) Could not resolve host: data.example.org",
        "host-not-found",
        &["the host data.example.org"],
    );
    job().check_raised(
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: /x (Caused by NameResolutionError(\"Failed to resolve 'example.org' ([Errno -3] Temporary failure in name resolution)\"))",
        "host-not-found",
        &["the host example.org"],
    );
    job().check_raised(
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
        "host-not-found",
        &["HF_HOME"],
    );
    job().check_raised(
        "urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate (_ssl.c:1007)>",
        "certificate-verify-failed",
        &["SSL_CERT_FILE"],
    );
}
