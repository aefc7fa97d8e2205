//! Builds stacks from registry packages or a folder, [`build`]: sources by cargo, libraries by the
//! project's own scripts, one checked handshake, and only then a name in the cache.
//!
//! ```text
//! stacks/.lock                one build at a time
//!       /.work/NAME/          sources' manifest, build, logs; gone at the end
//!       /.work/NAME/out/      renamed to stacks/NAME when all is well
//!       /NAME.log             of a step that failed
//! ```

mod recipe;
mod step;

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};
use sealane_lab_harness::{
    credentials::Credentials,
    interrupt::Interrupt,
    trial::{Fixed, Task, launch},
};
use sealane_lab_model::{error::Error, scenario::Scenario};

use crate::{bulk::asio, handshake::Handshakes, stacks::cache};
use recipe::{Layout, Maker, Progress, RECIPES, Recipe, Source, Step};

pub(super) use recipe::LIBMONGOC;
use step::Runner;

/// The names of all stacks that can be built, and whether each one is.
pub(super) fn names() -> impl Iterator<Item = (&'static str, bool)> {
    RECIPES.iter().map(|recipe| (recipe.name, recipe.is_built()))
}

/// Builds those of `names` that are missing, and what they need; `all` is all that packages carry.
/// `from` is the folder of sources that none carries.
///
/// # Errors
/// [`Error::Unsupported`] for a name that is none, [`Error::Missing`] for tools and sources,
/// [`Error::Interrupted`]; a step that failed, with the end of its log.
pub(super) fn build(names: &[String], from: Option<&Path>) -> Result<(), Error> {
    let wanted = wanted(names)?;
    let (there, missing): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|it| it.is_built());
    for recipe in there {
        say(&format!("{} is there already", recipe.name))?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    tools(&missing)?;
    missing.iter().try_for_each(|recipe| named(recipe, from))?;
    let folder = cache::folder()?;
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let _lock = lock(&folder)?;
    let interrupt = Interrupt::catch()?;
    for recipe in missing {
        let work = Work::new(&folder, recipe)?;
        let runner = Runner { name: recipe.name, interrupt: &interrupt, folder: &folder };
        work.build(recipe, from, &runner)?;
        // Of a build that failed before.
        let _ = fs::remove_file(runner.log());
        say(&format!("{} is built: {}", recipe.name, folder.join(recipe.name).display()))?;
    }
    Ok(())
}

impl Recipe {
    fn is_built(&self) -> bool {
        cache::library(self.name, self.library).is_some()
    }

    fn is_packed(&self) -> bool {
        matches!(self.source, Source::Package { .. })
    }
}

/// Whether sources that no package carries were named, and are what they should be.
fn named(recipe: &Recipe, from: Option<&Path>) -> Result<(), Error> {
    match (recipe.source, from) {
        (Source::Package { name, .. }, Some(_)) => Err(Error::Unsupported(format!(
            "{} comes from the package {name}: leave --from out",
            recipe.name
        ))),
        (Source::Package { .. }, None) => Ok(()),
        (source @ Source::Folder { .. }, Some(folder)) => source.check(folder),
        (Source::Folder { what, .. }, None) => Err(Error::Missing {
            program: what.to_owned(),
            remedy: format!("sealane-lab stacks build {} --from FOLDER", recipe.name),
        }),
    }
}

/// The recipes of `names`, each behind the one it needs.
fn wanted(names: &[String]) -> Result<Vec<&'static Recipe>, Error> {
    let mut wanted: Vec<&'static Recipe> = Vec::new();
    for name in names {
        let found: Vec<&'static Recipe> = match Recipe::find(name) {
            Some(recipe) => vec![recipe],
            None if name == ALL => RECIPES.iter().filter(|recipe| recipe.is_packed()).collect(),
            None => {
                let known: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
                let known = known.join(", ");
                let what = format!("no stack {name} can be built; there are: {known}, {ALL}");
                return Err(Error::Unsupported(what));
            }
        };
        for recipe in found {
            if !wanted.iter().any(|known| known.name == recipe.name) {
                wanted.push(recipe);
            }
        }
    }
    Ok(wanted)
}

/// Whether all programs are installed; all that are missing are named at once.
fn tools(recipes: &[&Recipe]) -> Result<(), Error> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    let tools = recipes.iter().flat_map(|recipe| recipe.tools());
    let missing: Vec<_> = tools.filter(|tool| !is_there(tool.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: BTreeSet<&str> = missing.iter().map(|tool| tool.program).collect();
    let packages: BTreeSet<&str> = missing.iter().map(|tool| tool.package).collect();
    let join = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(" ");
    let remedy = format!("apt-get install {}", join(packages));
    Err(Error::Missing { program: join(programs), remedy })
}

/// Held until it is dropped, and not longer than this process lives.
fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join(".lock");
    let mut options = File::options();
    let mut file =
        options.create(true).truncate(false).write(true).open(&path).map_err(Error::file(&path))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let pid = fs::read_to_string(&path).unwrap_or_default();
        let what = format!("stacks are being built by process {}; wait for it", pid.trim());
        return Err(Error::Check(what));
    }
    file.set_len(0).map_err(Error::file(&path))?;
    writeln!(file, "{}", std::process::id()).map_err(Error::file(&path))?;
    Ok(file)
}

/// The folder of one build; dropping it takes it away.
struct Work {
    folder: PathBuf,
    target: PathBuf,
}

impl Work {
    fn new(stacks: &Path, recipe: &Recipe) -> Result<Self, Error> {
        let folder = stacks.join(".work").join(recipe.name);
        if folder.exists() {
            // Left by a process that was killed: the lock says that nobody uses it.
            fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
        }
        let work = Self { folder, target: stacks.join(recipe.name) };
        for part in ["manifest", "build", "out"] {
            let part = work.folder.join(part);
            fs::create_dir_all(&part).map_err(Error::file(&part))?;
        }
        Ok(work)
    }

    fn build(
        &self,
        recipe: &Recipe,
        from: Option<&Path>,
        runner: &Runner<'_>,
    ) -> Result<(), Error> {
        let work = self.folder.join("build");
        let sources = match (recipe.maker, recipe.source) {
            (_, Source::Package { name, version, folder }) => {
                self.sources(name, version, runner)?.join(folder)
            }
            // A relative one would be looked for in the build's folder.
            (_, Source::Folder { .. }) => {
                let folder = from.unwrap_or(Path::new(""));
                folder.canonicalize().map_err(Error::file(folder))?
            }
        };
        if recipe.maker == Maker::OldOpenSsl {
            copy_folder(&sources, &work)?;
        }
        let out = self.folder.join("out");
        let layout = Layout {
            sources: &sources,
            work: &work,
            out: &out,
            target: &self.target,
            jobs: thread::available_parallelism().map_or(1, usize::from),
        };
        if recipe.lacks_exports() {
            for (exports, list) in recipe::EXPORTS {
                let (path, list) = (layout.work.join(exports), layout.sources.join(list));
                let list = fs::read_to_string(&list).map_err(Error::file(&list))?;
                fs::write(&path, recipe::exports(&list)).map_err(Error::file(&path))?;
            }
        }
        for step in recipe.steps(&layout) {
            let objects = match step.progress {
                Progress::Objects => Some(runner.count_objects(&step, layout.work)?),
                Progress::Ninja | Progress::None => None,
            };
            runner.run(&step, layout.work, &self.folder.join("step.log"), objects)?;
        }
        self.keep(recipe, &layout)?;
        self.check(recipe)?;
        fs::rename(&out, &self.target).map_err(Error::file(&self.target))
    }

    /// Where cargo has unpacked the package, whose checksum it has compared.
    fn sources(&self, package: &str, version: &str, runner: &Runner<'_>) -> Result<PathBuf, Error> {
        let folder = self.folder.join("manifest");
        let version = version.split('+').next().unwrap_or(version);
        let manifest = format!(
            "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
             [lib]\npath = \"lib.rs\"\n\n[workspace]\n\n\
             [dependencies]\n{package} = \"={version}\"\n"
        );
        for (name, text) in [("Cargo.toml", manifest.as_str()), ("lib.rs", "")] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Error::file(&path))?;
        }
        let log = self.folder.join("step.log");
        let command = ["cargo", "metadata", "--quiet", "--format-version", "1"];
        let command = command.map(str::to_owned).to_vec();
        let step = Step { what: "sources", command, progress: Progress::None };
        runner.run(&step, &folder, &log, None)?;
        let text = fs::read_to_string(&log).map_err(Error::file(&log))?;
        let unclear = || Error::Check(format!("cargo does not tell where {package} lies"));
        let json = text.lines().find(|line| line.starts_with('{')).ok_or_else(unclear)?;
        let json: serde_json::Value = serde_json::from_str(json).map_err(|_| unclear())?;
        let packages = json["packages"].as_array().ok_or_else(unclear)?;
        let found = packages.iter().find(|found| found["name"].as_str() == Some(package));
        let manifest = found.and_then(|found| found["manifest_path"].as_str());
        let folder = manifest.and_then(|path| Path::new(path).parent()).ok_or_else(unclear)?;
        Ok(folder.to_owned())
    }

    /// Lays the libraries and the note into `out`.
    fn keep(&self, recipe: &Recipe, layout: &Layout<'_>) -> Result<(), Error> {
        let out = layout.out;
        let lib = out.join(cache::LIBRARY_FOLDER);
        fs::create_dir_all(&lib).map_err(Error::file(&lib))?;
        let files: Vec<PathBuf> = recipe.kept.iter().map(|kept| layout.work.join(kept)).collect();
        for file in files {
            let name = file.file_name().unwrap_or_default();
            fs::copy(&file, lib.join(name)).map_err(Error::file(&file))?;
        }
        if recipe.headers {
            let built = layout.work.join("include");
            let include = if built.exists() { built } else { layout.sources.join("include") };
            copy_folder(&include, &out.join("include"))?;
        }
        let mut note = recipe.note();
        if let Some(compiler) = compiler() {
            note = format!("{note}; {compiler}");
        }
        let path = out.join(cache::NOTE);
        fs::write(&path, format!("{note}\n")).map_err(Error::file(&path))
    }

    /// A library that cannot do a checked handshake is not kept, nor one that was asked to carry a
    /// byte under Asio and does not.
    fn check(&self, recipe: &Recipe) -> Result<(), Error> {
        let library = self.folder.join("out").join(cache::LIBRARY_FOLDER).join(recipe.library);
        let stack = library.display().to_string();
        let folder = self.folder.join("credentials");
        let scenario = Scenario::default();
        Credentials::make(&folder, scenario.key)?;
        let task = match recipe.maker {
            // It shakes hands by the system's OpenSSL.
            Maker::Installed { .. } => {
                return fs::metadata(&library).map(|_| ()).map_err(Error::file(&library));
            }
            Maker::OldOpenSsl => Task::new(&asio::first_byte(stack, folder))?,
            Maker::CMake { .. } | Maker::OpenSsl { .. } => {
                Task::new(&first_handshake(stack, scenario, folder))?
            }
        };
        launch::run(&task, CHECK_TIME_MAX).map(|_| ())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn first_handshake(stack: String, scenario: Scenario, credentials: PathBuf) -> Handshakes {
    Handshakes {
        stack,
        scenario,
        credentials,
        threads: 1,
        pin: Vec::new(),
        window_ms: 0,
        fixed: Some(Fixed { warm_up: 1, count: 1 }),
        bulk: false,
        fault: None,
    }
}

/// All files of a folder, and what its links lead to.
fn copy_folder(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::file(to))?;
    for entry in fs::read_dir(from).map_err(Error::file(from))? {
        let path = entry.map_err(Error::file(from))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_folder(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(Error::file(&path))?;
        }
    }
    Ok(())
}

/// The compiler's name and version.
fn compiler() -> Option<String> {
    let output = Command::new("cc").arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

fn say(line: &str) -> Result<(), Error> {
    writeln!(io::stderr(), "{line}").map_err(Error::io("standard error"))
}

const ALL: &str = "all";
const CHECK_TIME_MAX: Duration = Duration::from_secs(60);
