//! The size to which a ring may grow: [`Limits`].

use std::{error, fmt};

/// The size of a ring's pages and how many it may hold at once: its cap is their product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    page_bytes: u32,
    pages_max: u32,
}

impl Limits {
    /// A ring of up to `pages_max` pages, 1 to 32, of `page_bytes` each, a power of two up to 16
    /// MiB.
    ///
    /// # Errors
    /// One of the two is out of bounds. The error names it.
    pub const fn new(page_bytes: usize, pages_max: usize) -> Result<Self, LimitsError> {
        if page_bytes > PAGE_BYTES_MAX || !page_bytes.is_power_of_two() {
            return Err(LimitsError::PageBytes(page_bytes));
        }
        if pages_max == 0 || pages_max > PAGES_MAX {
            return Err(LimitsError::PagesMax(pages_max));
        }
        #[expect(clippy::cast_possible_truncation, reason = "both were compared above")]
        let (page_bytes, pages_max) = (page_bytes as u32, pages_max as u32);
        Ok(Self { page_bytes, pages_max })
    }

    /// Bytes of one page.
    #[must_use]
    pub const fn page_bytes(self) -> usize {
        self.page_bytes as usize
    }

    /// Pages that a ring holds at most.
    #[must_use]
    pub const fn pages_max(self) -> usize {
        self.pages_max as usize
    }

    /// Bytes that a ring holds at most.
    #[must_use]
    pub const fn bytes_max(self) -> usize {
        self.page_bytes() * self.pages_max()
    }

    /// Bytes of a page, as positions are counted.
    pub(crate) const fn page_span(self) -> u32 {
        self.page_bytes
    }

    /// A bit for each page.
    pub(crate) const fn page_bits(self) -> u32 {
        u32::MAX >> (u32::BITS - self.pages_max)
    }
}

/// The limit that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsError {
    /// The bytes of a page are no power of two, or too many.
    PageBytes(usize),
    /// There must be a page, and there is a bit for each.
    PagesMax(usize),
}

impl fmt::Display for LimitsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageBytes(bytes) => {
                write!(out, "page_bytes is {bytes}; give a power of two, at most {PAGE_BYTES_MAX}")
            }
            Self::PagesMax(pages) => write!(out, "pages_max is {pages}; give 1 to {PAGES_MAX}"),
        }
    }
}

impl error::Error for LimitsError {}

/// One bit each in a word that every language can change in one step.
pub(crate) const PAGES_MAX: usize = 32;

/// Then all pages together are far less than positions count before they begin again.
const PAGE_BYTES_MAX: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_and_named() {
        let limits = Limits::new(16_384, 32).unwrap();
        assert_eq!((limits.page_bytes(), limits.pages_max()), (16_384, 32));
        assert_eq!((limits.bytes_max(), limits.page_bits()), (524_288, u32::MAX));
        assert_eq!(Limits::new(1, 1).unwrap().page_bits(), 1);
        for bytes in [0, 3, 1 << 25, usize::MAX] {
            assert_eq!(Limits::new(bytes, 1), Err(LimitsError::PageBytes(bytes)));
        }
        for pages in [0, 33, usize::MAX] {
            assert_eq!(Limits::new(64, pages), Err(LimitsError::PagesMax(pages)));
        }
        let told = Limits::new(3, 1).unwrap_err().to_string();
        assert_eq!(told, "page_bytes is 3; give a power of two, at most 16777216");
    }
}
