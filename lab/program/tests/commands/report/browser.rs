//! The page in a real Chromium: light and dark, wide and narrow, with a reader's moves.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{document, page_of, page_of_writeups};

#[test]
fn a_reader_can_hover_isolate_switch_and_copy_on_any_screen() {
    let Some(chromium) = chromium() else { return };
    let page = probed(&page_of(&[document("sample")]));
    let mut backgrounds = Vec::new();
    for (width, dark) in [(1360, false), (380, true), (380, false)] {
        let said = probe(&chromium, &page, width, dark);
        let case = format!("{width} px, dark {dark}: {said:#}");
        assert_eq!(said["width"], width, "{case}");
        assert!(
            said["overflow"].as_i64().unwrap() <= 0,
            "the page is wider than the window: {case}"
        );
        assert_eq!(said["outside"], Value::Array(vec![]), "{case}");
        assert_eq!(said["cut"], Value::Array(vec![]), "{case}");
        assert_eq!(said["errors"], Value::Array(vec![]), "{case}");
        assert_eq!(said["hidden"], true, "{case}");
        let first = said["first"].to_string();
        assert!(first.contains("threads: 1") && first.contains("openssl@3.0="), "{case}");
        assert_eq!(said["first"][1].as_array().unwrap().len(), 5, "all series: {case}");
        assert_eq!(said["last"][0], "threads: 12", "{case}");
        assert_eq!((&said["tipInside"], &said["left"]), (&true.into(), &true.into()), "{case}");
        // Two keys on from 1, where the pointer was.
        assert_eq!(said["keyboard"], "threads: 4", "{case}");
        assert_eq!(said["escaped"], true, "{case}");
        assert_eq!((&said["series"], &said["restored"]), (&5.into(), &5.into()), "{case}");
        assert_eq!(said["alone"][0], 1, "{case}");
        assert_eq!(said["alone"][1], "true", "{case}");
        let alone = said["alone"][2].as_array().unwrap();
        assert!(alone.len() == 1 && alone[0].to_string().contains("rustls-aws-lc-rs"), "{case}");
        assert_eq!(said["scale"][0], "log scale", "{case}");
        assert_eq!(said["scale"][1], "linear scale", "{case}");
        assert_eq!(said["scale"][2], "true,false", "{case}");
        let copied = said["copied"].as_str().unwrap();
        assert!(copied.starts_with("series,threads,handshakes per second"), "{case}");
        assert!(copied.lines().count() > 25, "{case}");
        assert_eq!(said["selected"], true, "{case}");
        assert!(said["button"].as_str().unwrap().starts_with("Selected"), "{case}");
        assert!(said["bars"].as_str().unwrap().contains("sealane"), "{case}");
        let cell = said["cell"][0].as_str().unwrap();
        assert!(cell.starts_with("SSL_do_handshake: ") && cell.contains("per handshake"), "{case}");
        assert_eq!(said["cell"][1], width < 900, "call paths scroll where they must: {case}");
        backgrounds.push(said["themes"].clone());
    }
    let [light, dark, _] = &backgrounds[..] else { panic!("{backgrounds:?}") };
    assert_eq!((&light[0], &light[1]), (&dark[1], &dark[0]), "the switch turns one into the other");
    assert_ne!(light[0], light[1]);
}

/// The page as it is sent: its own policy lets its own script run, and nothing else.
#[test]
fn the_page_as_written_runs_without_a_complaint() {
    let Some(chromium) = chromium() else { return };
    let page = page_of(&[document("sample")]);
    let (dom, log) = browse(&chromium, &page, 1400, false);
    assert!(dom.contains("<html lang=\"en\" class=\"js\""), "the script ran: {dom:.300}");
    assert!(!log.contains("CONSOLE"), "{log}");
    // The same page with one more script: the policy must refuse it.
    let more = page.replace("</body>", "<script>document.title = 'attacked'</script></body>");
    let (dom, log) = browse(&chromium, &more, 1400, false);
    assert!(!dom.contains("<title>attacked"), "{dom:.300}");
    assert!(log.contains("CONSOLE"), "a complaint is seen if there is one: {log}");
}

#[test]
fn the_page_of_the_writeups_runs_and_fits_any_screen() {
    let Some(chromium) = chromium() else { return };
    let page = page_of_writeups(&document("writeups"));
    let (dom, log) = browse(&chromium, &page, 1400, true);
    assert!(dom.contains("<html lang=\"en\" class=\"js\""), "the script ran: {dom:.300}");
    assert!(!log.contains("CONSOLE"), "{log}");
    let page =
        unguarded(&page, "").replace("</body>", &format!("<script>{WIDTHS}</script></body>"));
    for width in [380, 1360] {
        let said = probe(&chromium, &page, width, false);
        assert_eq!(said["width"], width, "{said}");
        assert_eq!(said["cards"], 6, "one for each write-up: {said}");
        assert!(said["overflow"].as_i64().unwrap() <= 0, "wider than {width} px: {said}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "</script></textarea></title><img src=x onerror=\"window.attacked=1\">'\"<b>&";
    let mut run = document("sample");
    run.machine.processor = hostile.into();
    run.command.push(hostile.into());
    for series in &mut run.handshakes {
        series.stack += hostile;
        series.failure = series.failure.as_ref().map(|_| hostile.into());
    }
    for stack in &mut run.stacks {
        stack.version = hostile.into();
        stack.path = hostile.into();
    }
    for count in &mut run.counts {
        count.stack += hostile;
        for line in count.shared_writes.iter_mut().flat_map(|writes| &mut writes.lines) {
            (line.symbol, line.class, line.owner) =
                (hostile.into(), hostile.into(), hostile.into());
            line.writers = vec![hostile.into(), hostile.into()];
        }
    }
    for server in run.servers.iter_mut().flat_map(|servers| &mut servers.servers) {
        server.name += hostile;
        server.version = hostile.into();
    }
    for case in run.servers.iter_mut().flat_map(|servers| &mut servers.cases) {
        (case.title, case.unit) = (hostile.into(), hostile.into());
    }
    for comparison in &mut run.comparisons {
        (comparison.of, comparison.verdict) = (hostile.into(), hostile.into());
        comparison.measure = hostile.into();
    }
    let page = page_of(&[run]);
    assert!(!page.contains("<img"), "markup from a name");
    let Some(chromium) = chromium() else { return };
    let said = probe(&chromium, &probed(&page), 1360, false);
    assert_eq!(said["attacked"], false, "{said:#}");
    assert_eq!(said["errors"], Value::Array(vec![]), "{said:#}");
    assert!(said["first"].to_string().contains("onerror"), "shown as it is: {said:#}");
}

/// A copy with the reader's moves in it, where storage is forbidden as in a mail's preview.
fn probed(page: &str) -> String {
    let head = "<script>window.probeErrors = [];\
        addEventListener('error', (e) => probeErrors.push(String(e.message)));\
        Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } });\
        </script>";
    let page = unguarded(page, head);
    page.replace("</body>", &format!("<script>{}</script></body>", include_str!("probe.js")))
}

/// Without its policy, which would refuse a test's script; `head` in its place.
fn unguarded(page: &str, head: &str) -> String {
    let policy = page.find("<meta http-equiv").unwrap();
    let end = policy + page[policy..].find('>').unwrap() + 1;
    format!("{}{head}{}", &page[..policy], &page[end..])
}

/// What the script of a page in a frame of that width left.
fn probe(chromium: &Path, page: &str, width: u32, dark: bool) -> Value {
    let (dom, log) = browse(chromium, &framed(page, width), 1400, dark);
    let result =
        dom.split_once("<pre id=\"probe\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((json, _)) = result else { panic!("the probe left nothing: {log}") };
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap()
}

/// In a frame of that width: no window of the browser is as narrow as a phone.
fn framed(page: &str, width: u32) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\" \
         content=\"light dark\"><body><iframe width=\"{width}\" height=\"800\" frameborder=\"0\" \
         srcdoc=\"{page}\"></iframe></body>"
    )
}

/// The document after its scripts ran, and what the browser logged.
fn browse(chromium: &Path, page: &str, width: u32, dark: bool) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, page).unwrap();
    let mut command = Command::new(chromium);
    // Its sandbox wants a user other than root and namespaces that containers lack.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--disable-quic", "--no-first-run", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-sync", "--enable-logging=stderr"]);
    command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    command.arg(format!("--window-size={width},900"));
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    command.args(["--virtual-time-budget=5000", "--timeout=30000", "--dump-dom"]);
    let output = command.arg(&file).env("HOME", folder.path()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), log)
}

/// Where it is installed; without it the test is left out, except where everything must run.
fn chromium() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("chromium")).find(|f| f.is_file());
    if found.is_none() {
        assert!(
            env::var_os("CI").is_none(),
            "chromium is missing; ./check --only install brings it"
        );
        println!("SKIPPED: chromium is missing; ./check --only install brings it");
    }
    found
}

/// Leaves the page's width, how far it reaches beyond the window, and its cards.
const WIDTHS: &str = "const wide = document.documentElement;\
    const result = { width: innerWidth, overflow: wide.scrollWidth - innerWidth,\
    cards: document.querySelectorAll('article.card').length };\
    const out = parent.document.createElement('pre');\
    out.id = 'probe'; out.textContent = JSON.stringify(result);\
    parent.document.body.append(out);";
