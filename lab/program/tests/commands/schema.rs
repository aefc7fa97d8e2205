//! `SCHEMA.md` and the types of a document name the same fields.

use std::collections::BTreeSet;

use sealane_lab_model::document::SCHEMA;
use serde_json::Value;

#[test]
fn every_field_of_a_document_is_explained() {
    let explained = explained();
    let sources = [
        ("document.rs", include_str!("../../../model/src/document.rs")),
        ("document/gate.rs", include_str!("../../../model/src/document/gate.rs")),
        ("document/kernel.rs", include_str!("../../../model/src/document/kernel.rs")),
        ("document/live.rs", include_str!("../../../model/src/document/live.rs")),
        ("document/strategies.rs", include_str!("../../../model/src/document/strategies.rs")),
        ("scenario.rs", include_str!("../../../model/src/scenario.rs")),
        ("library.rs", include_str!("../../../model/src/library.rs")),
    ];
    for (file, source) in sources {
        let fields: Vec<&str> = fields(source).collect();
        assert!(fields.len() >= 5, "{file}: {fields:?}");
        for field in fields {
            assert!(explained.contains(field), "SCHEMA.md does not explain {field} of {file}");
        }
    }
}

/// The sample has something of everything: what its JSON calls a field stands there too.
#[test]
fn every_name_in_a_whole_document_is_explained() {
    let mut sample: Value =
        serde_json::from_str(include_str!("../../../testdata/sample.json")).unwrap();
    // Figures, variants and settings of strategies have names of their own too.
    for maps in ["settings", "variant", "figures", "times"] {
        forget(&mut sample["strategies"], maps);
    }
    let mut names = BTreeSet::new();
    collect(&sample, &mut names);
    let explained = explained();
    // Cases of servers have names of their own.
    let cases: Vec<&str> = sample["servers"]["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["name"].as_str().unwrap())
        .collect();
    assert!(names.len() > 80, "{names:?}");
    for name in names.iter().filter(|name| !cases.contains(&name.as_str())) {
        assert!(explained.contains(name.as_str()), "SCHEMA.md does not explain {name}");
    }
}

#[test]
fn the_number_is_the_one_that_is_written() {
    let title = include_str!("../../../SCHEMA.md").lines().next().unwrap();
    assert!(title.ends_with(&format!("`{SCHEMA}`")), "{title}");
}

/// What stands between backquotes.
fn explained() -> BTreeSet<&'static str> {
    include_str!("../../../SCHEMA.md").split('`').skip(1).step_by(2).collect()
}

/// Public fields of structs, by their lines.
fn fields(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    pub ")?.split_once(": ")?;
        name.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            .then_some(name)
    })
}

/// Takes the names out of every map that is called so.
fn forget(value: &mut Value, called: &str) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| forget(value, called)),
        Value::Object(fields) => {
            if let Some(Value::Object(map)) = fields.get_mut(called) {
                map.clear();
            }
            fields.values_mut().for_each(|value| forget(value, called));
        }
        _ => {}
    }
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                collect(value, names);
            }
        }
        _ => {}
    }
}
