//! The six write-ups in words: what was shared, what was published, and what a machine with few
//! cores cannot show. Their figures are those that the write-ups print or draw.

use super::strategies::Times;

/// One write-up, and the command of the lab that shows its fault beside its remedy.
pub struct Story {
    /// The command.
    pub command: &'static str,
    /// The section's title.
    pub title: &'static str,
    /// Where and when it was published.
    pub(crate) source: &'static str,
    /// What every connection, record or handshake had to go through.
    pub shared: &'static str,
    /// What takes its place.
    pub(crate) remedy: &'static str,
    /// The write-up's own figures.
    pub(crate) published: Published,
    /// The figures that are drawn.
    pub(crate) drawn: &'static [&'static str],
    /// The distributions that are drawn.
    pub(crate) times: &'static [Times<'static>],
    /// The figure that tells it all, fault first.
    pub(crate) contrast: Contrast,
    /// The software of the write-up itself, or of its kind, that is measured.
    pub(crate) real: &'static str,
    /// What the lab plays in its place, named so; empty if nothing.
    pub(crate) emulated: &'static str,
    /// What was counted of software as it was released.
    pub(crate) counted: Option<Published>,
    /// What few cores cannot show, and what the counts say about it.
    pub cores: &'static str,
}

/// The write-up's own figures.
pub(crate) struct Published {
    /// What they are.
    pub title: &'static str,
    /// The unit of the bars.
    pub(crate) unit: &'static str,
    /// What was measured, or counted, where.
    pub(crate) look: &'static str,
    /// Names with their figures.
    pub(crate) bars: &'static [(&'static str, f64)],
}

/// One figure of two strategies.
pub(crate) struct Contrast {
    pub(crate) figure: &'static str,
    pub(crate) fault: &'static str,
    pub(crate) remedy: &'static str,
    /// What the variant of their rows must have.
    pub(crate) variant: Option<(&'static str, &'static str)>,
    /// What it counts, as said after the two numbers.
    pub words: &'static str,
}

/// In the order in which they were written.
pub const STORIES: [Story; 6] = [
    Story {
        command: "offload",
        title: "Locks around buffers and queues",
        source: "TLSnappy, F. Indutny, 2012",
        shared: "TLS ran on worker threads behind node's event loop. Every piece of work crossed a \
            queue with a lock and woke a thread; every byte crossed a buffer with a lock.",
        remedy: "Bytes cross in rings that one side writes and the other reads, without a lock; \
            one wake-up serves everything that is waiting.",
        published: Published {
            title: "Published: longest response, 100 KB bodies",
            unit: "s",
            look: "100,000 requests on 16 cores, client and server on one machine. The rate rose \
                from 1,561 to 1,703 per second.",
            bars: &[("locked buffers", 1.93), ("lock-free rings", 0.19)],
        },
        drawn: &["calls_per_event", "cpu_us", "mb_per_s", "producer_ns", "references_per_s"],
        times: &[Times { name: "response", variant: Some(("concurrency", "64")) }],
        contrast: Contrast {
            figure: "calls_per_event",
            fault: "queue",
            remedy: "ring",
            variant: Some(("concurrency", "184")),
            words: "system calls to wake, per event",
        },
        real: "Sealane's TLS on worker threads behind one loop, with real clients. TLSnappy \
            itself is not here: it needs node 0.8 and OpenSSL 1.0.",
        emulated: "TLSnappy's queue and its ring, written after its source; the reference count \
            of OpenSSL 1.0, behind a lock as its CRYPTO_add_lock had it, and as the atomic that \
            TLSnappy made of it.",
        counted: None,
        cores: "The rate on 16 cores needs 16 cores, and a load generator on others. What does \
            not: wake-ups and system calls per event, and how long the loop stands still while \
            handshakes are computed.",
    },
    Story {
        command: "bulk",
        title: "One loop's queue, one library's lock",
        source: "Asio, SSL, and scalability, K. Zemek, 2015",
        shared: "All threads took work from one event loop, and the TLS library took one lock for \
            every operation, to clear its error queue.",
        remedy: "An event loop per core, and connections that stay on theirs; OpenSSL has kept its \
            error queues per thread since 1.1.0.",
        published: Published {
            title: "Published: 20 connections, 8 threads",
            unit: "MB/s",
            look: "4 cores with 8 hardware threads, client and server in one process. At 2 threads \
                the shared loop with OpenSSL did 692 MB/s.",
            bars: &[
                ("shared loop, OpenSSL 1.0.2", 192.0),
                ("shared loop, BoringSSL", 875.0),
                ("loop per core, BoringSSL", 1620.0),
            ],
        },
        drawn: &[],
        times: &[],
        contrast: Contrast {
            figure: "MB/s",
            fault: "shared",
            remedy: "per-lane",
            variant: None,
            words: "% of one thread's MB/s",
        },
        real: "Asio itself, and the OpenSSL that is installed: the shared loop and the loop per \
            core are the write-up's own. Where Asio is missing, the step is left out. OpenSSL \
            1.0.2 itself, its locks handed to whoever waits longest, where it has been built from \
            its sources (stacks build openssl@1.0.2); BoringSSL and LibreSSL, which came after \
            it, where they have been built (stacks build boringssl, libressl).",
        emulated: "The lock of OpenSSL 1.0 where that is not built: put around every operation of \
            a library that no longer has it, taken as often as OpenSSL 1.0.2 was counted to take \
            its own (1,440 to 1,602 times per MiB), and handed to whoever waits longest.",
        counted: None,
        cores: "No supported OpenSSL has that lock any more: the lab puts it back with \
            --emulate error-lock. Two cores show neither the peak at three threads nor the rise to \
            seven; lock acquisitions per megabyte, and connections that change threads, are exact \
            anywhere.",
    },
    Story {
        command: "certificates",
        title: "One process that owns every certificate",
        source: "How We Sped up SNI TLS Handshakes by 5x, Heroku, 2016",
        shared: "Every new connection asked one process for its certificates, which decoded them \
            again each time, and searched all live entries when the connection closed.",
        remedy: "The connection's own thread finds and decodes; Sealane's lanes also keep what \
            they decoded, so each certificate is decoded once per lane.",
        published: Published {
            title: "Published: round trip with a handshake",
            unit: "ms",
            look: "A canary in production, 16 cores: 100 to 120 ms before, 20 to 25 after; drawn \
                are the middles. In a benchmark without resumption and keep-alive, an instance \
                then bore three times the load.",
            bars: &[("one owner", 110.0), ("decoded by the connection", 22.5)],
        },
        drawn: &["decoded", "visited", "allocations", "kept_rate"],
        times: &[
            Times { name: "round_trip", variant: Some(("live", "10000")) },
            Times { name: "round_trip", variant: Some(("injected owner cost", "2 ms")) },
        ],
        contrast: Contrast {
            figure: "decoded",
            fault: "central",
            remedy: "lane",
            variant: Some(("live", "10000")),
            words: "certificates decoded",
        },
        real: "Sealane's sessions, index and clients. Erlang's ssl is not here.",
        emulated: "Its owner of all certificates: a thread with a queue that parses and searches \
            for everybody. In the rows with an injected cost it also sleeps so long; the others \
            have the work alone.",
        counted: None,
        cores: "With two cores there is hardly a queue in front of the owner, unless its work is \
            made dearer on purpose. What it decodes, how often it is asked and how many entries it \
            looks at do not depend on cores.",
    },
    Story {
        command: "contexts",
        title: "A TLS context for every socket",
        source: "mongo-c-driver CDRIVER-4656, MongoDB, 2024",
        shared: "Every new connection of a client built its own TLS context, and so parsed all \
            trusted certificates again.",
        remedy: "One context for all connections with equal options; Sealane builds one per \
            process and gives each lane a replica.",
        published: Published {
            title: "Published: 200 pooled clients, one ping each",
            unit: "s",
            look: "11.8 of the 28.2 s were spent in building contexts, which makes 59 ms each. \
                With the one trusted certificate that the benchmark names, we measured 1 ms: the \
                effect needs a bundle of a real size, as below.",
            bars: &[("context per socket", 28.2), ("context shared", 2.9)],
        },
        drawn: &["contexts_built", "total_cpu_ms"],
        times: &[],
        contrast: Contrast {
            figure: "contexts_built",
            fault: "per-socket",
            remedy: "digest",
            variant: None,
            words: "contexts built",
        },
        real: "MongoDB's own C driver where it is installed, from before its remedy, and from \
            after it where its sources are named (stacks build libmongoc@1.30); OpenSSL and \
            Sealane, against a real Redis too.",
        emulated: "MongoDB's server: another one that speaks its protocol, mongo-java-server.",
        counted: None,
        cores: "Parsing costs the same on any number of cores. Whether one shared context or one \
            per thread wins on 16 cores cannot be seen on two; the shared reference counts that \
            decide it can be counted.",
    },
    Story {
        command: "tickets",
        title: "The lock around the ticket keys",
        source: "Measuring and Improving rustls's Multithreaded Performance, 2024",
        shared: "Every ticket that was issued or taken back went through one mutex, which was held \
            while it was encrypted.",
        remedy: "rustls took a read-write lock, whose count all threads still write. Sealane's \
            lanes derive the same keys at the same instant, each for itself: no lock, no message.",
        published: Published {
            title: "Published: resumptions per second and thread, TLS 1.2 tickets",
            unit: "per second and thread",
            look: "80 cores. With 2 threads, both did about 54,500.",
            bars: &[("mutex, 80 threads", 4695.0), ("read-write lock, 80 threads", 51632.0)],
        },
        drawn: &["tickets_per_s", "lock_waits", "shared_writes_issue"],
        times: &[Times { name: "ticket", variant: Some(("threads", "2")) }],
        contrast: Contrast {
            figure: "shared_writes_issue",
            fault: "mutex",
            remedy: "lane",
            variant: None,
            words: "shared writes per ticket issued",
        },
        real: "rustls 0.23.16 and 0.23.17 as released, counted in November 2026: the \
            published remedy took away waiting, not sharing. Either writes as often to memory \
            that other threads write, 4 times of these at the lock of the ticket keys.",
        emulated: "Both locks, written after rustls, around Sealane's own keys: rustls' cannot be \
            asked who waited.",
        counted: Some(Published {
            title: "Counted: shared writes of the server per resumption, TLS 1.2 tickets",
            unit: "writes",
            look: "Updates of cache lines that another thread writes too, one resumption of two \
                threads each, counted in November 2026; Sealane's by count --lines of the same \
                kind.",
            bars: &[
                ("rustls 0.23.16, mutex", RUSTLS_WRITES),
                ("rustls 0.23.17, read-write lock", RUSTLS_WRITES),
                ("Sealane", 0.0),
            ],
        }),
        cores: "The collapse at 80 threads needs 80 threads. That threads wait for each other, and \
            how often a ticket writes to memory that another thread writes, shows with two.",
    },
    Story {
        command: "tables",
        title: "One file table for all threads",
        source: "apache/trafficserver#13086, 2026",
        shared: "All threads of a process write one table of open files: its lock, at every \
            accept, socket and close. When it grows, whoever needs a number waits for all \
            processors.",
        remedy: "A table for each thread, which the thread itself takes by close_range(2) with \
            CLOSE_RANGE_UNSHARE; or a process for each.",
        published: Published {
            title: "Published: full handshakes per second",
            unit: "per second",
            look: "128 threads, one contributor's figure in a change that was still open, and not \
                reviewed: 58% of the CPU time was in the spin lock of accept4 and close.",
            bars: &[("one table", 95_000.0), ("a table for each thread", 400_000.0)],
        },
        drawn: &["operations_per_s", "cpu_ns", "shared_growths"],
        times: &[],
        contrast: Contrast {
            figure: "sharers",
            fault: "thread-table",
            remedy: "own-table",
            variant: None,
            words: "threads that write one table",
        },
        real: "The kernel's own file table, by the calls that servers make. Traffic Server itself \
            is not run: its threads' calls on that table are, without the rest of it.",
        emulated: "",
        counted: None,
        cores: "Two threads seldom meet at the lock; 128 do at every call. That they write one \
            lock, how often a connection does (count --kernel), and that a growth stops all of \
            them, shows on any machine.",
    },
];

/// Both versions of rustls alike; of these, at the lock around the ticket keys, before and after.
const RUSTLS_WRITES: f64 = 17.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_after_a_writeup_is_not_called_its_software() {
        for Story { command, real, published, .. } in &STORIES {
            assert!(!real.is_empty() && published.bars.len() > 1, "{command}");
            assert!(!real.contains("written after"), "{command}: {real}");
        }
    }
}
