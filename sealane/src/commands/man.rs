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
    Man::new(page).manual("Sealane").source(source).render(out)
}

/// A command of a command is named with a hyphen between them, as its page is.
fn find<'c>(top: &'c Command, name: &str) -> Option<&'c Command> {
    name.split('-').try_fold(top, |command, part| command.find_subcommand(part))
}

/// Writes the completion script of `shell`.
pub fn write_completions(shell: Shell, out: &mut dyn Write) {
    clap_complete::generate(shell, &mut Arguments::full_command(), "sealane", out);
}
