//! The definition of a sweep: what all its trials share. It is made from the command line, or from any one trial that exists. Pure.

use corro_model::batchai::{EarlyStopping, SweepGoal, SweepParameter, SweepSearch, SweepTrial};

use super::space::parse_space;
use super::trials::SearchPlan;

/// A sweep without its name, which may be chosen later.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepDefinition {
    pub metric: Option<String>,
    pub goal: SweepGoal,
    pub stopping: Option<EarlyStopping>,
    pub search: SweepSearch,
    /// The values of `--param`.
    pub space: Vec<String>,
    pub seed: u32,
    /// Arguments of the program with placeholders.
    pub arguments: Vec<String>,
    /// Parameters of each trial.
    pub trials: Vec<Vec<SweepParameter>>,
}

/// A trial from which its sweep cannot be made again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    #[error("its values cannot be read: {0}")]
    Space(String),
    #[error("another version of corro made its trials")]
    OtherVersion,
}

impl SweepDefinition {
    /// The definition that a trial carries.
    pub fn from_trial(trial: &SweepTrial) -> Result<SweepDefinition, DefinitionError> {
        let space = parse_space(&trial.space).map_err(DefinitionError::Space)?;
        let plan = SearchPlan { search: trial.search, n_trials: trial.trial_count };
        let trials = plan.trials(&space, trial.seed);
        let own = trials.get(trial.trial.saturating_sub(1) as usize);
        if trials.len() != trial.trial_count as usize || own != Some(&trial.parameters) {
            return Err(DefinitionError::OtherVersion);
        }
        Ok(SweepDefinition {
            metric: trial.metric.clone(),
            goal: trial.goal,
            stopping: trial.stopping.clone(),
            search: trial.search,
            space: trial.space.clone(),
            seed: trial.seed,
            arguments: trial.arguments.clone(),
            trials,
        })
    }

    pub fn n_trials(&self) -> u32 {
        self.trials.len() as u32
    }

    /// Trial `number`, which counts from 1.
    pub fn trial(&self, name: &str, number: u32) -> SweepTrial {
        SweepTrial {
            name: name.to_owned(),
            trial: number,
            trial_count: self.n_trials(),
            parameters: self.trials[number as usize - 1].clone(),
            metric: self.metric.clone(),
            goal: self.goal,
            stopping: self.stopping.clone(),
            search: self.search,
            space: self.space.clone(),
            seed: self.seed,
            arguments: self.arguments.clone(),
        }
    }

    /// What differs from the definition of a sweep that exists, in words: the option with its values there and here.
    pub fn difference(&self, existing: &SweepDefinition) -> Option<String> {
        let stopping = |definition: &SweepDefinition| {
            definition.stopping.as_ref().map(|rule| {
                let most = rule.max_steps.map_or_else(String::new, |most| format!(" --max-steps {most}"));
                format!("asha --reduction {} --min-steps {}{most}", rule.reduction, rule.min_steps)
            })
        };
        let goal = |definition: &SweepDefinition| match definition.goal {
            SweepGoal::Max => "max",
            SweepGoal::Min => "min",
        };
        let search = |definition: &SweepDefinition| match definition.search {
            SweepSearch::Grid => "grid",
            SweepSearch::Random => "random",
        };
        let texts = |definition: &SweepDefinition| {
            [
                ("--param", definition.space.join(" --param ")),
                ("--trials", definition.n_trials().to_string()),
                ("--search", search(definition).to_owned()),
                ("--seed", definition.seed.to_string()),
                ("--metric", definition.metric.clone().unwrap_or_default()),
                ("--goal", goal(definition).to_owned()),
                ("--stop", stopping(definition).unwrap_or_default()),
                ("the arguments", definition.arguments.join(" ")),
            ]
        };
        let pairs = texts(existing).into_iter().zip(texts(self));
        let differing = pairs.into_iter().find(|((_, there), (_, here))| there != here);
        differing.map(|((option, there), (_, here))| match there.is_empty() {
            true => format!("it has no {option}, and here it is '{here}'"),
            false => format!("{option} is '{there}' there, and '{here}' here"),
        })
    }
}

/// Whether high or low values of a metric are better, by its name: losses and errors are minimized.
pub fn goal_of_metric(metric: &str) -> SweepGoal {
    const MINIMIZED: [&str; 14] =
        ["err", "error", "perplexity", "ppl", "mse", "mae", "rmse", "mape", "wer", "cer", "nll", "fid", "kl", "bpc"];
    let lower = metric.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    match words.any(|word| word.ends_with("loss") || MINIMIZED.contains(&word)) {
        true => SweepGoal::Min,
        false => SweepGoal::Max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::batchai::StoppingKind;

    fn definition(seed: u32) -> SweepDefinition {
        let space = vec!["lr=log:1e-4..1e-1".to_owned(), "batch=32,64".to_owned()];
        let plan = SearchPlan { search: SweepSearch::Random, n_trials: 5 };
        let trials = plan.trials(&parse_space(&space).expect("a space"), seed);
        SweepDefinition {
            metric: Some("val_acc".to_owned()),
            goal: SweepGoal::Max,
            stopping: Some(EarlyStopping { kind: StoppingKind::Asha, reduction: 3, min_steps: 1, max_steps: None }),
            search: SweepSearch::Random,
            space,
            seed,
            arguments: ["--lr", "{lr}", "--batch", "{batch}"].map(str::to_owned).to_vec(),
            trials,
        }
    }

    #[test]
    fn any_trial_has_the_whole_definition() {
        let definition = definition(7);
        for number in 1..=5 {
            let trial = definition.trial("s", number);
            let stored = serde_json::to_string(&trial).expect("plain data");
            let read: SweepTrial = serde_json::from_str(&stored).expect("a trial");
            assert_eq!(SweepDefinition::from_trial(&read).as_ref(), Ok(&definition));
        }
    }

    #[test]
    fn a_trial_that_this_version_would_not_make_is_refused() {
        let trial = definition(7).trial("s", 2);
        let check = |change: fn(&mut SweepTrial), expected: &str| {
            let mut changed = trial.clone();
            change(&mut changed);
            assert_eq!(SweepDefinition::from_trial(&changed).expect_err("refused").to_string(), expected);
        };
        check(|trial| trial.parameters[0].value = "1".to_owned(), "another version of corro made its trials");
        check(|trial| trial.trial = 3, "another version of corro made its trials");
        // Fewer combinations than trials.
        check(|trial| trial.space = vec!["lr=1,2".to_owned()], "another version of corro made its trials");
        let space = "its values cannot be read: argument --param lr: character 3: '=' is missing: write NAME=VALUES, such as lr=0.1,0.01 or lr=log:1e-4..1e-1";
        check(|trial| trial.space = vec!["lr".to_owned()], space);
    }

    #[test]
    fn differences_are_named() {
        let existing = definition(7);
        let check = |change: fn(&mut SweepDefinition), expected: Option<&str>| {
            let mut wanted = existing.clone();
            change(&mut wanted);
            assert_eq!(wanted.difference(&existing).as_deref(), expected);
        };
        check(|_| (), None);
        check(|wanted| wanted.seed = 8, Some("--seed is '7' there, and '8' here"));
        check(|wanted| wanted.stopping = None, Some("--stop is 'asha --reduction 3 --min-steps 1' there, and '' here"));
        check(|wanted| wanted.goal = SweepGoal::Min, Some("--goal is 'max' there, and 'min' here"));
        let mut plain = existing.clone();
        plain.metric = None;
        assert_eq!(existing.difference(&plain).as_deref(), Some("it has no --metric, and here it is 'val_acc'"));
    }

    #[test]
    fn losses_and_errors_are_minimized() {
        for metric in ["loss", "val_loss", "eval/CrossEntropyLoss", "top1-err", "RMSE", "wer"] {
            assert_eq!(goal_of_metric(metric), SweepGoal::Min, "{metric}");
        }
        for metric in ["val_acc", "f1", "reward", "lossless", "images_per_second"] {
            assert_eq!(goal_of_metric(metric), SweepGoal::Max, "{metric}");
        }
    }
}
