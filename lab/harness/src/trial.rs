//! One trial, in a process of its own: the hidden command `trial`, the [`Task`] that it reads and
//! the [`Reply`]s that it prints, as JSON. Which tasks there are, the program says: [`run`] looks a
//! task's name up in its table.
//!
//! ```text
//! sealane-lab trial '{"task":"handshakes","stack":"rustls-ring","scenario":{...},
//!                     "credentials":"FOLDER","threads":2,"pin":[0,1],"window_ms":1000}'
//! sealane-lab trial '{"task":"handshakes", ... ,"fixed":{"warm_up":1,"count":1}}'
//! sealane-lab trial '{"task":"identity","stack":"rustls-ring"}'
//! ```
//! `-` reads the task from standard input. The second form is for instruments: every thread does
//! exactly `warm_up` operations, then all wait for each other, then each does exactly `count` with
//! [`phase`] marks around each side's work. The first line printed is always [`Reply::Started`],
//! the last one the result; after [`Reply::Failed`] the exit status is not 0.

pub mod launch;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use sealane_lab_model::{
    document::{BulkRound, HandshakeRound, Histogram},
    error::Error,
    library::Identity,
    scenario::Negotiated,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::phase;

/// The arguments of `trial`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// What to do, as JSON; `-` reads it from standard input
    task: String,
}

/// What a trial is to do: a name, and the fields of the [`Body`] of that name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The name in the program's table.
    #[serde(rename = "task")]
    name: String,
    /// The fields of that body.
    #[serde(flatten)]
    body: Map<String, Value>,
}

impl Task {
    /// The task that `body` is of.
    ///
    /// # Errors
    /// JSON has no words for it, such as a path that is not UTF-8.
    pub fn new<B: Body>(body: &B) -> Result<Self, Error> {
        match serde_json::to_value(body) {
            Ok(Value::Object(body)) => Ok(Self { name: B::NAME.to_owned(), body }),
            Ok(other) => Err(Error::Check(format!("a task has fields, not {other}"))),
            Err(error) => Err(Error::Check(format!("a task as JSON: {error}"))),
        }
    }
}

/// What a task of one name tells, and what does it. In JSON its fields stand beside the name.
pub trait Body: Serialize + DeserializeOwned {
    /// The name of its tasks.
    const NAME: &'static str;

    /// Does it, in this process; the line is the result.
    ///
    /// # Errors
    /// Why there is none.
    fn perform(&self) -> Result<Reply, Error>;
}

/// A name of a task, and what does such a task from its body.
pub type Entry = (&'static str, fn(Map<String, Value>) -> Result<Reply, Error>);

/// The entry of `B` in the program's table.
#[must_use]
pub const fn entry<B: Body>() -> Entry {
    (B::NAME, |fields| {
        let body: B = serde_json::from_value(Value::Object(fields))
            .map_err(|error| Error::Check(format!("the task {} is not one: {error}", B::NAME)))?;
        body.perform()
    })
}

/// Operations per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// Before the counted ones; at least 1 for a kind that resumes.
    pub warm_up: u64,
    /// Between the marks.
    pub count: u64,
}

/// What a trial prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Reply {
    /// All bytes have arrived and were compared.
    Bulk(BulkOutcome),
    /// The process runs.
    Started {
        /// [`phase::address`] of this process.
        marks: usize,
    },
    /// The exact number of operations is done.
    Fixed {
        /// All threads' counted operations.
        operations: u64,
        /// All threads' operations before them.
        warm_up: u64,
        /// What both ends read back, the same every time.
        negotiated: Negotiated,
    },
    /// The window is closed.
    Window {
        /// The round's figures; the order is the caller's.
        round: HandshakeRound,
        /// What both ends read back, the same every time.
        negotiated: Negotiated,
        /// Time in the server per handshake, building and dropping its end included.
        server: Histogram,
        /// The same of the client.
        client: Histogram,
    },
    /// Which library it is.
    Identity(Identity),
    /// What one strategy did, as in [`StrategyRow`](sealane_lab_model::document::StrategyRow).
    Figures {
        /// By name, one value each.
        figures: BTreeMap<String, f64>,
        /// Times by name.
        #[serde(default)]
        times: BTreeMap<String, Histogram>,
    },
    /// There is no result.
    Failed {
        /// Whether the stack cannot do what was asked, rather than failed at it.
        unsupported: bool,
        /// Why.
        reason: String,
    },
}

/// What a trial of `bulk` found; there is none if any check failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BulkOutcome {
    /// The library.
    pub stack: Identity,
    /// Who drove the sockets, with its version, where that is not this program.
    pub driver: Option<String>,
    /// What both ends read back, on every connection.
    pub negotiated: Negotiated,
    /// The figures; `order` is the caller's.
    pub round: BulkRound,
}

/// Does one task by its entry in `table`; `true` if there is a result. Failures of what is measured
/// are printed as a line.
///
/// # Errors
/// The task cannot be read, or standard output is gone.
pub fn run(arguments: &Arguments, table: &[Entry]) -> Result<bool, Error> {
    let mut text = arguments.task.clone();
    if text == "-" {
        text.clear();
        io::stdin()
            .take(TASK_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(Error::io("standard input"))?;
    }
    let task: Task = serde_json::from_str(&text)
        .map_err(|error| Error::Check(format!("the task is not one: {error}")))?;
    let Some((_, perform)) = table.iter().find(|(name, _)| *name == task.name) else {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        let (name, names) = (task.name, names.join(", "));
        return Err(Error::Check(format!("no task is called {name:?}; there are {names}")));
    };
    print(&Reply::Started { marks: phase::address() })?;
    let line = perform(task.body).unwrap_or_else(|error| match error {
        Error::Unsupported(reason) => Reply::Failed { unsupported: true, reason },
        Error::Check(reason) => Reply::Failed { unsupported: false, reason },
        other => Reply::Failed { unsupported: false, reason: other.to_string() },
    });
    print(&line)?;
    Ok(!matches!(line, Reply::Failed { .. }))
}

/// At once, so that a crash afterwards takes nothing with it.
fn print(line: &Reply) -> Result<(), Error> {
    let mut text = serde_json::to_string(line)
        .map_err(|error| Error::Check(format!("a result as JSON: {error}")))?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io("standard output"))
}

/// Length of a window, unless it is said.
pub const WINDOW_DEFAULT_MS: u64 = 1_000;
/// More than any machine has processors, by half.
pub const THREADS_MAX: usize = 4_096;
/// No task is as long.
const TASK_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Adding {
        numbers: Vec<u64>,
        #[serde(default)]
        more: u64,
    }

    impl Body for Adding {
        const NAME: &'static str = "adding";

        fn perform(&self) -> Result<Reply, Error> {
            let sum = self.numbers.iter().sum::<u64>() + self.more;
            let figures = [("sum".to_owned(), sum as f64)].into();
            Ok(Reply::Figures { figures, times: BTreeMap::new() })
        }
    }

    #[test]
    fn a_task_is_its_name_beside_its_fields() {
        let task = Task::new(&Adding { numbers: vec![1, 2], more: 3 }).unwrap();
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(text, r#"{"task":"adding","more":3,"numbers":[1,2]}"#);
        let read: Task = serde_json::from_str(r#"{"numbers":[7],"task":"adding"}"#).unwrap();
        let (name, perform) = entry::<Adding>();
        assert_eq!(name, read.name);
        let Reply::Figures { figures, .. } = perform(read.body).unwrap() else {
            panic!("no figures")
        };
        assert_eq!(figures["sum"], 7.0);
    }

    #[test]
    fn a_task_that_nobody_does_or_that_lacks_a_field_is_refused_by_name() {
        let run = |task: &str| {
            run(&Arguments { task: task.to_owned() }, &[entry::<Adding>()])
                .map_err(|error| error.to_string())
        };
        let said = run(r#"{"task":"ading","numbers":[1]}"#).unwrap_err();
        assert!(said.contains("\"ading\"") && said.contains("there are adding"), "{said}");
        assert_eq!(run(r#"{"task":"adding"}"#), Ok(false));
        assert_eq!(run(r#"{"task":"adding","numbers":[1]}"#), Ok(true));
    }
}
