//! Call paths with names, [`Paths`]: made of those that the shadow stack saw, each function once
//! below its caller, without the harness around them.

use std::collections::HashMap;

use sealane_lab_model::recording::PathNode;

use crate::count::{class, shadow::Nodes, symbols::Symbols};

/// Those that were asked for.
pub(super) struct Paths<'a> {
    seen: &'a Nodes,
    symbols: &'a Symbols,
    /// Node 0 has no name.
    nodes: Vec<PathNode>,
    known: HashMap<PathNode, u32>,
    /// The node of each call that was seen; `None` of the harness.
    calls: HashMap<u32, Option<u32>>,
    accesses: HashMap<u32, u32>,
    takers: HashMap<u32, [String; 2]>,
}

impl<'a> Paths<'a> {
    /// No path yet.
    pub(super) fn new(seen: &'a Nodes, symbols: &'a Symbols) -> Self {
        Self {
            seen,
            symbols,
            nodes: vec![PathNode::default()],
            known: HashMap::new(),
            calls: HashMap::new(),
            accesses: HashMap::new(),
            takers: HashMap::new(),
        }
    }

    /// The node of an access.
    pub(super) fn of_access(&mut self, seen: u32) -> u32 {
        if let Some(node) = self.accesses.get(&seen) {
            return *node;
        }
        let access = self.seen.node(seen);
        let caller = self.of_call(access.caller);
        let code = self.symbols.code(access.pc);
        let function = class::told(&code.functions);
        let node = self.node(PathNode { caller, function, owner: code.owner });
        self.accesses.insert(seen, node);
        node
    }

    /// Who does the lock operation that the access belongs to: the innermost function that is no
    /// part of locks, and the next one out.
    pub(super) fn taker(&mut self, seen: u32) -> [String; 2] {
        if let Some(taker) = self.takers.get(&seen) {
            return taker.clone();
        }
        let path = self.seen.path(seen);
        let mut others = path.iter().filter_map(|pc| {
            let functions = self.symbols.code(*pc).functions;
            let others = class::around_locks(&functions);
            (!others.is_empty()).then(|| class::name(others))
        });
        let taker = [(); 2].map(|()| others.next().unwrap_or_default());
        self.takers.insert(seen, taker.clone());
        taker
    }

    /// All.
    pub(super) fn into_nodes(self) -> Vec<PathNode> {
        self.nodes
    }

    fn of_call(&mut self, seen: u32) -> Option<u32> {
        // The calls that have no node yet, innermost first.
        let mut new = Vec::new();
        let mut at = seen;
        while at != 0 && !self.calls.contains_key(&at) {
            new.push(at);
            at = self.seen.node(at).caller;
        }
        let mut caller = self.calls.get(&at).copied().flatten();
        for call in new.into_iter().rev() {
            let code = self.symbols.code(self.seen.node(call).pc);
            if caller.is_some() || !class::is_harness(&code) {
                let function = class::name(&code.functions);
                caller = Some(self.node(PathNode { caller, function, owner: code.owner }));
            }
            self.calls.insert(call, caller);
        }
        caller
    }

    fn node(&mut self, node: PathNode) -> u32 {
        if let Some(number) = self.known.get(&node) {
            return *number;
        }
        let number = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(node.clone());
        self.known.insert(node, number);
        number
    }
}
