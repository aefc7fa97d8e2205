//! Which files the process of `sealane serve` may open: [`close`] limits it to those that its
//! configuration needs, and [`mistakes`] lists those that another configuration needs beyond that.
//!
//! The rules hold from before the first thread on, for it and all programs that it starts, and
//! nothing takes them back: a start finds what a reload would find.

mod needs;

use std::path::Path;

use sealane_config::{Config, KeySource, Mistake, Place, Problem, written_at};
use sealane_sandbox::{self as sandbox, Need};

/// Has the kernel refuse this process everything that `config`, which was read from `file`, does
/// not need; returns the warning if that is wanted and cannot be done. It must be called while
/// there is no other thread: the system changes a thread at a time.
pub fn close(file: Option<&Path>, config: &Config) -> Option<String> {
    if !config.process.sandbox {
        sandbox::leave_open(OFF);
        return None;
    }
    let refusal = match &config.store_key {
        Some(KeySource::Command(_)) => {
            sandbox::leave_open(COMMAND);
            Some(COMMAND.to_owned())
        }
        _ => sandbox::close_around(&needs::all(file, config)),
    };
    refusal.map(|why| format!("what this process may open is not limited: {why}"))
}

/// The paths of `config`, read from `file`, that the kernel refuses to open and that the `running`
/// one does not have: a line for each. A path of both that cannot be opened, such as a folder that
/// was removed and made again, is a fault of its material alone.
pub fn mistakes(
    file: Option<&Path>,
    config: &Config,
    running: &Config,
    is_new: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let Some(mut look) = sandbox::look() else { return Vec::new() };
    let mut mistakes = Vec::new();
    let is_material = |need| matches!(need, Need::Challenges | Need::Read | Need::Store);
    let needed = needs::of(file, running);
    let needs = needs::of(file, config).into_iter().filter(|each| !needed.contains(each));
    for (path, need) in needs.filter(|(path, need)| !is_material(*need) || is_new(path)) {
        let refused = look.refused(&path, need);
        mistakes.extend(refused.map(|problem| said_of(file, config, &path, problem)));
    }
    if let Some(KeySource::Command(words)) = &config.store_key {
        let base = file.and_then(Path::parent).unwrap_or(Path::new(""));
        let program = base.join(words.first().map_or("", |word| word));
        let what = "this process can start no other program since its start (Landlock)";
        mistakes.push(said_of(file, config, &program, Problem::new(what, "restart Sealane")));
    }
    mistakes
}

/// The mistake at the place where `path` is written.
fn said_of(file: Option<&Path>, config: &Config, path: &Path, problem: Problem) -> String {
    let files = file.into_iter().chain(config.included.iter().map(|path| &**path));
    let (place, field) = match written_at(files, path) {
        Some((place, field)) => (Some(place), field),
        None => (file.map(Place::whole), String::new()),
    };
    Mistake { place, field, problem }.to_string()
}

const COMMAND: &str = "store_key.command starts a program, and what that opens nobody can tell; \
                       name a file or a credential instead";
const OFF: &str = "process.sandbox is false";
