//! The rules hold in this repository.

use std::{env, fs, path::Path};

use sealane_tidy::{LANGUAGE_FILE, Language, Repository, check};

#[test]
fn every_rule_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = || Repository::read(&root).expect("git lists the files of the work tree");
    let mut repository = read();
    if env::var_os("SEALANE_BLESS").is_some() {
        let language = Language::of(&repository);
        let file = root.join(LANGUAGE_FILE);
        let before = fs::read_to_string(&file).ok();
        fs::write(&file, language.budgets(before.as_deref())).expect("the budgets are written");
        println!("{}", language.table());
        repository = read();
    }
    assert!(
        repository.files.iter().any(|file| file.path == "tidy/tests/repository.rs"),
        "the listing misses this very file"
    );
    let findings = check(&repository);
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.fatal).count();
    assert_eq!(errors, 0, "the errors are listed above");
}
