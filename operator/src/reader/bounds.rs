//! What a text may name that came from elsewhere: [`Bounds`].

use std::path::{Component, Path};

use crate::mistake::Problem;

/// What a text may name that others wrote, not who runs this machine.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'b> {
    /// The folder in which its files are.
    pub folder: &'b Path,
    /// The one certificate store that it may name.
    pub store: &'b Path,
}

impl Bounds<'_> {
    /// Why the path `text` may not be named, if it may not.
    pub(super) fn refused(&self, text: &str) -> Option<Problem> {
        let parts = Path::new(text).components();
        let mut outside = parts.filter(|part| !matches!(part, Component::Normal(_)));
        outside.next()?;
        let folder = self.folder.display();
        let what = format!("{text:?} may be outside of {folder}, and a fleet names nothing there");
        Some(Problem::new(what, format!("write a path from {folder} on, and put the file there")))
    }
}
