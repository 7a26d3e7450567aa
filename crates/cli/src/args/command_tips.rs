//! Commands of other tools (Slurm, Kubernetes, Docker, SkyPilot, `az`) that users try, and the command that does it here. The error about an unknown
//! command ends with a tip that can be pasted. Pure.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Group of commands, words that it does not have, and the command to use. Upper-case words are names to fill in; the first of them is replaced by the
/// word that followed on the command line.
const FOREIGN_COMMANDS: &[(&str, &str, &str)] = &[
    ("", "log logs tail follow attach stream", "job logs NAME"),
    ("", "ps jobs queue squeue qstat bjobs sacct list", "job list"),
    ("", "show get describe info scontrol", "job show NAME"),
    ("", "cancel kill scancel qdel bkill terminate", "job stop NAME"),
    ("", "rm delete remove", "job delete NAME"),
    ("", "why explain debug", "job why NAME"),
    ("", "wait", "job wait NAME"),
    ("", "exec", "job exec NAME -- COMMAND"),
    ("", "ssh shell bash", "job shell NAME"),
    ("", "port-forward forward tunnel proxy", "job port-forward NAME 8080"),
    ("", "stats", "job top NAME"),
    ("", "plot metrics curves", "job plot NAME"),
    ("", "open", "job open NAME"),
    ("", "validate lint", "job validate FILE"),
    ("", "sbatch qsub bsub launch apply create", "submit SCRIPT"),
    ("", "srun mpirun mpiexec horovodrun torchrun", "run -np 4 COMMAND"),
    ("", "pull download results", "fetch NAME"),
    ("", "push upload put cp copy sync", "share cp SOURCE SHARE:PATH"),
    ("", "ls dir", "share ls SHARE"),
    ("", "shares buckets volumes", "share list"),
    ("", "clusters partitions", "cluster list"),
    ("", "resize scale autoscale", "cluster resize NAME --nodes 4"),
    ("", "nodes sinfo pestat", "node list"),
    ("", "hosts machines workers", "host list"),
    ("", "start serve daemon", "up --detach"),
    ("", "down shutdown", "stop"),
    ("", "ui web dash board", "dashboard --open"),
    ("", "jupyter lab ide", "notebook"),
    ("", "tune hpo hyperparameters", "sweep --help"),
    ("", "whoami me", "account show"),
    ("", "config settings context", "configure --list-defaults"),
    ("", "help man", "--help"),
    ("", "version", "--version"),
    ("job", "ls ps queue", "job list"),
    ("job", "log tail follow attach stream output", "job logs NAME"),
    ("job", "get describe info status", "job show NAME"),
    ("job", "cancel kill terminate abort", "job stop NAME"),
    ("job", "rm remove purge", "job delete NAME"),
    ("job", "explain reason debug", "job why NAME"),
    ("job", "ssh bash connect", "job shell NAME"),
    ("job", "forward tunnel proxy port-fwd", "job port-forward NAME 8080"),
    ("job", "run start create submit launch", "submit SCRIPT"),
    ("job", "pull download results cp", "job fetch NAME"),
    ("job", "stats processes", "job top NAME"),
    ("job", "metrics curves", "job plot NAME"),
    ("job", "trace profile", "job timeline NAME"),
    ("job", "browse dashboard", "job open NAME"),
    ("cluster", "ls", "cluster list"),
    ("cluster", "get describe info status", "cluster show NAME"),
    ("cluster", "new up start launch add", "cluster create NAME --nodes 4"),
    ("cluster", "scale autoscale auto-scale update", "cluster resize NAME --nodes 4"),
    ("cluster", "stop down", "cluster resize NAME --nodes 0"),
    ("cluster", "rm remove", "cluster delete NAME"),
    ("cluster", "nodes node", "node list"),
    ("share", "dir", "share ls SHARE"),
    ("share", "upload download push pull put get copy sync mv", "share cp SOURCE TARGET"),
    ("share", "delete remove del", "share rm SHARE:PATH"),
    ("share", "new add", "share create NAME"),
    ("share", "mount", "mount --help"),
];

/// Groups in which a name may have been written where its command is missing, and the command that shows it.
const GROUPS_OF_NAMES: [(&str, &str); 3] = [("job", "job show"), ("cluster", "cluster show"), ("share", "share ls")];

/// Adds a tip to the error about an unknown command.
pub fn add_tip(mut error: clap::Error, root: &Command, arguments: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let Some(unknown) = UnknownCommand::find(root, arguments, word) else { return error };
    let has_similar = error.get(ContextKind::SuggestedSubcommand).is_some();
    if let Some(command) = unknown.replacement(!has_similar) {
        let tip = format!("use '{} {command}'", root.get_name());
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// A word that is no command of its group.
#[derive(Debug, PartialEq, Eq)]
struct UnknownCommand {
    /// Commands before the word, separated by spaces.
    group: String,
    word: String,
    /// The word after it.
    next: Option<String>,
}

impl UnknownCommand {
    /// Finds `unknown` on the command line, and the commands before it. Other words are options and their values.
    fn find(root: &Command, arguments: &[OsString], unknown: &str) -> Option<UnknownCommand> {
        let words: Vec<&str> = arguments.iter().skip(1).map_while(|word| word.to_str()).collect();
        let mut called = root;
        let mut group = Vec::new();
        for (idx, word) in words.iter().enumerate() {
            match called.find_subcommand(word) {
                Some(below) => {
                    called = below;
                    group.push(*word);
                }
                None if *word != unknown => {}
                None => {
                    let next = words.get(idx + 1).map(|next| (*next).to_owned());
                    return Some(UnknownCommand { group: group.join(" "), word: (*word).to_owned(), next });
                }
            }
        }
        None
    }

    /// The command to use, without the program's name. `may_be_name`: nothing similar exists, so the word may be a name.
    fn replacement(&self, may_be_name: bool) -> Option<String> {
        let is_ours = |(group, words, _): &&(&str, &str, &str)| {
            *group == self.group && words.split(' ').any(|word| word == self.word)
        };
        if let Some((_, _, command)) = FOREIGN_COMMANDS.iter().find(is_ours) {
            return Some(self.with_name(command));
        }
        let (_, command) = GROUPS_OF_NAMES.iter().find(|(group, _)| may_be_name && *group == self.group)?;
        is_name(&self.word).then(|| format!("{command} {}", self.word))
    }

    /// The command with the next word in place of its first name.
    fn with_name(&self, command: &str) -> String {
        let Some(name) = self.next.as_deref().filter(|next| is_name(next)) else { return command.to_owned() };
        let is_placeholder = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || c == ':');
        let mut words: Vec<&str> = command.split(' ').collect();
        if let Some(placeholder) = words.iter_mut().find(|word| is_placeholder(word)) {
            *placeholder = name;
        }
        words.join(" ")
    }
}

/// Whether the word can be pasted without quotes, and is no option.
fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('-') && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    fn message(line: &str) -> String {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let root = command("corro");
        let error = root.clone().try_get_matches_from(&arguments).expect_err("no such command");
        add_tip(error, &root, &arguments).to_string()
    }

    #[test]
    fn the_command_of_another_tool_names_ours() {
        let check = |line: &str, tip: &str| {
            let message = message(line);
            assert!(message.contains(&format!("tip: use '{tip}'")), "{line}: {message}");
        };
        check("corro logs train-1", "corro job logs train-1");
        check("corro logs", "corro job logs NAME");
        check("corro logs -f train-1", "corro job logs NAME");
        check("corro ps", "corro job list");
        check("corro squeue -u me", "corro job list");
        check("corro sbatch train.sh", "corro submit train.sh");
        check("corro exec train-1 ls", "corro job exec train-1 -- COMMAND");
        check("corro cp a.txt", "corro share cp a.txt SHARE:PATH");
        check("corro job cancel train-1", "corro job stop train-1");
        check("corro cluster scale nc6", "corro cluster resize nc6 --nodes 4");
        // A secret is not repeated.
        check("corro logs x$Y", "corro job logs NAME");
    }

    #[test]
    fn a_name_without_a_command_is_shown() {
        assert!(message("corro job train-1").contains("tip: use 'corro job show train-1'"));
        assert!(message("corro share data:x").contains("tip: use 'corro share ls data:x'"));
    }

    #[test]
    fn typing_mistakes_have_claps_own_tip() {
        let typo = message("corro job lsit");
        assert!(typo.contains("similar subcommand") && typo.contains("'list'") && !typo.contains("tip: use"), "{typo}");
        let unknown = message("corro batchai ps");
        assert!(!unknown.contains("tip: use"), "commands of az have their own errors: {unknown}");
    }

    #[test]
    fn the_table_is_sound() {
        let root = command("corro");
        let find = |path: &str| path.split(' ').try_fold(&root, |command, word| command.find_subcommand(word));
        let mut known = Vec::new();
        for (group, words, replacement) in FOREIGN_COMMANDS {
            let parent = if group.is_empty() { &root } else { find(group).expect(group) };
            for word in words.split(' ') {
                assert!(parent.find_subcommand(word).is_none(), "'{group} {word}' is a command");
                assert!(!known.contains(&(group, word)), "'{group} {word}' stands twice");
                known.push((group, word));
            }
            let is_command =
                |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
            let path: Vec<&str> = replacement.split(' ').take_while(is_command).collect();
            assert!(path.is_empty() || find(&path.join(" ")).is_some(), "there is no command {replacement}");
        }
    }
}
