//! Compiles what `count` loads into other programs, shared libraries that the lab carries with it.
#![forbid(unsafe_code)]

use std::{
    env,
    error::Error,
    io::{self, Write},
    path::Path,
};

fn main() -> Result<(), Box<dyn Error>> {
    for name in LIBRARIES {
        let source = format!("../native/{name}.c");
        writeln!(io::stdout(), "cargo::rerun-if-changed={source}")?;
        let library = Path::new(&env::var("OUT_DIR")?).join(format!("{name}.so"));
        // Always optimised: it runs inside what is measured.
        let compiler = cc::Build::new().opt_level(2).try_get_compiler()?;
        let mut command = compiler.to_command();
        // They are there from the start of a program: no call for each variable of a thread.
        command.args(["-std=c11", "-Wall", "-Wextra", "-fPIC", "-ftls-model=initial-exec"]);
        command.args(["-shared", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let status = command.status()?;
        if !status.success() {
            return Err(format!("{command:?} failed: {status}").into());
        }
    }
    Ok(())
}

/// The interposer of lock functions.
const LIBRARIES: [&str; 1] = ["locks"];
