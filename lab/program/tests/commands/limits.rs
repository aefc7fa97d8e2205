//! What docs/performance.md says that tests count is what they fail beyond.

use std::{fs, path::Path};

/// The constants of sealane/tests/figures.rs, as the page writes them.
#[test]
fn the_limits_of_the_docs_are_those_of_the_tests() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let tests = fs::read_to_string(home.join("sealane/tests/figures.rs")).unwrap();
    let page = fs::read_to_string(home.join("docs/performance.md")).unwrap();
    let table = page.split_once("| figure | at most |\n|---|---|\n").unwrap().1;
    let rows = table.lines().map_while(|line| line.strip_suffix(" |")?.rsplit_once(" | "));
    let told: Vec<&str> = rows.map(|(_, limit)| limit).collect();
    let limits = [
        ("CALLS_PER_CONNECTION_MAX: f64 = 22.0", "22"),
        ("IDLE_BYTES_MAX: u64 = 1584", "1,584 bytes"),
        ("ANNOUNCED_BYTES_MAX: u64 = 128", "128 bytes"),
        ("SILENT_BYTES_MAX: u64 = 15 << 20", "15 MiB"),
        ("FLAT_BYTES_MAX: u64 = 1 << 20", "1 MiB"),
        ("CERTIFICATES_BYTES_MAX: u64 = 60 << 20", "60 MiB"),
    ];
    for (held, _) in limits {
        let line = format!("const {held};");
        assert!(tests.lines().any(|own| own == line), "sealane/tests/figures.rs has no {line}");
    }
    assert_eq!(told, limits.map(|(_, told)| told), "docs/performance.md has other limits");
}

/// The row of engine/PROVIDERS.md is the budget of the stacks that its heads name.
#[test]
fn the_writes_of_the_providers_page_are_those_of_the_budget() {
    let home = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let page = fs::read_to_string(home.join("engine/PROVIDERS.md")).unwrap();
    let budget = fs::read_to_string(home.join("lab/budget.toml")).unwrap();
    let row = |start: &str| -> Vec<String> {
        let row = page.lines().find_map(|line| line.strip_prefix(start)).unwrap();
        row.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect()
    };
    let (stacks, told) = (row("| per handshake, server |"), row("| a lane, writes at most |"));
    assert_eq!((stacks.len(), told.len()), (4, 4), "{page}");
    for (stack, told) in stacks.iter().zip(told) {
        let section = budget.split("[[stack]]").find(|it| it.contains(&format!("\"{stack}\"\n")));
        let section = section.unwrap_or_else(|| panic!("lab/budget.toml has no {stack}"));
        assert!(section.contains(&format!("server_writes_max = {told}\n")), "{stack}: {section}");
    }
}
