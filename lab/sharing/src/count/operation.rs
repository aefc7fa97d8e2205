//! Locks by the names of functions: [`of`] says what a function does to a lock.

use sealane_lab_model::recording::LockClass;

use crate::count::symbols::{Function, is_nameless};

/// What stands at one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing that has to do with locks; who called it may tell more.
    #[default]
    Nothing,
    /// A part of taking or releasing a lock that comes after its first atomic update, such as
    /// waiting.
    Later,
    /// A function that does this. `inlined`: in the code of another one, so that it has no call of
    /// its own.
    Operation { operation: Operation, inlined: bool },
}

/// What a function does to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) class: LockClass,
    pub(super) does: Does,
}

/// See [`Operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Takes it for itself: a mutex, or a lock to write.
    Take,
    /// Takes it to read.
    TakeToRead,
    /// Gives it back, however it was taken.
    Release,
}

/// What is known of an instruction in `functions`, innermost first.
pub(super) fn of(functions: &[Function]) -> Found {
    for (at, function) in functions.iter().enumerate() {
        let found = of_pthread(&function.name).or_else(|| of_standard_library(function));
        match found {
            Some(Found::Operation { operation, .. }) => {
                return Found::Operation { operation, inlined: at + 1 < functions.len() };
            }
            Some(found) => return found,
            None => {}
        }
    }
    Found::Nothing
}

fn of_pthread(name: &str) -> Option<Found> {
    if is_nameless(name) {
        return None;
    }
    if name.contains("lll_lock_wait") || name.contains("lll_lock_wake") {
        return Some(Found::Later);
    }
    // The C library has them under several names: `__pthread_mutex_lock`, `..._usercnt`.
    let (_, rest) = name.split_once("pthread_")?;
    let (_, class, does) = PTHREAD.iter().find(|(word, ..)| rest.starts_with(word))?;
    Some(operation(*class, *does))
}

fn of_standard_library(function: &Function) -> Option<Found> {
    let Function { name, file, .. } = function;
    let is_of = |lock: &str| {
        file.ends_with(&format!("/sys/sync/{lock}/futex.rs"))
            || name.contains(&format!("sys::sync::{lock}::futex"))
    };
    let (class, takes_to_read): (_, &[&str]) = if is_of("mutex") {
        (LockClass::FutexMutex, &[])
    } else if is_of("rwlock") {
        (LockClass::FutexRwLock, &["read", "try_read"])
    } else {
        return None;
    };
    Some(match name.rsplit("::").next().unwrap_or_default() {
        word if takes_to_read.contains(&word) => operation(class, Does::TakeToRead),
        "lock" | "try_lock" | "write" | "try_write" => operation(class, Does::Take),
        "unlock" | "read_unlock" | "write_unlock" => operation(class, Does::Release),
        _ => Found::Later,
    })
}

fn operation(class: LockClass, does: Does) -> Found {
    Found::Operation { operation: Operation { class, does }, inlined: false }
}

const PTHREAD: [(&str, LockClass, Does); 18] = [
    ("mutex_clocklock", LockClass::Mutex, Does::Take),
    // Taken again by who waited for a condition variable.
    ("mutex_cond_lock", LockClass::Mutex, Does::Take),
    ("mutex_lock", LockClass::Mutex, Does::Take),
    ("mutex_timedlock", LockClass::Mutex, Does::Take),
    ("mutex_trylock", LockClass::Mutex, Does::Take),
    ("mutex_unlock", LockClass::Mutex, Does::Release),
    ("rwlock_clockrdlock", LockClass::RwLock, Does::TakeToRead),
    ("rwlock_clockwrlock", LockClass::RwLock, Does::Take),
    ("rwlock_rdlock", LockClass::RwLock, Does::TakeToRead),
    ("rwlock_timedrdlock", LockClass::RwLock, Does::TakeToRead),
    ("rwlock_timedwrlock", LockClass::RwLock, Does::Take),
    ("rwlock_tryrdlock", LockClass::RwLock, Does::TakeToRead),
    ("rwlock_trywrlock", LockClass::RwLock, Does::Take),
    ("rwlock_unlock", LockClass::RwLock, Does::Release),
    ("rwlock_wrlock", LockClass::RwLock, Does::Take),
    ("spin_lock", LockClass::Mutex, Does::Take),
    ("spin_trylock", LockClass::Mutex, Does::Take),
    ("spin_unlock", LockClass::Mutex, Does::Release),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[(&str, &str)]) -> Found {
        let functions: Vec<_> = names
            .iter()
            .map(|(name, file)| Function {
                name: (*name).to_owned(),
                file: (*file).to_owned(),
                line: 1,
            })
            .collect();
        of(&functions)
    }

    #[test]
    fn functions_of_the_c_library_are_known_under_all_their_names() {
        let take = |class, does| operation(class, does);
        for (name, expected) in [
            ("pthread_rwlock_rdlock", take(LockClass::RwLock, Does::TakeToRead)),
            ("__pthread_rwlock_unlock", take(LockClass::RwLock, Does::Release)),
            ("__GI___pthread_rwlock_wrlock", take(LockClass::RwLock, Does::Take)),
            ("__pthread_mutex_cond_lock", take(LockClass::Mutex, Does::Take)),
            ("__pthread_mutex_lock_full", take(LockClass::Mutex, Does::Take)),
            ("__pthread_mutex_unlock_usercnt", take(LockClass::Mutex, Does::Release)),
            ("pthread_spin_trylock", take(LockClass::Mutex, Does::Take)),
            ("__lll_lock_wait_private", Found::Later),
            ("pthread_mutex_init", Found::Nothing),
            ("pthread_rwlock_destroy", Found::Nothing),
            ("function at 0x80 between pthread_mutex_lock and x", Found::Nothing),
            ("EVP_MD_up_ref", Found::Nothing),
        ] {
            assert_eq!(found(&[(name, "")]), expected, "{name}");
        }
    }

    #[test]
    fn locks_of_the_standard_library_are_known_by_their_file() {
        let mutex = "/rustc/1/library/std/src/sys/sync/mutex/futex.rs";
        let atomic = ("compare_exchange<u32>", "/rustc/1/library/core/src/sync/atomic.rs");
        let inlined =
            |class, does| Found::Operation { operation: Operation { class, does }, inlined: true };
        assert_eq!(
            found(&[atomic, ("lock", mutex), ("rustls::tickets::encrypt", "/x/tickets.rs")]),
            inlined(LockClass::FutexMutex, Does::Take)
        );
        assert_eq!(
            found(&[("std::sys::sync::rwlock::futex::RwLock::read_unlock", "")]),
            operation(LockClass::FutexRwLock, Does::Release)
        );
        assert_eq!(
            found(&[atomic, ("std::sys::sync::mutex::futex::Mutex::spin", "")]),
            Found::Later
        );
        assert_eq!(found(&[atomic]), Found::Nothing);
    }
}
