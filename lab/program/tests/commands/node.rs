//! The command `node` as people run it, small, with real servers. Figures are not looked at, but
//! counts are. In the place of the package stands one that has its names and does Node's own TLS,
//! so that every mode runs without the addon; with the addon built, the last test has it run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use sealane_lab_model::document::{Run, Strategies, StrategyRow};
use tempfile::TempDir;

const MODES: [&str; 8] =
    ["http", "nginx", "https", "cluster", "hybrid", "sealane-ring", "sealane-socket", "sealane"];

#[test]
#[ignore = "half a minute and more, with what a shorter one has too"]
fn every_mode_answers_the_same_in_every_case() {
    let folder = tempfile::tempdir().unwrap();
    let package = stand_in(&folder);
    let node = node(&["--rounds=1", "--concurrency=4", "--package", &package]);
    assert_eq!(modes(&node), MODES);
    // By modes that take part: full and keep-alive with three bodies each, two sweeps.
    let of = |case: &str| node.rows.iter().filter(|row| row.variant["case"] == case).count();
    let counts = [
        ("full", 21),
        ("full-rsa", 5),
        ("resumed", 5),
        ("resumed-rsa", 5),
        ("keep-alive", 21),
        ("sweep", 6),
        ("keep-alive-sweep", 6),
        ("idle", 5),
        ("blocked", 3),
        ("h2", 4),
    ];
    assert_eq!(counts.map(|(case, _)| (case, of(case))), counts);
    assert_eq!(node.rows.len(), counts.iter().map(|(_, count)| count).sum::<usize>());
    for row in &node.rows {
        check_row(row);
    }
    assert_eq!(node.checks.len(), 13);
    assert!(node.checks.iter().all(|check| check.holds.is_none()), "tiny amounts show nothing");
}

fn check_row(row: &StrategyRow) {
    assert_eq!(row.failure, None, "{row:?}");
    assert_eq!(row.order.len(), 1, "{row:?}");
    let values = |name: &str| row.figures.get(name).map_or(&[][..], Vec::as_slice);
    let least = |name: &str| values(name).iter().copied().fold(f64::INFINITY, f64::min);
    assert!(values("operations").len() == 1 && least("operations") > 0.0, "{row:?}");
    match &*row.variant["case"] {
        "idle" => assert_eq!((values("operations")[0], values("memory_kb").len()), (20.0, 1)),
        "blocked" => {
            assert!(least("handshake_p95_ms") >= least("handshake_p50_ms"), "{row:?}");
            assert!(row.times["handshake"].count > 0);
        }
        _ => {
            assert!(least("rate") > 0.0 && least("main_us") > 0.0, "{row:?}");
            assert!(least("cpu_us") * 1.01 >= least("main_us"), "{row:?}");
            let resumes = row.variant["case"].starts_with("resumed");
            let resumed = if resumes { values("operations")[0] } else { 0.0 };
            // The client of HTTP/2 is h2load, which does not count them.
            let counted = if row.variant["case"] == "h2" { vec![] } else { vec![resumed] };
            assert_eq!(values("resumed"), counted, "{row:?}");
            let has_lanes = row.strategy.starts_with("sealane") || row.strategy == "hybrid";
            assert_eq!(row.figures.contains_key("lanes_us"), has_lanes, "{row:?}");
        }
    }
}

/// Each is done by a file that Node loads before the server.
#[test]
fn a_server_that_does_something_else_has_no_figures() {
    let of = |module: &str, call: &str, change: &str| {
        format!(
            "const m = require('{module}'); const call = m.{call};\n\
             m.{call} = function (...given) {{ {change}; return call.apply(this, given); }};"
        )
    };
    let body = of(
        "node:http",
        "ServerResponse.prototype.end",
        "given[0] = Buffer.from(given[0]); given[0][given[0].length - 1] ^= 1",
    );
    let short =
        of("node:http", "ServerResponse.prototype.writeHead", "given[1]['content-length']--");
    let status = of("node:http", "ServerResponse.prototype.writeHead", "given[0] = 503");
    let group = of("node:https", "createServer", "given[0].ecdhCurve = 'P-256'");
    let suite = of("node:https", "createServer", "given[0].ciphers = 'TLS_AES_256_GCM_SHA384'");
    let version = of(
        "node:https",
        "createServer",
        "given[0].minVersion = given[0].maxVersion = 'TLSv1.2'; delete given[0].ciphers",
    );
    let fresh = of(
        "node:https",
        "createServer",
        "given[0].secureOptions = 1 << 14; \
        setInterval(() => this.server?.setTicketKeys(require('node:crypto').randomBytes(48)), 1)",
    );
    let counts = "require('node:tls').TLSSocket.prototype.isSessionReused = () => true".to_owned();
    let crash = "if (process.argv.length > 2) setTimeout(() => process.abort(), 900)".to_owned();
    for (does, case, wanted) in [
        (body, "full", "differs"),
        (short, "full", "answer"),
        (status, "full", "status 503"),
        (group, "full", "alert"),
        (suite, "full", "alert"),
        (version, "full", "alert"),
        (fresh, "resumed", "did a full handshake"),
        (counts, "full", "the server resumed"),
        (crash, "blocked", ""),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let node = misled(&folder, &does);
        let arguments = ["--mode=https", "--case", case, "--window-ms=600", "--node", &node];
        let (output, run) = run(&[&arguments[..], &["--rounds=1", "--seed=1"]].concat());
        assert_eq!(output.status.code(), Some(1), "{does}: {}", text(&output));
        let run = run.unwrap_or_else(|| panic!("{does}: {}", text(&output)));
        let [strategies] = &run.strategies[..] else { panic!("no document") };
        for row in &strategies.rows {
            let failure = row.failure.as_ref().unwrap_or_else(|| panic!("{does}: {row:?}"));
            assert!(failure.contains(wanted) && row.figures.is_empty(), "{does}: {failure}");
        }
    }
}

#[test]
fn what_is_not_there_is_named_with_its_remedy() {
    let (output, document) = run(&["--mode=sealane,https", "--package=/nonexistent", "--quick"]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("node/build --release"), "{said}");
    assert!(document.is_none_or(|run| run.strategies.is_empty()), "there is nothing to compare");
    let (output, _) = run(&["--mode=https", "--node=/nonexistent/node", "--quick"]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("/nonexistent/node"), "{said}");
    let (output, _) = run(&["--mode=http", "--case=blocked", "--quick"]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("no row is left"), "{said}");
}

/// The package itself, if it is built.
#[test]
fn the_package_answers_in_every_mode_and_its_lanes_do_the_work() {
    let package = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("../node");
    let is_addon = |name: &str| name.starts_with("sealane.") && name.ends_with(".node");
    let mut files = fs::read_dir(&package).unwrap().flatten();
    if !files.any(|file| is_addon(&file.file_name().to_string_lossy())) {
        assert!(std::env::var_os("CI").is_none(), "build the addon before: node/build");
        return;
    }
    let package = package.to_string_lossy();
    let modes = "--mode=https,cluster,hybrid,sealane-ring,sealane-socket,sealane";
    let node = node(&[modes, "--rounds=1", "--concurrency=4", "--package", &package]);
    for row in &node.rows {
        assert_eq!(row.failure, None, "{row:?}");
        if let Some(lanes) = row.figures.get("lanes_us") {
            assert!(lanes[0] > 0.0, "{row:?}");
        }
    }
}

/// A package that has the names of sealane and does Node's own TLS.
fn stand_in(folder: &TempDir) -> String {
    let script = "\
        const https = require('node:https');\n\
        const http2 = require('node:http2');\n\
        exports.createServer = https.createServer;\n\
        exports.attach = (server, { ALPNProtocols, ...options }) => {\n\
          const secure = http2.createSecureServer(options);\n\
          for (const listener of server.listeners('request')) secure.on('request', listener);\n\
          return secure;\n\
        };\n";
    let package = folder.path().join("package");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("index.js"), script).unwrap();
    package.to_string_lossy().into_owned()
}

/// Node, with a script that it loads first.
fn misled(folder: &TempDir, script: &str) -> String {
    let (first, node) = (folder.path().join("first.js"), folder.path().join("node"));
    fs::write(&first, script).unwrap();
    crate::write_program(&node, &format!("exec node -r {} \"$@\"", first.display()));
    node.to_string_lossy().into_owned()
}

/// A tiny run in which every row has figures.
fn node(arguments: &[&str]) -> Strategies {
    let (output, run) = run(&[&["--quick"], arguments].concat());
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let run = run.unwrap();
    assert!(run.complete && text.contains("N13 not decided here"), "{text}");
    let [strategies] = <[Strategies; 1]>::try_from(run.strategies).unwrap();
    assert_eq!(strategies.command, "node");
    strategies
}

/// In the order of the table.
fn modes(strategies: &Strategies) -> Vec<&str> {
    let there = |mode: &&str| strategies.rows.iter().any(|row| row.strategy == *mode);
    MODES.into_iter().filter(there).collect()
}

fn run(arguments: &[&str]) -> (Output, Option<Run>) {
    let folder = tempfile::tempdir().unwrap();
    let json: PathBuf = folder.path().join("run.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane-lab"));
    command.stdin(Stdio::null()).arg("node").args(arguments).arg("--json").arg(&json);
    let output = command.output().unwrap();
    let run = fs::read(&json).ok().map(|bytes| serde_json::from_slice(&bytes).unwrap());
    (output, run)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
