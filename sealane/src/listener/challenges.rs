//! The folder in which ACME clients of others leave their challenges.

use super::{Material, Reading, Survey};
use crate::challenges::open_folder;

/// Challenges are looked for when they are asked for: what comes into the folder, and goes, is no
/// change of the configuration.
pub(super) const MATERIAL: Material = Material { files: |_| Vec::new(), read };

fn read(survey: &mut Survey<'_>, _: &mut Reading<'_, '_>) {
    if let Some(folder) = &survey.listener.acme_responder
        && let Err(problem) = open_folder(folder)
    {
        survey.errors.push(format!("acme_responder: {}: {problem}", folder.display()));
    }
}
