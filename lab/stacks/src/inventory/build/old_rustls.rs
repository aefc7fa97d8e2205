//! The sources of a stack of an older rustls: the lab's own, as they are compiled into it, with a
//! manifest that names that version. Cargo holds one 0.23 in a graph, so it is a crate of its own.

use std::{fs, path::Path};

use sealane_lab_model::error::Error;
use sealane_libssl::old_rustls::EXPORTS;

use super::recipe::{Maker, Recipe, Source};

/// Writes the crate that `recipe` is made from into `folder`; nothing for what is made otherwise.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn lay_out(recipe: &Recipe, folder: &Path) -> Result<(), Error> {
    let Maker::Cargo { feature, exact } = recipe.maker else { return Ok(()) };
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::file(&path))
    };
    let ends = folder.join("src").join("ends");
    fs::create_dir_all(&ends).map_err(Error::file(&ends))?;
    write("Cargo.toml", &manifest(recipe, feature, exact))?;
    SOURCES.iter().try_for_each(|(name, text)| write(name, text))
}

fn manifest(recipe: &Recipe, feature: &str, exact: &[(&str, &str)]) -> String {
    let Source::Package { name: package, version, .. } = recipe.source else {
        return String::new();
    };
    let mut text = format!(
        "[package]\nname = \"old_rustls\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [lib]\ncrate-type = [\"cdylib\"]\n\n[workspace]\n\n\
         [features]\ndefault = [\"{feature}\"]\n{feature} = [\"{package}/{feature}\"]\n\n\
         [profile.release]\ndebug = \"line-tables-only\"\n\n\
         [dependencies]\n\
         {package} = {{ version = \"={version}\", default-features = false, \
         features = [\"std\", \"tls12\"] }}\n"
    );
    for (package, version) in exact {
        text += &format!("{package} = {{ version = \"={version}\", default-features = false }}\n");
    }
    text + OTHERS
}

/// What the lab's sources need beside rustls, as the lab has them.
const OTHERS: &str = "\
clap = { version = \"4.6\", default-features = false, features = [\"derive\", \"std\"] }
serde = { version = \"1\", features = [\"derive\"] }
serde_json = \"1\"
thiserror = \"2\"
";

const SOURCES: [(&str, &str); 10] = [
    ("src/lib.rs", EXPORTS),
    ("src/credentials.rs", include_str!("../../../../harness/src/credentials.rs")),
    ("src/error.rs", include_str!("../../../../model/src/error.rs")),
    ("src/library.rs", include_str!("../../../../model/src/library.rs")),
    ("src/scenario.rs", include_str!("../../../../model/src/scenario.rs")),
    ("src/stack.rs", include_str!("../../stack.rs")),
    ("src/ends/contexts.rs", include_str!("../../stacks/rustls/contexts.rs")),
    ("src/ends/end.rs", include_str!("../../stacks/rustls/end.rs")),
    ("src/ends/settings.rs", include_str!("../../stacks/rustls/settings.rs")),
    ("src/ends/store.rs", include_str!("../../stacks/rustls/store.rs")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_one_and_names_each_version_exactly() {
        let recipe = Recipe::find("rustls@0.23.16").expect("a recipe");
        let folder = tempfile::tempdir().expect("a folder");
        lay_out(recipe, folder.path()).expect("written");
        let text = fs::read_to_string(folder.path().join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = toml::from_str(&text).expect("TOML");
        let versions = ["rustls", "aws-lc-rs", "aws-lc-sys"]
            .map(|package| manifest["dependencies"][package]["version"].as_str());
        assert_eq!(versions, [Some("=0.23.16"), Some("=1.10.0"), Some("=0.22.0")]);
        assert!(folder.path().join("src/ends/contexts.rs").exists());
    }
}
