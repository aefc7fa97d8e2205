//! `sealane certificates export`: what comes out of a store, and who may read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::certificates::KeyKind;
use crate::harness::site::{Site, error_text};
use crate::harness::tools;
use crate::store_faults::{Killer, rounds};

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

/// A file is there whole or not at all, whenever the export is killed; so is the one it replaces.
#[test]
fn an_export_that_is_killed_leaves_no_part_of_a_file() {
    let site = Site::new();
    let many = site.write_many("many", 30);
    site.run(&["import", many.to_str().unwrap()]);
    site.export(&["--private-keys"]);
    let texts = |folder: &Path| -> BTreeMap<String, Vec<u8>> {
        let visible = files(folder).into_iter().filter(|name| !name.starts_with('.'));
        visible.map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
    };
    let whole = texts(&site.exported());
    assert_eq!(whole.len(), 31);
    let mut killer = Killer::new(7);
    for round in 0..rounds() {
        // Over other files of the same names, and where there are none.
        let folder = site.path().join(format!("export-{round}"));
        let words = ["export", "--private-keys", "--replace", "--to", folder.to_str().unwrap()];
        let replaces = round % 2 == 1;
        if replaces {
            fs::create_dir(&folder).unwrap();
            whole.keys().for_each(|name| fs::write(folder.join(name), "other").unwrap());
        }
        killer.run(usize::from(replaces), site.command(&words));
        if folder.exists() {
            for (name, text) in texts(&folder) {
                let is_old = replaces && text == b"other";
                assert!(is_old || text == whole[&name], "round {round}: {name}");
            }
        }
        // Nothing that it left is in the way of the next one.
        site.run(&words);
        assert_eq!(texts(&folder), whole, "round {round}");
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("{} exports, {} of them killed", rounds(), killer.killed);
    assert!(killer.killed > rounds() / 4, "{}", killer.killed);
}
