//! What is read out of lines of `perf script`.

use super::*;

const TEXT: &str = "\
a server 12/13    5025125               task-clock:u: \n\
\t            1175 inner(int, char (*)()) (/opt/a b/server)\n\
\t            119a pthread_mutex_lock@@GLIBC_2.2.5 (/usr/lib/libc.so.6)\n\
\t            11ad f (/opt/a b/server)\n\
\n\
a server 12/13          1 syscalls:sys_enter_futex: \n\
\tffffffff8143b6a2 do_futex+0x1 ([kernel.kallsyms])\n\
\tffffffff821ed511 __x64_sys_futex ([kernel.kallsyms])\n\
\tffffffff821ed512 do_syscall_64 ([kernel.kallsyms])\n\
\t           8612b __GI___lll_lock_wait (/usr/lib/libc.so.6)\n\
\t            1195 locked (/opt/a b/server)\n\
\n\
a server 12/14          1 syscalls:sys_enter_futex: \n\
\t           8612b __futex_abstimed_wait_common (/usr/lib/libc.so.6)\n\
\t           8612c pthread_cond_wait@@GLIBC_2.3.2 (/usr/lib/libc.so.6)\n\
\t            1195 locked (/opt/a b/server)\n\
\n\
cut 12/";

#[test]
fn samples_are_folded_by_event_thread_and_kind() {
    let events = fold(TEXT);
    assert_eq!(events.keys().collect::<Vec<_>>(), ["sys_enter_futex", "task-clock"]);
    let clock = &events["task-clock"];
    let profile = clock.profile("task-clock", 99);
    assert_eq!((profile.samples, profile.hertz), (1, 99));
    let expected =
        ["inner(int, char (*)()) (server)", "pthread_mutex_lock (libc.so.6)", "f (server)"];
    assert_eq!(profile.paths[0].path, expected);
    assert!((profile.lock_share - 1.0).abs() < f64::EPSILON);
    let futex = &events["sys_enter_futex"];
    assert_eq!(futex.by_thread[&13], ByKind { lock: 1, ..ByKind::default() });
    assert_eq!(futex.by_thread[&14], ByKind { thread: 1, ..ByKind::default() });
    let paths = futex.paths(9);
    let lock = paths.iter().find(|path| path.kind == LOCK).unwrap();
    let expected =
        ["futex (system call) (kernel)", "__lll_lock_wait (libc.so.6)", "locked (server)"];
    assert_eq!(lock.path, expected);
}

#[test]
fn nonsense_has_no_samples() {
    for text in ["", "\n\n", "x", "\t 1175 inner (/a)\n", "name 1/x 5 event: \n"] {
        assert!(fold(text).is_empty(), "{text:?}");
    }
}

#[test]
fn a_function_that_holds_a_lock_is_no_lock() {
    let names = ["work", "a", "b", "c", "d", "e", "pthread_mutex_lock"];
    assert_eq!(kind_of(names.into_iter()), "");
    assert_eq!(kind_of(names.into_iter().skip(2)), LOCK);
}
