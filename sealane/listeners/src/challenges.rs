//! The folder in which ACME clients of others leave their challenges.

use sealane_config::ChallengeSource;
use sealane_traffic::challenges::{FolderError, open_folder};

use super::{Found, Material, Reading, Survey};

/// Challenges are looked for when they are asked for: what comes into the folder, and goes, is no
/// change of the configuration.
pub(super) const MATERIAL: Material = Material { files: |_| Vec::new(), read };

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    let Some(ChallengeSource::Folder(folder)) = &survey.listener.acme_responder else { return };
    let Err(error) = open_folder(folder) else { return };
    let text = format!("acme_responder: {}: {error}", folder.display());
    match error {
        // It may come and go.
        FolderError::Absent => survey.warn([text]),
        _ => {
            let (path, source, is_kept) = (folder.clone(), folder.clone(), false);
            let without = "its challenges are not answered";
            survey.note(reading, Found { is_kept, path, source, text, without });
        }
    }
}
