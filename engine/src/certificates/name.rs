//! A server name as a hello asks for it, in the two forms under which certificates are found.

use super::NAME_BYTES_MAX;

/// A name in lower case without its trailing dot, on the stack.
#[derive(PartialEq, Eq)]
pub struct AskedName {
    buffer: [u8; NAME_BYTES_MAX],
    len: usize,
}

impl AskedName {
    /// Takes `server_name`; none if it is longer than any name, or not ASCII.
    pub fn new(server_name: &str) -> Option<Self> {
        let name = server_name.strip_suffix('.').unwrap_or(server_name);
        let mut asked = Self { buffer: [0; NAME_BYTES_MAX], len: name.len() };
        let lowered = asked.buffer.get_mut(..name.len()).filter(|_| name.is_ascii())?;
        lowered.copy_from_slice(name.as_bytes());
        lowered.make_ascii_lowercase();
        Some(asked)
    }

    /// The name itself, which hides a wildcard.
    pub fn exact(&self) -> &str {
        text(&self.buffer[..self.len])
    }

    /// The wildcard for exactly the first label, if the name has more than one; written over the
    /// name.
    pub fn wildcard(&mut self) -> Option<&str> {
        let dot = self.buffer[..self.len].iter().position(|byte| *byte == b'.')?;
        // The last byte of the first label makes room: a.example.com, *.example.com.
        let wildcard = self.buffer.get_mut(dot.checked_sub(1)?..self.len)?;
        wildcard[0] = b'*';
        Some(text(wildcard))
    }
}

fn text(ascii: &[u8]) -> &str {
    // Only ASCII gets in.
    str::from_utf8(ascii).unwrap_or_default()
}
