//! Isolation of a job's processes by user and mount namespaces: what is hidden from them and what they see. The mode
//! and the machine's support are combined first, then the namespaces are created and described in the execution log. A
//! machine without support runs jobs all the same, unless the mode is strict.

pub mod enforcement;
pub mod shared_userns;

use std::path::{Path, PathBuf};

use corro_base::error_chain;
use corro_launch::confinement::Confinement;
use corro_launch::namespaces::{MountView, NamespaceError, Namespaces};
use corro_model::node::{TaskOrder, Volume};

use crate::config::{Isolation, IsolationMode};
use crate::storage::directories::Layout;
use crate::storage::mounts;
use crate::storage::tmp_dir;

/// Outcome of isolating a job.
#[derive(Debug)]
pub struct IsolationResult {
    pub namespaces: Option<Namespaces>,
    /// Text for the execution log.
    pub log_text: String,
    /// Reason why the job must not run, in strict mode.
    pub refusal: Option<String>,
}

/// Creates namespaces once, when an agent starts, to find out whether jobs can be isolated. The error says why not.
pub fn probe_namespaces(isolation: &Isolation) -> Result<(), String> {
    if isolation.mode == Some(IsolationMode::Off) {
        return Ok(());
    }
    make_probe_namespaces().map(drop)
}

/// Probes whether `/proc/sys` and `/sys` can be made read-only for jobs. The error says why not.
pub fn probe_read_only_settings() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        // They belong to root, so that jobs cannot write them anyway.
        return Ok(());
    }
    check_settings_read_only(&make_probe_namespaces()?)
}

fn make_probe_namespaces() -> Result<Namespaces, String> {
    // Hiding an empty directory needs the same privileges as hiding a full one.
    let made = tmp_dir::base_path();
    let hidden = if made.is_dir() { made } else { std::env::temp_dir() };
    let hidden = hidden.canonicalize().unwrap_or(hidden);
    Namespaces::create(&MountView::new([hidden], []), None).map_err(|error| error_chain::join(&error))
}

/// The error names a setting that processes in the namespaces can write. Strict mode refuses such namespaces.
fn check_settings_read_only(namespaces: &Namespaces) -> Result<(), String> {
    let why = namespaces.left_writable();
    why.map_or(Ok(()), |why| Err(format!("settings of the machine (/proc/sys, /sys) stay writable: {why}")))
}

/// Creates the namespaces of a job as the mode and the machine's support allow. Blocks for less than a millisecond.
pub fn create(
    isolation: &Isolation,
    support: &Result<(), String>,
    view: &MountView,
    order: &TaskOrder,
) -> IsolationResult {
    let mode = isolation.mode_for(order.strict_isolation);
    let why_not = match (mode, support) {
        (IsolationMode::Off, _) => "the operator started this node with --isolation off".to_owned(),
        (_, Err(why)) => why.clone(),
        (_, Ok(())) => match shared_userns::join_or_create(view, order) {
            Ok(namespaces) => {
                let hidden: Vec<String> = view.hidden.iter().map(|path| path.display().to_string()).collect();
                let mut log_text = format!(
                    "user and mount namespaces of its own, in which {} {} hidden except for this job's parts ({})",
                    hidden.join(", "),
                    if hidden.len() == 1 { "is" } else { "are" },
                    mode_reason(isolation, order)
                );
                let writable = check_settings_read_only(&namespaces).err();
                writable.iter().for_each(|why| log_text.push_str(&format!("; {why}")));
                let refusal = writable.filter(|_| mode == IsolationMode::Strict);
                return IsolationResult { namespaces: Some(namespaces), log_text, refusal };
            }
            Err(error) => error_chain::join(&error),
        },
    };
    let log_text = format!("NO namespaces of its own, so jobs of the same account can read its files: {why_not}");
    let refusal = (mode == IsolationMode::Strict).then(|| format!("{why_not} ({})", mode_reason(isolation, order)));
    IsolationResult { namespaces: None, log_text, refusal }
}

/// Explains the mode for users.
fn mode_reason(isolation: &Isolation, order: &TaskOrder) -> &'static str {
    match (isolation.mode, order.strict_isolation) {
        (Some(IsolationMode::Off), _) => "the operator chose --isolation off",
        (Some(IsolationMode::Auto), _) => "the operator chose --isolation auto",
        (Some(IsolationMode::Strict), _) => "the operator chose --isolation strict",
        (None, true) => "--isolation strict, as the server has more than one principal or its operator chose it",
        (None, false) => "--isolation auto, as the server has one principal or its operator chose it",
    }
}

/// MountView of a job's processes: hidden are the operator's directories and `own`, the node's own directories, which
/// contain its credential; visible in them are the job's directories and those behind its volumes.
pub fn job_view(
    isolation: &Isolation,
    own: &[&Path],
    layout: &Layout,
    order: &TaskOrder,
    cluster_volumes: &[Volume],
) -> MountView {
    let real = |path: &Path| path.canonicalize().ok();
    let hidden = isolation.hidden.iter().filter_map(|path| real(path)).filter(|path| can_be_hidden(path));
    let hidden = hidden.chain(own.iter().filter_map(|path| real(path))).chain(real(&tmp_dir::base_path()));
    let parts = [&layout.jobs, &layout.mount_root, &layout.home, &layout.wheels, &layout.tmp_dir];
    let shared = order.shared_temp.as_ref().filter(|_| order.hosts.len() > 1);
    let shown = parts.into_iter().chain(shared).filter_map(|path| real(path));
    MountView::new(hidden, shown.chain(shown_volumes(order.volumes.iter().chain(cluster_volumes))))
}

/// Namespaces of a job in which also `directory` is visible, and nothing else of `around`. Blocks for less than a
/// millisecond.
pub fn show_directory(
    namespaces: &Namespaces,
    view: &MountView,
    (around, directory): (&Path, &Path),
    is_read_only: bool,
) -> Result<Namespaces, NamespaceError> {
    let view = view.showing(around.to_owned(), directory.to_owned(), is_read_only);
    Namespaces::create(&view, Some(namespaces.user()))
}

/// The directory of the cluster's volumes, if the job does not need to write to it: read-only, so that a job leaves
/// nothing there for the next one and does not change its permissions. `outputs` are the directories of the job's own
/// files, which may be beside the volumes.
pub fn read_only_root(layout: &Layout, cluster_volumes: &[Volume], outputs: &[&Path]) -> Vec<PathBuf> {
    let root = &layout.mount_root;
    let is_on_volume = |path: &Path| {
        cluster_volumes.iter().any(|volume| path.starts_with(root.join(volume.relative.trim_matches('/'))))
    };
    let is_written = outputs.iter().any(|path| path.starts_with(root) && !is_on_volume(path));
    let root = if is_written { None } else { root.canonicalize().ok() };
    root.into_iter().collect()
}

/// MountView of the cluster's own processes: setup task and SSH logins. `own` are the node's own directories.
fn cluster_view(isolation: &Isolation, own: &[&Path], shown: [&Path; 2], volumes: &[Volume]) -> MountView {
    let real = |path: &Path| path.canonicalize().ok();
    let hidden = isolation.hidden.iter().filter_map(|path| real(path)).filter(|path| can_be_hidden(path));
    let hidden = hidden.chain(own.iter().filter_map(|path| real(path))).chain(real(&tmp_dir::base_path()));
    let shown = shown.into_iter().filter_map(real);
    MountView::new(hidden, shown.chain(shown_volumes(volumes)))
}

/// Directories behind symlinks. One inside a tree was resolved beneath it and is not resolved again, since links may
/// have changed.
fn shown_volumes<'a>(volumes: impl IntoIterator<Item = &'a Volume>) -> impl Iterator<Item = PathBuf> {
    volumes.into_iter().filter_map(|volume| {
        let directory = mounts::linked_directory(volume)?;
        if volume.beneath.is_some() { Some(directory) } else { directory.canonicalize().ok() }
    })
}

/// Namespaces of the cluster's own processes, with the node's `own` directories hidden except for `shown`; the error
/// says why they cannot be created. Blocks for less than a millisecond.
pub fn confine_cluster(
    isolation: &Isolation,
    support: &Result<(), String>,
    own: &[&Path],
    shown: [&Path; 2],
    volumes: &[Volume],
) -> Result<Confinement, String> {
    Result::clone(support)?;
    let view = cluster_view(isolation, own, shown, volumes);
    let namespaces = Namespaces::create(&view, None).map_err(|error| error_chain::join(&error))?;
    check_settings_read_only(&namespaces)?;
    Ok(Confinement { namespaces: Some(namespaces), ..Confinement::default() })
}

/// Whether the job's processes have fewer rights than the agent's user.
pub fn is_isolated(mode: IsolationMode, support: &Result<(), String>, in_container: bool) -> bool {
    match mode {
        IsolationMode::Off => false,
        IsolationMode::Strict => true,
        IsolationMode::Auto => in_container || support.is_ok(),
    }
}

/// Whether a directory can be hidden: not if it contains the home directory, `/` or the temporary directory, where an
/// operator may keep the configuration.
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
    fn a_job_sees_only_its_own_directories() {
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
        let cache = data.join("python-environments");
        let own = [root.as_path(), cache.as_path()];
        let view = job_view(&isolation, &own, &layout, &order, &[volume("t"), volume("missing")]);
        assert!(view.hidden.contains(&data) && !view.hidden.contains(&PathBuf::from("/")), "{view:?}");
        let shown = ["job-shared/x", "nodes/n1/jobs", "nodes/n1/mounts", "shares/a/s", "shares/a/t"];
        let here: Vec<_> = view.visible.iter().filter(|path| path.starts_with(&data)).cloned().collect();
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
    fn missing_isolation_is_logged_and_refused_only_if_strict() {
        let (mut order, unable) = (testing::order(1), Err("the kernel says no".to_owned()));
        let mut check = |(mode, ordered), support: &Result<(), String>, says: &str, refuses: bool| {
            order.strict_isolation = ordered;
            let result = create(&isolation(mode, &[]), support, &MountView::default(), &order);
            assert!(result.log_text.contains(says) && result.namespaces.is_none(), "{}", result.log_text);
            assert_eq!(result.refusal.is_some(), refuses, "{mode:?} {ordered}");
        };
        check((Some(IsolationMode::Auto), false), &unable, "the kernel says no", false);
        check((Some(IsolationMode::Strict), false), &unable, "the kernel says no", true);
        check((Some(IsolationMode::Off), false), &Ok(()), "--isolation off", false);
        // The server's order decides only if the operator made no choice.
        check((None, false), &unable, "the kernel says no", false);
        check((None, true), &unable, "the kernel says no", true);
        check((Some(IsolationMode::Auto), true), &unable, "the kernel says no", false);
        check((Some(IsolationMode::Off), true), &Ok(()), "--isolation off", false);
    }
}
