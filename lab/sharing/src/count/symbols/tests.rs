//! Names in this program, and in a library and a program with and without their symbols.

use std::process::Command;

use super::*;

#[test]
fn memory_that_is_mapped_from_a_device_has_no_names() {
    let maps = "00001000-00002000 rw-s 00000000 00:01 9    /dev/zero (deleted)\n";
    assert!(Symbols::new(maps).files.is_empty());
}

#[test]
fn this_process_is_named() {
    // Of this program alone: other tests may map one with marks just now, to read it.
    let own = std::env::current_exe().expect("a path").display().to_string();
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let maps: String = maps.split_inclusive('\n').filter(|line| line.contains(&own)).collect();
    let symbols = Symbols::new(&maps);
    let marks =
        symbols.address_of(sealane_lab_harness::phase::SYMBOL).expect("the marks have a symbol");
    assert_eq!(marks, sealane_lab_harness::phase::address() as u64);
    let (_, name) = symbols.variable(marks + 64).expect("a variable");
    assert_eq!(name, sealane_lab_harness::phase::SYMBOL);
    assert_eq!(symbols.variable(0x10), None);
}

#[test]
fn atomic_instructions_are_known() {
    assert!(is_atomic(&[0xf0, 0x48, 0x0f, 0xc1, 0x07]), "lock xadd");
    assert!(is_atomic(&[0x48, 0x87, 0x07]), "xchg");
    assert!(is_atomic(&[0x67, 0xf0, 0x0f, 0xc1, 0x07]), "lock xadd, an address of 32 bits");
    assert!(is_atomic(&[0x64, 0xf0, 0x48, 0xff, 0x00]), "lock inc in a segment");
    assert!(is_atomic(&[0x3e, 0x66, 0x87, 0x07]), "xchg of 16 bits, filled up");
    assert!(is_atomic(&[0xf0, 0x48, 0x0f, 0xc7, 0x0f]), "lock cmpxchg16b");
    assert!(!is_atomic(&[0x48, 0x89, 0x07]), "mov");
    assert!(!is_atomic(&[0x67, 0x48]), "cut off");
}

#[test]
fn a_path_may_have_spaces() {
    let line = "00400000-00401000 r-xp 00000000 fd:01 1234      /home/a b/my  program";
    assert_eq!(first_mapping(line), Some((0x40_0000, "/home/a b/my  program".into())));
    let rest = "00401000-00402000 r-xp 00001000 fd:01 1234      /home/a";
    assert_eq!(first_mapping(rest), None);
    assert_eq!(first_mapping("00400000-00401000 rw-p 00000000 00:00 0      [heap]"), None);
}

/// Exported functions and variables with inner ones between them; `outer` has a function inside
/// itself, and `untyped` does not say that it is one.
const SOURCE: &str = r#"
#define OWN __attribute__((noinline, used, section(".text.own")))
#define PLACED(n) __attribute__((used, section(".data.own")))
OWN int first(int x) { return x * 3 + 1; }
OWN static int hidden(int x) { return x * 5 + 2; }
OWN static int concealed(int x) { return x * 7 + 3; }
OWN int last(int x) { return hidden(x) + concealed(x) + 4; }
PLACED(1) long shown[8] = {1};
PLACED(2) static long inner[8] = {2};
PLACED(3) long seen[8] = {3};
__asm__(".section .text.asm, \"ax\", %progbits\n"
        ".globl outer\n.type outer, %function\nouter:\n nop\n"
        ".globl within\n.type within, %function\nwithin:\n nop\n.size within, . - within\n"
        " nop\n nop\n nop\n ret\n.size outer, . - outer\n"
        ".globl untyped\nuntyped:\n nop\n nop\n ret\n.size untyped, . - untyped\n");
int begin(void) { return last(first(1)) + (int)(shown[0] + inner[0] + seen[0]); }
"#;

/// The program, and the same without what `strip` takes away.
fn built(folder: &Path, arguments: &[&str]) -> [PathBuf; 2] {
    let [source, whole, stripped] = ["x.c", "whole", "stripped"].map(|name| folder.join(name));
    fs::write(&source, SOURCE).expect("written");
    let run = |program: &str, arguments: &[&str], paths: [&Path; 3]| {
        let [from, option, to] = paths;
        let command = Command::new(program).args(arguments).args([from, option, to]).output();
        let output = command.expect("a C compiler and strip, which building the lab needs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let out = Path::new("-o");
    run("cc", &[&["-O1", "-fPIC", "-nostdlib"], arguments].concat(), [&source, out, &whole]);
    run("strip", &["--strip-all"], [&whole, out, &stripped]);
    [whole, stripped]
}

/// The names of `file`, mapped at [`BASE`].
fn mapped(file: &Path) -> Symbols {
    Symbols::new(&format!("{BASE:x}-{:x} r--p 00000000 00:00 1 {}\n", BASE << 1, file.display()))
}

fn name_at(symbols: &Symbols, address: u64) -> String {
    symbols.code(address).functions.last().expect("a function").name.clone()
}

/// The first address of each symbol of the whole file, and the one behind its last.
fn places(whole: &Symbols, names: &[&str]) -> Vec<(u64, u64)> {
    let file = &whole.files[0];
    let place = |name: &&str| {
        let found = file.symbols.iter().find(|symbol| symbol.name == *name);
        let symbol = found.unwrap_or_else(|| panic!("{name}"));
        (file.bias + symbol.start, file.bias + symbol.end)
    };
    names.iter().map(place).collect()
}

const BASE: u64 = 0x7f00_0000_0000;

#[test]
fn a_stripped_library_has_its_exports_and_no_name_reaches_further_than_its_symbol() {
    let folder = tempfile::tempdir().expect("a folder");
    let [whole, stripped] = built(folder.path(), &["-shared"]).map(|file| mapped(&file));
    let names = ["first", "hidden", "concealed", "last", "outer", "within", "untyped", "begin"];
    let exported = |name: &str| !["hidden", "concealed", "inner"].contains(&name);
    for (name, (start, end)) in names.iter().zip(places(&whole, &names)) {
        for address in [start, end - 1] {
            assert_eq!(name_at(&whole, address), *name);
            let said = name_at(&stripped, address);
            if exported(name) {
                assert_eq!(said, *name);
                continue;
            }
            // Each by itself, though both stand between the same two.
            let place = start - stripped.files[0].bias;
            assert_eq!(said, format!("function at {place:#x} between first and last"));
            assert!(is_nameless(&said));
            assert_eq!(neighbours(&said).collect::<Vec<_>>(), ["first", "last"]);
        }
    }
    let names = ["shown", "inner", "seen"];
    for (name, (start, end)) in names.iter().zip(places(&whole, &names)) {
        for address in [start, end - 1] {
            let (owner, said) = stripped.variable(address).expect("in the file");
            assert_eq!(owner, "stripped");
            match exported(name) {
                true => assert_eq!(said, *name),
                false => assert!(said.starts_with("data at 0x"), "{said}"),
            }
        }
    }
}

#[test]
fn a_function_goes_on_behind_another_one_inside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let [whole, stripped] = built(folder.path(), &["-shared"]).map(|file| mapped(&file));
    let [outer, within] = places(&whole, &["outer", "within"])[..] else { panic!("two") };
    for symbols in [&whole, &stripped] {
        assert_eq!(name_at(symbols, outer.0), "outer");
        assert_eq!(name_at(symbols, within.0), "within");
        assert_eq!(name_at(symbols, within.1), "outer", "behind the inner one");
        assert_eq!(name_at(symbols, outer.1 - 1), "outer");
    }
}

#[test]
fn a_stripped_program_without_any_symbol_still_tells_its_functions_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let [whole, stripped] =
        built(folder.path(), &["-static", "-Wl,-e,begin"]).map(|file| mapped(&file));
    let names = ["first", "hidden", "concealed", "last", "begin"];
    for (name, (start, end)) in names.iter().zip(places(&whole, &names)) {
        let place = start - stripped.files[0].bias;
        for address in [start, end - 1] {
            assert_eq!(name_at(&whole, address), *name);
            assert_eq!(name_at(&stripped, address), format!("function at {place:#x}"));
        }
    }
    // Assembly without tables for unwinding: the place is all that is known.
    let [outer, _] = places(&whole, &["outer", "within"])[..] else { panic!("two") };
    let said = name_at(&stripped, outer.0);
    assert_eq!(said, format!("code at {:#x}", outer.0 - stripped.files[0].bias));
    assert!(is_nameless(&said) && neighbours(&said).next().is_none());
}
