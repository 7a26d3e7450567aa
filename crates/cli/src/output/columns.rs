//! Table columns of each resource, for tables without a query. Reads printed objects (already shaped), never wire objects.

use serde_json::Value;

use super::table::Row;

/// A table layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    Group,
    Workspace,
    Experiment,
    Cluster,
    Job,
    JobFile,
    RemoteLogin,
    Node,
    JobSummary,
    Host,
    HostToken,
    FileServer,
    Usage,
    NodeHours,
    SetupFile,
    Share,
    ShareEntry,
    Container,
    ContainerEntry,
    Blob,
}

/// One row per object; a single object makes one row.
pub fn rows(kind: TableKind, value: &Value) -> Vec<Row> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut rows: Vec<Row> = items.iter().map(|item| row(kind, item)).collect();
    if kind == TableKind::ShareEntry {
        rows.sort_by(|a, b| a[0].1.as_str().cmp(&b[0].1.as_str()));
    }
    rows
}

fn row(kind: TableKind, item: &Value) -> Row {
    let cells: Vec<(&str, Value)> = match kind {
        TableKind::Group => vec![
            ("Name", item["name"].clone()),
            ("Location", item["location"].clone()),
            ("Status", item["properties"]["provisioningState"].clone()),
        ],
        TableKind::Workspace => vec![
            ("Name", item["name"].clone()),
            ("Resource Group", item["resourceGroup"].clone()),
            ("Location", item["location"].clone()),
            ("State", item["provisioningState"].clone()),
        ],
        TableKind::Experiment => vec![
            ("Name", item["name"].clone()),
            ("Resource Group", item["resourceGroup"].clone()),
            ("Workspace", segment(&item["id"], "workspaces")),
            ("State", item["provisioningState"].clone()),
        ],
        TableKind::Cluster => cluster(item),
        TableKind::Job => job(item),
        TableKind::JobFile => {
            let is_directory = item["fileType"] == "directory";
            vec![
                ("Name", item["name"].clone()),
                ("Type", item["fileType"].clone()),
                ("Size", if is_directory { "".into() } else { item["contentLength"].clone() }),
                ("Modified", or_blank(&item["lastModified"])),
            ]
        }
        TableKind::RemoteLogin => vec![
            ("ID", item["nodeId"].clone()),
            ("IP", item["ipAddress"].clone()),
            ("SSH Port", item["port"].as_f64().map(|port| port as u64).into()),
        ],
        TableKind::Node => vec![
            ("ID", item["nodeId"].clone()),
            ("Resource Group", item["resourceGroup"].clone()),
            ("Workspace", item["workspace"].clone()),
            ("Cluster", item["cluster"].clone()),
            ("Priority", item["vmPriority"].clone()),
            ("State", if item["preempted"].is_null() { item["state"].clone() } else { "preempted".into() }),
            ("Job", item["job"].clone()),
        ],
        TableKind::JobSummary => vec![
            ("Name", item["name"].clone()),
            ("State", item["state"].clone()),
            ("Experiment", item["experiment"].clone()),
            ("Workspace", item["workspace"].clone()),
            ("Resource Group", item["resourceGroup"].clone()),
            ("Nodes", item["nodeCount"].clone()),
            ("Created", item["creationTime"].clone()),
            ("Started", or_blank(&item["startTime"])),
            ("Exit code", or_blank(&item["exitCode"])),
        ],
        TableKind::Host => host(item),
        TableKind::HostToken => vec![
            ("ID", item["id"].clone()),
            ("Created", item["created"].clone()),
            ("Expires", item["expires"].clone()),
            ("Expired", if item["expired"] == true { "yes" } else { "no" }.into()),
            ("Hosts", item["hosts"].clone()),
        ],
        TableKind::FileServer => file_server(item),
        TableKind::Usage => vec![
            ("Value", item["name"]["localizedValue"].clone()),
            ("Usage", as_text(&item["currentValue"])),
            ("Limit", as_text(&item["limit"])),
        ],
        TableKind::NodeHours => vec![
            ("Name", item["name"].clone()),
            ("Node hours", format!("{:.2}", item["nodeHours"].as_f64().unwrap_or_default()).into()),
            ("Jobs", item["jobs"].clone()),
            ("Running", item["running"].clone()),
        ],
        TableKind::SetupFile => {
            let is_directory = item["is_directory"] == true;
            vec![
                ("Name", item["name"].clone()),
                ("Is directory", if is_directory { "yes" } else { "no" }.into()),
                ("Size", if is_directory { "".into() } else { item["size"].clone() }),
            ]
        }
        TableKind::Share => vec![
            ("Name", item["name"].clone()),
            ("Quota", item["properties"]["quota"].clone()),
            ("Last Modified", item["properties"]["lastModified"].clone()),
        ],
        TableKind::Container | TableKind::ContainerEntry => {
            let properties = &item["properties"];
            let status =
                if kind == TableKind::Container { &properties["lease"]["status"] } else { &properties["leaseStatus"] };
            vec![
                ("Name", item["name"].clone()),
                ("Lease Status", or_blank(status)),
                ("Last Modified", or_blank(&properties["lastModified"])),
            ]
        }
        TableKind::Blob => {
            let properties = &item["properties"];
            // `az` prints a length of 0 as blank.
            let length = if properties["contentLength"] == 0 { &Value::Null } else { &properties["contentLength"] };
            vec![
                ("Name", item["name"].clone()),
                ("Blob Type", or_blank(&properties["blobType"])),
                ("Blob Tier", or_blank(&properties["blobTier"])),
                ("Length", or_blank(length)),
                ("Content Type", or_blank(&properties["contentSettings"]["contentType"])),
                ("Last Modified", or_blank(&properties["lastModified"])),
                ("Snapshot", or_blank(&item["snapshot"])),
            ]
        }
        TableKind::ShareEntry => {
            let is_directory = item["type"] == "dir";
            let name = item["name"].as_str().unwrap_or_default();
            vec![
                (
                    "Name",
                    match item["linkText"].as_str() {
                        Some(text) => format!("{name} -> {text}").into(),
                        None if is_directory => format!("{name}/").into(),
                        None => name.into(),
                    },
                ),
                ("Content Length", if is_directory { "".into() } else { item["properties"]["contentLength"].clone() }),
                ("Type", item["type"].clone()),
                ("Last Modified", or_blank(&item["properties"]["lastModified"])),
            ]
        }
    };
    cells.into_iter().map(|(header, value)| (header.to_owned(), value)).collect()
}

fn cluster(item: &Value) -> Vec<(&'static str, Value)> {
    let counts = &item["nodeStateCounts"];
    vec![
        ("Name", item["name"].clone()),
        ("Resource Group", item["resourceGroup"].clone()),
        ("Workspace", segment(&item["id"], "workspaces")),
        ("VM Size", item["vmSize"].clone()),
        ("State", state(item, "allocationState")),
        ("Idle", counts["idleNodeCount"].clone()),
        ("Running", counts["runningNodeCount"].clone()),
        ("Preparing", counts["preparingNodeCount"].clone()),
        ("Leaving", counts["leavingNodeCount"].clone()),
        ("Unusable", counts["unusableNodeCount"].clone()),
    ]
}

fn job(item: &Value) -> Vec<(&'static str, Value)> {
    let cluster = &item["cluster"]["id"];
    vec![
        ("Name", item["name"].clone()),
        ("Cluster", segment(cluster, "clusters")),
        ("Cluster RG", segment(cluster, "resourceGroups")),
        ("Cluster Workspace", segment(cluster, "workspaces")),
        ("Tool", item["toolType"].clone()),
        ("Nodes", item["nodeCount"].clone()),
        ("State", state(item, "executionState")),
        (
            "Exit code",
            match &item["executionInfo"]["exitCode"] {
                Value::Null => "".into(),
                code => code.clone(),
            },
        ),
    ]
}

fn file_server(item: &Value) -> Vec<(&'static str, Value)> {
    let disks = &item["dataDisks"];
    let mut cells = vec![
        ("Name", item["name"].clone()),
        ("Resource Group", item["resourceGroup"].clone()),
        ("Size", item["vmSize"].clone()),
        ("Disks", format!("{} x {} Gb", disks["diskCount"], disks["diskSizeInGb"]).into()),
    ];
    // A file server that is being created has no addresses.
    let mount = &item["mountSettings"];
    if !mount.is_null() {
        cells.extend([
            ("Public IP", mount["fileServerPublicIp"].clone()),
            ("Internal IP", mount["fileServerInternalIp"].clone()),
            ("Mount Point", mount["mountPoint"].clone()),
        ]);
    }
    cells
}

/// The state, or `deleting` if the resource is being deleted.
fn state(item: &Value, running_state: &str) -> Value {
    if item["provisioningState"] == "deleting" { "deleting".into() } else { item[running_state].clone() }
}

/// The segment after `kind` in an ARM id.
fn segment(id: &Value, kind: &str) -> Value {
    let mut parts = id.as_str().unwrap_or_default().split('/');
    parts.find(|part| part.eq_ignore_ascii_case(kind)).and_then(|_| parts.next()).into()
}

/// A number as text: the table layout prints the number 0 as blank.
fn as_text(value: &Value) -> Value {
    if value.is_null() { value.clone() } else { value.to_string().into() }
}

/// Capacity of a host, with the free part in brackets.
fn host(item: &Value) -> Vec<(&'static str, Value)> {
    let offered = |field: &str, own: u64| item["offered"][field].as_u64().unwrap_or(own);
    let own_gpus = item["gpus"].as_array().map_or(0, |gpus| gpus.len() as u64);
    let free = |field: &str| item["free"][field].as_u64().unwrap_or_default();
    let gib = |bytes: u64| (bytes as f64 / f64::from(1 << 30)).round();
    let cores = offered("cores", item["cores"].as_u64().unwrap_or_default());
    let memory = offered("memoryBytes", item["memoryBytes"].as_u64().unwrap_or_default());
    let labels = item["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let mut cells = vec![
        ("Name", item["name"].clone()),
        ("State", item["state"].clone()),
        ("Cores", format!("{cores} ({})", free("cores")).into()),
        ("GiB", format!("{} ({})", gib(memory), gib(free("memoryBytes"))).into()),
        ("GPUs", format!("{} ({})", offered("gpus", own_gpus), free("gpus")).into()),
        ("Nodes", item["nodes"].as_array().map_or(0, Vec::len).into()),
        ("Labels", labels.join(",").into()),
        ("Version", item["version"].clone()),
        ("Last heard", item["lastHeard"].clone()),
        ("Note", or_blank(&item["note"])),
    ];
    cells.extend(host_gpus(item));
    cells
}

/// State of a host's GPUs, one value for each GPU, `-` if it is not known; no columns for a host without readings.
fn host_gpus(item: &Value) -> Vec<(&'static str, Value)> {
    let Some(readings) = item["gpuReadings"].as_array().filter(|readings| !readings.is_empty()) else {
        return Vec::new();
    };
    let number =
        |value: &Value, unit: f64| value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{:.0}", n / unit));
    let list = |field: &str, unit: f64| {
        let values: Vec<String> = readings.iter().map(|reading| number(&reading[field], unit)).collect();
        Value::from(values.join(" "))
    };
    let memory = readings.iter().map(|reading| {
        let gib = f64::from(1 << 30);
        format!("{}/{}", number(&reading["memoryUsedBytes"], gib), number(&reading["memoryTotalBytes"], gib))
    });
    let lost = readings.iter().filter(|reading| reading["lost"] == true).map(|reading| reading["gpu"].to_string());
    let lost: Vec<String> = lost.collect();
    vec![
        ("GPU %", list("utilizationPercent", 1.0)),
        ("GPU GiB", memory.collect::<Vec<_>>().join(" ").into()),
        ("GPU W", list("powerWatts", 1.0)),
        ("GPU C", list("temperatureCelsius", 1.0)),
        ("GPU ECC", list("eccErrors", 1.0)),
        ("Lost GPUs", if lost.is_empty() { " ".into() } else { lost.join(" ").into() }),
    ]
}

fn or_blank(value: &Value) -> Value {
    if value.is_null() { " ".into() } else { value.clone() }
}

#[cfg(test)]
mod tests {
    use super::super::{shape::Shape, table};
    use super::*;
    use serde_json::json;

    fn check(kind: TableKind, value: &Value, expected: &str) {
        assert_eq!(table::render(&rows(kind, value)), expected);
    }

    #[test]
    fn the_cluster_table_of_the_tutorial() {
        let wire = json!({
            "id": "/subscriptions/0/resourceGroups/batchai.horovod/providers/Microsoft.BatchAI/workspaces/batchaidev/clusters/nc6cluster",
            "name": "nc6cluster",
            "properties": {
                "vmSize": "STANDARD_NC6", "provisioningState": "succeeded", "allocationState": "steady",
                "nodeStateCounts": {"idleNodeCount": 4, "runningNodeCount": 0, "preparingNodeCount": 0,
                                    "leavingNodeCount": 0, "unusableNodeCount": 0}
            }
        });
        check(
            TableKind::Cluster,
            &Shape::Cluster.apply(&wire),
            "\
Name        Resource Group    Workspace    VM Size       State      Idle    Running    Preparing    Leaving    Unusable
----------  ----------------  -----------  ------------  -------  ------  ---------  -----------  ---------  ----------
nc6cluster  batchai.horovod   batchaidev   STANDARD_NC6  steady        4          0            0          0           0
",
        );
    }

    #[test]
    fn a_host_shows_the_state_of_its_gpus() {
        let host = |name: &str, readings: Value| {
            json!({"name": name, "state": "ready", "cores": 8, "memoryBytes": 64_u64 << 30, "gpus": [{}, {}],
                   "free": {"cores": 8, "memoryBytes": 64_u64 << 30, "gpus": 2}, "nodes": [], "labels": {},
                   "version": "1", "lastHeard": "t", "gpuReadings": readings})
        };
        let full = json!({"gpu": 0, "name": "A", "utilizationPercent": 97, "memoryUsedBytes": 12_u64 << 30,
            "memoryTotalBytes": 80_u64 << 30, "powerWatts": 312.4, "temperatureCelsius": 61, "eccErrors": 2});
        let lost = json!({"gpu": 1, "name": "A", "memoryTotalBytes": 80_u64 << 30, "lost": true});
        check(
            TableKind::Host,
            &json!([host("a", json!([full, lost])), host("b", Value::Null)]),
            "\
Name    State    Cores    GiB      GPUs      Nodes  Labels      Version  Last heard    Note    GPU %    GPU GiB     GPU W    GPU C    GPU ECC      Lost GPUs
------  -------  -------  -------  ------  -------  --------  ---------  ------------  ------  -------  ----------  -------  -------  ---------  -----------
a       ready    8 (8)    64 (64)  2 (2)         0                    1  t                     97 -     12/80 -/80  312 -    61 -     2 -                  1
b       ready    8 (8)    64 (64)  2 (2)         0                    1  t
",
        );
    }

    #[test]
    fn the_file_table_of_the_tutorial() {
        let node = |n: u8| format!("tvm-676767296_{n}-20180718t174802z-p");
        let file = |name: String, size: u64, at: &str| {
            json!({"name": name, "fileType": "file", "downloadUrl": "u",
                   "properties": {"contentLength": size, "lastModified": format!("2018-07-18T{at}Z")}})
        };
        let mut files = vec![
            file(format!("execution-{}.log", node(1)), 8801, "22:41:28"),
            file(format!("execution-{}.log", node(2)), 15094, "22:41:55"),
            file(format!("execution-{}.log", node(3)), 8801, "22:41:28"),
            file(format!("execution-{}.log", node(4)), 8801, "22:41:28"),
        ];
        files.extend((1..=4).map(|n| file(format!("stderr-job_prep-{}.txt", node(n)), 238, "22:41:50")));
        files.push(file("stderr.txt".into(), 7653, "22:46:32"));
        for (n, at) in [(1, "22:41:55"), (2, "22:41:54"), (3, "22:41:54"), (4, "22:41:55")] {
            files.push(file(format!("stdout-job_prep-{}.txt", node(n)), 13651, at));
        }
        files.push(file("stdout.txt".into(), 2_316_480, "22:46:32"));
        check(
            TableKind::JobFile,
            &Shape::JobFile.apply(&files.into()),
            "\
Name                                                    Type       Size  Modified
------------------------------------------------------  ------  -------  -------------------------
execution-tvm-676767296_1-20180718t174802z-p.log        file       8801  2018-07-18T22:41:28+00:00
execution-tvm-676767296_2-20180718t174802z-p.log        file      15094  2018-07-18T22:41:55+00:00
execution-tvm-676767296_3-20180718t174802z-p.log        file       8801  2018-07-18T22:41:28+00:00
execution-tvm-676767296_4-20180718t174802z-p.log        file       8801  2018-07-18T22:41:28+00:00
stderr-job_prep-tvm-676767296_1-20180718t174802z-p.txt  file        238  2018-07-18T22:41:50+00:00
stderr-job_prep-tvm-676767296_2-20180718t174802z-p.txt  file        238  2018-07-18T22:41:50+00:00
stderr-job_prep-tvm-676767296_3-20180718t174802z-p.txt  file        238  2018-07-18T22:41:50+00:00
stderr-job_prep-tvm-676767296_4-20180718t174802z-p.txt  file        238  2018-07-18T22:41:50+00:00
stderr.txt                                              file       7653  2018-07-18T22:46:32+00:00
stdout-job_prep-tvm-676767296_1-20180718t174802z-p.txt  file      13651  2018-07-18T22:41:55+00:00
stdout-job_prep-tvm-676767296_2-20180718t174802z-p.txt  file      13651  2018-07-18T22:41:54+00:00
stdout-job_prep-tvm-676767296_3-20180718t174802z-p.txt  file      13651  2018-07-18T22:41:54+00:00
stdout-job_prep-tvm-676767296_4-20180718t174802z-p.txt  file      13651  2018-07-18T22:41:55+00:00
stdout.txt                                              file    2316480  2018-07-18T22:46:32+00:00
",
        );
    }

    #[test]
    fn a_job_that_succeeded_and_one_being_deleted() {
        let cluster = "/subscriptions/0/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/c";
        check(
            TableKind::Job,
            &json!([
                {"name": "j1", "cluster": {"id": cluster}, "toolType": "horovod", "nodeCount": 4,
                 "executionState": "succeeded", "executionInfo": {"exitCode": 0}},
                {"name": "j2", "cluster": {"id": cluster}, "toolType": "horovod", "nodeCount": 1,
                 "executionState": "running", "provisioningState": "deleting", "executionInfo": null}
            ]),
            "\
Name    Cluster    Cluster RG    Cluster Workspace    Tool       Nodes  State      Exit code
------  ---------  ------------  -------------------  -------  -------  ---------  -----------
j1      c          g             w                    horovod        4  succeeded  0
j2      c          g             w                    horovod        1  deleting
",
        );
    }

    #[test]
    fn directories_in_the_file_tables() {
        check(
            TableKind::JobFile,
            &json!([{"name": "counters", "fileType": "directory", "contentLength": null, "lastModified": null}]),
            "Name      Type       Size    Modified\n--------  ---------  ------  ----------\ncounters  directory\n",
        );
        check(
            TableKind::ShareEntry,
            &json!([
                {"name": "z.txt", "type": "file", "properties": {"contentLength": 5, "lastModified": null}},
                {"name": "cifar", "type": "dir", "properties": {"lastModified": null}}
            ]),
            "\
Name    Content Length    Type    Last Modified
------  ----------------  ------  ---------------
cifar/                    dir
z.txt   5                 file
",
        );
        check(
            TableKind::RemoteLogin,
            &json!([{"nodeId": "n", "ipAddress": "10.0.0.4", "port": 50000.0}]),
            "ID    IP          SSH Port\n----  --------  ----------\nn     10.0.0.4       50000\n",
        );
    }
}
