//! Conversion of other terminators' configurations to Sealane's: [`convert`] reads a file of a
//! [`Dialect`] and returns a [`Converted`].
#![forbid(unsafe_code)]

mod files;
mod haproxy;
mod hitch;
mod nginx;
mod plan;
mod remark;
mod stunnel;
mod tls;
mod writer;

use std::path::Path;

use clap::ValueEnum;
use sealane_config::{Config, Mistake, Mistakes, Place, Problem};

use files::{Files, STEPS_MAX};
use plan::Plan;

/// Whose configuration a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// HAProxy's
    Haproxy,
    /// hitch's
    Hitch,
    /// nginx's, of which the stream module is read
    NginxStream,
    /// stunnel's
    Stunnel,
}

/// A configuration of Sealane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Lines that were not carried over: clients or backends see a difference.
    pub left_out: usize,
    /// Lines and defaults with a comment, of which clients and backends see nothing.
    pub noted: usize,
    /// The text, with comments about lines that were not carried over, each next to the keys that
    /// it concerns.
    pub toml: String,
}

/// Converts a file, and those that it includes.
///
/// # Errors
/// A file cannot be read, or is no configuration of that program.
pub fn convert(dialect: Dialect, file: &Path) -> Result<Converted, Mistakes> {
    let mut files = Files::of_the_system();
    let unreadable = |what| {
        let problem = Problem::new(what, "name a configuration that this user can read");
        let place = Some(Place::whole(file));
        Mistakes(vec![Mistake { place, field: String::new(), problem }])
    };
    let text = files.text(file).map_err(unreadable)?;
    converted(dialect, file, &text, &mut files)
}

/// Converts the text of a file. Included files are not read.
///
/// # Errors
/// The text is no configuration of that program.
pub fn convert_text(dialect: Dialect, file: &Path, text: &str) -> Result<Converted, Mistakes> {
    converted(dialect, file, text, &mut Files::none())
}

fn converted(
    dialect: Dialect,
    file: &Path,
    text: &str,
    files: &mut Files,
) -> Result<Converted, Mistakes> {
    let read = match dialect {
        Dialect::Haproxy => haproxy::read,
        Dialect::Hitch => hitch::read,
        Dialect::NginxStream => nginx::read,
        Dialect::Stunnel => stunnel::read,
    };
    let mut plan: Plan = read(text, file, files)?;
    if files.are_spent() {
        let what = format!("its parts refer to each other too often: more than {STEPS_MAX} steps");
        let problem = Problem::new(what, "convert it in parts");
        let place = Some(Place::whole(file));
        return Err(Mistakes(vec![Mistake { place, field: String::new(), problem }]));
    }
    plan.settle();
    let written = writer::write(&plan);
    let problems = match Config::parse(file, &written.body) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.0,
    };
    Ok(written.finished(file, &problems))
}

#[cfg(test)]
mod tests;
