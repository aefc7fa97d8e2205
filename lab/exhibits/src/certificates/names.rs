//! Which names there are, [`numbered`] or [`read`] from a file, and the order in which connections
//! ask for them: each [`in_turn`], or the first most, by [`zipf`]'s distribution.

use std::{collections::HashMap, fs::File, io::Read, path::Path};

use fastrand::Rng;
use rustls::pki_types::ServerName;
use sealane_lab_model::{error::Error, words};

/// So many names.
pub(super) fn numbered(count: u32) -> Vec<String> {
    (0..count).map(|number| format!("n{number:06}.lab.test")).collect()
}

/// The names in a file, one on a line, in its order.
///
/// # Errors
/// The file cannot be read, a line is no name or one of before, or there are too few or too many.
pub(super) fn read(path: &Path) -> Result<Vec<String>, Error> {
    let mut text = String::new();
    let file = File::open(path).map_err(Error::file(path))?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(Error::file(path))?;
    let wrong = |reason| Error::Document { file: path.display().to_string(), reason };
    if text.len() as u64 == FILE_BYTES_MAX {
        return Err(wrong(format!("it is longer than {NAMES_MAX} names; leave some out")));
    }
    parse(&text).map_err(wrong)
}

/// The names in a file's text, in its order; or what is wrong with it.
fn parse(text: &str) -> Result<Vec<String>, String> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut names = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() {
            continue;
        }
        let name = line.to_ascii_lowercase();
        let is_host = matches!(ServerName::try_from(&*name), Ok(ServerName::DnsName(_)));
        if !is_host || name.ends_with('.') {
            return Err(format!(
                "line {number}: {line:?} is no host's name; write one on each line, the one that \
                 is asked for most first"
            ));
        }
        if let Some(before) = lines.insert(name.clone(), number) {
            return Err(format!("line {number}: {name} is on line {before} too; leave one out"));
        }
        names.push(name);
    }
    match names.len() {
        NAMES_MIN..=NAMES_MAX => Ok(names),
        count => {
            let names = words::count(count, "name");
            Err(format!("it has {names}; give {NAMES_MIN} to {NAMES_MAX}"))
        }
    }
}

/// Which names `count` connections ask for: all of them in an order of that seed, and again.
pub(super) fn in_turn(names: &[String], seed: u64, count: usize) -> Vec<&str> {
    let mut shuffled: Vec<&str> = names.iter().map(String::as_str).collect();
    Rng::with_seed(seed).shuffle(&mut shuffled);
    shuffled.into_iter().cycle().take(count).collect()
}

/// Which names `count` connections ask for, drawn by that seed: the name at place `k`, from 1,
/// with a probability in proportion to `1 / k^exponent`.
pub(super) fn zipf(names: &[String], exponent: f64, seed: u64, count: usize) -> Vec<&str> {
    let weights = (1..=names.len()).map(|place| (place as f64).powf(-exponent));
    let up_to: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let whole = up_to.last().copied().unwrap_or_default();
    let mut random = Rng::with_seed(seed);
    let draw = || {
        let drawn = random.f64() * whole;
        names.get(up_to.partition_point(|sum| *sum <= drawn)).map(String::as_str)
    };
    std::iter::repeat_with(draw).map_while(|name| name).take(count).collect()
}

/// Fewer would not have two certificates to mix up.
const NAMES_MIN: usize = 2;
const NAMES_MAX: usize = 100_000;
/// Names of the greatest length, with their ends of line.
const FILE_BYTES_MAX: u64 = 256 * NAMES_MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_names_keeps_its_order_and_tells_what_is_wrong_where() {
        let names = parse("b.example\r\n\n A.example\nxn--bcher-kva.example").unwrap();
        assert_eq!(names, ["b.example", "a.example", "xn--bcher-kva.example"]);
        let wrong = |text: &str| parse(text).unwrap_err();
        assert!(wrong("a.example\n../../etc").starts_with("line 2: \"../../etc\" is no host's"));
        assert!(wrong("a.example\n127.0.0.1").starts_with("line 2: "));
        assert!(wrong("a.example.\nb.example").starts_with("line 1: "));
        assert!(wrong("..\nb.example").starts_with("line 1: "));
        let twice = wrong("a.example\nb.example\nA.EXAMPLE");
        assert_eq!(twice, "line 3: a.example is on line 1 too; leave one out");
        assert_eq!(wrong("a.example"), "it has 1 name; give 2 to 100000");
    }

    #[test]
    fn each_name_is_asked_for_as_often_as_its_place_says() {
        let names = numbered(4);
        let often = |exponent| {
            let drawn = zipf(&names, exponent, 7, 250_000);
            names.iter().map(|name| drawn.iter().filter(|one| *one == name).count()).collect()
        };
        // In proportion to 1, 1/2, 1/3 and 1/4; a fixed seed draws the same each time.
        for (exponent, expected) in [(1.0, [120_000, 60_000, 40_000, 30_000]), (0.0, [62_500; 4])] {
            let counts: Vec<usize> = often(exponent);
            assert!(counts.iter().zip(expected).all(|(n, e)| n.abs_diff(e) < 1_500), "{counts:?}");
            assert_eq!(counts, often(exponent));
        }
        assert_ne!(zipf(&names, 1.0, 7, 100), zipf(&names, 1.0, 8, 100));
    }
}
