//! The run table of an experiment: hyperparameters and results as columns, filter, best values, and the difference of two runs.

use serde_json::{Value, json};

use crate::harness::Site;
use crate::harness::browser::Browser;
use crate::job::browser;

fn call(browser: &Browser, module: &str, expression: &str) -> Value {
    browser.await_promise(&format!("import('/ui/assets/{module}').then((m) => {expression})"))
}

#[test]
fn hyperparameters_are_read_from_commands() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    browser.open(&site, "/ui/");
    browser.wait("document.querySelector('h1')");
    let parameters = |properties: Value| {
        let entries = call(
            &browser,
            "hyperparameters.js",
            &format!("Object.entries(Object.fromEntries(m.parametersOf({properties})))"),
        );
        entries
            .as_array()
            .expect("a list")
            .iter()
            .map(|pair| format!("{}={}", pair[0].as_str().expect("a name"), pair[1].as_str().expect("text")))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let command = |line: &str| parameters(json!({"customToolkitSettings": {"commandLine": line}}));
    for (line, expected) in [
        ("python3 -u train.py --lr 0.1 --momentum=-0.9 -e 3", "lr=0.1 momentum=-0.9 e=3"),
        (
            "SEED=4 python train.py model.lr=1e-3 --name 'two words' --amp",
            "SEED=4 model.lr=1e-3 name=two words amp=true",
        ),
        ("python -m pkg.train --batch 32 && echo --lr 5", "batch=32"),
        ("mpirun -n 4 /usr/bin/python3.11 a.py --depth 2 > log", "depth=2"),
        ("sh -c 'python a.py --lr 0.5; exit 1'", "lr=0.5"),
        ("for i in 1 2 3; do echo loss=0.$i; done", ""),
        ("./train --x -1", "x=-1"),
    ] {
        assert_eq!(command(line), expected, "{line}");
    }
    let all = parameters(json!({
        "horovodSettings": {"commandLineArgs": "--lr 0.1 --epochs 2"},
        "environmentVariables": [{"name": "SEED", "value": "7"}, {"name": "CORRO_MPIRUN", "value": "none"}],
        "sweep": {"name": "s", "trial": 1, "parameters": [{"name": "lr", "value": "0.2"}]},
    }));
    assert_eq!(all, "lr=0.2 epochs=2 SEED=7");

    let holds = |query: &str| {
        let run = "{text: 'train-3 adam', field: (name) => ({lr: '0.01', loss: 0.5, state: 'failed'})[name]}";
        call(&browser, "run-filter.js", &format!("m.parseFilter({})({run})", json!(query)))
    };
    for (query, expected) in [
        ("", true),
        ("train ADAM", true),
        ("sgd", false),
        ("lr<0.1", true),
        ("lr>=0.1", false),
        ("loss=0.50", true),
        ("state=Failed lr=1e-2", true),
        ("state!=failed", false),
        ("none=3", false),
        ("none!=3", true),
    ] {
        assert_eq!(holds(query), expected, "{query}");
    }
    browser.end();
}

#[test]
fn the_best_run_is_found_and_compared() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    site.write(
        "train.py",
        "import sys\nfor i in range(3): print(f'step {i} loss={float(sys.argv[2]) + 1 - i / 3:.2f}')\n",
    );
    std::fs::copy(site.path().join("train.py"), site.share().join("cifar/train.py"))
        .expect("the script is on the share");
    for (name, rate, seed) in [("low", "0.1", "1"), ("middle", "0.2", "1"), ("high", "0.9", "2")] {
        let line = format!("python3 $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/train.py --lr {rate} --epochs 3");
        let environment = json!({"environmentVariables": [{"name": "SEED", "value": seed}]});
        site.submit_with(name, 1, json!({"customToolkitSettings": {"commandLine": line}}), environment);
        site.wait_for_end(name);
    }
    browser.open(&site, "/ui/experiments/batchai.horovod:batchaidev/cifar");
    let titles = "[...document.querySelectorAll('#results .titles .cell')].map((cell) => cell.textContent).join()";
    browser.wait(&format!("{titles} === ',★,Job,State,lr,SEED,loss,best loss,Nodes,Started,Ran'"));
    browser.wait("document.querySelector('#results .winner')?.textContent === '0.4300'");
    let names = "[...document.querySelectorAll('#results .name')].map((name) => name.textContent).join()";
    browser.wait(&format!("{names} === 'high,middle,low'"));
    browser.click("#results .titles [role=columnheader]:nth-child(5) button");
    browser.wait(&format!("{names} === 'low,middle,high'"));

    // A column that is the same everywhere is shown on demand, and stays so.
    browser.click("#results .column-menu summary");
    browser.click_on("#results .column-list label", "epochs");
    browser.wait(&format!("{titles}.includes('lr,epochs,SEED')"));
    browser.go(&browser.url());
    browser.wait(&format!("{titles}.includes('lr,epochs,SEED')"));

    browser.write("#results input[type=search]", "lr<0.5 seed=1");
    browser.wait(&format!("{names} === 'middle,low'"));
    browser.wait_text("#results .count", "2 of 3 runs");

    // The difference of two: what is equal is left out until asked for.
    browser.click_on("#results header button", "Clear");
    browser.wait("document.querySelector('#compare').disabled");
    browser.click("#results [aria-label='Select low']");
    browser.click("#results [aria-label='Select middle']");
    browser.click("#compare");
    browser.wait_text("#difference", "Difference of");
    let rows = "[...document.querySelectorAll('#difference .rows .row')].map((row) => [...row.children].slice(1).map((cell) => cell.textContent).join(' '))";
    browser.wait(&format!("{rows}.includes('lr 0.2 0.1 −0.1000') || {rows}.includes('lr 0.1 0.2 +0.1000')"));
    assert_eq!(browser.value(&format!("{rows}.some((row) => row.startsWith('SEED'))")), false);
    browser.click("#difference input[type=checkbox]");
    browser.wait(&format!("{rows}.some((row) => row.startsWith('SEED 1 1'))"));
    browser.end();
}
