//! The man pages and the completion scripts, made from the command line's own definition.

use std::io::{self, Write};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Arguments;

/// Writes the page of `command`, or of sealane itself.
///
/// # Errors
/// The writer's, and [`io::ErrorKind::NotFound`] for a command that there is not.
pub fn write_page(command: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let mut top = Arguments::full_command().disable_help_subcommand(true);
    top.build();
    let page = match command {
        None => top,
        Some(name) => find(&top, name).cloned().ok_or_else(|| {
            let names: Vec<_> = top.get_subcommands().map(Command::get_name).collect();
            let message = format!("no command {name:?}; there are {}", names.join(", "));
            io::Error::new(io::ErrorKind::NotFound, message)
        })?,
    };
    let source = concat!("sealane ", env!("CARGO_PKG_VERSION"));
    let help = page.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let usage = page.clone().render_usage().to_string();
    let has_version = page.get_version().is_some();
    let has_commands = page.get_subcommands().any(|command| !command.is_hide_set());
    let man = Man::new(page).manual("Sealane").source(source);
    let (introduction, sections) = sections(&help);
    man.render_title(out)?;
    man.render_name_section(out)?;
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let usage: Vec<_> = usage.lines().map(str::trim_start).collect();
    write_section("SYNOPSIS", &usage, out)?;
    man.render_description_section(out)?;
    if !introduction.is_empty() {
        writeln!(out, ".PP")?;
        introduction.iter().try_for_each(|line| writeln!(out, "{}", escaped(line)))?;
    }
    man.render_options_section(out)?;
    if has_commands {
        man.render_subcommands_section(out)?;
    }
    for (title, lines) in &sections {
        write_section(title, lines, out)?;
    }
    if has_version {
        man.render_version_section(out)?;
    }
    Ok(())
}

/// A heading with the lines below it.
type Section<'h> = (String, Vec<&'h str>);

/// The introduction and the sections of a help text. A heading is a line that ends in a colon, with
/// indented lines below.
fn sections(help: &str) -> (Vec<&str>, Vec<Section<'_>>) {
    let mut introduction = Vec::new();
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        let is_above = lines.peek().is_some_and(|next| next.starts_with("  "));
        if !line.starts_with(' ') && line.ends_with(':') && is_above {
            sections.push((title(line), Vec::new()));
            continue;
        }
        match sections.last_mut() {
            Some((_, lines)) => lines.push(line),
            None => introduction.push(line),
        }
    }
    (introduction, sections)
}

/// The title of a section of a man page.
fn title(heading: &str) -> String {
    match heading.split([',', '(', ':']).next().unwrap_or_default().trim_end() {
        "Example" => "EXAMPLES".to_owned(),
        "Exit codes" => "EXIT STATUS".to_owned(),
        other => other.to_uppercase(),
    }
}

/// Writes lines as they are.
fn write_section(title: &str, lines: &[&str], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, ".SH \"{title}\"\n.nf")?;
    let empty_lines = lines.iter().rev().take_while(|line| line.is_empty()).count();
    for line in &lines[..lines.len() - empty_lines] {
        writeln!(out, "{}", escaped(line))?;
    }
    writeln!(out, ".fi")
}

/// A line of text for roff(7).
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

/// A command of a command is named with a hyphen between them, as its page is.
fn find<'c>(top: &'c Command, name: &str) -> Option<&'c Command> {
    name.split('-').try_fold(top, |command, part| command.find_subcommand(part))
}

/// Writes the completion script of `shell`.
pub fn write_completions(shell: Shell, out: &mut dyn Write) {
    clap_complete::generate(shell, &mut Arguments::full_command(), "sealane", out);
}
