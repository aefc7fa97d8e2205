//! Instructions per handshake and side: callgrind counts inside one function of the trial, at two
//! lengths; the difference is free of start, warm-up and end.

use std::{ffi::OsString, path::Path};

use sealane_lab_harness::{interrupt::Interrupt, programs};
use sealane_lab_model::error::Error;

use crate::count::run::{Program, Run};

/// Instructions per handshake inside the functions that `function` matches, with `*` for anything:
/// from a run of `short` and one of `long` handshakes.
///
/// # Errors
/// If valgrind is missing or fails, or what stopped the program.
pub(super) fn count(
    function: &str,
    [short, long]: [(&Program, u64); 2],
    folder: &Path,
    stop: &Interrupt,
) -> Result<f64, Error> {
    let few = collected(function, short.0, folder, stop)?;
    let many = collected(function, long.0, folder, stop)?;
    if few == 0 || many <= few {
        return Err(Error::Check(format!(
            "callgrind counted {few} instructions in {function} for {} handshakes and {many} for \
             {}; is the function inlined?",
            short.1, long.1
        )));
    }
    Ok((many - few) as f64 / (long.1 - short.1) as f64)
}

fn collected(
    function: &str,
    program: &Program,
    folder: &Path,
    stop: &Interrupt,
) -> Result<u64, Error> {
    let valgrind = programs::installed("valgrind", "valgrind")?;
    let mut out = OsString::from("--callgrind-out-file=");
    out.push(folder.join("callgrind.out"));
    let mut toggle = OsString::from("--toggle-collect=");
    toggle.push(function);
    let command = [
        valgrind.into_os_string(),
        "--tool=callgrind".into(),
        "--collect-atstart=no".into(),
        "--log-fd=2".into(),
        out,
        toggle,
    ];
    let words = Run::words_of(&command, program, stop)?;
    sum_in(&words).ok_or_else(|| Error::Check(format!("callgrind told no sum:\n{words}")))
}

/// `==123== Collected : 4567`.
fn sum_in(words: &str) -> Option<u64> {
    let line = words.lines().rev().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_found() {
        let words = "==1== Events    : Ir\n==1== Collected : 55433201\n==1== \n";
        assert_eq!(sum_in(words), Some(55_433_201));
        assert_eq!(sum_in("Illegal instruction"), None);
    }
}
