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
    let events = fold(TEXT, &mut Nameless::default());
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
        assert!(fold(text, &mut Nameless::default()).is_empty(), "{text:?}");
    }
}

#[test]
fn a_function_that_holds_a_lock_is_no_lock() {
    let names = ["work", "a", "b", "c", "d", "e", "pthread_mutex_lock"];
    assert_eq!(kind_of(names.into_iter()), "");
    assert_eq!(kind_of(names.into_iter().skip(2)), LOCK);
}

/// Java's threads sleep for a monitor in a condition of the C library.
#[test]
fn a_monitor_of_java_is_a_lock() {
    let wait = ["__futex_abstimed_wait_common", "pthread_cond_wait", "os::PlatformEvent::park"];
    let of = |more| kind_of(wait.into_iter().chain([more]));
    assert_eq!(of("ObjectMonitor::EnterI"), LOCK);
    assert_eq!(of("ObjectMonitor::wait"), THREAD);
}

/// An update leaves a running server with a file that has no name any more; what has its name now
/// is another.
#[test]
fn a_replaced_file_is_told_and_not_looked_into() {
    let program = std::env::current_exe().unwrap();
    let line = format!(" 1175 [unknown] ({} (deleted))", program.display());
    let mut nameless = Nameless::default();
    let frame = frame(&line, &mut nameless).unwrap();
    assert_eq!(frame.function, "function of a replaced file");
    assert_eq!(frame.owner, program.file_name().unwrap().to_str().unwrap());
    assert_eq!(nameless.all_replaced(), [program.to_str().unwrap()]);
    let made = "1175 [unknown] (/memfd:code (deleted))";
    assert_eq!(super::frame(made, &mut nameless).unwrap().function, "function without a name");
    assert_eq!(nameless.all_replaced().len(), 1, "code made at run time was no file");
}

#[test]
fn a_terminal_obeys_no_name() {
    let line = "1175 a\u{1b}[31m (/opt/\u{9b}31mserver)";
    let said = frame(line, &mut Nameless::default()).unwrap().said();
    assert_eq!(said, "a\u{fffd}[31m (\u{fffd}31mserver)");
}
