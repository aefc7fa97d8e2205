//! Rules about the names of files and folders, and about which files can be executed.

use crate::{Finding, repository::File};

/// Adds the violations in the name and mode of `file`.
pub(crate) fn check(file: &File, findings: &mut Vec<Finding>) {
    let words = file.path.split(['/', '.', '_', '-']);
    for word in words.filter(|word| BANNED_NAMES.contains(word)) {
        let message = format!("`{word}` has no meaning: name the file after its subject");
        findings.push(Finding::new(file, 1, "name", message));
    }
    let script = file.text.starts_with("#!/");
    if script && !file.executable {
        let message = format!("starts with #! and cannot be executed: chmod +x {}", file.path);
        findings.push(Finding::new(file, 1, "executable", message));
    }
    if !script && file.executable {
        let message = format!("is executable and no script: chmod -x {}", file.path);
        findings.push(Finding::new(file, 1, "executable", message));
    }
}

const BANNED_NAMES: [&str; 7] = ["common", "helper", "helpers", "manager", "misc", "util", "utils"];
