//! The syntax of stunnel's configuration: [`Section`]s of options, a line each.

use std::path::Path;
use std::rc::Rc;

use sealane_config::{Mistake, Mistakes, Place, Problem};

use super::super::files::Files;
use super::super::remark::{Line, Remarks};

/// Options below a name in brackets, or before the first.
#[derive(Default)]
pub(super) struct Section {
    pub(super) line: Option<Line>,
    pub(super) name: String,
    pub(super) options: Vec<SetOption>,
}

pub(super) struct SetOption {
    pub(super) key: String,
    pub(super) line: Line,
    pub(super) value: String,
}

/// The sections of a text, of which the first has the options before all services.
pub(super) fn sections(
    text: &str,
    file: &Path,
    files: &mut Files,
    remarks: &mut Remarks,
) -> Result<Vec<Section>, Mistakes> {
    let mut sections = vec![Section::default()];
    split(text, &file.into(), files, &mut sections, remarks, false)?;
    Ok(sections)
}

/// Splits a text into sections; those of included files follow where they are included.
fn split(
    text: &str,
    file: &Rc<Path>,
    files: &mut Files,
    sections: &mut Vec<Section>,
    remarks: &mut Remarks,
    is_included: bool,
) -> Result<(), Mistakes> {
    for (index, written) in text.lines().enumerate() {
        let bare = written.trim_start_matches('\u{feff}').trim();
        let line = Line::new(file, index + 1, bare);
        if bare.is_empty() || bare.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let name = name.trim().to_owned();
            sections.push(Section { line: Some(line), name, options: Vec::new() });
            continue;
        }
        let Some((key, value)) = bare.split_once('=') else {
            let place = Place { file: file.to_path_buf(), line: Some(index + 1), column: None };
            let what = "neither OPTION = VALUE nor [SERVICE]";
            let problem = Problem::new(what, "is it a configuration of stunnel?");
            return Err(Mistakes(vec![Mistake {
                place: Some(place),
                field: String::new(),
                problem,
            }]));
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().to_owned());
        if key == "include" && is_included {
            remarks.left_out(&line, "", "a file that is included includes no other");
        } else if key == "include" {
            include(&value, &line, files, sections, remarks)?;
        } else if let Some(section) = sections.last_mut() {
            section.options.push(SetOption { key, line, value });
        }
    }
    Ok(())
}

fn include(
    folder: &str,
    line: &Line,
    files: &mut Files,
    sections: &mut Vec<Section>,
    remarks: &mut Remarks,
) -> Result<(), Mistakes> {
    let paths = match files.of_folder(Path::new(folder)) {
        Ok(paths) => paths,
        Err(why) => {
            remarks.left_out(line, "", format!("{folder} {why}"));
            return Ok(());
        }
    };
    for path in paths {
        match files.text(&path) {
            Ok(text) => split(&text, &path.as_path().into(), files, sections, remarks, true)?,
            Err(why) => remarks.left_out(line, "", format!("{} {why}", path.display())),
        }
    }
    Ok(())
}
