//! Files with more listeners that a configuration names: `include = ["conf.d/*.toml"]`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sealane_operator::key::{Key, PathKind, Set};
use sealane_operator::mistake::{Mistake, Place, Problem};
use sealane_operator::reader::{self, Value};
use sealane_sandbox::outside;

use crate::claims::Claims;
use crate::limits::{LISTENERS_MAX, Shared};
use crate::listener::Listener;
use crate::listeners::{FILE_LISTENER_EXAMPLE, INCLUDED, LISTENER, listener_list};

/// What the files that are included say.
#[derive(Default)]
pub(crate) struct Included {
    pub(crate) listeners: Vec<Listener>,
    /// What is wrong in them.
    pub(crate) mistakes: Vec<Mistake>,
    /// The files and folders that were looked at.
    pub(crate) sources: Vec<PathBuf>,
}

impl Included {
    /// Reads the files that the value `written` in `main` names, except `main` itself. Included
    /// files cannot include others.
    pub(crate) fn read(
        main: &Path,
        written: &Value<'_>,
        shared: Shared<'_>,
        claims: &mut Claims,
    ) -> Self {
        let mut included = Self::default();
        let mut files: Vec<PathBuf> = Vec::new();
        written.set(INCLUDE.kind.1, |value| {
            if value.as_text().is_some_and(|text| text.starts_with("store:")) {
                value.wrong(Problem::new(STORE, STORE_REMEDY));
                return None;
            }
            let Pattern { folder, prefix, suffix } =
                value.path().and_then(|p| pattern(&p, value))?;
            let Some(suffix) = suffix else {
                files.push(folder.join(prefix));
                return Some(value.path());
            };
            let found = matching(&folder, &prefix, &suffix).map_err(|error| {
                let what = format!("{} cannot be read: {error}", folder.display());
                let problem = Problem::new(what, "make it, see that this user may read it");
                value.wrong(outside(&folder).unwrap_or(problem));
            });
            files.extend(found.unwrap_or_default());
            included.sources.push(folder);
            Some(value.path())
        });
        // One may be named twice, and fit a pattern of which the first is a part.
        let mut seen = HashSet::from([main.to_path_buf()]);
        files.retain(|file| seen.insert(file.clone()));
        if files.len() > FILES_MAX {
            let what = format!("{} files are included", files.len());
            written.wrong(Problem::new(what, format!("join them to {FILES_MAX} at most")));
            return included;
        }
        for file in files {
            included.read_file(&file, shared, claims);
            included.sources.push(file);
        }
        included
    }

    fn read_file(&mut self, file: &Path, shared: Shared<'_>, claims: &mut Claims) {
        let text = match read_text(file) {
            Ok(text) => text,
            Err(problem) => {
                let place = Some(Place::whole(file));
                return self.mistakes.push(Mistake { place, field: String::new(), problem });
            }
        };
        let (listeners, mistakes) = reader::read(file, &text, &INCLUDED, |top| {
            let written = top.required(&LISTENER, FILE_LISTENER_EXAMPLE)?;
            listener_list(&written, shared, claims)
        });
        self.listeners.extend(listeners.into_iter().flatten());
        self.mistakes.extend(mistakes);
    }
}

/// Where files are looked for, and what their names begin and end with; without an end, one file.
struct Pattern {
    folder: PathBuf,
    prefix: String,
    suffix: Option<String>,
}

fn pattern(path: &Path, written: &Value<'_>) -> Option<Pattern> {
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let has_star = |text: &str| text.contains(['*', '?', '[']);
    let (prefix, suffix) = match name.split_once('*') {
        None => (name, None),
        Some((prefix, suffix)) => (prefix, Some(suffix)),
    };
    let others = [&*folder.to_string_lossy(), prefix, suffix.unwrap_or_default()];
    if name.is_empty() || others.into_iter().any(has_star) {
        written.wrong(Problem::new(
            "is neither a file nor a pattern for files of one folder",
            "write a path with one * at most, in its last part, such as \"conf.d/*.toml\"",
        ));
        return None;
    }
    Some(Pattern { folder, prefix: prefix.to_owned(), suffix: suffix.map(str::to_owned) })
}

/// The files of a folder with such names, in their order; hidden ones are passed over.
fn matching(folder: &Path, prefix: &str, suffix: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let here = if folder == Path::new("") { Path::new(".") } else { folder };
    for entry in fs::read_dir(here)? {
        let name = entry?.file_name();
        let Some(text) = name.to_str() else { continue };
        let is_long_enough = text.len() >= prefix.len() + suffix.len();
        let fits = is_long_enough && text.starts_with(prefix) && text.ends_with(suffix);
        if fits && !text.starts_with('.') {
            found.push(folder.join(name));
        }
    }

    found.sort();
    Ok(found)
}

pub(crate) fn read_text(file: &Path) -> Result<String, Problem> {
    sealane_operator::read_text(file, |_| outside(file))
}

/// Files that one configuration includes: each has a listener at least.
const FILES_MAX: usize = LISTENERS_MAX;

const STORE: &str = "is a certificate store, and a store has no configuration";

const STORE_REMEDY: &str = "write the path of a file; distribute that file with your configuration \
                            management, then run sealane check and systemctl reload sealane";

pub(crate) static INCLUDE: Key<Set<PathKind>> = Key::new(
    "include",
    Set(PathKind, 64),
    "Files with more listeners, and nothing else: paths, or patterns with a * in the last part. \
     Files of a pattern are read in the order of their names. A change of such a file reloads, and \
     so does a new one.",
)
.examples(&["[\"conf.d/*.toml\"]"])
.without("no other file");

#[cfg(test)]
mod tests {
    use crate::Config;

    use super::*;

    /// A configuration in a folder with these files, and how it is read.
    fn loaded(main: &str, files: &[(&str, &str)]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("conf.d")).unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let file = folder.path().join("main.toml");
        fs::write(&file, main).unwrap();
        let told = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
        Config::load(&file).map_err(|mistakes| told(mistakes.to_string()))
    }

    fn listener(port: u16) -> String {
        format!(
            "[[listener]]\naddress = \"127.0.0.1:{port}\"\ncertificates = [\"certs\"]\n\
             backends = [\"localhost:80\"]\n"
        )
    }

    const INCLUDE: &str = "include = [\"conf.d/*.toml\"]\n";

    #[test]
    fn listeners_come_from_the_file_and_then_from_others_by_name() {
        let mut texts: Vec<(String, String)> = (2..26)
            .map(|port| (format!("conf.d/{}.toml", char::from(b'a' + port * 7 % 24)), port))
            .map(|(name, port)| (name, listener(port.into())))
            .collect();
        let files: Vec<(&str, &str)> =
            texts.iter().map(|(name, text)| (&**name, &**text)).collect();
        let none = [("conf.d/.hidden.toml", "nonsense"), ("conf.d/a.toml.bak", "nonsense")];
        let main = format!("{INCLUDE}{}{}", listener(1), listener(30));
        let config = loaded(&main, &[&files[..], &none].concat()).unwrap();
        let names = config.listeners.iter().map(|listener| &listener.name);
        let ports: Vec<u16> =
            names.map(|name| name.rsplit_once(':').unwrap().1.parse().unwrap()).collect();
        let by_name: Vec<u16> =
            (0..24).map(|name| (2..26).find(|p| p * 7 % 24 == name).unwrap()).collect();
        assert_eq!(ports, [&[1, 30][..], &by_name].concat());
        // A relative path starts beside the file that it stands in.
        let certificates = config.listeners[2].certificates[0].to_string();
        assert!(certificates.ends_with("/conf.d/certs"), "{certificates}");
        let followed: Vec<_> =
            config.included.iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        texts.sort();
        let expected = texts.iter().map(|(name, _)| name.strip_prefix("conf.d/").unwrap());
        assert_eq!(followed, std::iter::once("conf.d").chain(expected).collect::<Vec<_>>());
        let one = loaded(INCLUDE, &[("conf.d/a.toml", &listener(1))]).unwrap();
        assert_eq!(one.listeners.len(), 1);
        let twice = "include = [\"conf.d/a.toml\", \"conf.d/b.toml\", \"conf.d/*.toml\"]";
        let files = [("conf.d/a.toml", &*listener(1)), ("conf.d/b.toml", &*listener(2))];
        assert_eq!(loaded(twice, &files).unwrap().listeners.len(), 2);
        assert!(loaded(&format!("{INCLUDE}{}", listener(9)), &[]).is_ok(), "an empty folder");
    }

    #[test]
    fn mistakes_name_the_file_and_line_and_come_together() {
        let main = format!("lanes = 4\n{INCLUDE}{}", listener(1));
        let other = listener(1).replace("backends", "backend");
        let lanes = format!("lanes = 2\n{}name = \"a\"\n{}name = \"a\"", listener(2), listener(3));
        let lanes = format!("{lanes}\nconnections = 3");
        let told = loaded(&main, &[("conf.d/a.toml", &other), ("conf.d/b.toml", &lanes)]);
        let told = told.unwrap_err();
        for expected in [
            "conf.d/a.toml:2:11: listener[0].address: 127.0.0.1:1 is already the address of the \
             listener in line 3 of main.toml; choose another",
            "conf.d/a.toml:4:1: listener[0].backend: is not a known key; did you mean \"backends\"",
            "conf.d/b.toml:1:1: lanes: is not a known key; remove it; known here: listener",
            "conf.d/b.toml:11:8: listener[1].name: line 6 has a listener of the name \"a\"",
            "conf.d/b.toml:12:15: listener[1].connections: 3 in all is less than the 4 lanes that",
        ] {
            assert!(told.contains(expected), "{expected}\n{told}");
        }
        for (main, expected) in [
            (
                INCLUDE,
                "include: no file is there, and without one there is no listener; put a file",
            ),
            ("include = [\"absent/*\"]", "include[0]: absent cannot be read: No such file"),
            ("include = [\"conf.d/a.toml\"]", "conf.d/a.toml: cannot be read: No such file"),
            ("include = [\"*/a.toml\"]", "include[0]: is neither a file nor a pattern"),
            ("include = [\"store:/srv/store\"]", "include[0]: is a certificate store"),
            ("include = [\"conf.d/*.to*\"]", "include[0]: is neither a file nor a pattern"),
        ] {
            let told = loaded(main, &[]).unwrap_err();
            assert!(told.contains(expected), "{main}\n{told}");
        }
    }

    #[test]
    fn what_is_included_includes_nothing_and_not_itself() {
        let all = format!("include = [\"*.toml\"]\n{}", listener(1));
        assert_eq!(loaded(&all, &[("other.toml", &listener(2))]).unwrap().listeners.len(), 2);
        let told = loaded(INCLUDE, &[("conf.d/a.toml", &format!("{INCLUDE}{}", listener(2)))]);
        assert!(told.unwrap_err().contains("conf.d/a.toml:1:1: include: is not a known key"));
        let main = format!("{INCLUDE}limits.listeners = 2\n{}", listener(1));
        let told = loaded(&main, &[("conf.d/a.toml", &(listener(2) + &listener(3)))]).unwrap_err();
        assert!(told.contains("listener: 3 addresses are listened on; limits.listeners"), "{told}");
    }
}
