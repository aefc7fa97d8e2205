//! Files with secrets that everybody may read: `check` and `serve` say the same of them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind};
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn check_and_serve_warn_of_every_key_that_everybody_may_read() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("site.pem"), authority.leaf(KeyKind::P256, &["a.test"])).unwrap();
    std::fs::write(path("client.pem"), authority.leaf(KeyKind::P256, &["client.test"])).unwrap();
    let ca = authority.write(folder.path());
    let backend = format!("tls://localhost:{}", Backend::echo().address.port());
    let listener = ListenerSettings::new("site", &path("site.pem"), &backend).with(&format!(
        "[listener.backend_tls]\nroots = [{ca:?}]\nclient_certificate = {:?}\n",
        path("client.pem")
    ));
    let mut settings = Settings::new(vec![listener]);
    settings.more = format!("tickets.root = {:?}", path("root"));
    let secrets = ["site.pem", "client.pem", "root"].map(path);
    // The first start makes the ticket root.
    assert_eq!(Sealane::start(folder.path(), &settings).stop(), Some(0));
    let complaint = "every user of this machine may read or write this secret";
    // The folder of a test is its own user's alone.
    for (folder_mode, mode, complaints) in [(0o700, 0o644, 0), (0o755, 0o640, 0), (0o755, 0o644, 3)]
    {
        set_mode(folder.path(), folder_mode);
        for secret in &secrets {
            set_mode(secret, mode);
        }
        let mut check = Command::new(BINARY);
        let said = tools::output(check.arg("check").arg("--config").arg(path("sealane.toml")));
        assert_eq!(said.matches(complaint).count(), complaints, "{mode:o} {said}");
        let sealane = Sealane::start(folder.path(), &settings);
        assert_eq!(sealane.count_said(complaint), complaints, "{:#?}", sealane.said());
        for secret in secrets.iter().filter(|_| complaints > 0) {
            let named = format!("{}: every user", secret.display());
            assert!(said.contains(&named), "{said}");
            assert_eq!(sealane.count_said(&named), 1, "{:#?}", sealane.said());
        }
        // A reload is not refused for it either.
        sealane.signal(Signal::HUP);
        sealane.wait_for_metrics("the reload", |metrics| {
            metrics.sum("sealane_reloads_total", &[("outcome", "accepted")]) > 0
        });
        assert_eq!(sealane.stop(), Some(0));
    }
}
