//! The runs that a page is made of: read, refused if unknown, and their parts named. [`Sources`]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use sealane_lab_model::{
    document::{self, BulkSeries, CountResult, HandshakeSeries, Run, SCHEMA, Server, Servers},
    error::Error,
    scenario::Scenario,
};
use serde::Deserialize;

/// All runs of a page.
pub(crate) struct Sources {
    /// In the order given.
    pub(crate) runs: Vec<Source>,
    /// What the page says before anything else.
    pub(crate) notes: Vec<String>,
    /// Whether the page must do with fewer plots.
    pub(crate) brief: bool,
    /// By topic and label: colours are few, and topics do not meet in one plot.
    colors: BTreeMap<(&'static str, String), usize>,
    /// What more than one run has: kind of result, scenario and stack.
    repeated: BTreeSet<String>,
}

/// One run and the file that it came from.
pub(crate) struct Source {
    /// The file's name, without its folder.
    pub(crate) file: String,
    pub(crate) run: Run,
}

/// One part of a run with the name and colour that it has on the page.
pub(crate) struct Part<'a, T> {
    pub(crate) label: String,
    pub(crate) color: usize,
    /// The run's place in [`Sources::runs`].
    pub(crate) run: usize,
    pub(crate) of: &'a T,
}

/// Results of one kind that have a stack and a scenario.
pub(crate) trait Outcome {
    /// The kind, so that a stack's counts do not count as a repetition of its rates.
    const KIND: &'static str;
    /// What shares its colours.
    const TOPIC: &'static str = STACKS;
    /// All results of that kind in a run.
    fn all(run: &Run) -> &[Self]
    where
        Self: Sized;
    /// Who it is about.
    fn name(&self) -> String;
    /// What was asked.
    fn scenario(&self) -> &Scenario;
    /// What it holds, where two runs may each hold a part.
    fn parts(&self) -> Vec<&'static str> {
        vec![""]
    }
}

impl Sources {
    /// Reads files.
    ///
    /// # Errors
    /// [`Error::Document`] if one is broken, too large, or of another schema.
    pub(crate) fn read(paths: &[impl AsRef<Path>]) -> Result<Self, Error> {
        paths
            .iter()
            .map(|path| Source::read(path.as_ref()))
            .collect::<Result<_, _>>()
            .map(Self::new)
    }

    pub(crate) fn new(runs: Vec<Source>) -> Self {
        let mut sources = Self {
            runs,
            notes: Vec::new(),
            brief: false,
            colors: BTreeMap::new(),
            repeated: BTreeSet::new(),
        };
        let mut seen = BTreeSet::new();
        let mut labels: Vec<(&str, String)> = Vec::new();
        for Source { run, .. } in &sources.runs {
            for key in run_keys(run) {
                if !seen.insert(key.clone()) {
                    sources.repeated.insert(key);
                }
            }
        }
        for (at, Source { run, .. }) in sources.runs.iter().enumerate() {
            labels.extend(sources.labels::<HandshakeSeries>(run, at));
            labels.extend(sources.labels::<CountResult>(run, at));
            labels.extend(sources.labels::<BulkSeries>(run, at));
            let servers = run.servers.iter().flat_map(|servers| &servers.servers);
            labels.extend(servers.map(|server| (SERVERS, server.name.clone())));
        }
        for (topic, label) in labels {
            let next = sources.colors.keys().filter(|(other, _)| *other == topic).count();
            sources.colors.entry((topic, label)).or_insert(next);
        }
        sources
    }

    /// All results of one kind, by scenario, in the order of their first appearance.
    pub(crate) fn by_scenario<T: Outcome>(&self) -> Vec<(&Scenario, Vec<Part<'_, T>>)> {
        let mut groups: Vec<(&Scenario, Vec<Part<'_, T>>)> = Vec::new();
        for part in self.parts::<T>() {
            let scenario = part.of.scenario();
            match groups.iter_mut().find(|(other, _)| *other == scenario) {
                Some((_, parts)) => parts.push(part),
                None => groups.push((scenario, vec![part])),
            }
        }
        groups
    }

    /// All results of one kind.
    pub(crate) fn parts<T: Outcome>(&self) -> Vec<Part<'_, T>> {
        let mut parts = Vec::new();
        for (run, source) in self.runs.iter().enumerate() {
            for of in T::all(&source.run) {
                let label = self.label(of, run);
                let color = self.color(T::TOPIC, &label);
                parts.push(Part { label, color, run, of });
            }
        }
        parts
    }

    /// Runs with terminators.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (usize, &Servers)> {
        let runs = self.runs.iter().enumerate();
        runs.filter_map(|(at, source)| source.run.servers.as_ref().map(|servers| (at, servers)))
    }

    /// A server's colour.
    pub(crate) fn server_color(&self, server: &Server) -> usize {
        self.color(SERVERS, &server.name)
    }

    fn color(&self, topic: &'static str, label: &str) -> usize {
        self.colors.get(&(topic, label.to_owned())).copied().unwrap_or(0)
    }

    fn labels<T: Outcome>(&self, run: &Run, at: usize) -> Vec<(&'static str, String)> {
        T::all(run).iter().map(|outcome| (T::TOPIC, self.label(outcome, at))).collect()
    }

    fn label<T: Outcome>(&self, result: &T, run: usize) -> String {
        let name = result.name();
        if keys(result).iter().any(|key| self.repeated.contains(key)) {
            format!("{name} (run {})", run + 1)
        } else {
            name
        }
    }
}

impl Source {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = document::text(path)?;
        let run = parse(&text, &path.display().to_string())?;
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { file, run })
    }
}

/// A run from JSON.
///
/// # Errors
/// [`Error::Document`] with the place of what is wrong.
pub(crate) fn parse(text: &str, file: &str) -> Result<Run, Error> {
    #[derive(Deserialize)]
    struct Head {
        schema: Option<String>,
    }
    let refuse = |reason: String| Error::Document { file: file.to_owned(), reason };
    let broken = |error: serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or(&what);
        let remedy = "write the file anew with the command that measured";
        refuse(format!("line {line}, column {column}: {what}; {remedy}"))
    };
    let head: Head = serde_json::from_str(text).map_err(broken)?;
    match head.schema {
        Some(schema) if schema == SCHEMA => serde_json::from_str(text).map_err(broken),
        Some(schema) => Err(refuse(format!(
            "its schema is {schema:?}, and this program knows {SCHEMA:?} alone: \
             draw it with the sealane-lab that wrote it"
        ))),
        None => Err(refuse(format!(
            "it has no field \"schema\": it is not a run that sealane-lab wrote (schema {SCHEMA:?})"
        ))),
    }
}

fn run_keys(run: &Run) -> BTreeSet<String> {
    let handshakes = run.handshakes.iter().flat_map(keys);
    let counts = run.counts.iter().flat_map(keys);
    let bulk = run.bulk.iter().flat_map(keys);
    handshakes.chain(counts).chain(bulk).collect()
}

/// What a result is of, once for each of its parts.
fn keys<T: Outcome>(result: &T) -> Vec<String> {
    let of = format!("{} {:?} {}", T::KIND, result.scenario(), result.name());
    result.parts().into_iter().map(|part| format!("{of} {part}")).collect()
}

impl Outcome for HandshakeSeries {
    const KIND: &'static str = "handshake";

    fn all(run: &Run) -> &[Self] {
        &run.handshakes
    }

    fn name(&self) -> String {
        self.stack.clone()
    }

    fn scenario(&self) -> &Scenario {
        &self.scenario
    }
}

impl Outcome for CountResult {
    const KIND: &'static str = "count";

    fn parts(&self) -> Vec<&'static str> {
        let Self { instructions, locks, shared_writes, unit, .. } = self;
        if unit.is_some() {
            // A page has figures per handshake alone.
            return Vec::new();
        }
        let parts = [
            ("instructions", instructions.is_some()),
            ("locks", locks.is_some()),
            ("writes", shared_writes.is_some()),
        ];
        parts.into_iter().filter(|(_, has)| *has).map(|(part, _)| part).collect()
    }

    fn all(run: &Run) -> &[Self] {
        &run.counts
    }

    fn name(&self) -> String {
        self.stack.clone()
    }

    fn scenario(&self) -> &Scenario {
        &self.scenario
    }
}

impl Outcome for BulkSeries {
    const KIND: &'static str = "bulk";
    const TOPIC: &'static str = "bulk";

    fn all(run: &Run) -> &[Self] {
        &run.bulk
    }

    /// Everything but threads and amounts, by which series are compared.
    fn name(&self) -> String {
        let mut name = format!("{}, {}", self.stack, self.runtime);
        if let Some(loops) = &self.loops {
            name += &format!(", {loops} loops");
        }
        if let Some(emulate) = &self.emulate {
            name += &format!(", with {emulate}");
        }
        name
    }

    fn scenario(&self) -> &Scenario {
        &self.scenario
    }
}

const STACKS: &str = "stacks";
const SERVERS: &str = "servers";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(text, "a.json").unwrap_err().to_string()
    }

    #[test]
    fn broken_json_names_file_line_and_column() {
        let said = refusal("{\n  \"schema\": \"sealane-lab/1\",\n  oops\n}");
        assert!(said.starts_with("a.json: line 3, column 3: key must be a string"), "{said}");
        let said = refusal("{\"schema\": \"sealane-lab/1\", \"started\": 7}");
        assert!(said.starts_with("a.json: line 1, column 40: invalid type"), "{said}");
        assert!(refusal("").contains("line 1, column 0"), "{}", refusal(""));
    }

    #[test]
    fn another_schema_is_refused_by_name() {
        let said = refusal(r#"{"schema":"sealane-lab/2","new":[]}"#);
        assert!(said.contains("\"sealane-lab/2\"") && said.contains("\"sealane-lab/1\""), "{said}");
        assert!(refusal("{}").contains("no field \"schema\""));
    }

    #[test]
    fn a_stack_that_two_runs_measured_carries_the_run() {
        let series = |stack: &str| HandshakeSeries {
            stack: stack.into(),
            scenario: Scenario::default(),
            negotiated: None,
            points: Vec::new(),
            times: None,
            failure: None,
        };
        let count = CountResult { stack: "b".into(), ..CountResult::default() };
        let first = Run { handshakes: vec![series("a"), series("b")], ..Run::default() };
        let second = Run { handshakes: vec![series("a")], counts: vec![count], ..Run::default() };
        let source = |run| Source { file: "x".into(), run };
        let sources = Sources::new(vec![source(first), source(second)]);
        let labels = |sources: &Sources| -> Vec<(String, usize)> {
            let parts = sources.parts::<HandshakeSeries>();
            parts.into_iter().map(|part| (part.label, part.color)).collect()
        };
        let expected = [("a (run 1)", 0), ("b", 1), ("a (run 2)", 2)];
        assert_eq!(labels(&sources), expected.map(|(label, color)| (label.to_owned(), color)));
        assert_eq!(sources.parts::<CountResult>()[0].label, "b", "its counts repeat nothing");
    }
}
