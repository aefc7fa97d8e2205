//! Allocations per operation: memcheck sums up all of a process, at two lengths; the difference is
//! free of start and end.

use std::ffi::OsString;

use sealane_lab_harness::{interrupt::Interrupt, programs};
use sealane_lab_model::error::Error;

use crate::count::run::{Program, Run};

/// Allocations per operation, one more for each that is resized: from a run of `short` and one of
/// `long` operations.
///
/// # Errors
/// If valgrind is missing or fails, or what stopped the program.
pub(super) fn count([short, long]: [(&Program, u64); 2], stop: &Interrupt) -> Result<f64, Error> {
    let (few, many) = (of_process(short.0, stop)?, of_process(long.0, stop)?);
    if many < few {
        return Err(Error::Check(format!(
            "memcheck counted {few} allocations for {} operations and {many} for {}",
            short.1, long.1
        )));
    }
    Ok((many - few) as f64 / (long.1 - short.1) as f64)
}

fn of_process(program: &Program, stop: &Interrupt) -> Result<u64, Error> {
    let valgrind = programs::installed("valgrind", "valgrind")?;
    // Only the heap is of interest, and looking at each value takes most of the time.
    let command: [OsString; 5] = [
        valgrind.into_os_string(),
        "--tool=memcheck".into(),
        "--undef-value-errors=no".into(),
        "--leak-check=no".into(),
        "--log-fd=2".into(),
    ];
    let words = Run::words_of(&command, program, stop)?;
    sum_in(&words).ok_or_else(|| Error::Check(format!("memcheck told no sum:\n{words}")))
}

/// `==123==   total heap usage: 4,567 allocs, 4,560 frees, 890,123 bytes allocated`.
fn sum_in(words: &str) -> Option<u64> {
    let line = words.lines().rev().find_map(|line| line.split_once("total heap usage:"))?;
    let (sum, _) = line.1.split_once(" allocs")?;
    sum.trim().replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_found() {
        let words = "==1== HEAP SUMMARY:\n==1==     in use at exit: 8 bytes in 1 blocks\n\
            ==1==   total heap usage: 1,234,567 allocs, 1,234,566 frees, 9 bytes allocated\n";
        assert_eq!(sum_in(words), Some(1_234_567));
        assert_eq!(sum_in("Illegal instruction"), None);
    }
}
