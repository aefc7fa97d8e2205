//! What is wrong with a configuration, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Everything that is wrong with a configuration, in the order of the file; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl From<Mistakes> for Vec<String> {
    /// A line each.
    fn from(mistakes: Mistakes) -> Self {
        mistakes.0.iter().map(Mistake::to_string).collect()
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The file and where in it; none for a flag.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// The key with the tables around it, or the flag.
    pub field: String,
    /// What is wrong and the remedy.
    #[serde(flatten)]
    pub problem: Problem,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        self.problem.fmt(f)
    }
}

/// A file and a position in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Counted from 1; none for the file as a whole.
    pub line: Option<usize>,
    /// In characters, counted from 1; none for the file as a whole.
    pub column: Option<usize>,
}

impl Place {
    /// A file as a whole.
    pub fn whole(file: &Path) -> Self {
        Self { file: file.to_owned(), line: None, column: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        for position in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{position}")?;
        }
        Ok(())
    }
}

/// What is wrong with one value, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What is wrong.
    #[serde(rename = "problem")]
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// The keys that are known in the place of an unknown one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<&'static str>,
}

impl Problem {
    /// Both in words; the remedy as a command.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into(), known: Vec::new() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Problem {}
