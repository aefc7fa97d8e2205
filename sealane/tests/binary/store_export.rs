//! `sealane certificates export`: what comes out of a store, and who may read it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::certificates::KeyKind;
use crate::harness::site::{Site, error_text};
use crate::harness::tools;

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

impl Site {
    /// With a second name, and with a certificate of another kind for the first.
    fn with_several() -> Self {
        let site = Self::new();
        site.import(&["*.b.test", "b.test"], &[]);
        let rsa = site.path().join("rsa.pem");
        fs::write(&rsa, site.authority.leaf(KeyKind::Rsa2048, &["kept.test"])).unwrap();
        site.run(&["import", rsa.to_str().unwrap()]);
        site
    }

    fn exported(&self) -> PathBuf {
        self.path().join("exported")
    }

    fn export(&self, words: &[&str]) -> String {
        self.run(&[&["export", "--to", self.exported().to_str().unwrap()], words].concat())
    }

    /// Each certificate, without when and whence it was imported.
    fn contents(&self) -> Vec<(Value, Value)> {
        let listed = self.run(&["list", "--json"]);
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let each = listed.lines().map(parse);
        let mut contents: Vec<_> =
            each.map(|json| (json["digest"].clone(), json["names"].clone())).collect();
        contents.sort_by_key(|(digest, _)| digest.to_string());
        contents
    }
}

#[test]
fn all_of_a_store_comes_out_and_goes_into_another_by_files_and_by_a_stream() {
    let site = Site::with_several();
    let printed = site.export(&["--private-keys"]);
    assert!(printed.contains("3 files in "), "{printed}");
    let expected =
        ["+.b.test.ecdsa-p-256.pem", "kept.test.ecdsa-p-256.pem", "kept.test.rsa-2048.pem"];
    assert_eq!(files(&site.exported()), expected.map(String::from).into());
    for name in expected {
        let mode = fs::metadata(site.exported().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let stream = site.run(&["export", "--private-keys"]);
    let contents = site.contents();
    let folder = site.exported();
    for (from, input) in [(folder.to_str().unwrap(), ""), ("-", stream.as_str())] {
        fs::remove_dir_all(site.path().join("store")).unwrap();
        let mut command = site.command(&["import", "--create", from]);
        tools::output_with_input(&mut command, input.as_bytes());
        assert_eq!(site.contents(), contents, "{from}");
    }
}

#[test]
fn keys_come_out_only_when_asked_for_and_no_file_is_replaced_unasked() {
    let site = Site::with_several();
    let chains = site.run(&["export", "KEPT.test"]);
    assert_eq!(chains.matches("BEGIN CERTIFICATE").count(), 2, "{chains}");
    assert!(!site.run(&["export"]).contains("PRIVATE KEY"));
    site.export(&["b.test"]);
    let file = site.exported().join("+.b.test.ecdsa-p-256.pem");
    let before = fs::read_to_string(&file).unwrap();
    assert!(!before.contains("PRIVATE KEY"));
    let folder = site.exported();
    let words = ["export", "--private-keys", "--to", folder.to_str().unwrap(), "b.test"];
    let refused = tools::run(&mut site.command(&words));
    assert_eq!(refused.status.code(), Some(3));
    assert!(error_text(&refused).contains("add --replace"), "{}", error_text(&refused));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    site.export(&["--private-keys", "--replace", "b.test"]);
    assert!(fs::read_to_string(&file).unwrap().contains("BEGIN PRIVATE KEY"));
    assert_eq!(files(&site.exported()).len(), 1, "{:?}", files(&site.exported()));
    let unknown = tools::run(&mut site.command(&["export", "c.test"]));
    assert!(error_text(&unknown).contains("nothing is served for c.test"));
}
