//! Call paths as rows of blocks, outermost on top, each as wide as what runs through it: [`Icicle`]

use sealane_lab_model::number::number;
use serde_json::json;

use super::{
    Drawing, Key, View, csv_field, neat,
    palette::class,
    svg::{Anchor, Svg},
};

/// Amounts by path. Blocks that begin alike are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Icicle {
    /// What it shows, for those who do not see it.
    pub(crate) name: String,
    /// What the amounts count, with its unit.
    pub(crate) unit: String,
    /// The block above all others.
    pub(crate) root: String,
    pub(crate) paths: Vec<Path>,
    /// The total of everything; what the paths leave of it is one block more.
    pub(crate) total: f64,
}

/// One path and what runs through it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// Outermost first.
    pub(crate) steps: Vec<Step>,
    pub(crate) amount: f64,
}

/// One block's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// In the block, cut where it is too narrow, and whole when one points at it.
    pub(crate) label: String,
    /// What has the same colour, and stands in the legend.
    pub(crate) group: String,
}

/// Paths with the same beginning.
struct Node {
    step: Step,
    amount: f64,
    inner: Vec<Node>,
}

impl Icicle {
    /// The picture, with the figures.
    pub(crate) fn draw(&self) -> Drawing {
        let tree = self.tree();
        let mut groups = Vec::new();
        groups_of(&tree, &mut groups);
        let keys = groups.iter().enumerate();
        let keys = keys.map(|(color, label)| Key { label: label.clone(), color });
        let keys: Vec<Key> = keys.collect();
        let depth = f64::from(u16::try_from(depth(&tree)).unwrap_or(u16::MAX));
        let height = TOP + ROW * (1.0 + depth) + BOTTOM;
        let mut svg = Svg::new(WIDTH, height, &self.name);
        svg.open("cell root", None);
        let said = format!("{}: {} {}", self.root, number(self.total), self.unit);
        svg.rect("block", [0.0, TOP], [WIDTH, ROW - 1.0], &said);
        svg.text("name", [PAD, TOP + BASE], Anchor::Start, &said);
        svg.close();
        let scale = if self.total > 0.0 { WIDTH / self.total } else { 0.0 };
        let drawn = Drawn { groups: &groups, total: self.total, unit: &self.unit, scale };
        drawn.row(&mut svg, &tree, [0.0, TOP + ROW]);
        let series: Vec<_> =
            keys.iter().map(|key| json!({ "n": key.label, "k": class(key.color) })).collect();
        let data = json!({ "kind": "icicle", "y": self.unit, "series": series });
        let views = vec![View { name: "linear", svg: svg.finish() }];
        Drawing { views, keys, data, csv: self.csv() }
    }

    fn tree(&self) -> Vec<Node> {
        let mut tree = Vec::new();
        for path in self.paths.iter().filter(|path| path.amount > 0.0) {
            add(&mut tree, &path.steps, path.amount);
        }
        let shown: f64 = tree.iter().map(|node| node.amount).sum();
        sort(&mut tree);
        let rest = self.total - shown;
        if rest > CRUMB {
            let step = Step { label: "paths that are not listed".into(), group: REST.into() };
            tree.push(Node { step, amount: rest, inner: Vec::new() });
        }
        tree
    }

    fn csv(&self) -> String {
        let mut csv = format!("path,{}\n", csv_field(&self.unit));
        for Path { steps, amount } in &self.paths {
            let path: Vec<&str> = steps.iter().map(|step| step.label.as_str()).collect();
            csv += &format!("{},{}\n", csv_field(&path.join(" > ")), neat(*amount));
        }
        csv
    }
}

/// What all rows of a picture have in common.
struct Drawn<'a> {
    groups: &'a [String],
    total: f64,
    unit: &'a str,
    /// User units per call.
    scale: f64,
}

impl Drawn<'_> {
    fn row(&self, svg: &mut Svg, nodes: &[Node], [left, top]: [f64; 2]) {
        let mut left = left;
        for Node { step, amount, inner } in nodes {
            let width = amount * self.scale;
            // What cannot be seen would only make the file larger.
            if width >= HAIR {
                let group = self.groups.iter().position(|group| *group == step.group);
                let group = group.unwrap_or(0);
                let share = number(100.0 * amount / self.total);
                let said = format!("{}: {} {}, {share}%", step.label, number(*amount), self.unit);
                svg.open(&format!("series cell {}", class(group)), Some(group));
                svg.rect("block", [left, top], [(width - 1.0).max(HAIR), ROW - 1.0], &said);
                if let Some(label) = fitting(&step.label, width) {
                    svg.text("name", [left + PAD, top + BASE], Anchor::Start, &label);
                }
                svg.close();
                self.row(svg, inner, [left, top + ROW]);
            }
            left += width;
        }
    }
}

fn add(nodes: &mut Vec<Node>, steps: &[Step], amount: f64) {
    let [step, inner @ ..] = steps else { return };
    let at = nodes.iter().position(|node| node.step == *step).unwrap_or_else(|| {
        nodes.push(Node { step: step.clone(), amount: 0.0, inner: Vec::new() });
        nodes.len() - 1
    });
    if let Some(node) = nodes.get_mut(at) {
        node.amount += amount;
        add(&mut node.inner, inner, amount);
    }
}

/// The widest first; names decide where amounts are the same.
fn sort(nodes: &mut [Node]) {
    nodes.sort_by(|a, b| {
        b.amount.total_cmp(&a.amount).then_with(|| a.step.label.cmp(&b.step.label))
    });
    for node in nodes {
        sort(&mut node.inner);
    }
}

fn groups_of(nodes: &[Node], groups: &mut Vec<String>) {
    for node in nodes {
        if !groups.contains(&node.step.group) {
            groups.push(node.step.group.clone());
        }
        groups_of(&node.inner, groups);
    }
}

fn depth(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| 1 + depth(&node.inner)).max().unwrap_or(0)
}

/// The part of a name that a block has room for; nothing if that says nothing.
fn fitting(label: &str, width: f64) -> Option<String> {
    let length = label.chars().count();
    let room = (0..=length).rev().find(|n| {
        let letters = f64::from(u16::try_from(*n).unwrap_or(u16::MAX));
        letters * LETTER + 2.0 * PAD <= width
    })?;
    if room == length {
        return Some(label.to_owned());
    }
    let kept = room.checked_sub(1).filter(|kept| *kept >= LETTERS_MIN)?;
    Some(label.chars().take(kept).chain(['\u{2026}']).collect())
}

/// Wider than other plots: names need room, and a phone scrolls.
const WIDTH: f64 = 1000.0;
const TOP: f64 = 4.0;
const BOTTOM: f64 = 4.0;
const ROW: f64 = 23.0;
/// From the top of a row to the feet of its letters.
const BASE: f64 = 15.5;
const PAD: f64 = 5.0;
/// The width of one, generously.
const LETTER: f64 = 7.8;
const LETTERS_MIN: usize = 3;
const HAIR: f64 = 1.5;
/// Sums of fractions leave crumbs.
const CRUMB: f64 = 0.05;
const REST: &str = "not listed";

#[cfg(test)]
mod tests {
    use super::*;

    fn path(names: &[&str], amount: f64) -> Path {
        let step = |name: &&str| Step { label: (*name).into(), group: "library".into() };
        Path { steps: names.iter().map(step).collect(), amount }
    }

    fn icicle() -> Icicle {
        Icicle {
            name: "Locks".into(),
            unit: "per handshake".into(),
            root: "all".into(),
            paths: vec![
                path(&["handshake", "fetch", "one lock"], 10.0),
                path(&["handshake", "decode"], 60.0),
                path(&["handshake", "fetch", "other lock"], 20.0),
            ],
            total: 100.0,
        }
    }

    #[test]
    fn paths_that_begin_alike_share_their_blocks() {
        let svg = icicle().draw().views.remove(0).svg;
        let said: Vec<&str> = svg
            .split("<title>")
            .skip(2)
            .map(|title| title.split("</title>").next().unwrap())
            .collect();
        let expected = [
            "all: 100 per handshake",
            "handshake: 90 per handshake, 90%",
            "decode: 60 per handshake, 60%",
            "fetch: 30 per handshake, 30%",
            "other lock: 20 per handshake, 20%",
            "one lock: 10 per handshake, 10%",
            "paths that are not listed: 10 per handshake, 10%",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn the_order_of_paths_does_not_matter() {
        let mut turned = icicle();
        turned.paths.reverse();
        assert_eq!(turned.draw().views[0].svg, icicle().draw().views[0].svg);
        assert!(turned.draw().csv.contains("handshake > decode,60\n"));
    }

    #[test]
    fn names_are_cut_to_their_blocks() {
        assert_eq!(fitting("EVP_MD_fetch", 200.0).as_deref(), Some("EVP_MD_fetch"));
        assert_eq!(fitting("EVP_MD_fetch", 66.0).as_deref(), Some("EVP_MD\u{2026}"));
        assert_eq!(fitting("EVP_MD_fetch", 30.0), None);
    }
}
