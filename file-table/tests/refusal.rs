//! A kernel that refuses close_range(2), as a filter of system calls makes it do: threads share.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::AsFd;

use sealane_file_table::{FileTable, Settled, can_be_own, door, same_table};

#[test]
fn a_thread_that_may_have_no_table_shares_one_and_says_why() {
    // The filter is the thread's and of those that it starts.
    std::thread::spawn(|| {
        refuse(libc::SYS_close_range);
        assert_eq!(can_be_own().unwrap_err().raw_os_error(), Some(libc::EPERM));
        let parent = own_id();
        let (mut giver, entrance) = door().unwrap();
        let thread = std::thread::spawn(move || {
            let Settled { taker, left, table, refusal } = entrance.settle(FileTable::Own);
            left.close();
            assert_eq!(table, FileTable::Shared);
            assert_eq!(refusal.unwrap().raw_os_error(), Some(libc::EPERM));
            assert!(same_table(parent, own_id()).unwrap());
            taker.wait().unwrap().descriptors.len()
        });
        let (reader, _writer) = std::io::pipe().unwrap();
        giver.give(1, &[reader.as_fd()]).unwrap();
        assert_eq!(thread.join().unwrap(), 1, "the door is there all the same");
    })
    .join()
    .unwrap();
}

fn own_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Makes the system call `number` fail in this thread from now on, as Docker's filter does.
fn refuse(number: libc::c_long) {
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let number = u32::try_from(number).unwrap();
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 0, 1),
        step(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(),
            0,
            0,
        ),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live until both calls are over; the kernel copies them.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}
