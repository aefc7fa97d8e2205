//! The heap of `native/heap.c`, which uses no memory twice: under it a line that two threads touch
//! is one that they share, not one that the first of them had freed.

use std::{fs, path::Path};

use sealane_lab_model::error::Error;

use crate::count::run::Program;

/// `program` with that heap in the place of the C library's, if it is linked with that one at run
/// time. The library lies in `folder`.
///
/// # Errors
/// It cannot be written there.
pub(super) fn used_once(mut program: Program, folder: &Path) -> Result<Program, Error> {
    let library = folder.join(FILE);
    fs::write(&library, LIBRARY).map_err(Error::file(&library))?;
    program.environment.push(("LD_PRELOAD".into(), library.into()));
    Ok(program)
}

/// The file's name; a process that is linked statically does without it.
pub(super) const FILE: &str = "sealane-lab-heap.so";
/// Built by `build.rs`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/heap.so"));
