//! What the processes of a job on this node are kept from: what is wanted and possible is decided without acting, then done,
//! then told in the execution log. Entered by `prepare` when the job's directories and volumes are there. A machine on which
//! nothing of it can be had runs the job all the same, unless the operator wants none to run without.

pub mod enforcement;
pub mod shared_userns;

use std::path::{Path, PathBuf};

use corro_launch::confinement::Confinement;
use corro_launch::namespaces::{Namespaces, View};
use corro_model::node::{TaskOrder, Volume};

use crate::config::{Isolation, IsolationMode};
use crate::storage::directories::{Directories, Layout};
use crate::storage::mounts;
use crate::storage::tmp_dir;
use crate::task_errors;

/// What came of it.
#[derive(Debug)]
pub struct IsolationResult {
    pub namespaces: Option<Namespaces>,
    /// In words, for the execution log.
    pub log_text: String,
    /// Why the job must not run like this.
    pub refusal: Option<String>,
}

/// Tries once, at the start of an agent, what every job needs; an error says why it cannot be had.
pub fn probe_namespaces(isolation: &Isolation) -> Result<(), String> {
    if isolation.mode == Some(IsolationMode::Off) {
        return Ok(());
    }
    make_probe_namespaces().map(drop)
}

/// Tries whether settings of the machine can be kept from jobs; an error says why not.
pub fn probe_read_only_settings() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        // Files of root, whatever a job's name spaces are.
        return Ok(());
    }
    check_settings_read_only(&make_probe_namespaces()?)
}

fn make_probe_namespaces() -> Result<Namespaces, String> {
    // Hiding an empty directory asks for the same rights as hiding a full one.
    let made = tmp_dir::base_path();
    let hidden = if made.is_dir() { made } else { std::env::temp_dir() };
    let hidden = hidden.canonicalize().unwrap_or(hidden);
    Namespaces::make(&View::new([hidden], []), None).map_err(|error| task_errors::chain(&error))
}

/// The error says which setting of the machine can be written from within. Strict isolation does without such name spaces.
fn check_settings_read_only(namespaces: &Namespaces) -> Result<(), String> {
    let why = namespaces.left_writable();
    why.map_or(Ok(()), |why| Err(format!("settings of the machine stay writable: {why}")))
}

/// Builds the result around a job. Blocks for less than a millisecond.
pub fn create(isolation: &Isolation, support: &Result<(), String>, view: &View, order: &TaskOrder) -> IsolationResult {
    let mode = isolation.mode_for(order.strict_isolation);
    let why_not = match (mode, support) {
        (IsolationMode::Off, _) => "the operator started this node with --isolation off".to_owned(),
        (_, Err(why)) => why.clone(),
        (_, Ok(())) => match shared_userns::join_or_create(view, order) {
            Ok(namespaces) => {
                let hidden: Vec<String> = view.hidden.iter().map(|path| path.display().to_string()).collect();
                let mut log_text = format!(
                    "user and mount name spaces of its own, in which {} {} hidden but for what is this job's ({})",
                    hidden.join(", "),
                    if hidden.len() == 1 { "is" } else { "are" },
                    mode_reason(isolation, order)
                );
                let writable = check_settings_read_only(&namespaces).err();
                writable.iter().for_each(|why| log_text.push_str(&format!("; {why}")));
                let refusal = writable.filter(|_| mode == IsolationMode::Strict);
                return IsolationResult { namespaces: Some(namespaces), log_text, refusal };
            }
            Err(error) => task_errors::chain(&error),
        },
    };
    let log_text = format!("NO name spaces of its own, so jobs of the same account can read its files: {why_not}");
    let refusal = (mode == IsolationMode::Strict).then(|| format!("{why_not} ({})", mode_reason(isolation, order)));
    IsolationResult { namespaces: None, log_text, refusal }
}

/// Why a job is isolated as it is, for people.
fn mode_reason(isolation: &Isolation, order: &TaskOrder) -> &'static str {
    match (isolation.mode, order.strict_isolation) {
        (Some(IsolationMode::Off), _) => "the operator chose --isolation off",
        (Some(IsolationMode::Auto), _) => "the operator chose --isolation auto",
        (Some(IsolationMode::Strict), _) => "the operator chose --isolation strict",
        (None, true) => "--isolation strict, as the server has more than one principal or its operator chose it",
        (None, false) => "--isolation auto, as the server has one principal or its operator chose it",
    }
}

/// What this node's processes see of what is hidden from them: their own directories, and the directories behind volumes.
/// `hidden` are the operator's; the node's own directory, with its credential, is always among them.
pub fn job_view(
    isolation: &Isolation,
    root: &Path,
    layout: &Layout,
    order: &TaskOrder,
    cluster_volumes: &[Volume],
) -> View {
    let real = |path: &Path| path.canonicalize().ok();
    let hidden = isolation.hidden.iter().filter_map(|path| real(path)).filter(|path| can_be_hidden(path));
    let hidden = hidden.chain([root.to_owned()]).chain(real(&tmp_dir::base_path()));
    let own = [&layout.jobs, &layout.mount_root, &layout.home, &layout.wheels, &layout.tmp_dir];
    let shared = order.shared_temp.as_ref().filter(|_| order.hosts.len() > 1);
    let shown = own.into_iter().chain(shared).filter_map(|path| real(path));
    View::new(hidden, shown.chain(shown_volumes(order.volumes.iter().chain(cluster_volumes))))
}

/// The directory in which the cluster's volumes appear, where the job can do without writing to it: a job leaves nothing there to the next
/// one, and does not close it. `outputs` are the directories of the job's own files, which may lie beside the volumes.
pub fn read_only_root(layout: &Layout, cluster_volumes: &[Volume], outputs: &[&Path]) -> Vec<PathBuf> {
    let root = &layout.mount_root;
    let is_on_volume = |path: &Path| {
        cluster_volumes.iter().any(|volume| path.starts_with(root.join(volume.relative.trim_matches('/'))))
    };
    let is_written = outputs.iter().any(|path| path.starts_with(root) && !is_on_volume(path));
    let root = if is_written { None } else { root.canonicalize().ok() };
    root.into_iter().collect()
}

/// The same for the cluster's own processes: its setup task and those who log in.
fn cluster_view(isolation: &Isolation, directories: &Directories, home: &Path, volumes: &[Volume]) -> View {
    let real = |path: &Path| path.canonicalize().ok();
    let hidden = isolation.hidden.iter().filter_map(|path| real(path)).filter(|path| can_be_hidden(path));
    let hidden = hidden.chain([directories.root().to_owned()]).chain(real(&tmp_dir::base_path()));
    let shown = [real(home), real(&directories.mount_root())].into_iter().flatten();
    View::new(hidden, shown.chain(shown_volumes(volumes)))
}

/// Directories behind links. One inside a tree is resolved beneath it, and not again: links may have changed since.
fn shown_volumes<'a>(volumes: impl IntoIterator<Item = &'a Volume>) -> impl Iterator<Item = PathBuf> {
    volumes.into_iter().filter_map(|volume| {
        let directory = mounts::linked_directory(volume)?;
        if volume.beneath.is_some() { Some(directory) } else { directory.canonicalize().ok() }
    })
}

/// Namespaces of the cluster's own processes; the error says why they cannot be had. Blocks for less than a millisecond.
pub fn confine_cluster(
    isolation: &Isolation,
    support: &Result<(), String>,
    directories: &Directories,
    home: &Path,
    volumes: &[Volume],
) -> Result<Confinement, String> {
    Result::clone(support)?;
    let view = cluster_view(isolation, directories, home, volumes);
    let namespaces = Namespaces::make(&view, None).map_err(|error| task_errors::chain(&error))?;
    check_settings_read_only(&namespaces)?;
    Ok(Confinement { namespaces: Some(namespaces), ..Confinement::default() })
}

/// Do the job's processes have less than the rights of the agent's user?
pub fn is_isolated(mode: IsolationMode, support: &Result<(), String>, in_container: bool) -> bool {
    match mode {
        IsolationMode::Off => false,
        IsolationMode::Strict => true,
        IsolationMode::Auto => in_container || support.is_ok(),
    }
}

/// Somebody may keep the configuration where they keep everything else; that cannot be taken away from jobs.
fn can_be_hidden(path: &Path) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let common = [Some(PathBuf::from("/")), home, Some(std::env::temp_dir())];
    path.is_dir() && !common.into_iter().flatten().any(|common| common.starts_with(path))
}

#[cfg(test)]
mod tests {
    use corro_model::node::{VolumeKind, VolumeSource};

    use super::*;
    use crate::testing;

    fn isolation(mode: impl Into<Option<IsolationMode>>, hidden: &[&Path]) -> Isolation {
        Isolation { mode: mode.into(), hidden: hidden.iter().map(|path| path.to_path_buf()).collect() }
    }

    #[test]
    fn a_job_sees_its_own_and_nothing_beside_it() {
        let base = tempfile::tempdir().expect("a data directory");
        let data = base.path().canonicalize().expect("a path");
        let root = data.join("nodes/n1");
        for name in ["nodes/n1/jobs", "nodes/n1/mounts", "nodes/n2/jobs", "shares/a/s", "shares/a/t", "job-shared/x"] {
            std::fs::create_dir_all(data.join(name)).expect("a directory");
        }
        let mut order = testing::order(2);
        order.shared_temp = Some(data.join("job-shared/x"));
        let volume = |name: &str| Volume {
            kind: VolumeKind::FileShare,
            relative: name.into(),
            label: name.into(),
            source: VolumeSource::LocalDirectory(data.join("shares/a").join(name)),
            read_only: false,
            beneath: None,
        };
        order.volumes = vec![volume("s")];
        let layout = Layout::new(&root, tmp_dir::TmpDir::new(&root).path(), &order);
        let isolation = isolation(IsolationMode::Auto, &[&data, Path::new("/"), Path::new("/nowhere")]);
        let view = job_view(&isolation, &root, &layout, &order, &[volume("t"), volume("missing")]);
        assert!(view.hidden.contains(&data) && !view.hidden.contains(&PathBuf::from("/")), "{view:?}");
        let shown = ["job-shared/x", "nodes/n1/jobs", "nodes/n1/mounts", "shares/a/s", "shares/a/t"];
        let here: Vec<_> = view.shown.iter().filter(|path| path.starts_with(&data)).cloned().collect();
        assert_eq!(here, shown.map(|name| data.join(name)));
    }

    #[test]
    fn mount_commands_have_no_more_rights_than_their_jobs() {
        let check = |mode, support: bool, expected: [bool; 2]| {
            let support = if support { Ok(()) } else { Err("no".to_owned()) };
            let isolated = [false, true].map(|container| is_isolated(mode, &support, container));
            assert_eq!(isolated, expected, "{mode:?} {support:?}");
        };
        check(IsolationMode::Strict, true, [true, true]);
        check(IsolationMode::Strict, false, [true, true]);
        check(IsolationMode::Auto, true, [true, true]);
        check(IsolationMode::Auto, false, [false, true]);
        check(IsolationMode::Off, true, [false, false]);
    }

    #[test]
    fn what_cannot_be_had_is_told_and_refused_only_where_that_is_wanted() {
        let (mut order, unable) = (testing::order(1), Err("the kernel says no".to_owned()));
        let mut check = |(mode, ordered), support: &Result<(), String>, says: &str, refuses: bool| {
            order.strict_isolation = ordered;
            let result = create(&isolation(mode, &[]), support, &View::default(), &order);
            assert!(result.log_text.contains(says) && result.namespaces.is_none(), "{}", result.log_text);
            assert_eq!(result.refusal.is_some(), refuses, "{mode:?} {ordered}");
        };
        check((Some(IsolationMode::Auto), false), &unable, "the kernel says no", false);
        check((Some(IsolationMode::Strict), false), &unable, "the kernel says no", true);
        check((Some(IsolationMode::Off), false), &Ok(()), "--isolation off", false);
        // Without a choice of the operator it is the server's; with one it is not.
        check((None, false), &unable, "the kernel says no", false);
        check((None, true), &unable, "the kernel says no", true);
        check((Some(IsolationMode::Auto), true), &unable, "the kernel says no", false);
        check((Some(IsolationMode::Off), true), &Ok(()), "--isolation off", false);
    }
}
