//! Type, length, value: what version 2 has to tell beside addresses.

use super::malformed::Malformed;

/// The values of a header, or of a group in it: an iterator over those left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    /// Those left as they came, to be passed on.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> From<&'a [u8]> for Values<'a> {
    /// Whole values; what breaks off within one ends there.
    fn from(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let mut reader = Reader::new(self.rest);
        let value = reader.value().ok().flatten();
        self.rest = reader.rest;
        value
    }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// What it holds.
    pub bytes: &'a [u8],
    /// What it is about.
    pub kind: u8,
    /// The same with type and length before it.
    pub whole: &'a [u8],
}

/// What is left to read of a header, or of a value in it.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// All that is left is values.
    pub(super) fn values(&self) -> Values<'a> {
        Values { rest: self.rest }
    }

    /// Bytes left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next value, if there is any; behind a broken one there is nothing.
    pub(super) fn value(&mut self) -> Result<Option<Value<'a>>, Malformed> {
        let whole = std::mem::take(&mut self.rest);
        let Some((&kind, behind)) = whole.split_first() else { return Ok(None) };
        let (len, behind) = behind.split_first_chunk().ok_or(Malformed::CutShort)?;
        let len = usize::from(u16::from_be_bytes(*len));
        let (bytes, rest) = behind.split_at_checked(len).ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(Some(Value { bytes, kind, whole: &whole[..whole.len() - rest.len()] }))
    }
}
