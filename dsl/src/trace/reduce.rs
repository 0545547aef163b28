//! The two rewrites that change no value, and a listing.

use std::{collections::HashMap, fmt};

use super::{Node, NodeId, Trace, WeightPart, What};

impl Trace {
    /// Without what neither results, state nor (with `probes`) probes need.
    pub fn live(&self, probes: bool) -> Trace {
        let mut needed = vec![false; self.nodes.len()];
        for id in self.results.iter().chain(self.writes.iter().map(|(_, id)| id)) {
            needed[id.0] = true;
        }
        for at in (0..self.nodes.len()).rev() {
            let node = &self.nodes[at];
            if needed[at] || (probes && !node.probes.is_empty()) {
                needed[at] = true;
                node.operands.iter().for_each(|id| needed[id.0] = true);
            }
        }
        let mut renamed = vec![NodeId(0); self.nodes.len()];
        let mut nodes = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().filter(|(at, _)| needed[*at]) {
            renamed[at] = NodeId(nodes.len());
            nodes.push(node.renamed(&renamed));
        }
        self.with(nodes, &renamed)
    }

    /// Equal ops on equal operands once, at the place of the first.
    pub fn shared(&self) -> Trace {
        let mut renamed = vec![NodeId(0); self.nodes.len()];
        let mut nodes: Vec<Node> = Vec::new();
        let mut known: HashMap<String, NodeId> = HashMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let node = node.renamed(&renamed);
            // Printed floats round-trip, and tell -0.0 from 0.0.
            let key = format!("{:?} {:?} {:?} {:?}", node.what, node.operands, node.dtype, node.shape);
            renamed[at] = match known.get(&key) {
                Some(first) => {
                    nodes[first.0].probes.extend(node.probes);
                    *first
                }
                None => {
                    let id = NodeId(nodes.len());
                    known.insert(key, id);
                    nodes.push(node);
                    id
                }
            };
        }
        self.with(nodes, &renamed)
    }

    fn with(&self, nodes: Vec<Node>, renamed: &[NodeId]) -> Trace {
        let results = self.results.iter().map(|id| renamed[id.0]).collect();
        let writes = self.writes.iter().map(|(path, id)| (path.clone(), renamed[id.0])).collect();
        Trace { nodes, results, writes, probes: self.probes.clone(), branches: self.branches.clone() }
    }
}

impl Node {
    fn renamed(&self, renamed: &[NodeId]) -> Node {
        Node { operands: self.operands.iter().map(|id| renamed[id.0]).collect(), ..self.clone() }
    }
}

/// One line per node: `%7 = multiply(%5, %6): f32[1, 3, 96]  // rms_norm`.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, node) in self.nodes.iter().enumerate() {
            write!(f, "%{at} = ")?;
            match &node.what {
                What::Input(name) => write!(f, "input {name}")?,
                What::Weight { path, part: WeightPart::Dense } => write!(f, "weight {path}")?,
                What::Weight { path, part } => write!(f, "weight {path} {}", format!("{part:?}").to_lowercase())?,
                What::State(path) => write!(f, "state {path}")?,
                What::Kernel { path, numbers } => {
                    let operands: Vec<String> = node.operands.iter().map(|id| format!("%{}", id.0)).collect();
                    write!(f, "{path}{numbers:?}({})", operands.join(", "))?;
                }
                What::Primitive(primitive) => {
                    let operands: Vec<String> = node.operands.iter().map(|id| format!("%{}", id.0)).collect();
                    write!(f, "{primitive}({})", operands.join(", "))?;
                }
            }
            write!(f, ": {}{:?}", format!("{:?}", node.dtype).to_lowercase(), node.shape)?;
            for probe in &node.probes {
                write!(f, " @ {probe:?}")?;
            }
            if !node.origin.is_empty() {
                write!(f, "  // {}", node.origin)?;
            }
            writeln!(f)?;
        }
        for (path, id) in &self.writes {
            writeln!(f, "{path} = %{}", id.0)?;
        }
        let results: Vec<String> = self.results.iter().map(|id| format!("%{}", id.0)).collect();
        writeln!(f, "return {}", results.join(", "))
    }
}
