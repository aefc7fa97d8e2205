//! Folders as ACME clients make them; the clients themselves are run in `sealane/tests/binary/`.

use super::*;

/// The certificates found in a folder with these files. A path may have a folder before the file.
fn found(files: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let shown = |path: &Path| path.strip_prefix(folder.path()).unwrap().display().to_string();
    let mut entries = Vec::new();
    let each = |entry| {
        entries.push(entry);
        true
    };
    assert!(visit(folder.path(), each).unwrap());
    let told = entries.into_iter().map(|entry| match entry {
        Entry::Both(path) => shown(&path),
        Entry::KeyMissing { chain, key } => format!("{} without {}", shown(&chain), shown(&key)),
        Entry::Pair { chain, key } => format!("{} + {}", shown(&chain), shown(&key)),
        Entry::FolderClosed(path, _) | Entry::LinkClosed(path, _) => {
            format!("{} is closed", shown(&path))
        }
    });
    told.collect()
}

#[test]
fn certbot_and_dehydrated() {
    let one = ["README", "cert.pem", "chain.pem", "fullchain.pem", "privkey.pem"];
    assert_eq!(found(&one), ["fullchain.pem + privkey.pem"]);
    let live = ["README", "a.test/cert.pem", "a.test/fullchain.pem", "a.test/privkey.pem"];
    let beside = ["b.test-0001/fullchain.pem", "b.test-0001/privkey.pem", "b.test-0001/README"];
    assert_eq!(
        found(&[&live[..], &beside].concat()),
        [
            "a.test/fullchain.pem + a.test/privkey.pem",
            "b.test-0001/fullchain.pem + b.test-0001/privkey.pem"
        ]
    );
    let earlier = ["a.test/privkey-1.pem", "a.test/cert-1.csr", "a.test/fullchain-1.pem"];
    assert_eq!(
        found(&[&live[..], &earlier].concat()),
        ["a.test/fullchain.pem + a.test/privkey.pem"]
    );
}

#[test]
fn lego() {
    let files = ["a.test.crt", "a.test.issuer.crt", "a.test.json", "a.test.key"];
    assert_eq!(found(&files), ["a.test.crt + a.test.key"]);
    // With --pem; and of a wildcard.
    let more = ["a.test.pem", "_.b.test.crt", "_.b.test.issuer.crt", "_.b.test.key"];
    let expected = ["_.b.test.crt + _.b.test.key", "a.test.crt + a.test.key", "a.test.pem"];
    assert_eq!(found(&[&files[..], &more].concat()), expected);
}

#[test]
fn acme_sh() {
    let files =
        ["ca.cer", "a.test.cer", "a.test.conf", "a.test.csr", "a.test.key", "fullchain.cer"];
    let inner = files.map(|file| format!("a.test_ecc/{file}"));
    let inner = inner.each_ref().map(String::as_str);
    assert_eq!(found(&files), ["fullchain.cer + a.test.key"]);
    assert_eq!(found(&inner), ["a.test_ecc/fullchain.cer + a.test_ecc/a.test.key"]);
    // A key from before: the one that has the folder's name is meant.
    assert_eq!(
        found(&[&inner[..], &["a.test_ecc/old.key"]].concat()),
        ["a.test_ecc/fullchain.cer + a.test_ecc/a.test.key"]
    );
    let without = ["a.test_ecc/fullchain.cer", "a.test_ecc/a.test.cer", "a.test_ecc/ca.cer"];
    assert_eq!(found(&without), ["a.test_ecc/fullchain.cer without a.test_ecc/a.test.key"]);
}

/// Certificates that were served before folders in folders were read are served first, and still.
#[test]
fn a_folder_s_own_files_go_before_what_its_folders_have_and_beside_what_a_client_keeps() {
    let lineage = |folder: &str| [format!("{folder}fullchain.pem"), format!("{folder}privkey.pem")];
    let [inner_chain, inner_key] = lineage("backup/");
    let found_with = |more: &[&str]| {
        let [chain, key] = lineage("");
        found(&[&[&*chain, &*key], more].concat())
    };
    assert_eq!(
        found(&[&*inner_chain, &*inner_key, "www.pem"]),
        ["www.pem", "backup/fullchain.pem + backup/privkey.pem"]
    );
    assert_eq!(
        found_with(&["chain-1.pem", "chain-www.pem", "www.crt", "www.key", "x.pem"]),
        ["fullchain.pem + privkey.pem", "chain-www.pem", "www.crt + www.key", "x.pem"]
    );
    // Authorities lie about too.
    assert_eq!(found(&["a.cer", "a.crt", "a.key", "ca.cer"]), ["a.crt + a.key"]);
    assert_eq!(found(&["a.cer", "a.key"]), ["a.cer + a.key"]);
}

#[test]
fn what_a_folder_lacks_is_not_passed_over() {
    assert_eq!(found(&["a.test/fullchain.pem", "a.test/chain.pem"]), ["a.test/fullchain.pem"]);
    assert_eq!(found(&["a.test/privkey.pem", "a.test/chain.pem"]), ["a.test/privkey.pem"]);
    assert_eq!(found(&["a.crt", "b.crt"]), ["a.crt without a.key", "b.crt without b.key"]);
    assert_eq!(found(&["a.issuer.crt"]), ["a.issuer.crt without a.issuer.key"]);
    assert_eq!(found(&["fullchain.pem", "other.pem"]), ["fullchain.pem", "other.pem"]);
}

#[test]
fn folders_are_read_one_level_deep_and_not_if_they_are_hidden() {
    let of = |folder: &str| [format!("{folder}/fullchain.pem"), format!("{folder}/privkey.pem")];
    let files = [of("a.test"), of("b/c.test"), of("..2026_11_23")].concat();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    assert_eq!(found(&files), ["a.test/fullchain.pem + a.test/privkey.pem"]);
}
