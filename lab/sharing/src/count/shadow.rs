//! The call stack of a traced thread, which the trace itself does not tell: [`Shadow`] follows its
//! calls and returns, [`Nodes`] holds each call path once.

use std::collections::HashMap;

use sealane_lab_model::error::Error;

use crate::count::code::Flow;

/// Who called whom, from the first instruction that was followed on.
pub(super) struct Shadow {
    frames: Vec<Frame>,
    /// Frames beyond [`DEPTH_MAX`], which are only counted.
    beyond: usize,
    /// What the instruction before does to the stack.
    before: Before,
    /// Whether the function in which the thread began has done its first atomic update.
    bottom_updated: bool,
}

#[derive(Clone, Copy)]
enum Before {
    On,
    Call { at: u64, returns_to: u64 },
    Return,
    Unknown,
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    returns_to: u64,
    /// The call instruction, and all calls around it.
    pub(super) node: u32,
    /// Whether the called function has done an atomic update yet.
    pub(super) updated: bool,
}

/// Call paths as a tree. Node 0 is the root: nothing is known of it.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    known: HashMap<Node, u32>,
    nodes_max: usize,
}

/// One instruction on a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    /// The call in whose function it stands.
    pub(super) caller: u32,
    /// A call, or at the end of a path an access to memory.
    pub(super) pc: u64,
}

impl Shadow {
    /// The shadow of a thread that begins to be followed.
    pub(super) fn new() -> Self {
        Self { frames: Vec::new(), beyond: 0, before: Before::On, bottom_updated: false }
    }

    /// The thread executes the instruction at `pc`.
    ///
    /// # Errors
    /// If there are too many call paths.
    pub(super) fn step(
        &mut self,
        pc: u64,
        bytes: u64,
        flow: Flow,
        nodes: &mut Nodes,
    ) -> Result<(), Error> {
        match self.before {
            Before::Call { at, returns_to } => self.call(at, returns_to, nodes)?,
            Before::Return => self.returned(pc),
            Before::Unknown if self.frames.last().is_some_and(|top| top.returns_to == pc) => {
                self.frames.pop();
            }
            Before::On | Before::Unknown => {}
        }
        self.before = match flow {
            Flow::On => Before::On,
            Flow::Call => Before::Call { at: pc, returns_to: pc + bytes },
            Flow::Return => Before::Return,
            Flow::Unknown => Before::Unknown,
        };
        Ok(())
    }

    /// The node of the call in whose function the thread is.
    pub(super) fn node(&self) -> u32 {
        self.frames.last().map_or(0, |top| top.node)
    }

    /// The frame `above` calls out from the function that runs; `None` beyond the first one.
    pub(super) fn frame(&self, above: usize) -> Option<&Frame> {
        self.frames.iter().rev().nth(above)
    }

    /// Whether the function `above` calls out does its first atomic update now, which then is done.
    pub(super) fn is_first_update(&mut self, above: usize) -> bool {
        let updated = match self.frames.iter_mut().rev().nth(above) {
            Some(frame) => &mut frame.updated,
            None => &mut self.bottom_updated,
        };
        !std::mem::replace(updated, true)
    }

    fn call(&mut self, at: u64, returns_to: u64, nodes: &mut Nodes) -> Result<(), Error> {
        if self.frames.len() >= DEPTH_MAX {
            self.beyond += 1;
            return Ok(());
        }
        let node = nodes.of(Node { caller: self.node(), pc: at })?;
        self.frames.push(Frame { returns_to, node, updated: false });
        Ok(())
    }

    /// Mostly to the last call. Further down, if functions were left in another way, as `longjmp`
    /// does; to none at all from a signal's handler, or by a return that is a jump: then nothing
    /// has returned.
    fn returned(&mut self, pc: u64) {
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        if let Some(calls) = self.frames.iter().rev().position(|frame| frame.returns_to == pc) {
            self.frames.truncate(self.frames.len() - calls - 1);
        }
    }
}

impl Nodes {
    /// None but the root, and `nodes_max` at most.
    pub(super) fn new(nodes_max: usize) -> Self {
        Self { nodes: vec![Node { caller: 0, pc: 0 }], known: HashMap::new(), nodes_max }
    }

    /// The number of `node`.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn of(&mut self, node: Node) -> Result<u32, Error> {
        if let Some(number) = self.known.get(&node) {
            return Ok(*number);
        }
        if self.nodes.len() >= self.nodes_max {
            return Err(Error::Check(format!(
                "one thread's accesses have more than {} call paths; record fewer with \
                 --handshakes",
                self.nodes_max
            )));
        }
        let number = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(node);
        self.known.insert(node, number);
        Ok(number)
    }

    /// The instructions from `node` outwards.
    pub(super) fn path(&self, node: u32) -> Vec<u64> {
        let mut path = Vec::new();
        let mut at = node;
        while at != 0 {
            let Node { caller, pc } = self.nodes[at as usize];
            path.push(pc);
            at = caller;
        }
        path
    }

    /// What the node `number` is.
    pub(super) fn node(&self, number: u32) -> Node {
        self.nodes[number as usize]
    }
}

/// Deeper than any TLS library calls.
const DEPTH_MAX: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; 0] = [];

    struct Thread {
        shadow: Shadow,
        nodes: Nodes,
    }

    impl Thread {
        fn new() -> Self {
            Self { shadow: Shadow::new(), nodes: Nodes::new(1_000) }
        }

        fn does(&mut self, steps: &[(u64, Flow)]) -> Vec<u64> {
            for (pc, flow) in steps {
                self.shadow.step(*pc, 4, *flow, &mut self.nodes).expect("within limits");
            }
            self.nodes.path(self.shadow.node())
        }
    }

    #[test]
    fn calls_and_returns_make_a_path() {
        let mut thread = Thread::new();
        assert_eq!(thread.does(&[(100, Flow::Call), (200, Flow::On)]), [100]);
        assert_eq!(thread.does(&[(204, Flow::Call), (300, Flow::Return)]), [204, 100]);
        assert_eq!(thread.does(&[(208, Flow::Return), (104, Flow::On)]), NONE);
    }

    #[test]
    fn a_tail_call_returns_to_its_callers_caller() {
        let mut thread = Thread::new();
        // 200 jumps to 300, which returns for it.
        thread.does(&[(100, Flow::Call), (200, Flow::On), (300, Flow::Return)]);
        assert_eq!(thread.does(&[(104, Flow::On)]), NONE);
    }

    #[test]
    fn a_missed_return_is_made_up_for_by_the_next_one() {
        let mut thread = Thread::new();
        // longjmp from 300 into the function at 200, which then returns.
        thread.does(&[(100, Flow::Call), (200, Flow::Call), (300, Flow::On), (208, Flow::On)]);
        assert_eq!(thread.does(&[(212, Flow::Return), (104, Flow::On)]), NONE);
    }

    #[test]
    fn a_return_that_is_none_takes_nothing_away() {
        let mut thread = Thread::new();
        // A signal's handler at 900 came without a call and returns to the kernel's own code.
        thread.does(&[(100, Flow::Call), (200, Flow::On), (900, Flow::Return)]);
        assert_eq!(thread.does(&[(950, Flow::On), (204, Flow::On)]), [100]);
    }

    #[test]
    fn code_without_bytes_returns_where_it_was_called() {
        let mut thread = Thread::new();
        thread.does(&[(100, Flow::Call), (500, Flow::Unknown), (504, Flow::Unknown)]);
        assert_eq!(thread.does(&[(104, Flow::On)]), NONE);
    }

    #[test]
    fn recursion_beyond_the_limit_comes_back() {
        let mut thread = Thread::new();
        let deep = DEPTH_MAX + 10;
        thread.nodes = Nodes::new(DEPTH_MAX + 1);
        thread.does(&vec![(100, Flow::Call); deep]);
        let mut back = vec![(100, Flow::Return)];
        back.extend(vec![(104, Flow::Return); deep - 1]);
        thread.does(&back);
        assert_eq!(thread.does(&[(104, Flow::On)]), NONE);
    }

    #[test]
    fn the_first_update_of_a_call_is_told_once() {
        let mut thread = Thread::new();
        thread.does(&[(100, Flow::Call), (200, Flow::On)]);
        assert!(thread.shadow.is_first_update(0));
        assert!(!thread.shadow.is_first_update(0));
        assert!(thread.shadow.is_first_update(1), "of the caller");
        thread.does(&[(204, Flow::Return), (104, Flow::On), (108, Flow::Call), (200, Flow::On)]);
        assert!(thread.shadow.is_first_update(0), "of another call");
    }
}
