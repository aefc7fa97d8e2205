//! Names as their authors wrote them: [`name`] of a symbol of C, C++ or Rust.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// `symbol` without its version, and as its language spells it. Parameters are left out, of which a
/// symbol of Rust has none to tell; a name that is longer than `NAME_BYTES_MAX` ends there.
pub fn name(symbol: &str) -> String {
    // A symbol's version, `name@@GLIBC_2.34`, is no part of its name.
    let symbol = symbol.split('@').next().unwrap_or_default();
    let mut out = Bounded::default();
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        // What does not fit is left out, and `out` says so.
        let _ = write!(out, "{rust:#}");
    } else if let Some(name) = cpp(symbol) {
        return name;
    } else {
        let _ = out.write_str(symbol);
    }
    out.finish()
}

/// `None` if it is no name of C++.
fn cpp(symbol: &str) -> Option<String> {
    // A part that the compiler split off, `name.part.0`, keeps its suffix, as in C.
    let (base, suffix) = symbol.split_at(symbol.find('.').unwrap_or(symbol.len()));
    if !base.starts_with(CPP) || base.len() > SYMBOL_BYTES_MAX {
        return None;
    }
    let parsed = Symbol::new(base).ok()?;
    let options =
        DemangleOptions::new().no_params().no_return_type().hide_expression_literal_types();
    let mut out = Bounded::default();
    let whole = parsed.structured_demangle(&mut out, &options);
    // Cut by the bound, or by a name that refers to itself without end.
    if whole.is_err() && !out.is_cut {
        return None;
    }
    let _ = out.write_str(suffix);
    Some(out.finish())
}

/// A name that grows to a bound: a few bytes of symbol can stand for any number of them.
#[derive(Default)]
struct Bounded {
    text: String,
    is_cut: bool,
}

impl Bounded {
    fn finish(mut self) -> String {
        if self.is_cut {
            self.text += CUT;
        }
        self.text
    }
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = NAME_BYTES_MAX.saturating_sub(self.text.len());
        if more.len() <= room && !self.is_cut {
            self.text += more;
            return Ok(());
        }
        if !self.is_cut {
            let fits = (0..=room).rev().find(|at| more.is_char_boundary(*at));
            self.text += more.get(..fits.unwrap_or(0)).unwrap_or_default();
        }
        self.is_cut = true;
        Err(fmt::Error)
    }
}

/// How a symbol of C++ begins.
const CPP: &str = "_Z";
/// Behind a name that was too long.
pub const CUT: &str = "...";
const NAME_BYTES_MAX: usize = 1024;
/// Longer ones are not read.
const SYMBOL_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_three_languages_are_spelt_as_in_their_source() {
        for (symbol, expected) in [
            ("EVP_MD_up_ref", "EVP_MD_up_ref"),
            ("rand_bytes_impl.part.0", "rand_bytes_impl.part.0"),
            ("pthread_rwlock_rdlock@@GLIBC_2.34", "pthread_rwlock_rdlock"),
            ("_ZN5rayon3job17h0123456789abcdefE", "rayon::job"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZL17global_added_lock", "global_added_lock"),
            ("_ZN4bssl11StaticMutex8LockReadEv", "bssl::StaticMutex::LockRead"),
            (
                "_ZNK4bssl10RefCountedINS_10SSLContextEE13UpRefInternalEv",
                "bssl::RefCounted<bssl::SSLContext>::UpRefInternal",
            ),
            ("_ZN4bssl7tls_newEP6ssl_st.part.0", "bssl::tls_new.part.0"),
            ("_ZN4bssl12_GLOBAL__N_17processEv", "bssl::(anonymous namespace)::process"),
            ("_ZNotAName", "_ZNotAName"),
            ("_Z", "_Z"),
            ("", ""),
        ] {
            assert_eq!(name(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn a_name_that_grows_without_end_is_cut() {
        // Each pair holds the pair before it twice.
        let mut symbol = String::from("_Z1fISt4pairI1aS0_E");
        let numbers = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        for number in numbers.chars() {
            symbol += &format!("St4pairIS{number}_S{number}_E");
        }
        symbol += "Evv";
        let long = name(&symbol);
        assert!(long.len() <= NAME_BYTES_MAX + CUT.len(), "{} bytes", long.len());
        let rust = format!("_ZN{}E", "9abcdefghi".repeat(500));
        let rust = name(&rust);
        assert!(rust.len() <= NAME_BYTES_MAX + CUT.len() && rust.ends_with(CUT), "{rust}");
        let plain = name(&"x".repeat(5_000));
        assert_eq!(plain.len(), NAME_BYTES_MAX + CUT.len());
    }
}
