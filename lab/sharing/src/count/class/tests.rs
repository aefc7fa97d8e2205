//! The rules, on functions by their names and files.

use super::*;

fn function(name: &str, file: &str) -> Function {
    Function { name: name.to_owned(), file: file.to_owned(), line: 0 }
}

fn code(owner: &str, functions: &[&str], atomic: bool) -> Code {
    let functions = functions.iter().map(|name| function(name, "")).collect();
    Code { owner: owner.to_owned(), functions, atomic }
}

fn classed(writers: &[(u64, Code)]) -> Class {
    let writers: Vec<_> = writers
        .iter()
        .map(|(count, code)| (Write::of_phase(phase::Phase::Server, *count), code.clone()))
        .collect();
    class(&writers)
}

#[test]
fn classes_follow_the_rules() {
    let lock = code("libc.so.6", &["pthread_rwlock_rdlock"], true);
    let malloc = code("libc.so.6", &["_int_malloc"], false);
    let beside = "function at 0x9d000 between __default_morecore and malloc";
    let inner = code("libc.so.6", &[beside], false);
    let up_ref = code("libcrypto.so.3", &["EVP_MD_up_ref"], true);
    let arc = code("lab", &["core::sync::atomic::atomic_add", "alloc::sync::Arc<T>"], true);
    let plain = code("lab", &["lab::writes"], false);
    assert_eq!(classed(&[(5, lock.clone()), (1, up_ref.clone())]), Class::Lock);
    assert_eq!(classed(&[(1, malloc.clone()), (9, plain.clone())]), Class::Allocator);
    assert_eq!(classed(&[(1, inner)]), Class::Allocator);
    assert_eq!(classed(&[(1, code("program", &["_int_free"], false))]), Class::Allocator);
    assert_eq!(classed(&[(1, malloc), (1, up_ref.clone())]), Class::Global);
    assert_eq!(classed(&[(2, up_ref), (1, plain.clone())]), Class::ReferenceCount);
    assert_eq!(classed(&[(1, arc)]), Class::ReferenceCount);
    assert_eq!(classed(&[(1, plain)]), Class::Global);
}

#[test]
fn standard_library_code_is_told_with_what_it_serves() {
    let atomic = function("atomic_add<usize>", "/rustc/1/library/core/src/sync/atomic.rs");
    let clone = function("clone<T>", "/rustc/1/library/alloc/src/sync.rs");
    let inlined = function("new", "/home/x/rustls-0.23.46/src/conn.rs");
    let inlined = Function { line: 7, ..inlined };
    let outer = function("rustls::server::accept", "/home/x/rustls-0.23.46/src/server.rs");
    assert_eq!(
        told(&[atomic, clone, inlined, outer]),
        "clone<T> in new in rustls::server::accept at rustls-0.23.46/src/conn.rs:7"
    );
    assert_eq!(told(&[function("EVP_MD_up_ref", "")]), "EVP_MD_up_ref");
    let far = "/x/registry/src/host-1/openssl-src-3.0/openssl/include/internal/refcount.h";
    assert_eq!(short_path(far), "include/internal/refcount.h");
}

#[test]
fn wrappers_of_locks_are_known_in_any_language() {
    for wrapper in [
        "aws_lc_0_22_0_CRYPTO_STATIC_MUTEX_lock_read",
        "bssl::StaticMutex::LockRead",
        "CRYPTO_THREAD_read_lock",
        "pthread_rwlock_rdlock",
        "std::lock_guard<std::mutex>::lock_guard",
    ] {
        assert!(is_lock_name(wrapper), "{wrapper}");
    }
    let counted = "std::_Sp_counted_base<(__gnu_cxx::_Lock_policy)2>::_M_release";
    assert_eq!(classed(&[(1, code("x.so", &[counted], true))]), Class::ReferenceCount);
}

#[test]
fn what_waits_for_a_condition_or_a_semaphore_is_a_lock() {
    for waits in ["pthread_cond_signal", "__new_sem_post", "pthread_barrier_wait"] {
        assert_eq!(classed(&[(1, code("libc.so.6", &[waits], true))]), Class::Lock, "{waits}");
    }
}

#[test]
fn a_long_name_keeps_whose_it_is_and_what_it_does() {
    let long = format!("<a::First as b::{}<c::Inner>>::encrypt", "Second".repeat(30));
    let said = name(&[function(&long, "")]);
    assert!(said.starts_with("<a::First as b::") && said.ends_with(">>::encrypt"), "{said}");
    assert_eq!(said.chars().count(), NAME_CHARACTERS_MAX + CUT.len());
}

#[test]
fn files_of_the_standard_library_tell_locks_from_counts() {
    let mut lock = code("lab", &["compare_exchange_weak<u32>", "read"], true);
    lock.functions[1].file = "/rustc/1/library/std/src/sys/sync/rwlock/futex.rs".into();
    assert_eq!(classed(&[(1, lock.clone())]), Class::Lock);
    lock.functions[1].file = "/rustc/1/library/alloc/src/sync.rs".into();
    assert_eq!(classed(&[(1, lock)]), Class::ReferenceCount);
}
