//! The rules hold in this repository.

use std::path::Path;

use sealane_tidy::{Repository, check};

#[test]
fn every_rule_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let repository = Repository::read(&root).expect("git lists the files of the work tree");
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
