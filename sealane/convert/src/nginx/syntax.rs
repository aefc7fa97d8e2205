//! The syntax of nginx's configuration: directives of words, some with a block of others.

use std::path::Path;
use std::rc::Rc;

use sealane_config::{Mistake, Mistakes, Place, Problem};

use super::super::files::Files;
use super::super::remark::{Line, Remarks};

/// Words up to a semicolon, or to a block.
#[derive(Debug)]
pub(super) struct Directive {
    /// Empty where there is none.
    pub(super) block: Vec<Directive>,
    pub(super) line: Line,
    /// At least one.
    pub(super) words: Vec<String>,
}

impl Directive {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }
}

/// The directives of a text, with those of included files in their place.
pub(super) fn directives(
    text: &str,
    file: &Path,
    files: &mut Files,
    remarks: &mut Remarks,
) -> Result<Vec<Directive>, Mistakes> {
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut reader = Reader { files, folder: &folder, remarks, includes: 0 };
    reader.file(text, file)
}

struct Reader<'r> {
    files: &'r mut Files,
    /// The folder that relative paths begin in.
    folder: &'r Path,
    includes: usize,
    remarks: &'r mut Remarks,
}

impl Reader<'_> {
    fn file(&mut self, text: &str, file: &Path) -> Result<Vec<Directive>, Mistakes> {
        let mut tokens = Tokens { file: file.into(), line: 1, rest: text };
        self.block(&mut tokens, 0)
    }

    fn block(&mut self, tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Directive>, Mistakes> {
        if depth > DEPTH_MAX {
            return Err(tokens.broken("blocks within more blocks than make sense"));
        }
        let mut directives = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut number = 1;
        while let Some(token) = tokens.token()? {
            if words.is_empty() {
                number = tokens.line;
            }
            match token {
                Token::Word(word) => words.push(word),
                Token::End if words.is_empty() => return Err(tokens.broken("\";\" without words")),
                Token::End => {
                    let directive = tokens.directive(&mut words, number, ";");
                    self.put(directive, &mut directives)?;
                }
                Token::Open if words.is_empty() => {
                    return Err(tokens.broken("\"{\" without words"));
                }
                Token::Open => {
                    let mut directive = tokens.directive(&mut words, number, " { ... }");
                    directive.block = self.block(tokens, depth + 1)?;
                    directives.push(directive);
                }
                Token::Close if depth == 0 => return Err(tokens.broken("\"}\" closes nothing")),
                Token::Close if !words.is_empty() => {
                    return Err(tokens.broken("\"}\" where \";\" should be"));
                }
                Token::Close => return Ok(directives),
            }
        }
        match depth == 0 && words.is_empty() {
            true => Ok(directives),
            false => Err(tokens.broken("the file ends within a directive")),
        }
    }

    /// Adds a directive, or the directives that it includes, behind others.
    fn put(&mut self, directive: Directive, into: &mut Vec<Directive>) -> Result<(), Mistakes> {
        let ("include", Some(pattern)) = (directive.name(), directive.words.get(1)) else {
            into.push(directive);
            return Ok(());
        };
        let line = &directive.line;
        if self.includes == INCLUDES_DEEP_MAX {
            self.remarks.left_out(line, "", "files include each other too deeply");
            return Ok(());
        }
        let paths = match self.files.matching(&self.folder.join(pattern)) {
            Ok(paths) => paths,
            Err(why) => {
                self.remarks.left_out(line, "", format!("its folder {why}"));
                return Ok(());
            }
        };
        self.includes += 1;
        for path in paths {
            match self.files.text(&path) {
                Ok(text) => into.append(&mut self.file(&text, &path)?),
                Err(why) => self.remarks.left_out(line, "", format!("{} {why}", path.display())),
            }
        }
        self.includes -= 1;
        Ok(())
    }
}

enum Token {
    Close,
    End,
    Open,
    Word(String),
}

struct Tokens<'t> {
    file: Rc<Path>,
    line: usize,
    rest: &'t str,
}

impl Tokens<'_> {
    fn directive(&self, words: &mut Vec<String>, number: usize, end: &str) -> Directive {
        let words = std::mem::take(words);
        let text = format!("{}{end}", words.join(" "));
        let line = Line::new(&self.file, number, &text);
        Directive { block: Vec::new(), line, words }
    }

    fn take(&mut self, len: usize) {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.matches('\n').count();
        self.rest = rest;
    }

    fn token(&mut self) -> Result<Option<Token>, Mistakes> {
        loop {
            self.take(self.rest.len() - self.rest.trim_start().len());
            if !self.rest.starts_with('#') {
                break;
            }
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let punctuation = match first {
            ';' => Some(Token::End),
            '{' => Some(Token::Open),
            '}' => Some(Token::Close),
            _ => None,
        };
        if punctuation.is_some() {
            self.take(1);
            return Ok(punctuation);
        }
        match first {
            '"' | '\'' => self.quoted(first).map(|word| Some(Token::Word(word))),
            _ => Ok(Some(Token::Word(self.word()))),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Mistakes> {
        let mut word = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => word.extend(characters.next().map(|(_, escaped)| escaped)),
                c if c == quote => {
                    self.take(at + 1);
                    return Ok(word);
                }
                c => word.push(c),
            }
        }
        Err(self.broken("the text in quotes has no end"))
    }

    /// A word; `${NAME}` is part of one.
    fn word(&mut self) -> String {
        let mut word = String::new();
        let mut end = self.rest.len();
        let mut in_variable = false;
        let mut characters = self.rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => {
                    word.extend(characters.next().map(|(_, escaped)| escaped));
                }
                '{' if word.ends_with('$') => {
                    in_variable = true;
                    word.push('{');
                }
                '}' if in_variable => {
                    in_variable = false;
                    word.push('}');
                }
                c if c.is_whitespace() || c == ';' || c == '{' => {
                    end = at;
                    break;
                }
                c => word.push(c),
            }
        }
        self.take(end);
        word
    }

    fn broken(&self, what: &str) -> Mistakes {
        let place = Place { file: self.file.to_path_buf(), line: Some(self.line), column: None };
        let problem = Problem::new(what, "is it a configuration of nginx? \"nginx -t\" tells");
        Mistakes(vec![Mistake { place: Some(place), field: String::new(), problem }])
    }
}

/// Adds a remark with the reason why a directive has no key, and the remedy.
pub(super) fn tell_without_key(directive: &Directive, remarks: &mut Remarks) {
    let (name, line) = (directive.name(), &directive.line);
    let known = OTHERS.iter().find(|(known, _)| *known == name);
    match known {
        None => remarks.unknown(line, "", "nginx"),
        Some((_, why)) if name == "js_access" => remarks.admits_more(line, "", *why),
        Some((_, why)) if UNSEEN.contains(&name) => remarks.note(line, "", *why),
        Some((_, why)) => remarks.left_out(line, "", *why),
    }
}

/// Blocks within blocks.
const DEPTH_MAX: usize = 16;
/// Files that are included by files that are included.
const INCLUDES_DEEP_MAX: usize = 8;

const LOG: &str = "Sealane logs to standard error; [access_log] writes a line for each connection";
const RESUMPTION: &str = "resumption is by tickets alone, for all listeners: [tickets]";
const UNIT: &str =
    "[process] says who it runs as, and the unit with which limits: packaging/sealane.service";

const OTHERS: [(&str, &str); 40] = [
    ("access_log", LOG),
    ("daemon", "sealane serve stays in the foreground; the unit starts it"),
    ("error_log", LOG),
    ("events", "each lane has a loop of its own; limits.connections says how many there may be"),
    ("geo", "of variables Sealane has the server name alone: [[listener.route]]"),
    ("http", "Sealane relays bytes and reads no requests: keep nginx behind it for that"),
    ("js_access", "there are no scripts"),
    ("js_import", "there are no scripts"),
    ("limit_conn_log_level", "who is refused is counted, and is in [access_log]"),
    ("load_module", "there are no modules"),
    ("log_format", "a line of [access_log] is a JSON object"),
    ("mail", "Sealane relays bytes: it speaks no IMAP, POP3 or SMTP"),
    ("master_process", "there is one process"),
    ("pcre_jit", "there are no expressions"),
    ("pid", "the service manager knows the process"),
    ("preread_buffer_size", "limits.hello_bytes holds for all listeners"),
    ("proxy_bind", "tell backends by a PROXY header: proxy_header = \"v1\" or \"v2\""),
    ("proxy_buffer_size", "buffers have sizes of their own"),
    ("proxy_download_rate", "nobody is slowed down"),
    ("proxy_next_upstream_timeout", "each attempt has limits.connect_timeout"),
    ("proxy_next_upstream_tries", "every backend is tried once"),
    ("proxy_ssl_ciphers", "backends are offered all suites of Sealane"),
    ("proxy_ssl_crl", "revocation is looked at for clients alone"),
    ("proxy_upload_rate", "nobody is slowed down"),
    ("resolver", "the system's resolver is asked, every `resolve` of the listener"),
    ("resolver_timeout", "the system's resolver is asked, every `resolve` of the listener"),
    ("return", "Sealane answers nothing itself: keep nginx for it"),
    ("server_name", "routes choose by name: [[listener.route]]"),
    ("split_clients", "nobody is chosen by chance"),
    ("ssl_conf_command", "commands of OpenSSL mean nothing here but Ciphersuites"),
    ("ssl_dhparam", "there is no finite-field Diffie-Hellman"),
    ("ssl_engine", "keys are used by Sealane's own cryptography alone"),
    ("ssl_password_file", "keys lie decrypted, or in a certificate store"),
    ("ssl_session_cache", RESUMPTION),
    ("ssl_session_ticket_key", "machines share a file as tickets.root"),
    ("ssl_session_timeout", RESUMPTION),
    ("thread_pool", "each lane has a loop of its own"),
    ("user", UNIT),
    ("worker_cpu_affinity", "pin_lanes = true binds each lane to a core"),
    ("worker_rlimit_nofile", UNIT),
];

/// Directives of which neither clients nor backends see anything.
const UNSEEN: [&str; 14] = [
    "access_log",
    "daemon",
    "error_log",
    "events",
    "limit_conn_log_level",
    "load_module",
    "log_format",
    "master_process",
    "pcre_jit",
    "pid",
    "thread_pool",
    "user",
    "worker_cpu_affinity",
    "worker_rlimit_nofile",
];
