//! Compiles the interposer of `count` into a shared library that the lab carries with it.
#![forbid(unsafe_code)]

use std::{
    env,
    error::Error,
    io::{self, Write},
    path::Path,
};

fn main() -> Result<(), Box<dyn Error>> {
    writeln!(io::stdout(), "cargo::rerun-if-changed={SOURCE}")?;
    let library = Path::new(&env::var("OUT_DIR")?).join("locks.so");
    // Always optimised: it runs inside what is measured.
    let compiler = cc::Build::new().opt_level(2).try_get_compiler()?;
    let mut command = compiler.to_command();
    command.args(["-std=c11", "-Wall", "-Wextra", "-fPIC", "-shared", "-o"]);
    command.arg(&library).arg(SOURCE).arg("-ldl");
    let status = command.status()?;
    if !status.success() {
        return Err(format!("{command:?} failed: {status}").into());
    }
    Ok(())
}

const SOURCE: &str = "native/locks.c";
