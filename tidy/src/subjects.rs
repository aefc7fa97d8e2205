//! The subjects of commits: `area: verb object`, at most 72 letters.
//!
//! `.githooks/commit-msg` rejects others at once. Commits up to [`BASE`] are older than the rule.

use crate::{
    Finding, Repository,
    history::{Commit, History},
};

/// Adds the commits with subjects of another form, if they are more than the budget.
pub(crate) fn check(repository: &Repository, findings: &mut Vec<Finding>) {
    check_history(repository.history(), BUDGET, findings);
}

fn check_history(history: &History, budget: usize, findings: &mut Vec<Finding>) {
    let commits = match history {
        History::None => return,
        History::Unknown(reason) => {
            let message = format!("subjects of commits are not checked: {reason}");
            findings.push(finding("git log", message, false));
            return;
        }
        History::Known(commits) => commits,
    };
    let invalid: Vec<&Commit> =
        commits.iter().filter(|commit| !is_valid(&commit.subject)).collect();
    if invalid.len() <= budget {
        return;
    }
    for commit in &invalid {
        let message = format!(
            "`{}`: write `area: verb object`, at most {LETTERS_MAX} letters, with one of {}; \
             {} subjects have another form, the budget is {budget}",
            commit.subject,
            VERBS.join(", "),
            invalid.len()
        );
        findings.push(finding(&format!("commit {}", commit.id), message, true));
    }
}

fn finding(path: &str, message: String, fatal: bool) -> Finding {
    Finding { path: path.to_owned(), line: 1, rule: "subject", message, fatal }
}

fn is_valid(subject: &str) -> bool {
    let Some((area, rest)) = subject.split_once(": ") else { return false };
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
    let has_verb = VERBS.iter().any(|verb| {
        let object = rest.strip_prefix(verb).and_then(|rest| rest.strip_prefix(' '));
        object.is_some_and(|object| !object.trim().is_empty())
    });
    let is_short = subject.chars().count() <= LETTERS_MAX;
    !area.is_empty() && area.chars().all(is_area) && has_verb && is_short && !subject.ends_with('.')
}

/// The last commit before the rule.
pub(crate) const BASE: &str = "b69d24219bcc0fd01ee167d7f908dad180380b50";

/// Subjects of another form after [`BASE`]. History is not rewritten, so the budget only falls with
/// a later base.
const BUDGET: usize = 0;

const LETTERS_MAX: usize = 72;

/// The verbs, as `.githooks/commit-msg` has them.
const VERBS: [&str; 20] = [
    "add",
    "allow",
    "document",
    "fix",
    "log",
    "lower",
    "move",
    "reject",
    "remove",
    "rename",
    "replace",
    "return",
    "revert",
    "rewrite",
    "roll back",
    "simplify",
    "speed up",
    "split",
    "test",
    "update",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_names_area_and_verb() {
        for subject in [
            "store: fix a lost tombstone after a restore",
            "sealane/config: add `trust_any_proxy`",
            "fleet: roll back a configuration that kills the process",
            "push: test each rejection path",
        ] {
            assert!(is_valid(subject), "{subject}");
        }
        for subject in [
            "Fix a lost tombstone",
            "fix a lost tombstone",
            "Store: fix a lost tombstone",
            "store: fix",
            "store: fixes a lost tombstone",
            "store: say 503 by what is served",
            "store: fix a lost tombstone.",
            ": fix a lost tombstone",
        ] {
            assert!(!is_valid(subject), "{subject}");
        }
        let long = |letters: usize| format!("a: fix {}", "b".repeat(letters - 7));
        assert!(is_valid(&long(72)) && !is_valid(&long(73)));
    }

    #[test]
    fn old_subjects_have_a_budget() {
        let commit = |subject: &str| Commit { id: "1".to_owned(), subject: subject.to_owned() };
        let history = History::Known(vec![commit("store: fix it"), commit("wip"), commit("more")]);
        let found = |budget: usize| {
            let mut findings = Vec::new();
            check_history(&history, budget, &mut findings);
            findings.into_iter().map(|finding| finding.fatal).collect::<Vec<_>>()
        };
        assert_eq!((found(2), found(1)), (vec![], vec![true, true]));
    }

    #[test]
    fn unknown_history_is_reported_only() {
        let mut findings = Vec::new();
        check_history(&History::Unknown("the clone is shallow"), 0, &mut findings);
        assert!(findings.len() == 1 && !findings[0].fatal, "{findings:?}");
    }

    #[test]
    fn hook_has_the_same_verbs() {
        let parts = HOOK.lines().filter_map(|line| line.strip_prefix("verbs="));
        let parts: Vec<_> = parts
            .map(|part| part.trim_matches(['"', '\'']).trim_start_matches("$verbs|"))
            .collect();
        assert_eq!(parts.join("|"), VERBS.join("|"));
        assert!(HOOK.contains(&format!("-le {LETTERS_MAX} ]")));
    }

    const HOOK: &str = include_str!("../../.githooks/commit-msg");
}
