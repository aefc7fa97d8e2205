//! Rules about the uses of a crate: arrows point down, and sockets, clocks, locks have one layer.

use crate::{
    Finding,
    repository::File,
    source::{Source, contains_words},
};

/// Adds the dependencies of a crate on crates of this workspace that are not below it.
pub(crate) fn check_manifest(file: &File, findings: &mut Vec<Finding>) {
    if file.name() != "Cargo.toml" || !file.text.contains("[package]") {
        return;
    }
    let Some(layer) = layer_of(file) else {
        let message = "an unknown crate: give it its place in LAYERS of tidy/src/layers.rs";
        findings.push(Finding::new(file, 1, "layer", message));
        return;
    };
    for (number, crate_name) in workspace_dependencies(&file.text) {
        if !layer.may_use.contains(&crate_name.as_str()) {
            let message = format!(
                "{} does not use {crate_name}: arrows point down; it may use {:?}",
                layer.folder, layer.may_use
            );
            findings.push(Finding::new(file, number, "layer", message));
        }
    }
}

/// Adds the words of a Rust file, outside its tests, that its layer leaves to another.
pub(crate) fn check_source(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    let Some(layer) = layer_of(file) else { return };
    let lines = source.shipped_lines();
    let mut seen = Vec::new();
    let pem_bans: &[_] = if layer.folder.starts_with("lab/") { &[] } else { &PEM_BANS };
    for (number, used) in lines.iter().cloned().chain(used_paths(&lines)) {
        let bans = layer.bans.iter().chain(verifier_bans(layer)).chain(pem_bans);
        for (words, instead) in bans.filter(|(words, _)| contains_words(&used, words)) {
            if !seen.contains(&(number, *words)) {
                seen.push((number, *words));
                let message = format!("no `{words}` in {}: {instead}", layer.folder);
                findings.push(Finding::new(file, number, "layer", message));
            }
        }
    }
}

/// Verifiers of rustls that a layer may not use. Only the engine and code that is not shipped may.
fn verifier_bans(layer: &Layer) -> &'static [(&'static str, &'static str)] {
    let may_verify = ["engine", "fuzz", "lab"];
    let root = layer.folder.split('/').next().unwrap_or(layer.folder);
    if may_verify.contains(&root) { &[] } else { &VERIFIER_BANS }
}

/// The layer of the folder that `file` is in; of folders in each other, the inner one.
fn layer_of(file: &File) -> Option<&'static Layer> {
    let contains = |layer: &&Layer| {
        file.path.strip_prefix(layer.folder).is_some_and(|rest| rest.starts_with('/'))
    };
    LAYERS.iter().filter(contains).max_by_key(|layer| layer.folder.len())
}

/// The names of this workspace's crates in the dependency tables of a manifest, with their lines.
fn workspace_dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_table = false;
    for (number, line) in manifest.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
        let entry = match line.strip_prefix('[') {
            Some(header) => {
                let header = header.trim_end_matches(']');
                in_table = header.ends_with("dependencies");
                header.split_once("dependencies.").map(|(_, name)| name)
            }
            None => in_table.then_some(line),
        };
        let name = entry.unwrap_or("").split(['.', '=', ' ']).next().unwrap_or("");
        if name.starts_with("sealane") || name == "bytering" {
            found.push((number, name.to_owned()));
        }
    }
    found
}

/// The full paths that `use` declarations bring in, braces resolved, each with its first line.
fn used_paths(lines: &[(usize, String)]) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    let mut declaration: Option<(usize, String)> = None;
    for (number, line) in lines {
        let trimmed = line.trim();
        let visible = trimmed.strip_prefix("pub ").unwrap_or(trimmed);
        if declaration.is_none() && visible.starts_with("use ") {
            declaration = Some((*number, String::new()));
        }
        if let Some((start, text)) = &mut declaration {
            text.push_str(trimmed);
            text.push(' ');
            if trimmed.ends_with(';') {
                let tree = text.split_once("use ").map_or("", |(_, tree)| tree);
                let mut expanded = Vec::new();
                expand("", tree.trim().trim_end_matches(';'), &mut expanded);
                paths.extend(expanded.into_iter().map(|path| (*start, path)));
                declaration = None;
            }
        }
    }
    paths
}

/// `a::{b, c::{d, e}}` names `a::b`, `a::c::d` and `a::c::e`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        return paths.push(format!("{prefix}{tree}"));
    };
    let prefix = format!("{prefix}{head}");
    let inner = inner.strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&prefix, &inner[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inner.len() {
        expand(&prefix, &inner[start..], paths);
    }
}

/// The permissions of one crate.
struct Layer {
    folder: &'static str,
    /// Crates of this workspace.
    may_use: &'static [&'static str],
    /// Whole words outside tests, each with its replacement.
    bans: &'static [(&'static str, &'static str)],
}

/// From top to bottom.
static LAYERS: [Layer; 37] = [
    Layer {
        folder: "fuzz",
        may_use: &[
            "sealane-config",
            "sealane-convert",
            "sealane-engine",
            "sealane-node",
            "sealane-store",
            "sealane-traffic",
        ],
        bans: &[],
    },
    Layer { folder: "tidy", may_use: &[], bans: &[] },
    // The lab measures the terminator from outside, as it measures its peers: never linked.
    Layer {
        folder: "lab/program",
        may_use: &[
            "sealane-lab-exhibits",
            "sealane-lab-harness",
            "sealane-lab-model",
            "sealane-lab-report",
            "sealane-lab-servers",
            "sealane-lab-sharing",
            "sealane-lab-stacks",
            "sealane-lab-watch",
            "sealane-reserved-port",
        ],
        bans: &[],
    },
    Layer { folder: "lab/features", may_use: &[], bans: &[] },
    // The write-ups: nothing else uses them.
    Layer {
        folder: "lab/exhibits",
        may_use: &[
            "bytering",
            "sealane-engine",
            "sealane-lab-harness",
            "sealane-lab-model",
            "sealane-lab-servers",
            "sealane-lab-sharing",
            "sealane-lab-stacks",
            "sealane-libssl",
            "sealane-reserved-port",
        ],
        bans: &[],
    },
    Layer {
        folder: "lab/sharing",
        may_use: &[
            "sealane-file-table",
            "sealane-lab-harness",
            "sealane-lab-model",
            "sealane-lab-servers",
            "sealane-lab-stacks",
            "sealane-lab-watch",
            "sealane-libssl",
            "sealane-reserved-port",
        ],
        bans: &[],
    },
    Layer {
        folder: "lab/watch",
        may_use: &["sealane-lab-harness", "sealane-lab-model"],
        bans: &[],
    },
    Layer {
        folder: "lab/servers",
        may_use: &["sealane-lab-harness", "sealane-lab-model", "sealane-reserved-port"],
        bans: &[],
    },
    Layer {
        folder: "lab/stacks",
        may_use: &[
            "sealane-engine",
            "sealane-lab-harness",
            "sealane-lab-model",
            "sealane-lanes",
            "sealane-libssl",
        ],
        bans: &[],
    },
    Layer { folder: "lab/report", may_use: &["sealane-lab-model"], bans: &BANS_OF_DOCUMENTS },
    Layer {
        folder: "lab/harness",
        may_use: &["sealane-lab-model", "sealane-reserved-port"],
        bans: &[],
    },
    Layer { folder: "lab/libssl", may_use: &[], bans: &[] },
    Layer { folder: "lab/model", may_use: &[], bans: &BANS_OF_DOCUMENTS },
    // Projects that are not ours.
    Layer { folder: "lab/examples", may_use: &[], bans: &[] },
    Layer { folder: "bytering", may_use: &[], bans: &[] },
    // The program: it alone joins the control plane with the relay.
    Layer {
        folder: "sealane",
        may_use: &[
            "sealane-command-line",
            "sealane-config",
            "sealane-control",
            "sealane-engine",
            "sealane-file-table",
            "sealane-lanes",
            "sealane-operator",
            "sealane-relay",
            "sealane-reserved-port",
            "sealane-store",
            "sealane-traffic",
        ],
        bans: &[],
    },
    Layer {
        folder: "sealane/command-line",
        may_use: &[
            "sealane-certificate-files",
            "sealane-config",
            "sealane-control",
            "sealane-convert",
            "sealane-engine",
            "sealane-file-table",
            "sealane-listeners",
            "sealane-operator",
            "sealane-store",
            "sealane-store-requests",
            "sealane-traffic",
        ],
        bans: &[],
    },
    Layer {
        folder: "sealane/convert",
        may_use: &["sealane-certificate-files", "sealane-config", "sealane-engine"],
        bans: &[],
    },
    // It gets the service of its lanes as an argument, so that it does not depend on the relay.
    Layer {
        folder: "sealane/control",
        may_use: &[
            "sealane-certificate-files",
            "sealane-config",
            "sealane-engine",
            "sealane-file-table",
            "sealane-lanes",
            "sealane-listeners",
            "sealane-operator",
            "sealane-sandbox",
            "sealane-store",
            "sealane-store-requests",
            "sealane-traffic",
        ],
        bans: &[],
    },
    Layer {
        folder: "sealane/relay",
        may_use: &[
            "sealane-config",
            "sealane-engine",
            "sealane-file-table",
            "sealane-lanes",
            "sealane-operator",
            "sealane-traffic",
        ],
        bans: &[],
    },
    Layer {
        folder: "sealane/listeners",
        may_use: &[
            "sealane-certificate-files",
            "sealane-config",
            "sealane-engine",
            "sealane-lanes",
            "sealane-operator",
            "sealane-sandbox",
            "sealane-store",
            "sealane-traffic",
        ],
        bans: &[],
    },
    Layer {
        folder: "sealane/traffic",
        may_use: &[
            "sealane-config",
            "sealane-engine",
            "sealane-lanes",
            "sealane-operator",
            "sealane-sandbox",
            "sealane-store",
            "sealane-store-requests",
        ],
        bans: &[],
    },
    Layer {
        folder: "sealane/config",
        may_use: &[
            "sealane-certificate-files",
            "sealane-engine",
            "sealane-lanes",
            "sealane-operator",
            "sealane-sandbox",
            "sealane-store",
        ],
        bans: &[],
    },
    Layer { folder: "sealane/sandbox", may_use: &["sealane-operator"], bans: &[] },
    // A separate process, which alone speaks to authorities: nothing links it.
    Layer {
        folder: "agent",
        may_use: &[
            "sealane-certificate-files",
            "sealane-engine",
            "sealane-kernel-random",
            "sealane-operator",
            "sealane-renewal",
            "sealane-reserved-port",
            "sealane-store",
            "sealane-store-requests",
        ],
        bans: &[],
    },
    Layer {
        folder: "node",
        may_use: &[
            "bytering",
            "sealane-certificate-files",
            "sealane-lanes",
            "sealane-engine",
            "sealane-file-table",
        ],
        bans: &[],
    },
    // Input from operators, and output to them, of all our programs.
    Layer {
        folder: "operator",
        may_use: &["sealane-certificate-files", "sealane-engine", "sealane-store"],
        bans: &[],
    },
    Layer { folder: "client-c", may_use: &["sealane-engine", "sealane-reserved-port"], bans: &[] },
    Layer { folder: "certificate-files", may_use: &["sealane-engine"], bans: &[] },
    Layer {
        folder: "store-requests",
        may_use: &["sealane-engine", "sealane-store"],
        bans: &STORE_REQUESTS_BANS,
    },
    Layer { folder: "store", may_use: &["sealane-engine"], bans: &STORE_BANS },
    Layer { folder: "renewal", may_use: &[], bans: &RENEWAL_BANS },
    Layer {
        folder: "lanes",
        may_use: &["sealane-engine", "sealane-file-table", "sealane-reserved-port"],
        bans: &LANES_BANS,
    },
    Layer {
        folder: "engine",
        may_use: &["sealane-kernel-random", "sealane-reserved-port"],
        bans: &ENGINE_BANS,
    },
    Layer { folder: "kernel-random", may_use: &[], bans: &[] },
    Layer { folder: "file-table", may_use: &[], bans: &[] },
    // For tests, and for the lab, which starts servers too.
    Layer { folder: "reserved-port", may_use: &[], bans: &[] },
];

const VERIFIER_BANS: [(&str, &str); 3] = [
    ("WebPkiClientVerifier", ONE_VERIFIER),
    ("WebPkiServerVerifier", ONE_VERIFIER),
    ("with_root_certificates", ONE_VERIFIER),
];

const ONE_VERIFIER: &str = "the engine judges certificates, and bounds a chain before it searches \
                            a path; use ClientRoots::verifier, or a ClientContext";

const BANS_OF_DOCUMENTS: [(&str, &str); 4] = [
    ("rustix", NO_START),
    ("std::net", NO_START),
    ("std::process", NO_START),
    ("std::thread", NO_START),
];

const LANES_BANS: [(&str, &str); 9] = [
    ("Barrier", NO_WAIT),
    ("Condvar", NO_WAIT),
    ("Mutex", NO_WAIT),
    ("RwLock", NO_WAIT),
    ("eprintln", NO_PRINT),
    ("park", NO_WAIT),
    ("println", NO_PRINT),
    ("std::fs", "files belong to the control plane; hand over what was read"),
    ("thread::sleep", "a lane waits in its poll alone; set a timer"),
];

const STORE_BANS: [(&str, &str); 7] = [
    ("Condvar", NO_WAIT),
    ("Mutex", NO_WAIT),
    ("RwLock", NO_WAIT),
    ("SystemTime", NO_CLOCK),
    ("eprintln", NO_PRINT),
    ("println", NO_PRINT),
    ("std::process", "who holds the key is asked in sealane; take the keys"),
];

const RENEWAL_BANS: [(&str, &str); 12] = [
    ("Condvar", NO_WAIT),
    ("Instant::now", NO_CLOCK),
    ("Mutex", NO_WAIT),
    ("RwLock", NO_WAIT),
    ("SystemTime", NO_CLOCK),
    ("eprintln", NO_PRINT),
    ("println", NO_PRINT),
    ("std::env", "settings are arguments"),
    ("std::fs", NO_DOING),
    ("std::net", NO_DOING),
    ("std::process", NO_DOING),
    ("std::thread", NO_DOING),
];

const STORE_REQUESTS_BANS: [(&str, &str); 10] = [
    ("Condvar", NO_WAIT),
    ("Instant::now", NO_CLOCK),
    ("Mutex", NO_WAIT),
    ("RwLock", NO_WAIT),
    ("SystemTime", NO_CLOCK),
    ("eprintln", NO_PRINT),
    ("println", NO_PRINT),
    ("rustix", NO_SOCKET),
    ("std::net", NO_SOCKET),
    ("std::os", NO_SOCKET),
];

const ENGINE_BANS: [(&str, &str); 16] = [
    ("Condvar", NO_WAIT),
    ("Instant::now", NO_CLOCK),
    ("Mutex", NO_WAIT),
    ("RwLock", NO_WAIT),
    ("SystemTime", NO_CLOCK),
    ("UnixTime::now", NO_CLOCK),
    ("eprintln", NO_PRINT),
    ("println", NO_PRINT),
    ("rustix", NO_SYSTEM),
    ("socket2", NO_SYSTEM),
    ("std::env", "settings are arguments"),
    ("std::fs", "files belong to certificate-files and sealane; take bytes"),
    ("std::net", "sockets belong to lanes; addresses and names are in core::net"),
    ("std::os", NO_SYSTEM),
    ("std::process", NO_SYSTEM),
    ("std::thread", "threads belong to lanes and sealane; take bytes, return bytes"),
];

/// PEM readers that bypass the rules of `engine/src/pem.rs`.
const PEM_BANS: [(&str, &str); 5] = [
    ("PemObject", ONE_PEM_READER),
    ("from_pem_slice", ONE_PEM_READER),
    ("parse_x509_pem", ONE_PEM_READER),
    ("pem_slice_iter", ONE_PEM_READER),
    ("rustls_pemfile", ONE_PEM_READER),
];

const NO_CLOCK: &str = "time is an argument, so that tests need not wait; take `now`";
const NO_DOING: &str = "renewal says what to do and does none of it; return an action";
const NO_PRINT: &str = "return an error or count it; only sealane speaks to people";
const NO_SOCKET: &str = "sockets belong to who uses this crate; take bytes, return answers";
const NO_START: &str = "this room starts nothing and waits for nothing; take what was measured";
const NO_SYSTEM: &str = "engine makes no system call; take bytes, return bytes";
const ONE_PEM_READER: &str =
    "one reader has the rules for damaged PEM; call sealane_engine::pem::sections";
const NO_WAIT: &str = "a lane never waits for a thread; own it, or send it by mailbox";
