//! The syntax of HAProxy's configuration: sections of statements, a line each.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use sealane_config::{Mistake, Mistakes, Place, Problem};

use super::super::remark::{Line, Remarks, unknown};

/// A section with its statements.
#[derive(Debug)]
pub(super) struct Section {
    /// The position of its defaults among the sections. They are before it.
    pub(super) defaults: Option<usize>,
    pub(super) kind: String,
    pub(super) line: Line,
    pub(super) name: String,
    pub(super) statements: Vec<Statement>,
}

/// The words of a line.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) line: Line,
    /// At least one.
    pub(super) words: Vec<String>,
}

impl Statement {
    pub(super) fn name(&self) -> &str {
        self.word(0)
    }

    /// A word by its place; empty where there is none.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }
}

/// Reads the sections of a text.
pub(super) fn sections(text: &str, file: &Path) -> Result<Vec<Section>, Mistakes> {
    let file: Rc<Path> = file.into();
    let mut sections: Vec<Section> = Vec::new();
    let mut last_defaults = None;
    let mut defaults_by_name: HashMap<String, usize> = HashMap::new();
    for (index, written) in text.lines().enumerate() {
        let number = index + 1;
        let broken = |what: &str| {
            let place = Place { file: file.to_path_buf(), line: Some(number), column: None };
            let remedy = "is it a configuration of HAProxy? \"haproxy -c -f FILE\" tells";
            let problem = Problem::new(what, remedy);
            Mistakes(vec![Mistake { place: Some(place), field: String::new(), problem }])
        };
        let words = words(written).map_err(broken)?;
        let Some(first) = words.first() else { continue };
        let line = Line::new(&file, number, written);
        if !SECTIONS.contains(&first.as_str()) {
            let section = sections.last_mut().ok_or_else(|| broken("no section begins with it"))?;
            section.statements.push(Statement { line, words });
            continue;
        }
        let from = words.iter().position(|word| word == "from").and_then(|at| words.get(at + 1));
        let defaults = match (from, first.as_str()) {
            (Some(from), _) => {
                let unknown = || broken("there are no defaults of that name before it");
                Some(*defaults_by_name.get(from).ok_or_else(unknown)?)
            }
            // Defaults that name no others begin with HAProxy's own.
            (None, "defaults") => None,
            (None, _) => last_defaults,
        };
        if first == "defaults" {
            last_defaults = Some(sections.len());
        }
        let name = words.get(1).filter(|word| *word != "from").cloned().unwrap_or_default();
        let kind = first.clone();
        if kind == "defaults" {
            defaults_by_name.entry(name.clone()).or_insert(sections.len());
        }
        sections.push(Section { defaults, kind, line, name, statements: Vec::new() });
    }
    Ok(sections)
}

/// The words of a line: separated by blanks, unless these are quoted or behind a backslash.
pub(super) fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\'', Some('\'')) | ('"', Some('"')) => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            ('#', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("the text in quotes has no end");
    }
    words.extend(word);
    Ok(words)
}

/// Adds a remark with the reason why a statement has no key, and the remedy.
pub(super) fn tell_without_key(statement: &Statement, key: &'static str, remarks: &mut Remarks) {
    let (name, line) = (statement.name(), &statement.line);
    let is_named = |known: &&str| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => *known == name,
    };
    match statement.word(1) {
        option if name == "option" && NEEDLESS_OPTIONS.contains(&option) => return,
        option if name == "option" && LOG_OPTIONS.contains(&option) => {
            return remarks.note(line, key, LOG);
        }
        _ => {}
    }
    let known = OTHERS.iter().find(|(known, _)| is_named(known));
    match known {
        None => remarks.unknown(line, key, "HAProxy"),
        Some((_, why)) if UNSEEN.iter().any(is_named) => remarks.note(line, key, *why),
        Some((_, why)) => remarks.left_out(line, key, *why),
    }
}

/// The reason why a section has no counterpart.
pub(super) fn section_reason(kind: &str) -> String {
    match kind {
        "cache" | "fcgi-app" | "http-errors" | "userlist" => HTTP.into(),
        "mailers" => "the journal, and alerts over /metrics, tell who has to know".into(),
        "peers" => "machines share nothing but a file as tickets.root".into(),
        "resolvers" => "the system's resolver is asked, every `resolve` of the listener".into(),
        _ => unknown("HAProxy"),
    }
}

const SECTIONS: [&str; 17] = [
    "backend",
    "cache",
    "crt-store",
    "defaults",
    "fcgi-app",
    "frontend",
    "global",
    "http-errors",
    "listen",
    "log-forward",
    "mailers",
    "peers",
    "program",
    "resolvers",
    "ring",
    "traces",
    "userlist",
];

const HTTP: &str = "Sealane relays bytes and reads no requests: keep HAProxy behind it for that";
const LOG: &str = "Sealane logs to standard error; [access_log] writes a line for each connection";
const UNIT: &str = "[process] says who it runs as, and the unit where: packaging/sealane.service";

/// A star matches any end of a word.
const OTHERS: [(&str, &str); 38] = [
    ("backlog", "the kernel's own limit holds: net.core.somaxconn"),
    ("ca-base", "roots are named with their whole path"),
    ("capture", HTTP),
    ("chroot", UNIT),
    ("compression", HTTP),
    ("cookie", HTTP),
    ("cpu-map", "pin_lanes = true binds each lane to a core"),
    ("daemon", "sealane serve stays in the foreground; the unit starts it"),
    ("description", "comments are for people"),
    ("disabled", "what is disabled is left out"),
    ("errorfile*", HTTP),
    ("errorloc*", HTTP),
    ("fullconn", "backends take as many as limits.connections"),
    ("group", UNIT),
    ("hard-stop-after", "limits.drain_timeout is how long connections may go on"),
    ("hash-type", "balance is \"round-robin\" or \"least-connections\""),
    ("http-*", HTTP),
    ("log*", LOG),
    ("lua-*", "there are no scripts"),
    ("maxconnrate", "handshakes_per_client limits the rate of each client"),
    ("maxsslconn", "limits.connections counts all"),
    ("master-worker", "there is one process, and a reload happens in it"),
    ("nbproc", "there is one process with a lane for each core: lanes"),
    ("option", "of options of proxies none has a key; what there is stands in docs/moving.md"),
    ("pidfile", "the service manager knows the process"),
    ("redirect", HTTP),
    ("reqrep", HTTP),
    ("retries", "every backend is tried once"),
    ("rspadd", HTTP),
    ("server-state-*", "what is known of backends is learned anew"),
    ("ssl-default-server-*", "backends are offered all suites of Sealane, TLS 1.2 and 1.3"),
    ("ssl-dh-param-file", "there is no finite-field Diffie-Hellman"),
    ("ssl-engine", "keys are used by Sealane's own cryptography alone"),
    ("stats", "[admin] serves metrics, health and state"),
    ("stick*", "connections_per_client and handshakes_per_client count by client"),
    ("tune.*", "there is nothing to tune"),
    ("ulimit-n", UNIT),
    ("user", UNIT),
];

/// Statements of which neither clients nor backends see anything.
const UNSEEN: [&str; 15] = [
    "chroot",
    "cpu-map",
    "daemon",
    "description",
    "group",
    "log*",
    "master-worker",
    "nbproc",
    "pidfile",
    "retries",
    "server-state-*",
    "stats",
    "tune.ssl.default-dh-param",
    "ulimit-n",
    "user",
];
/// Options about the contents of the log.
const LOG_OPTIONS: [&str; 6] =
    ["dontlog-normal", "httplog", "log-health-checks", "log-separate-errors", "logasap", "tcplog"];
/// Options that change nothing here.
const NEEDLESS_OPTIONS: [&str; 5] =
    ["dontlognull", "redispatch", "splice-auto", "tcp-smart-accept", "tcp-smart-connect"];
