//! The trial of `memory`, in a process of its own: makes connections, holds them, and reads the
//! allocator's own count before and after each end of them is dropped.
//!
//! The count is `mallinfo2`'s, of bytes in use, and not the resident set: that one moves by pages,
//! keeps what was freed, and counts what has never been written to as nothing. All stacks here take
//! their memory from the same allocator.

use std::{collections::BTreeMap, path::PathBuf};

use sealane_lab_harness::{
    credentials::Credentials,
    trial::{Body, Reply},
};
use sealane_lab_model::{error::Error, scenario::Scenario};
use sealane_libssl::heap;
use serde::{Deserialize, Serialize};

use crate::{
    pair::shake_hands,
    stack::{Endpoint, Worker},
    stacks,
};

/// Connections of one stack in one scenario, held at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The stack's name or path.
    pub stack: String,
    /// The same for every stack.
    pub scenario: Scenario,
    /// The folder of [`Credentials`], of the scenario's key type.
    pub credentials: PathBuf,
    /// How many.
    pub connections: usize,
}

impl Body for Memory {
    const NAME: &'static str = "memory";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Does the task.
///
/// # Errors
/// The stack's own, or what differs from what was asked.
fn run(task: &Memory) -> Result<Reply, Error> {
    let credentials = Credentials::at(&task.credentials);
    let prepared = stacks::load(&task.stack)?.prepare(&task.scenario, &credentials)?;
    let worker = prepared.worker()?;
    let count = task.connections;
    let mut holder = Holder {
        worker,
        scenario: task.scenario.clone(),
        servers: Vec::with_capacity(count),
        clients: Vec::with_capacity(count),
        to_server: Vec::with_capacity(BUFFER_BYTES),
        to_client: Vec::with_capacity(BUFFER_BYTES),
        plaintext: Vec::with_capacity(BUFFER_BYTES),
        sent: (0..TRANSFER_BYTES).map(|at| at.to_le_bytes()[0]).collect(),
    };
    // What a library makes once is not a connection's: tables, caches, its own pools.
    holder.hold(WARM_UP, true)?;
    holder.drop_clients();
    holder.drop_servers();
    let mut bytes = BTreeMap::new();
    for (state, transfers) in [("established", false), ("idle", true)] {
        let before = heap::used_bytes();
        holder.hold(count, transfers)?;
        let held = heap::used_bytes();
        let without_clients = holder.drop_clients();
        let without_both = holder.drop_servers();
        let each = |more: u64, less: u64| (more as f64 - less as f64) / count as f64;
        bytes.insert(format!("client_{state}"), each(held, without_clients));
        bytes.insert(format!("server_{state}"), each(without_clients, without_both));
        // Such as sessions in the server's cache.
        bytes.insert(format!("kept_after_{state}"), each(without_both, before));
    }
    for (what, value) in &bytes {
        if !what.starts_with("kept") && *value <= 0.0 {
            return Err(Error::Check(format!("{what} came out as {value} bytes")));
        }
    }
    Ok(Reply::Memory { bytes })
}

/// Both ends of many connections.
struct Holder {
    worker: Box<dyn Worker>,
    scenario: Scenario,
    servers: Vec<Box<dyn Endpoint>>,
    clients: Vec<Box<dyn Endpoint>>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    plaintext: Vec<u8>,
    /// What goes through each connection, each way, in an idle one's past.
    sent: Vec<u8>,
}

impl Holder {
    /// Makes `count` connections and keeps them.
    fn hold(&mut self, count: usize, transfers: bool) -> Result<(), Error> {
        for _ in 0..count {
            let [mut server, mut client] = self.connect()?;
            if transfers {
                self.transfer(&mut *client, &mut *server)?;
                self.transfer(&mut *server, &mut *client)?;
            }
            for end in [&mut server, &mut client] {
                end.release()?;
            }
            self.servers.push(server);
            self.clients.push(client);
        }
        Ok(())
    }

    fn drop_clients(&mut self) -> u64 {
        self.clients.clear();
        heap::used_bytes()
    }

    fn drop_servers(&mut self) -> u64 {
        self.servers.clear();
        heap::used_bytes()
    }

    /// Server and client after a checked full handshake, its tickets taken in.
    fn connect(&mut self) -> Result<[Box<dyn Endpoint>; 2], Error> {
        let (mut server, mut client) = (self.worker.server()?, self.worker.client(None)?);
        shake_hands(&mut *server, &mut *client)?;
        self.scenario.check(&server.negotiated()?, &client.negotiated()?, false)?;
        Ok([server, client])
    }

    /// Bytes from one end to the other, compared.
    fn transfer(&mut self, from: &mut dyn Endpoint, to: &mut dyn Endpoint) -> Result<(), Error> {
        self.to_client.clear();
        self.plaintext.clear();
        from.send(&self.sent, &mut self.to_client)?;
        self.to_server.clear();
        to.receive(&self.to_client, &mut self.plaintext, &mut self.to_server)?;
        if self.plaintext == self.sent {
            self.plaintext.clear();
            return Ok(());
        }
        Err(Error::Check("what came is not what was sent".into()))
    }
}

/// Connections before the first count.
const WARM_UP: usize = 32;
const TRANSFER_BYTES: u32 = 16_384;
/// So that no buffer of the lab's grows while it counts.
const BUFFER_BYTES: usize = 256 * 1024;
