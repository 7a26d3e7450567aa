//! Rules for the network: ports in use, refused connections, ranks that do not find each other, names, certificates. Pure.

use super::facts::JobFacts;
use super::rule::{Answer, Finding, Found, Pattern, Rule};
use super::text::{quotable, quoted};

pub const RULES: &[Rule] = &[
    Rule {
        key: "master-port-in-use",
        pattern: Pattern::Line(&["choose another MASTER_PORT"]),
        answer: Answer::Fixed {
            cause: "Two groups of ranks use the same MASTER_PORT on one machine.",
            advice: &[
                "Leave MASTER_PORT to the node, which gives each job its own: remove it from environmentVariables and the command \
                 line.",
            ],
        },
    },
    Rule {
        key: "job-port-in-use",
        pattern: Pattern::Line(&[
            "Address already in use",
            "address already in use",
            "EADDRINUSE",
            "Failed to add port to server: No address added",
            "Could not start gRPC server",
        ]),
        answer: Answer::Computed(port_in_use),
    },
    Rule {
        key: "ranks-not-connected",
        pattern: Pattern::Raised(&[
            "The client socket has timed out after ",
            "The client socket has failed to connect to any network address",
            "DistStoreError: Timed out after ",
            "Timed out initializing process group in store based barrier",
            "connectFullMesh failed",
            "Gloo connectFullMesh",
            "RendezvousTimeoutError",
            "RendezvousConnectionError",
        ]),
        answer: Answer::Computed(not_connected),
    },
    Rule {
        key: "ranks-not-connected",
        pattern: Pattern::Raised(&[
            "Timed out waiting ",
            "Connection closed by peer",
            "Connection reset by peer",
            "RuntimeError: Socket Timeout",
        ]),
        answer: Answer::Fixed {
            cause: "The connection to another rank ended or was silent for too long: most often that rank has failed or hangs.",
            advice: &[
                "Read the output of the other ranks: the one that failed first names the cause.",
                "If they only take long (loading data, saving on one rank), raise the limit: \
                 torch.distributed.init_process_group(…, timeout=timedelta(hours=2)).",
            ],
        },
    },
    Rule {
        key: "certificate-verify-failed",
        pattern: Pattern::Line(&["CERTIFICATE_VERIFY_FAILED", "certificate verify failed", "SSL certificate problem:"]),
        answer: Answer::Fixed {
            cause: "The certificate of a server was not accepted: often a proxy of the organisation stands in between.",
            advice: &[
                "Name the file with the organisation's certificate authority in environmentVariables: SSL_CERT_FILE, and \
                 REQUESTS_CA_BUNDLE or PIP_CERT.",
                "Check the clock of the node's machine ('date').",
            ],
        },
    },
    Rule {
        key: "host-not-found",
        pattern: Pattern::Line(&[
            "Name or service not known",
            "Temporary failure in name resolution",
            "No address associated with hostname",
            "nodename nor servname provided",
            "Could not resolve host",
            "Failed to resolve '",
            "unable to resolve host address",
        ]),
        answer: Answer::Computed(host_not_found),
    },
    Rule {
        key: "host-not-found",
        pattern: Pattern::Line(&["We couldn't connect to 'https://huggingface.co'", "LocalEntryNotFoundError"]),
        answer: Answer::Fixed {
            cause: "The script could not download a model or a data set.",
            advice: &[
                "Download it once to a share, mount the share (--mount, mountVolumes) and set HF_HOME to its directory, and \
                 HF_HUB_OFFLINE=1.",
                "If the network is reached through a proxy, set https_proxy in environmentVariables.",
            ],
        },
    },
    Rule {
        key: "connection-refused",
        pattern: Pattern::Raised(&[
            "Connection refused",
            "ConnectionRefusedError",
            "Connection timed out",
            "Network is unreachable",
            "No route to host",
            "TimeoutError: timed out",
        ]),
        answer: Answer::Computed(refused),
    },
];

fn port_in_use(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let port = port_in(found.line).map_or_else(|| "The port".to_owned(), |port| format!("Port {port}"));
    let mut advice = vec![
        "Let the program choose a free port (port 0), or one that depends on the job and the rank: nodes on one machine share \
         its ports."
            .to_owned(),
    ];
    if facts.ranks_per_node() > 1 || facts.spec.node_count > 1 {
        advice.insert(
            0,
            "Between ranks, use MASTER_ADDR and MASTER_PORT as the node sets them, instead of a fixed port: 'torchrun \
             --master-addr $MASTER_ADDR --master-port $MASTER_PORT', init_method='env://'."
                .to_owned(),
        );
    }
    advice.push("'ss -ltnp' on the node's machine shows which program listens.".to_owned());
    Some(Finding {
        cause: format!("{port} on which the program wants to listen is in use by another program or job."),
        advice,
    })
}

/// A port in a message about an address: `port: 29500`, `[::]:29500`, `:::3000`.
fn port_in(line: &str) -> Option<u16> {
    ["port: ", "]:", ":::", "0.0.0.0:", "127.0.0.1:", "localhost:"].iter().find_map(|before| {
        let (_, rest) = line.split_once(before)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|port| *port != 0)
    })
}

fn not_connected(_: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let mut advice = vec![
        "Read the output of the other ranks: one that failed before it connected names the cause.".to_owned(),
        "Use MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE as the node sets them; check that the script does not set them, and \
         that no other address is in the command line."
            .to_owned(),
    ];
    if facts.spec.node_count > 1 {
        advice.push(
            "Check that the machines of the nodes reach each other: firewalls must allow the ports of CORRO_PORTS ('corro agent \
             --ports')."
                .to_owned(),
        );
    }
    Some(Finding {
        cause: "The ranks of the job did not all find each other within the time limit.".to_owned(),
        advice,
    })
}

fn host_not_found(found: &Found<'_>, _: &JobFacts<'_>) -> Option<Finding> {
    let line = found.line;
    let named = line.split_once("Could not resolve host: ").and_then(|(_, rest)| rest.split_whitespace().next());
    let named = named.or_else(|| line.split_once("Failed to resolve ").and_then(|(_, rest)| quoted(rest)));
    let named = named.or_else(|| line.split_once("(host='").and_then(|(_, rest)| rest.split('\'').next()));
    let host = named.map_or_else(|| "a host".to_owned(), |host| format!("the host {}", quotable(host)));
    Some(Finding::new(
        format!("The node could not find the address of {host}."),
        [
            "Check the name. Between ranks, use the addresses that the node sets: MASTER_ADDR, AZ_BATCH_HOST_LIST.".to_owned(),
            "If the node has no internet access, put the data or packages on a share (--mount, mountVolumes), or let the \
             operator set https_proxy for the agent."
                .to_owned(),
        ],
    ))
}

fn refused(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let cause = match found.line.contains("efused") {
        true => "Nothing listens at the address to which the program connects.",
        false => "The address to which the program connects does not answer.",
    };
    let mut advice = vec![
        "Check the address: on a node, 'localhost' is the node's machine, not yours. A server of the same job has to run before \
         it is used: try again in a loop."
            .to_owned(),
    ];
    if facts.spec.node_count > 1 {
        advice.push("Between nodes, connect to MASTER_ADDR or an address of AZ_BATCH_HOST_LIST, and let the server listen on 0.0.0.0.".to_owned());
    }
    Some(Finding { cause: cause.to_owned(), advice })
}
