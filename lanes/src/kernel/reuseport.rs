//! Which of the sockets that share a port gets a new client, and so which lane.
//!
//! The kernel chooses by a hash of both addresses and ports, so the connections of one client fall
//! to all lanes. A program of a few instructions, which the kernel runs for each, chooses by the
//! client's address alone, or by the processor that the connection arrives at.

use std::io;
use std::os::fd::AsFd;

use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::{SetSockOpt as _, sockopt::AttachReusePortCbpf};

use crate::kernel::processors::processors;

/// How clients are spread over the lanes of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    /// All of one client, an IPv4 address or an IPv6 network of 64 bits, fall to one lane.
    Client {
        /// Nobody outside knows it, or he could choose the lane of each of his networks.
        key: u32,
        /// How many lanes there are; each has one socket.
        lanes: u32,
    },
    /// Each connection falls where chance will have it.
    Connection,
    /// Each falls to a lane that is tied to the processor at which its first packet arrives, if
    /// there is one.
    Core {
        /// How many lanes there are; each has one socket, and is tied to the next of the processors
        /// that this process may run on, and from the first again.
        lanes: u32,
    },
}

impl Steer {
    /// Steers the clients of all sockets that share `socket`'s address, which is one of IPv6 or of
    /// IPv4 alone, in place of `before`, if that is known: without a difference there is no call.
    ///
    /// # Errors
    /// It is no socket that shares its port.
    pub(crate) fn apply(
        self,
        socket: impl AsFd,
        is_ipv6: bool,
        before: Option<Self>,
    ) -> io::Result<()> {
        if before == Some(self) {
            return Ok(());
        }
        let mut program = match self {
            Self::Client { key, lanes } => by_client(is_ipv6, key, lanes),
            Self::Connection => vec![op(RETURN, ANY)],
            Self::Core { lanes } => by_core(&processors()?, lanes),
        };
        let len = u16::try_from(program.len()).unwrap_or(u16::MAX);
        let program = sock_fprog { len, filter: program.as_mut_ptr() };
        Ok(AttachReusePortCbpf.set(&socket.as_fd(), &program)?)
    }
}

/// The number of a socket, by a hash of the client's network.
fn by_client(is_ipv6: bool, key: u32, lanes: u32) -> Vec<sock_filter> {
    let mut program = match is_ipv6 {
        false => vec![op(LOAD, IPV4_SOURCE), op(XOR, key)],
        true => vec![
            op(LOAD, IPV6_SOURCE),
            op(XOR, key),
            op(MULTIPLY, GOLDEN),
            op(TO_X, 0),
            op(LOAD, IPV6_SOURCE + 4),
            op(ADD_X, 0),
        ],
    };
    // The upper half of a product depends on all bits.
    program.extend([
        op(MULTIPLY, GOLDEN),
        op(SHIFT_RIGHT, 16),
        op(REMAINDER, lanes),
        op(RETURN_A, 0),
    ]);
    program
}

/// The number of a socket whose lane is tied to the processor that runs this.
fn by_core(processors: &[usize], lanes: u32) -> Vec<sock_filter> {
    let all = u32::try_from(processors.len()).unwrap_or(u32::MAX);
    let mut program = vec![op(LOAD, THIS_PROCESSOR)];
    for (first, processor) in (0..lanes).zip(processors) {
        let tied = (lanes - first).div_ceil(all);
        let chosen = match tied {
            1 => vec![op(RETURN, first)],
            // By chance among those that share it.
            _ => vec![
                op(LOAD, RANDOM),
                op(REMAINDER, tied),
                op(MULTIPLY, all),
                op(ADD, first),
                op(RETURN_A, 0),
            ],
        };
        // At most five are skipped.
        let jf = u8::try_from(chosen.len()).unwrap_or(u8::MAX);
        let k = u32::try_from(*processor).unwrap_or(u32::MAX);
        program.push(sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf, k });
        program.extend(chosen);
    }
    program.push(op(RETURN, ANY));
    program
}

fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// A number that no socket has: the kernel chooses as it does without a program.
const ANY: u32 = u32::MAX;
/// An odd number without a pattern: 2 to the 32nd, divided by the golden ratio.
const GOLDEN: u32 = 0x9e37_79b1;
/// Where the header of the network layer begins, for a load.
const NETWORK_HEADER: u32 = 0xfff0_0000;
const IPV4_SOURCE: u32 = NETWORK_HEADER + 12;
const IPV6_SOURCE: u32 = NETWORK_HEADER + 8;
// From linux/filter.h, for a load.
const THIS_PROCESSOR: u32 = 0xffff_f000 + 36;
const RANDOM: u32 = 0xffff_f000 + 56;

// Instructions of classic BPF, as linux/bpf_common.h puts them together.
/// A += k
const ADD: u16 = 0x04;
/// A += X
const ADD_X: u16 = 0x0c;
/// Goes on, or skips `jf` instructions.
const JUMP_IF_EQUAL: u16 = 0x15;
/// A = the four bytes there
const LOAD: u16 = 0x20;
const MULTIPLY: u16 = 0x24;
const REMAINDER: u16 = 0x94;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
const SHIFT_RIGHT: u16 = 0x74;
/// X = A
const TO_X: u16 = 0x07;
const XOR: u16 = 0xa4;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr, TcpStream};

    use rustix::thread::{CpuSet, sched_setaffinity};
    use sealane_file_table::Descriptor;
    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::kernel::listener::{Bind, bind_as};
    use crate::kernel::{Kernel as _, Linux};

    const LANES: u32 = 4;
    const BY_CLIENT: Steer = Steer::Client { key: 0x5eed_5eed, lanes: LANES };

    /// On which of the sockets each of so many connections from `own` arrives.
    fn arrivals(sockets: &[Descriptor], at: SocketAddr, own: IpAddr, count: usize) -> Vec<usize> {
        (0..count)
            .map(|_| {
                let client = Socket::new(Domain::for_address(at), Type::STREAM, None).unwrap();
                client.bind(&SocketAddr::from((own, 0)).into()).unwrap();
                client.connect(&at.into()).unwrap();
                let _client = TcpStream::from(client);
                let takes = |socket: &Descriptor| Linux.accept(socket.as_fd()).is_ok();
                sockets.iter().position(takes).unwrap()
            })
            .collect()
    }

    fn lanes_of(mut arrivals: Vec<usize>) -> usize {
        arrivals.sort_unstable();
        arrivals.dedup();
        arrivals.len()
    }

    #[test]
    fn a_client_stays_on_its_lane_and_clients_are_spread() {
        let any = Bind::to("127.0.0.1:0".parse().unwrap());
        let bind = Bind { steer: BY_CLIENT, ..any };
        let (sockets, at) = bind_as(&bind, LANES as usize).unwrap();
        let own = |last: u8| IpAddr::from([127, 0, 0, last]);
        let mut firsts = Vec::new();
        for last in 1..=32 {
            let arrivals = arrivals(&sockets, at, own(last), 4);
            firsts.push(arrivals[0]);
            assert_eq!(lanes_of(arrivals), 1, "{last}");
        }
        assert_eq!(lanes_of(firsts), LANES as usize);

        Steer::Connection.apply(&sockets[0], false, Some(BY_CLIENT)).unwrap();
        assert_eq!(lanes_of(arrivals(&sockets, at, own(1), 64)), LANES as usize);
        BY_CLIENT.apply(&sockets[0], false, Some(Steer::Connection)).unwrap();
        assert_eq!(lanes_of(arrivals(&sockets, at, own(1), 16)), 1);
    }

    /// Connections of one client that fall to a lane of the processor at which they arrive, of 32.
    fn on_their_core(steer: Steer) -> Vec<usize> {
        let any = Bind::to("127.0.0.1:0".parse().unwrap());
        let (sockets, at) = bind_as(&Bind { steer, ..any }, LANES as usize).unwrap();
        let processors = processors().unwrap();
        let arrive = |(place, processor): (usize, &usize)| {
            let mut only = CpuSet::new();
            only.set(*processor);
            let arrivals = std::thread::scope(|scope| {
                let pinned = || {
                    sched_setaffinity(None, &only).unwrap();
                    let clients = (0..32).map(|_| TcpStream::connect(at).unwrap());
                    clients.collect::<Vec<_>>()
                };
                let _clients = scope.spawn(pinned).join().unwrap();
                let takes = |socket: &Descriptor| Linux.accept(socket.as_fd()).is_ok();
                (0..32).map(|_| sockets.iter().position(takes).unwrap()).collect::<Vec<_>>()
            });
            arrivals.iter().filter(|lane| *lane % processors.len() == place).count()
        };
        processors.iter().take(LANES as usize).enumerate().map(arrive).collect()
    }

    #[test]
    fn a_connection_falls_to_a_lane_of_the_core_at_which_it_arrives() {
        let by_chance = on_their_core(Steer::Connection);
        let steered = on_their_core(Steer::Core { lanes: LANES });
        println!("of 32 from each core: {by_chance:?} by chance, {steered:?} steered");
        assert!(steered.iter().all(|own| *own == 32), "{steered:?}");
    }

    #[test]
    fn lanes_of_one_core_share_what_arrives_there() {
        let one = processors().unwrap().len() == 1;
        let steer = Steer::Core { lanes: LANES };
        let any = Bind::to("127.0.0.1:0".parse().unwrap());
        let (sockets, at) = bind_as(&Bind { steer, ..any }, LANES as usize).unwrap();
        let lanes = lanes_of(arrivals(&sockets, at, at.ip(), 64));
        assert!(lanes > 1 || one, "{lanes}");
        assert_eq!(by_core(&[0, 2], 5).len(), 1 + 6 + 6 + 1);
        // The greatest that there can be is not too long for the kernel.
        assert!(by_core(&(0..512).collect::<Vec<_>>(), 1024).len() <= 4096);
    }

    #[test]
    fn a_client_over_ipv6_stays_on_its_lane_too() {
        let any = Bind::to("[::1]:0".parse().unwrap());
        let bind = Bind { steer: BY_CLIENT, ..any };
        let (sockets, at) = bind_as(&bind, LANES as usize).unwrap();
        assert_eq!(lanes_of(arrivals(&sockets, at, at.ip(), 16)), 1);
    }
}
