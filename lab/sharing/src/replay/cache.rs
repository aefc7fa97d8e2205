//! Who has which line: [`Caches`] tells when a thread that wants to read or write one can go on.

use super::{CLEAN_OCCUPIES, GRACE, PS_PER_NS, WRITE_OCCUPIES_PS, times::in_ps};

/// The lines in all threads' caches.
pub(super) struct Caches {
    threads: usize,
    transfer_ps: u64,
    clean_ps: u64,
    grace_ps: u64,
    lines: Vec<CacheLine>,
    /// Who has each line: a bit per thread, [`Caches::words`] words per line.
    holders: Vec<u64>,
    words: usize,
    /// By line and thread.
    grace: Vec<Grace>,
}

#[derive(Clone, Copy)]
struct CacheLine {
    /// When the next transfer can begin.
    free_ps: u64,
    /// Who has it alone, and may write.
    owner: Option<u32>,
    /// Changed by its owner.
    dirty: bool,
}

/// Until when a thread uses a line that was taken from it.
#[derive(Clone, Copy, Default)]
struct Grace {
    read_ps: u64,
    write_ps: u64,
}

impl Caches {
    pub(super) fn new(lines: usize, threads: usize, transfer_ns: f64) -> Self {
        let transfer_ps = transfer_ns * PS_PER_NS;
        let words = threads.div_ceil(WORD_BITS);
        Self {
            threads,
            transfer_ps: in_ps(transfer_ps),
            clean_ps: in_ps(transfer_ps * CLEAN_OCCUPIES),
            grace_ps: in_ps(transfer_ps * GRACE),
            lines: vec![CacheLine { free_ps: 0, owner: None, dirty: false }; lines],
            holders: vec![0; lines * words],
            words,
            grace: vec![Grace::default(); lines * threads],
        }
    }

    /// When `thread`, which wants to read at `now_ps`, has the line.
    pub(super) fn read(&mut self, line: u32, thread: u32, now_ps: u64) -> u64 {
        let number = line as usize;
        let cell = number * self.threads + thread as usize;
        let line = &mut self.lines[number];
        let holders = &mut self.holders[number * self.words..][..self.words];
        let (word, bit) = place(thread);
        if holders[word] & bit != 0 || now_ps < self.grace[cell].read_ps {
            return now_ps;
        }
        if line.owner.is_none() && holders.iter().all(|word| *word == 0) {
            line.owner = Some(thread);
            holders[word] = bit;
            return now_ps;
        }
        let start_ps = now_ps.max(line.free_ps);
        let done_ps = start_ps + self.transfer_ps;
        line.free_ps = if line.dirty { done_ps } else { start_ps + self.clean_ps };
        line.dirty = false;
        if let Some(owner) = line.owner.take() {
            let lost = &mut self.grace[number * self.threads + owner as usize];
            lost.write_ps = start_ps + self.grace_ps;
        }
        holders[word] |= bit;
        done_ps
    }

    /// When `thread`, which wants to write at `now_ps`, has the line alone.
    pub(super) fn write(&mut self, line: u32, thread: u32, now_ps: u64) -> u64 {
        let number = line as usize;
        let cells = number * self.threads;
        let line = &mut self.lines[number];
        if line.owner == Some(thread) {
            line.dirty = true;
            return now_ps;
        }
        if now_ps < self.grace[cells + thread as usize].write_ps {
            return now_ps;
        }
        let holders = &mut self.holders[number * self.words..][..self.words];
        let (own_word, own_bit) = place(thread);
        let start_ps = now_ps.max(line.free_ps);
        let until_ps = start_ps + self.grace_ps;
        let mut alone = true;
        for (word, bits) in holders.iter_mut().enumerate() {
            let mut others = if word == own_word { *bits & !own_bit } else { *bits };
            while others != 0 {
                alone = false;
                let other = word * WORD_BITS + others.trailing_zeros() as usize;
                let lost = &mut self.grace[cells + other];
                lost.read_ps = until_ps;
                if line.owner.is_some() {
                    lost.write_ps = until_ps;
                }
                others &= others - 1;
            }
            *bits = if word == own_word { own_bit } else { 0 };
        }
        line.owner = Some(thread);
        line.dirty = true;
        if alone {
            return now_ps;
        }
        let done_ps = start_ps + self.transfer_ps;
        line.free_ps = done_ps + WRITE_OCCUPIES_PS;
        done_ps
    }
}

/// A thread's word and bit among a line's holders.
fn place(thread: u32) -> (usize, u64) {
    (thread as usize / WORD_BITS, 1 << (thread as usize % WORD_BITS))
}

const WORD_BITS: usize = u64::BITS as usize;
