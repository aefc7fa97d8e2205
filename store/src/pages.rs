//! The file's pages, read without mapping them: whether LMDB can be trusted with them, and which
//! bytes mean nothing any more.
//!
//! LMDB believes what stands in a page: a number that is wrong leads it out of the map, and the
//! process ends. Here every number is looked at before it is followed, so a [`Walk`] ends with an
//! error at worst. The layout is that of LMDB 0.9, which has not changed since 2011:
//!
//! ```text
//!   page 0, 1   meta: roots of two trees, the last page, the transaction that wrote it
//!   free tree   transaction      -->  list of pages that it freed
//!   main tree   name of a table  -->  root of the table's tree
//!   a tree      branch pages, leaf pages; a long value has overflow pages of its own
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// What the newest of the two meta pages says, and the other one if it is in order.
pub(crate) struct Metas {
    pub(crate) newest: Meta,
    pub(crate) older: Option<Meta>,
}

/// The start of one state of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    free: Tree,
    main: Tree,
    page_bytes: usize,
    pub(crate) pages: u64,
    pub(crate) transaction: u64,
}

impl Metas {
    /// Reads both, and refuses a file that LMDB would read otherwise than it was written.
    pub(crate) fn read(file: &File) -> Result<Self, PageFault> {
        let first = Meta::read(file, 0, PAGE_BYTES_MIN)?;
        let second = Meta::read(file, 1, first.page_bytes)?;
        if second.page_bytes != first.page_bytes {
            return Err(PageFault::damaged(1, "the meta pages disagree"));
        }
        // Transaction N writes page N % 2; before the first one both have the number 0.
        for (number, meta) in [(0, first), (1, second)] {
            if meta.transaction != 0 && meta.transaction % 2 != number {
                return Err(PageFault::damaged(number, "a meta page has the number of the other"));
            }
        }
        let (newest, older) =
            if first.transaction < second.transaction { (second, first) } else { (first, second) };
        Ok(Self { newest, older: Some(older).filter(|older| older.transaction != 0) })
    }

    /// Whether the file is as long as the newest state says.
    pub(crate) fn is_long_enough(&self, file_bytes: u64) -> bool {
        self.newest.pages.checked_mul(self.newest.page_bytes as u64) <= Some(file_bytes)
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.newest.page_bytes
    }
}

impl Meta {
    fn read(file: &File, number: u64, page_bytes: usize) -> Result<Self, PageFault> {
        let damaged = |what| PageFault::damaged(number, what);
        let mut page = [0; META_BYTES];
        file.read_exact_at(&mut page, number * page_bytes as u64)
            .map_err(|error| PageFault::read(number, error))?;
        let page = Page(&page);
        let magic = page.u32(HEADER).zip(page.u32(HEADER + 4));
        if page.u16(FLAGS) != Some(FLAG_META) || magic != Some((MAGIC, LMDB_VERSION)) {
            return Err(damaged("no meta page of LMDB"));
        }
        let free = Tree::read(page, HEADER + 24).ok_or(damaged(CUT))?;
        let main = Tree::read(page, HEADER + 24 + TREE_BYTES).ok_or(damaged(CUT))?;
        let last = page.u64(HEADER + 24 + 2 * TREE_BYTES).ok_or(damaged(CUT))?;
        let transaction = page.u64(HEADER + 32 + 2 * TREE_BYTES).ok_or(damaged(CUT))?;
        let page_bytes = usize::try_from(free.pad).unwrap_or(0);
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes)
        {
            return Err(damaged("an impossible size of pages"));
        }
        if free.flags != FLAG_INTEGER_KEYS || main.flags != 0 {
            return Err(damaged("a tree of another kind"));
        }
        let pages_max = (crate::MAP_BYTES / page_bytes) as u64;
        if last == 0 || last >= pages_max {
            return Err(damaged("an impossible number of pages"));
        }
        Ok(Self { free, main, page_bytes, pages: last + 1, transaction })
    }
}

/// A tree as a meta page or the main tree describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tree {
    branch_pages: u64,
    depth: u16,
    entries: u64,
    flags: u16,
    leaf_pages: u64,
    overflow_pages: u64,
    pad: u32,
    root: u64,
}

impl Tree {
    fn read(page: Page<'_>, at: usize) -> Option<Self> {
        Some(Self {
            pad: page.u32(at)?,
            flags: page.u16(at + 4)?,
            depth: page.u16(at + 6)?,
            branch_pages: page.u64(at + 8)?,
            leaf_pages: page.u64(at + 16)?,
            overflow_pages: page.u64(at + 24)?,
            entries: page.u64(at + 32)?,
            root: page.u64(at + 40)?,
        })
    }
}

/// Called with each part of a used page that nothing stands in, and the bytes there.
type OnGap<'w> = dyn FnMut(u64, Range<usize>, &[u8]) -> io::Result<()> + 'w;
/// Called with each entry: the name of its table, its key and its value, in the order of those.
type OnEntry<'w> = dyn FnMut(&[u8], &[u8], &[u8]) + 'w;

/// Who wants to know of what a walk comes by.
#[derive(Default)]
pub(crate) struct Visitors<'w> {
    pub(crate) on_entry: Option<&'w mut OnEntry<'w>>,
    pub(crate) on_gap: Option<&'w mut OnGap<'w>>,
}

/// Goes through one state of the database, page by page.
pub(crate) struct Walk<'w> {
    file: &'w File,
    page_bytes: usize,
    /// Memory for a page at each level, used again.
    spare: Vec<Vec<u8>>,
    visitors: Visitors<'w>,
    /// What is known of each page.
    uses: Vec<Use>,
}

/// What a page is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// In a tree.
    Live,
    /// Neither, or listed as free.
    None,
    /// Listed as free.
    Free,
}

impl<'w> Walk<'w> {
    /// Goes through the state that `meta` starts; returns what each page is used for.
    pub(crate) fn run(
        file: &'w File,
        meta: &Meta,
        visitors: Visitors<'w>,
    ) -> Result<Vec<Use>, PageFault> {
        let pages = usize::try_from(meta.pages).map_err(|_| PageFault::damaged(0, CUT))?;
        let mut uses = vec![Use::None; pages];
        uses.iter_mut().take(META_PAGES).for_each(|meta| *meta = Use::Live);
        let mut walk =
            Self { file, page_bytes: meta.page_bytes, spare: Vec::new(), visitors, uses };
        walk.tree(Kind::Free, &meta.free)?;
        walk.tree(Kind::Main, &meta.main)?;
        Ok(walk.uses)
    }

    fn tree(&mut self, kind: Kind<'_>, tree: &Tree) -> Result<(), PageFault> {
        let mut found = Found::default();
        if tree.root == NO_PAGE {
            if tree.depth != 0 {
                return Err(PageFault::damaged(0, "a tree without a root is not empty"));
            }
        } else {
            if tree.depth == 0 || tree.depth > DEPTH_MAX {
                return Err(PageFault::damaged(tree.root, "a tree of an impossible depth"));
            }
            self.page(kind, tree.root, tree.depth, &mut found)?;
        }
        let counted = (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries);
        match counted == (found.branches, found.leaves, found.overflows, found.entries) {
            true => Ok(()),
            false => Err(PageFault::damaged(tree.root, "a tree has other counts than it says")),
        }
    }

    /// A page of a tree, with `depth` levels from it to the leaves.
    fn page(
        &mut self,
        kind: Kind<'_>,
        number: u64,
        depth: u16,
        found: &mut Found,
    ) -> Result<(), PageFault> {
        self.take(number, Use::Live)?;
        let mut bytes = self.spare.pop().unwrap_or_else(|| vec![0; self.page_bytes]);
        let at = number * self.page_bytes as u64;
        self.file.read_exact_at(&mut bytes, at).map_err(|error| PageFault::read(number, error))?;
        self.nodes(kind, number, Page(&bytes), depth, found)?;
        self.spare.push(bytes);
        Ok(())
    }

    /// What stands in a page.
    fn nodes(
        &mut self,
        kind: Kind<'_>,
        number: u64,
        page: Page<'_>,
        depth: u16,
        found: &mut Found,
    ) -> Result<(), PageFault> {
        let damaged = |what| PageFault::damaged(number, what);
        let expected = if depth == 1 { FLAG_LEAF } else { FLAG_BRANCH };
        if page.u64(0) != Some(number) || page.u16(FLAGS) != Some(expected) {
            return Err(damaged("another page than the one that is meant"));
        }
        let gap = page.gap(depth > 1).ok_or(damaged("its parts lie outside or overlap"))?;
        if let Some(on_gap) = &mut self.visitors.on_gap {
            on_gap(number, gap.clone(), &page.0[gap.clone()]).map_err(PageFault::System)?;
        }
        if depth == 1 {
            found.leaves += 1;
            let mut nodes = page.nodes(gap.start, false);
            return nodes.try_for_each(|node| {
                self.leaf_node(kind, number, &node.ok_or(damaged(CUT))?, found)
            });
        }
        found.branches += 1;
        if gap.start - HEADER < 2 * PLACE_BYTES && kind != Kind::Free {
            return Err(damaged("a branch that does not branch"));
        }
        for (position, node) in page.nodes(gap.start, true).enumerate() {
            let node = node.ok_or(damaged(CUT))?;
            // What stands left of the first key is all that is smaller than the second.
            if position > 0 {
                found.next_key(kind, node.key, true).map_err(damaged)?;
            }
            self.page(kind, node.child(), depth - 1, found)?;
        }
        Ok(())
    }

    fn leaf_node(
        &mut self,
        kind: Kind<'_>,
        number: u64,
        node: &Node<'_>,
        found: &mut Found,
    ) -> Result<(), PageFault> {
        let damaged = |what| PageFault::damaged(number, what);
        if node.key.is_empty() || node.key.len() > KEY_BYTES_MAX {
            return Err(damaged("a key of an impossible length"));
        }
        found.next_key(kind, node.key, false).map_err(damaged)?;
        found.entries += 1;
        let long: Vec<u8>;
        let value = match (kind, node.flags) {
            (Kind::Free | Kind::Table(_), FLAG_BIG) => {
                long = self.overflow(number, node, found)?;
                &long[HEADER..HEADER + node.value_bytes]
            }
            (Kind::Free | Kind::Table(_), 0) | (Kind::Main, FLAG_TABLE) => node.value,
            _ => return Err(damaged("an entry of another kind")),
        };
        match kind {
            Kind::Free => self.free_list(number, node.key, value),
            Kind::Main => {
                let tree = Tree::read(Page(value), 0).filter(|_| value.len() == TREE_BYTES);
                let tree = tree.filter(|tree| tree.flags == 0 && tree.pad == 0);
                let tree = tree.ok_or(damaged("a table of another kind"))?;
                self.tree(Kind::Table(node.key), &tree)
            }
            Kind::Table(name) => {
                if let Some(on_entry) = &mut self.visitors.on_entry {
                    on_entry(name, node.key, value);
                }
                Ok(())
            }
        }
    }

    /// The pages of a value that has pages of its own.
    fn overflow(
        &mut self,
        number: u64,
        node: &Node<'_>,
        found: &mut Found,
    ) -> Result<Vec<u8>, PageFault> {
        let first = Page(node.value).u64(0).ok_or(PageFault::damaged(number, CUT))?;
        if node.value_bytes > VALUE_BYTES_MAX {
            return Err(PageFault::damaged(number, "a value of an impossible length"));
        }
        let pages = (HEADER - 1 + node.value_bytes) / self.page_bytes + 1;
        for next in 0..pages as u64 {
            self.take(first.saturating_add(next), Use::Live)?;
        }
        let mut bytes = vec![0; pages * self.page_bytes];
        let at = first * self.page_bytes as u64;
        self.file.read_exact_at(&mut bytes, at).map_err(|error| PageFault::read(first, error))?;
        let head = Page(&bytes);
        let is_it = head.u64(0) == Some(first)
            && head.u16(FLAGS) == Some(FLAG_OVERFLOW)
            && head.u32(LOWER).map(|count| count as usize) == Some(pages);
        if !is_it {
            return Err(PageFault::damaged(first, "another page than the one that is meant"));
        }
        found.overflows += pages as u64;
        let end = HEADER + node.value_bytes;
        if let Some(on_gap) = &mut self.visitors.on_gap {
            on_gap(first, end..bytes.len(), &bytes[end..]).map_err(PageFault::System)?;
        }
        Ok(bytes)
    }

    /// The pages that a transaction freed. LMDB sorts them so that numbers fall, and finds pages
    /// beside each other by that.
    fn free_list(&mut self, number: u64, key: &[u8], value: &[u8]) -> Result<(), PageFault> {
        let cut = PageFault::damaged(number, "a list of free pages is cut");
        let (numbers, []) = value.as_chunks::<8>() else { return Err(cut) };
        let mut numbers = numbers.iter().map(|number| u64::from_ne_bytes(*number));
        let count = numbers.next().and_then(|count| usize::try_from(count).ok());
        let Some(count) = count.filter(|count| *count <= numbers.len() && key.len() == 8) else {
            return Err(cut);
        };
        let mut before = u64::MAX;
        numbers.take(count).try_for_each(|free| {
            if free >= before {
                let what = "a list of free pages that is not in order";
                return Err(PageFault::damaged(number, what));
            }
            before = free;
            self.take(free, Use::Free)
        })
    }

    /// Notes what a page is used for; a page has one use.
    fn take(&mut self, number: u64, to: Use) -> Result<(), PageFault> {
        let slot = usize::try_from(number).ok().and_then(|number| self.uses.get_mut(number));
        match slot {
            Some(free @ Use::None) => {
                *free = to;
                Ok(())
            }
            Some(_) => Err(PageFault::damaged(number, "a page is used twice")),
            None => Err(PageFault::damaged(number, "a page lies behind the last one")),
        }
    }
}

/// What kind of tree is gone through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind<'n> {
    Free,
    Main,
    /// With its name.
    Table(&'n [u8]),
}

/// What a tree holds so far.
#[derive(Default)]
struct Found {
    branches: u64,
    entries: u64,
    leaves: u64,
    overflows: u64,
    /// The key before, none at first: no key is empty.
    last: Vec<u8>,
    /// Whether it only parts two pages.
    last_parts: bool,
}

impl Found {
    /// Keys rise from left to right; one that parts two pages may come again in the right one.
    fn next_key(&mut self, kind: Kind<'_>, key: &[u8], parts: bool) -> Result<(), &'static str> {
        if !self.last.is_empty() {
            let order = match kind {
                Kind::Free => integer(&self.last).cmp(&integer(key)),
                Kind::Main | Kind::Table(_) => self.last.as_slice().cmp(key),
            };
            if order.is_gt() || order.is_eq() && !self.last_parts {
                return Err("keys that are not in order");
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.last_parts = parts;
        Ok(())
    }
}

fn integer(key: &[u8]) -> Option<u64> {
    Page(key).u64(0)
}

/// Bytes of a page; numbers stand in the machine's order, and at any place.
#[derive(Clone, Copy)]
struct Page<'p>(&'p [u8]);

impl<'p> Page<'p> {
    fn u16(self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_ne_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_ne_bytes)
    }

    fn u64(self, at: usize) -> Option<u64> {
        self.bytes(at).map(u64::from_ne_bytes)
    }

    fn bytes<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    /// What is between the list of the nodes' places and the nodes, if these fill the page's end
    /// without a hole or an overlap.
    fn gap(self, is_branch: bool) -> Option<Range<usize>> {
        let (lower, upper) = (usize::from(self.u16(LOWER)?), usize::from(self.u16(UPPER)?));
        let is_within = lower > HEADER && lower.is_multiple_of(PLACE_BYTES) && lower <= upper;
        if !is_within || upper > self.0.len() {
            return None;
        }
        // A bit for each place at which a node begins.
        let mut begins = [0_u64; PAGE_BYTES_MAX / PLACE_BYTES / 64];
        let mut count = 0;
        for place in (HEADER..lower).step_by(PLACE_BYTES) {
            let at = usize::from(self.u16(place)?);
            let slot = begins.get_mut(at / PLACE_BYTES / 64)?;
            let bit = 1 << (at / PLACE_BYTES % 64);
            if !at.is_multiple_of(PLACE_BYTES) || *slot & bit != 0 {
                return None;
            }
            *slot |= bit;
            count += 1;
        }
        let mut at = upper;
        for _ in 0..count {
            let slot = begins.get(at / PLACE_BYTES / 64)?;
            if slot & 1 << (at / PLACE_BYTES % 64) == 0 {
                return None;
            }
            let node = self.node(at, is_branch)?;
            let bytes = NODE_HEADER + node.key.len() + node.value.len();
            at += bytes.next_multiple_of(PLACE_BYTES);
        }
        (at == self.0.len()).then_some(lower..upper)
    }

    /// The nodes in the order of their keys; `lower` is the end of the list of their places.
    fn nodes(self, lower: usize, is_branch: bool) -> impl Iterator<Item = Option<Node<'p>>> {
        let places = (HEADER..lower).step_by(PLACE_BYTES);
        places.map(move |place| self.node(usize::from(self.u16(place)?), is_branch))
    }

    fn node(self, at: usize, is_branch: bool) -> Option<Node<'p>> {
        let (low, high) = if cfg!(target_endian = "little") { (0, 2) } else { (2, 0) };
        let low = u32::from(self.u16(at + low)?) | u32::from(self.u16(at + high)?) << 16;
        let flags = self.u16(at + 4)?;
        let key_end = at + NODE_HEADER + usize::from(self.u16(at + 6)?);
        let key = self.0.get(at + NODE_HEADER..key_end)?;
        let value_bytes = usize::try_from(low).ok()?;
        // A branch's node has a page in the place of a length.
        let inline = match (is_branch, flags & FLAG_BIG) {
            (true, _) => 0,
            (false, 0) => value_bytes,
            (false, _) => 8,
        };
        let value = self.0.get(key_end..key_end.checked_add(inline)?)?;
        Some(Node { flags, key, low, value, value_bytes })
    }
}

/// A key with its value, or with the page that it leads to.
struct Node<'p> {
    flags: u16,
    key: &'p [u8],
    low: u32,
    value: &'p [u8],
    value_bytes: usize,
}

impl Node<'_> {
    fn child(&self) -> u64 {
        u64::from(self.low) | u64::from(self.flags) << 32
    }
}

/// Why a file is not what LMDB wrote.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageFault {
    #[error("page {page}: {what}")]
    Damaged { page: u64, what: &'static str },
    #[error(transparent)]
    System(io::Error),
}

impl PageFault {
    fn damaged(page: u64, what: &'static str) -> Self {
        Self::Damaged { page, what }
    }

    fn read(page: u64, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::damaged(page, "the file ends before it"),
            _ => Self::System(error),
        }
    }
}

const CUT: &str = "its end is missing";
/// Levels of a tree that LMDB goes down.
const DEPTH_MAX: u16 = 32;
/// Places in a page's header.
const FLAGS: usize = 10;
const FLAG_BIG: u16 = 1;
const FLAG_BRANCH: u16 = 1;
const FLAG_INTEGER_KEYS: u16 = 8;
const FLAG_LEAF: u16 = 2;
const FLAG_META: u16 = 8;
const FLAG_OVERFLOW: u16 = 4;
const FLAG_TABLE: u16 = 2;
const HEADER: usize = 16;
const KEY_BYTES_MAX: usize = 511;
const LMDB_VERSION: u32 = 1;
const LOWER: usize = 12;
const MAGIC: u32 = 0xBEEF_C0DE;
const META_BYTES: usize = HEADER + 24 + 2 * TREE_BYTES + 16;
pub(crate) const META_PAGES: usize = 2;
const NODE_HEADER: usize = 8;
/// A tree without a page.
const NO_PAGE: u64 = u64::MAX;
const PAGE_BYTES_MAX: usize = 32_768;
const PAGE_BYTES_MIN: usize = 256;
/// A place in a page takes so much, and nodes begin at multiples of it.
const PLACE_BYTES: usize = 2;
const TREE_BYTES: usize = 48;
const UPPER: usize = 14;
/// A record, or the list of what one transaction freed, generously.
const VALUE_BYTES_MAX: usize = 64 << 20;
