//! The limit of open files, which shells keep low: [`allow`] raises it, up to [`most`].

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealane_lab_model::error::Error;

/// Allows this process, and what it starts from then on, as many open files as the system lets it
/// have.
///
/// # Errors
/// [`Error::Unsupported`]: they are less than `needed` and what is open beside them.
pub fn allow(needed: u64) -> Result<(), Error> {
    let needed = needed + BESIDE;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Some(maximum) = maximum.filter(|maximum| *maximum < needed) {
        return Err(Error::Unsupported(format!(
            "{needed} open files are needed, but this shell allows {maximum}; run: ulimit -Hn \
             {needed}"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| Error::io("raise the limit of open files")(error.into()))
}

/// The most open files that [`allow`] can allow next to those of the lab itself.
pub fn most() -> u64 {
    getrlimit(Resource::Nofile).maximum.map_or(u64::MAX, |most| most.saturating_sub(BESIDE))
}

/// Files that are open beside connections: libraries, polls, output.
const BESIDE: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_system_s_and_more_is_refused_with_what_to_do() {
        allow(1).unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        if let Some(maximum) = limit.maximum {
            assert_eq!(most(), maximum - BESIDE);
            let refusal = allow(maximum + 1 - BESIDE).unwrap_err().to_string();
            assert!(refusal.ends_with(&format!("ulimit -Hn {}", maximum + 1)), "{refusal}");
        }
    }
}
