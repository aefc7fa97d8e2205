//! What a shared line is: [`named`] gives it a class, a name, an owner and its writers, by the
//! rules of [`RULES`].

use std::collections::BTreeMap;

use sealane_lab_harness::phase;
use sealane_lab_model::document::{ALLOCATOR, BySide, NAMELESS_MEMORY, SharedLine};
use sealane_lab_watch::demangle::CUT;

use crate::count::{
    symbols::{self, Code, Function, Symbols},
    trace::{Write, WrittenLine},
};

/// The rules in words, for the reader of the table.
pub(super) const RULES: &str = "\
class of a line, the first that holds: allocator, if malloc or free writes it and nothing else \
does atomically; lock, if most writes come from functions of locks; reference-count, if most come \
from atomic instructions in clone, drop, up_ref, free and the like; else global.";

/// `shared` with its names; writes are divided by `handshakes`.
pub(super) fn named(shared: &WrittenLine, symbols: &Symbols, handshakes: f64) -> SharedLine {
    let writers: Vec<_> =
        shared.writes.iter().map(|write| (*write, symbols.code(write.pc))).collect();
    let class = class(&writers);
    let names = by_function(&writers);
    let (owner, symbol) = variables(shared, symbols).unwrap_or_else(|| {
        let first = names.first().cloned().unwrap_or_default();
        (first.0, format!("{NAMELESS_MEMORY}{}", first.1))
    });
    SharedLine {
        class: class.word().to_owned(),
        symbol,
        owner,
        writes: BySide {
            server: shared.writes_in(&phase::SERVER_SIDE) as f64 / handshakes,
            client: shared.writes_in(&phase::CLIENT_SIDE) as f64 / handshakes,
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
            Self::Lock => LOCK,
            Self::ReferenceCount => "reference-count",
        }
    }
}

/// The word for lines of locks.
pub(super) const LOCK: &str = "lock";

fn class(writers: &[(Write, Code)]) -> Class {
    let writes = |wanted: &dyn Fn(&Code) -> bool| -> u64 {
        writers.iter().filter(|(_, code)| wanted(code)).map(|(write, _)| write.count).sum()
    };
    let all = writes(&|_| true);
    if writes(&is_allocator) > 0 && writes(&|code| code.atomic && !is_allocator(code)) == 0 {
        Class::Allocator
    } else if 2 * writes(&is_lock) > all {
        Class::Lock
    } else if writes(&is_reference_count) > 0
        && 2 * (writes(&is_reference_count) + writes(&is_nameless_atomic)) > all
    {
        Class::ReferenceCount
    } else {
        Class::Global
    }
}

fn is_allocator(code: &Code) -> bool {
    let is_one = |name: &str| ALLOCATOR_FUNCTIONS.contains(&name);
    if !code.owner.starts_with("libc.so") {
        // Linked into the program, or another allocator in its place.
        return code.functions.last().is_some_and(|function| is_one(&function.name));
    }
    code.functions.iter().any(|function| {
        // Without names for its inner functions, those that stand beside `malloc`.
        let names = [&*function.name].into_iter().chain(symbols::neighbours(&function.name));
        names.flat_map(|name| name.split('.').take(1)).any(is_one)
    })
}

/// Whether `code` is a part of taking or releasing locks.
pub(super) fn is_lock(code: &Code) -> bool {
    code.functions.iter().any(is_lock_function)
}

fn is_lock_function(function: &Function) -> bool {
    is_lock_name(&function.name) || LOCK_FILES.iter().any(|file| function.file.contains(file))
}

/// Whether the function called `name` takes or releases a lock, or passes on to who does.
pub(super) fn is_lock_name(name: &str) -> bool {
    LOCK_WORDS.iter().any(|word| name.contains(word))
        || LOCK_TYPES.iter().any(|of| name.starts_with(of))
}

fn is_reference_count(code: &Code) -> bool {
    code.atomic && holds_any(&code.functions, &REFERENCE_COUNT_WORDS, &REFERENCE_COUNT_FILES)
}

/// In a library without the names of its inner functions, the other half of a named `up_ref`.
fn is_nameless_atomic(code: &Code) -> bool {
    code.atomic && code.functions.iter().all(|function| symbols::is_nameless(&function.name))
}

/// Whether a function's name, or the file that it stands in, says so.
fn holds_any(functions: &[Function], words: &[&str], files: &[&str]) -> bool {
    functions.iter().any(|function| {
        words.iter().any(|word| function.name.contains(word))
            || files.iter().any(|file| function.file.contains(file))
    })
}

/// The variables that are written, the most written one first, and whose they are.
fn variables(shared: &WrittenLine, symbols: &Symbols) -> Option<(String, String)> {
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for write in &shared.writes {
        *sums.entry(symbols.variable(write.address)?).or_default() += write.count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let owner = sums.first()?.0.0.clone();
    let names: Vec<String> = sums.into_iter().map(|((_, name), _)| name).collect();
    Some((owner, names.join(", ")))
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

/// [`name`], and where it stands.
pub(super) fn told(functions: &[Function]) -> String {
    let mut text = name(functions);
    if let Some(own) = functions.get(own_at(functions)).filter(|own| own.line > 0) {
        text += &format!(" at {}:{}", short_path(&own.file), own.line);
    }
    text
}

/// `clone in rustls::server::...`: the outermost function of the standard library and the innermost
/// that is not.
pub(super) fn name(functions: &[Function]) -> String {
    let Some(outermost) = functions.last() else { return String::new() };
    let own_at = own_at(functions);
    let mut text = String::new();
    if own_at > 0 {
        text = shortened(&functions[own_at - 1].name) + " in ";
    }
    text += &shortened(&functions[own_at].name);
    // Its own name has no path; the function that it was inlined into has.
    if own_at + 1 < functions.len() && !is_standard(outermost) {
        text += &format!(" in {}", shortened(&outermost.name));
    }
    text
}

/// The innermost function that is not of the standard library, or else the outermost one.
fn own_at(functions: &[Function]) -> usize {
    let own = functions.iter().position(|function| !is_standard(function));
    own.unwrap_or(functions.len().saturating_sub(1))
}

fn is_standard(function: &Function) -> bool {
    let name = function.name.trim_start_matches(['<', '&']);
    STANDARD.iter().any(|crate_name| name.starts_with(crate_name))
        || STANDARD_FILES.iter().any(|folder| function.file.contains(folder))
}

/// From the crate's folder on; of other sources, the last folders.
fn short_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let source = parts.iter().rposition(|part| *part == "src");
    let of_crate = source.filter(|at| parts.len() - at <= CRATE_DEPTH_MAX);
    let first = of_crate.map_or(parts.len().saturating_sub(OTHER_DEPTH), |at| at.saturating_sub(1));
    parts[first..].join("/")
}

/// Without its middle: the first part tells whose it is, the last what it does.
fn shortened(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= NAME_CHARACTERS_MAX {
        return name.to_owned();
    }
    let (start, end) = (&characters[..NAME_START], &characters[characters.len() - NAME_END..]);
    [String::from_iter(start), String::from_iter(end)].join(CUT)
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
/// Files of Rust's standard library.
const LOCK_FILES: [&str; 3] = ["/std/src/sync/poison/", "/std/src/sys/sync/", "/std/src/sync/once"];
/// Types of C++ whose members do nothing else.
const LOCK_TYPES: [&str; 10] = [
    "absl::Mutex::",
    "absl::MutexLock::",
    "bssl::Mutex::",
    "bssl::StaticMutex::",
    "bssl::internal::MutexLockBase<",
    "std::lock_guard<",
    "std::mutex::",
    "std::scoped_lock<",
    "std::shared_mutex::",
    "std::unique_lock<std::",
];
const LOCK_WORDS: [&str; 20] = [
    "CRYPTO_MUTEX_",
    "CRYPTO_STATIC_MUTEX_",
    "CRYPTO_THREAD_read_lock",
    "CRYPTO_THREAD_unlock",
    "CRYPTO_THREAD_write_lock",
    "__gthread_",
    "futex",
    "lll_lock",
    "pthread_barrier_",
    "pthread_cond_",
    "pthread_mutex_",
    "pthread_once",
    "pthread_rwlock_",
    "pthread_spin_",
    "sem_post",
    "sem_trywait",
    "sem_wait",
    "sync::poison::mutex",
    "sync::poison::rwlock",
    "sys::sync::",
];
/// Folders below a crate's `src` that are shown.
const CRATE_DEPTH_MAX: usize = 5;
/// The file and the folders above it, of a path that has no `src` near its end.
const OTHER_DEPTH: usize = 3;
const NAME_CHARACTERS_MAX: usize = NAME_START + NAME_END;
const NAME_START: usize = 65;
const NAME_END: usize = 45;
const REFERENCE_COUNT_FILES: [&str; 1] = ["/alloc/src/sync.rs"];
const REFERENCE_COUNT_WORDS: [&str; 13] = [
    "Arc<",
    "_Sp_counted_base<",
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
const STANDARD_FILES: [&str; 3] =
    ["/library/alloc/src/", "/library/core/src/", "/library/std/src/"];
const WRITERS_SHOWN: usize = 6;

#[cfg(test)]
mod tests;
