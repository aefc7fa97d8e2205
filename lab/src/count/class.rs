//! What a shared line is: [`named`] gives it a class, a name, an owner and its writers, by the
//! rules of [`RULES`].

use std::collections::BTreeMap;

use crate::{
    count::{
        symbols::{Code, Symbols},
        trace::{Shared, Write},
    },
    document::{BySide, SharedLine},
    phase::Phase,
};

/// The rules in words, for the reader of the table.
pub(super) const RULES: &str = "\
class of a line, the first that holds: allocator, if malloc or free writes it and nothing else does \
atomically; lock, if most writes come from functions of locks; reference-count, if most come from \
atomic instructions in clone, drop, up_ref, free and the like; else global.";

/// `shared` with its names; writes are divided by `handshakes`.
pub(super) fn named(shared: &Shared, symbols: &Symbols, handshakes: f64) -> SharedLine {
    let writers: Vec<_> =
        shared.writes.iter().map(|write| (*write, symbols.code(write.pc))).collect();
    let class = class(&writers);
    let names = by_function(&writers);
    let variable = shared_variable(shared, symbols);
    let (owner, symbol) = variable.unwrap_or_else(|| {
        let first = names.first().cloned().unwrap_or_default();
        (first.0, format!("memory written by {}", first.1))
    });
    SharedLine {
        class: class.word().to_owned(),
        symbol,
        owner,
        writes: BySide {
            server: shared.writes_in(Phase::Server) as f64 / handshakes,
            client: shared.writes_in(Phase::Client) as f64 / handshakes,
        },
        writers: names
            .into_iter()
            .take(WRITERS_SHOWN)
            .map(|(owner, function)| format!("{function} ({owner})"))
            .collect(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Allocator,
    Global,
    Lock,
    ReferenceCount,
}

impl Class {
    fn word(self) -> &'static str {
        match self {
            Self::Allocator => ALLOCATOR,
            Self::Global => "global",
            Self::Lock => "lock",
            Self::ReferenceCount => "reference-count",
        }
    }
}

/// The word for lines of the allocator, which are summed apart.
pub(super) const ALLOCATOR: &str = "allocator";

fn class(writers: &[(Write, Code)]) -> Class {
    let writes = |wanted: &dyn Fn(&Code) -> bool| -> u64 {
        writers.iter().filter(|(_, code)| wanted(code)).map(|(write, _)| write.count).sum()
    };
    let all = writes(&|_| true);
    if writes(&is_allocator) > 0 && writes(&|code| code.atomic && !is_allocator(code)) == 0 {
        Class::Allocator
    } else if 2 * writes(&is_lock) > all {
        Class::Lock
    } else if 2 * writes(&is_reference_count) > all {
        Class::ReferenceCount
    } else {
        Class::Global
    }
}

fn is_allocator(code: &Code) -> bool {
    code.owner.starts_with("libc.so")
        && code.functions.iter().any(|function| {
            // Without names for its inner functions, those that stand beside `malloc`.
            let names = function.strip_prefix("between ").unwrap_or(function);
            let mut names = names.split(" and ").flat_map(|name| name.split('.').take(1));
            names.any(|name| ALLOCATOR_FUNCTIONS.contains(&name))
        })
}

fn is_lock(code: &Code) -> bool {
    names_any(code, &LOCK_WORDS)
}

fn is_reference_count(code: &Code) -> bool {
    code.atomic && names_any(code, &REFERENCE_COUNT_WORDS)
}

fn names_any(code: &Code, words: &[&str]) -> bool {
    let holds = |function: &String| words.iter().any(|word| function.contains(word));
    code.functions.iter().any(holds)
}

/// The variable, or variables, that the line holds.
fn shared_variable(shared: &Shared, symbols: &Symbols) -> Option<(String, String)> {
    let line = (0..super::trace::LINE_BYTES).step_by(4);
    let mut found: Vec<(String, String)> =
        line.filter_map(|offset| symbols.variable(shared.address + offset)).collect();
    found.dedup();
    let owner = found.first()?.0.clone();
    let known = found.iter().filter(|(_, name)| !name.starts_with("data at "));
    let names: Vec<&str> = known.map(|(_, name)| name.as_str()).collect();
    if names.is_empty() {
        return found.into_iter().next();
    }
    Some((owner, names[..names.len().min(VARIABLES_SHOWN)].join(", ")))
}

/// Owner and name of the functions that write, most writes first; inlined standard library code is
/// shown with the function it serves.
fn by_function(writers: &[(Write, Code)]) -> Vec<(String, String)> {
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (write, code) in writers {
        *sums.entry((code.owner.clone(), told(&code.functions))).or_default() += write.count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums.into_iter().map(|(name, _)| name).collect()
}

/// `Arc::clone in rustls::server::...`: the outermost function of the standard library and the
/// innermost that is not.
fn told(functions: &[String]) -> String {
    let is_standard = |name: &str| {
        let name = name.trim_start_matches(['<', '&']);
        STANDARD.iter().any(|crate_name| name.starts_with(crate_name))
    };
    let own = functions.iter().position(|function| !is_standard(function));
    match own {
        None => functions.last().map(|name| shortened(name)).unwrap_or_default(),
        Some(0) => shortened(&functions[0]),
        Some(at) => format!("{} in {}", shortened(&functions[at - 1]), shortened(&functions[at])),
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_CHARACTERS_MAX {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
    format!("{start}...")
}

const ALLOCATOR_FUNCTIONS: [&str; 31] = [
    "__libc_calloc",
    "__libc_free",
    "__libc_malloc",
    "__libc_memalign",
    "__libc_realloc",
    "_int_free",
    "_int_malloc",
    "_int_memalign",
    "_int_realloc",
    "_mid_memalign",
    "alloc_perturb",
    "aligned_alloc",
    "arena_get2",
    "calloc",
    "cfree",
    "free",
    "heap_trim",
    "malloc",
    "malloc_consolidate",
    "malloc_trim",
    "memalign",
    "munmap_chunk",
    "posix_memalign",
    "realloc",
    "sysmalloc",
    "systrim",
    "tcache_get",
    "tcache_init",
    "tcache_put",
    "tcache_thread_shutdown",
    "unlink_chunk",
];
const LOCK_WORDS: [&str; 14] = [
    "CRYPTO_MUTEX_",
    "CRYPTO_STATIC_MUTEX_",
    "CRYPTO_THREAD_read_lock",
    "CRYPTO_THREAD_unlock",
    "CRYPTO_THREAD_write_lock",
    "futex",
    "lll_lock",
    "pthread_mutex_",
    "pthread_once",
    "pthread_rwlock_",
    "pthread_spin_",
    "sync::poison::mutex",
    "sync::poison::rwlock",
    "sys::sync::",
];
const NAME_CHARACTERS_MAX: usize = 110;
const REFERENCE_COUNT_WORDS: [&str; 12] = [
    "Arc<",
    "_clone",
    "_dup",
    "_free",
    "_get0",
    "_get1",
    "_ref",
    "_set1",
    "_up_ref",
    "alloc::sync",
    "clone",
    "drop",
];
const STANDARD: [&str; 3] = ["alloc::", "core::", "std::"];
const VARIABLES_SHOWN: usize = 3;
const WRITERS_SHOWN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn code(owner: &str, functions: &[&str], atomic: bool) -> Code {
        let functions = functions.iter().map(|name| (*name).to_owned()).collect();
        Code { owner: owner.to_owned(), functions, atomic }
    }

    fn classed(writers: &[(u64, Code)]) -> Class {
        let writers: Vec<_> = writers
            .iter()
            .map(|(count, code)| (Write::of_phase(Phase::Server, *count), code.clone()))
            .collect();
        class(&writers)
    }

    #[test]
    fn classes_follow_the_rules() {
        let lock = code("libc.so.6", &["pthread_rwlock_rdlock"], true);
        let malloc = code("libc.so.6", &["_int_malloc"], false);
        let inner = code("libc.so.6", &["between __default_morecore and malloc"], false);
        let up_ref = code("libcrypto.so.3", &["EVP_MD_up_ref"], true);
        let arc = code("lab", &["core::sync::atomic::atomic_add", "alloc::sync::Arc<T>"], true);
        let plain = code("lab", &["lab::writes"], false);
        assert_eq!(classed(&[(5, lock.clone()), (1, up_ref.clone())]), Class::Lock);
        assert_eq!(classed(&[(1, malloc.clone()), (9, plain.clone())]), Class::Allocator);
        assert_eq!(classed(&[(1, inner)]), Class::Allocator);
        assert_eq!(classed(&[(1, malloc), (1, up_ref.clone())]), Class::Global);
        assert_eq!(classed(&[(2, up_ref), (1, plain.clone())]), Class::ReferenceCount);
        assert_eq!(classed(&[(1, arc)]), Class::ReferenceCount);
        assert_eq!(classed(&[(1, plain)]), Class::Global);
    }

    #[test]
    fn standard_library_code_is_told_with_what_it_serves() {
        let functions =
            ["core::sync::atomic::atomic_add", "<alloc::sync::Arc<T> as Clone>::clone", "rustls::f"];
        assert_eq!(
            told(&functions.map(str::to_owned)),
            "<alloc::sync::Arc<T> as Clone>::clone in rustls::f"
        );
        assert_eq!(told(&["EVP_MD_up_ref".to_owned()]), "EVP_MD_up_ref");
    }
}
