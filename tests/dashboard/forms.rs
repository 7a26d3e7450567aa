//! Clusters, shares and jobs made in the browser: by forms, from a job file and from a directory, with the server's errors at the
//! fields.

use serde_json::json;

use super::harness::browser::Browser;
use super::harness::{Site, wait_for};

/// Chooses an option of a list as a person does.
fn choose(browser: &Browser, css: &str, value: &str) {
    browser.eval(&format!(
        "const list = document.querySelector({}); list.value = {}; list.dispatchEvent(new Event('change', {{bubbles: true}}))",
        json!(css),
        json!(value)
    ));
}

fn clear(browser: &Browser, css: &str) {
    browser.wait(&format!("document.querySelector({})", json!(css)));
    browser.eval(&format!("document.querySelector({}).value = ''", json!(css)));
}

#[test]
fn a_cluster_and_a_share_are_made_on_an_empty_server() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    browser.open(&site, "/ui/clusters");
    browser.click("#new");
    browser.write("dialog [name=name]", "small");
    clear(&browser, "dialog [name=size]");
    browser.write("dialog [name=size]", "huge");
    browser.write("dialog [name=password]", "not-a-secret");
    browser.click("dialog .primary");
    // The server's message is at the field that it names, and what was typed stays.
    browser.wait("document.querySelector('dialog [name=size]').getAttribute('aria-invalid') === 'true'");
    browser.wait_for_text("dialog label:has([name=size]) .field-error", "'huge' is not a VM size this server knows");
    clear(&browser, "dialog [name=size]");
    browser.write("dialog [name=size]", "STANDARD_D1");
    choose(&browser, "dialog [name=scaling]", "manual");
    browser.click("dialog .primary");
    browser.wait_for_text("h1", "small");
    assert!(browser.url().contains("/ui/clusters/default:default/small"), "{}", browser.url());
    let cluster = site.corro("batchai cluster show -g default -w default -n small").json();
    assert_eq!(
        (&cluster["vmSize"], &cluster["scaleSettings"]["manual"]["targetNodeCount"]),
        (&json!("STANDARD_D1"), &json!(2))
    );

    browser.click_on(".places a", "Shares");
    browser.click("#new");
    browser.write("dialog [name=name]", "Data");
    browser.write("dialog [name=account-name]", "myaccount");
    browser.click("dialog .primary");
    browser.wait_for_text("dialog label:has([name=name]) .field-error", "lower-case letters");
    clear(&browser, "dialog [name=name]");
    browser.write("dialog [name=name]", "data");
    // The account was made by the first attempt.
    browser.click("dialog .primary");
    browser.wait_for_text("h1", "data");
    assert!(site.data().join("shares/myaccount/data").is_dir());
    browser.go(&format!("{}/ui/shares?new", site.url));
    browser.write("dialog [name=name]", "data");
    browser.click("dialog .primary");
    browser.wait_for_text("dialog label:has([name=name]) .field-error", "already has a share 'data'");
    browser.assert_console_clean_except(&["400", "409"]);
}

#[test]
fn a_directory_is_submitted_with_a_form() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(1);
    for (name, text) in [
        ("project/train.py", "import lib.text\nprint(lib.text.HELLO, flush=True)\n"),
        ("project/lib/text.py", "HELLO = 'hello from the browser'\n"),
        ("project/.git/config", "left out"),
        ("project/empty.txt", ""),
    ] {
        let path = site.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    browser.open(&site, "/ui/jobs");
    browser.click_on("main a", "Submit a job");
    browser.wait_for_text("h1", "Submit a job");
    browser.wait("document.querySelector('[name=experiment]').value === 'cifar' && document.querySelector('[name=name]').value === 'job-1'");
    browser.write("[name=directory]", site.path().join("project").to_str().expect("text"));
    browser.wait_for_text(".drop-zone", "3 files");
    browser.wait("document.querySelector('[name=command]').value === 'python3 train.py'");
    clear(&browser, "[name=nodes]");
    browser.write("[name=nodes]", "2000000");
    browser.write("[name=variables]", "EPOCHS");
    browser.click("form .primary");
    browser.wait_for_text("label:has([name=variables]) .field-error", "write NAME=value");
    browser.write("[name=variables]", "=3");
    browser.click("form .primary");
    browser.wait("document.querySelector('[name=nodes]').getAttribute('aria-invalid') === 'true'");
    clear(&browser, "[name=nodes]");
    browser.write("[name=nodes]", "1");
    browser.click("form .primary");
    browser.wait("location.pathname.endsWith('/cifar/job-1')");

    // The project is in the job's directory on the share, as 'corro submit' lays it out.
    let directory = site.share().join("batchaidev/cifar/job-1");
    assert_eq!(
        std::fs::read_to_string(directory.join("lib/text.py")).expect("sent"),
        "HELLO = 'hello from the browser'\n"
    );
    assert!(directory.join("empty.txt").exists() && !directory.join(".git").exists());
    let job = site.job("job-1");
    assert_eq!(job["environmentVariables"][1], json!({"name": "EPOCHS", "value": "3"}), "{job}");
    assert_eq!(site.wait_for_end("job-1")["executionState"], "succeeded");
    browser.wait("document.querySelector('.head .state')?.textContent === 'succeeded'");
    browser.wait("[...document.querySelectorAll('#logs .line')].some((line) => line.textContent.includes('hello from the browser'))");
    // What it wrote is listed, what was sent is not.
    browser.wait_for_text("#files .tabs", "results");
    std::fs::write(directory.join("model.bin"), "weights").expect("a result");
    browser.go(&browser.url());
    browser.wait_for_text("#files .rows", "model.bin");
    assert!(!browser.text("#files").contains("train.py"));
    browser.assert_console_clean_except(&["400", "/processes"]);
}

/// Drops a directory as a browser does: entries with readers that return a directory in parts. Only the entries are made up; a
/// script cannot make real ones.
const DROP_DIRECTORY: &str = "
    const file = (name, text) => ({ name, isFile: true, isDirectory: false, file: (done) => setTimeout(() => done(new File([text], name))) });
    const directory = (name, parts) => ({ name, isFile: false, isDirectory: true, createReader() {
      const rest = [...parts, []];
      return { readEntries: (done) => setTimeout(() => done(rest.shift() ?? [])) };
    } });
    const dropped = directory('project', [
      [file('train.py', 'print(open(\"data/words.txt\").read())'), directory('.git', [[file('config', 'left out')]])],
      [directory('data', [[file('words.txt', 'dropped in the browser')], [directory('empty', []), file('more.txt', 'more')]])],
      [directory('__pycache__', [[file('train.pyc', 'left out')]])],
    ]);
    const transfer = new DataTransfer();
    transfer.items.add(new File([], 'project'));
    DataTransferItem.prototype.webkitGetAsEntry = () => dropped;
    const form = document.querySelector('form.submit');
    const send = (type) => form.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
    send('dragenter');
    const isMarked = form.hasAttribute('data-over');
    // A browser opens what is dropped unless the page takes it.
    const isTaken = !send('dragover') && !send('drop');
    return [isMarked, isTaken, form.hasAttribute('data-over')]";

#[test]
fn a_dropped_directory_is_submitted() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(1);
    browser.open(&site, "/ui/submit");
    browser.wait("document.querySelector('[name=experiment]').value === 'cifar' && document.querySelector('[name=name]').value === 'job-1'");
    // From the tab of job files, a directory leads back to the form.
    browser.click_on(".tabs button", "job.json");
    assert_eq!(browser.value(&format!("(() => {{ {DROP_DIRECTORY} }})()")), json!([true, true, false]));
    browser.wait_for_text(".drop-zone", "3 files");
    browser.wait("document.querySelector('[name=command]').value === 'python3 train.py'");
    browser.click("form .primary");
    browser.wait("location.pathname.endsWith('/cifar/job-1')");
    let directory = site.share().join("batchaidev/cifar/job-1");
    let sent = |path: &str| std::fs::read_to_string(directory.join(path)).unwrap_or_default();
    assert_eq!((sent("data/words.txt").as_str(), sent("data/more.txt").as_str()), ("dropped in the browser", "more"));
    assert!(!directory.join(".git").exists() && !directory.join("__pycache__").exists());
    assert_eq!(site.wait_for_end("job-1")["executionState"], "succeeded");
    browser.wait("[...document.querySelectorAll('#logs .line')].some((line) => line.textContent.includes('dropped in the browser'))");
    browser.assert_console_clean_except(&["/processes"]);
}

#[test]
fn a_job_file_is_submitted() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(1);
    let mut job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": ""}}), json!({}));
    site.write("job.json", job.to_string());
    browser.open(&site, "/ui/submit");
    browser.click_on(".tabs button", "job.json");
    browser.write("[name=job-file]", site.path().join("job.json").to_str().expect("text"));
    browser.wait("document.querySelector('[name=file]').value.includes('customToolkitSettings')");
    browser.click("form .primary");
    // The name of the field is selected in the text.
    browser.wait("(() => { const box = document.querySelector('[name=file]'); return box.value.slice(box.selectionStart, box.selectionEnd) === 'commandLine'; })()");
    browser.wait_for_text("form .field-error", "command");

    // A dropped file takes its place, and one that is no JSON is refused before it is sent.
    job["properties"]["customToolkitSettings"]["commandLine"] = json!("echo from a file");
    browser.eval(&format!(
        "const data = new DataTransfer(); data.items.add(new File([{}], 'job.json', {{type: 'application/json'}}));
         document.querySelector('form.submit').dispatchEvent(new DragEvent('drop', {{dataTransfer: data, bubbles: true, cancelable: true}}))",
        json!(format!("{job}x"))
    ));
    browser.wait("document.querySelector('[name=file]').value.includes('echo from a file')");
    browser.click("form .primary");
    browser.wait_for_text("form .field-error", "This is not JSON");
    browser.eval("const box = document.querySelector('[name=file]'); box.value = box.value.slice(0, -1)");
    browser.click("form .primary");
    browser.wait("location.pathname.endsWith('/cifar/job-1')");
    wait_for("the output", || site.log("job-1", "stdout.txt").contains("from a file"));
    browser.assert_console_clean_except(&["400", "/processes"]);
}
