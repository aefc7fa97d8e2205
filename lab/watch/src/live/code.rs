//! What a function's name tells: whether it belongs to a [lock](is_lock), waits for another
//! [thread](is_meeting), or what [`work`] it does. Names are all that a profile has.

/// Whether `function` takes or releases a lock, or waits for one.
pub(super) fn is_lock(function: &str) -> bool {
    let name = bare(function);
    is_monitor(name)
        || !is_meeting(name)
            && (LOCK_STARTS.iter().any(|start| name.starts_with(start))
                || LOCK_PARTS.iter().any(|part| name.contains(part)))
}

/// Whether it waits for a lock of the Java virtual machine, which lets a thread sleep in a
/// condition of the C library.
pub(super) fn is_monitor(function: &str) -> bool {
    MONITOR_STARTS.iter().any(|start| function.starts_with(start))
}

/// Whether it only passes on to a lock's function.
pub(super) fn is_lock_wrapper(function: &str) -> bool {
    let name = bare(function);
    LOCK_WRAPPERS.iter().any(|wrapper| name.contains(wrapper))
}

/// Whether it waits until another thread has something for it, which is no lock.
pub(super) fn is_meeting(function: &str) -> bool {
    let name = bare(function);
    MEETING_PARTS.iter().any(|part| name.contains(part))
}

/// What the innermost telling function of `path` works at.
pub(super) fn work<'a>(path: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    let mut found: Option<usize> = None;
    for function in path {
        let name = bare(function).to_ascii_lowercase();
        let at = WORK.iter().position(|(_, parts)| parts.iter().any(|part| name.contains(part)));
        // A signature hashes too, and a handshake's ciphers are small beside its key exchange: what
        // stands first in the table names the whole.
        found = match (found, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    found.map(|at| WORK[at].0)
}

/// Without a version behind `@`, and without what the C library puts before a name.
pub(super) fn bare(function: &str) -> &str {
    let name = function.split('@').next().unwrap_or(function);
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    if name.trim_start_matches('_').starts_with("pthread") {
        return name.trim_start_matches('_');
    }
    name
}

const LOCK_STARTS: [&str; 11] = [
    "___lll_lock",
    "__lll_",
    "lll_",
    "nsync_mu_",
    "pthread_mutex_",
    "pthread_rwlock_",
    "pthread_spin_",
    "je_malloc_mutex",
    "runtime.lock",
    "runtime.unlock",
    "sync.(*Mutex)",
];
const LOCK_PARTS: [&str; 10] = [
    "Mutex::lock",
    "Mutex::unlock",
    "RawMutex::",
    "RawRwLock::",
    "RwLock::read_contended",
    "RwLock::write_contended",
    "futex::Mutex",
    "futex::RwLock",
    "SpinLock",
    "sync.(*RWMutex)",
];
/// Parts of names: AWS-LC's have its version in front.
const LOCK_WRAPPERS: [&str; 10] = [
    "CRYPTO_MUTEX_",
    "CRYPTO_STATIC_MUTEX_",
    "CRYPTO_THREAD_read_lock",
    "CRYPTO_THREAD_unlock",
    "CRYPTO_THREAD_write_lock",
    "ObjectSynchronizer::enter",
    "bssl::StaticMutex::",
    "bssl::internal::MutexLockBase<",
    "ngx_shmtx_lock",
    "ngx_shmtx_unlock",
];
const MONITOR_STARTS: [&str; 2] = ["ObjectMonitor::Enter", "ObjectMonitor::enter"];
const MEETING_PARTS: [&str; 9] = [
    "Condvar",
    "Parker",
    "Semaphore",
    "cond_timedwait",
    "cond_wait",
    "cond_clockwait",
    "pthread_join",
    "sem_wait",
    "thread::park",
];
/// The most telling first; parts of names in small letters.
const WORK: [(&str, &[&str]); 11] = [
    ("RSA", &["rsa_", "rsaz_", "bn_mul_mont", "bn_sqr", "bn_mod_exp", "bn_power5", "bn_from_mont"]),
    (
        "elliptic curves",
        &[
            "ecp_",
            "ecdsa",
            "ecdh",
            "p256",
            "p384",
            "x25519",
            "25519",
            "fe51_",
            "fiat_",
            "ge_scalar",
        ],
    ),
    ("ML-KEM", &["mlkem", "ml_kem", "kyber"]),
    ("signatures", &["evp_digestsign", "evp_digestverify", "evp_pkey_sign", "evp_pkey_verify"]),
    ("key exchange", &["evp_pkey_derive", "evp_pkey_generate", "evp_pkey_keygen"]),
    ("AES-GCM", &["aes_gcm", "gcm_", "ghash", "aesni_", "aes_hw", "vpaes"]),
    ("ChaCha20-Poly1305", &["chacha20", "poly1305"]),
    ("hashing", &["sha1_", "sha256_", "sha512_", "hmac", "hkdf"]),
    ("memory allocation", &["malloc", "_int_free", "cfree", "calloc", "realloc", "je_"]),
    ("the kernel", &["(system call)", "kernel:"]),
    ("copying", &["memcpy", "memmove", "memset"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_told_from_a_wait_for_work() {
        for lock in [
            "__GI___lll_lock_wait",
            "pthread_mutex_lock@@GLIBC_2.2.5",
            "__GI___pthread_mutex_lock",
            "___pthread_rwlock_rdlock",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
        ] {
            assert!(is_lock(lock) && !is_meeting(lock), "{lock}");
        }
        for meeting in [
            "pthread_cond_wait@@GLIBC_2.3.2",
            "___pthread_cond_timedwait64",
            "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout",
            "std::thread::park",
        ] {
            assert!(is_meeting(meeting) && !is_lock(meeting), "{meeting}");
        }
        for neither in ["clock_gettime", "block", "locked", "EVP_MD_fetch", "pthread_getspecific"] {
            assert!(!is_lock(neither) && !is_meeting(neither), "{neither}");
        }
        for wrapper in [
            "CRYPTO_THREAD_read_lock@@OPENSSL_3.0.0",
            "aws_lc_0_47_0_CRYPTO_STATIC_MUTEX_lock_read",
            "bssl::StaticMutex::LockRead()",
        ] {
            assert!(is_lock_wrapper(wrapper), "{wrapper}");
        }
        assert!(!is_lock_wrapper("CRYPTO_THREAD_run_once"));
    }

    #[test]
    fn work_is_called_after_its_most_telling_function() {
        let of = |path: &[&str]| work(path.iter().copied());
        assert_eq!(of(&["bn_mul_mont_gather5_nohw", "RSA_sign", "main"]), Some("RSA"));
        assert_eq!(of(&["sha256_block_data_order", "ecdsa_sign", "main"]), Some("elliptic curves"));
        assert_eq!(of(&["sha256_block_data_order", "main"]), Some("hashing"));
        assert_eq!(of(&["writev (system call)", "main"]), Some("the kernel"));
        assert_eq!(of(&["main"]), None);
    }
}
