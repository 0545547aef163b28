//! Sheets as DOT text: one cluster per function, boxes as clusters inside, and what the runtime passes from graph to graph.

use std::fmt::{self, Write};

use super::{
    Sheet,
    flow::{BoxId, Edge, Flow, Kind, Node, NodeId},
};

const FONT: &str = "Helvetica,Arial,sans-serif";
const INPUT: &str = "#e3f1dc";
const BLOCK: &str = "#d6e6f5";
const OP: &str = "#fdf3d0";
const STATE: &str = "#f8dfc8";
const QUIET: &str = "#5f6b76";

/// The whole picture.
pub fn write(title: &str, sheets: &[Sheet]) -> String {
    let mut out = String::new();
    // A `String` takes everything that is written to it.
    let _ = picture(&mut out, title, sheets);
    out
}

fn picture(out: &mut String, title: &str, sheets: &[Sheet]) -> fmt::Result {
    writeln!(out, "digraph {} {{", quoted(title))?;
    writeln!(out, "    label=<<B>{}</B>>; labelloc=t; fontsize=20; fontname={};", escaped(title), quoted(FONT))?;
    writeln!(out, "    rankdir=TB; nodesep=0.25; ranksep=0.35; pad=0.3; bgcolor=white;")?;
    writeln!(out, "    node [fontname={}, fontsize=12, style=filled, color=\"#8a97a3\", penwidth=0.8];", quoted(FONT))?;
    writeln!(
        out,
        "    edge [fontname={}, fontsize=9, fontcolor=\"{QUIET}\", color=\"{QUIET}\", arrowsize=0.6];",
        quoted(FONT)
    )?;
    for (index, sheet) in sheets.iter().enumerate() {
        cluster(out, index, sheet)?;
    }
    for (index, sheet) in sheets.iter().enumerate() {
        for (node, from) in &sheet.from {
            let Some(result) = result(&sheets[*from].flow) else { continue };
            let (from, to) = (name(*from, result), name(index, *node));
            writeln!(out, "    {from} -> {to} [style=dashed, color=\"#9aa5af\", penwidth=1.4];")?;
        }
    }
    stack(out, sheets)?;
    writeln!(out, "}}")
}

/// Sheets that nothing connects stand in columns, each below the one before, so that the picture is no ribbon.
fn stack(out: &mut String, sheets: &[Sheet]) -> fmt::Result {
    for (upper, lower) in below(sheets) {
        let (Some(from), Some(to)) = (result(&sheets[upper].flow), first(&sheets[lower].flow)) else { continue };
        writeln!(out, "    {} -> {} [style=invis, weight=0];", name(upper, from), name(lower, to))?;
    }
    Ok(())
}

/// Which sheet stands below which: the blocks are dealt to as many columns as make the picture about square.
fn below(sheets: &[Sheet]) -> Vec<(usize, usize)> {
    let blocks: Vec<usize> = (0..sheets.len()).filter(|index| !sheets[*index].graph).collect();
    let columns = (blocks.len() as f64).sqrt().ceil().max(1.0) as usize;
    let mut tall = vec![(0, None); columns];
    let mut pairs = Vec::new();
    for index in blocks {
        let height = sheets[index].flow.nodes.len() + 3;
        let Some(column) = tall.iter_mut().min_by_key(|(height, _)| *height) else { continue };
        if let Some(above) = column.1 {
            pairs.push((above, index));
        }
        *column = (column.0 + height, Some(index));
    }
    pairs
}

fn result(flow: &Flow) -> Option<NodeId> {
    flow.nodes.iter().rposition(|node| node.within.is_none()).map(NodeId)
}

fn first(flow: &Flow) -> Option<NodeId> {
    (!flow.nodes.is_empty()).then_some(NodeId(0))
}

fn cluster(out: &mut String, index: usize, sheet: &Sheet) -> fmt::Result {
    let note = if sheet.note.is_empty() {
        String::new()
    } else {
        format!("<FONT POINT-SIZE=\"10\" COLOR=\"{QUIET}\">{}</FONT><BR ALIGN=\"LEFT\"/>", escaped(&sheet.note))
    };
    writeln!(out, "    subgraph cluster_{index} {{")?;
    writeln!(
        out,
        "        label=<<B>{}</B><BR ALIGN=\"LEFT\"/>{note}>; labelloc=t; labeljust=l; fontsize=14;",
        escaped(&sheet.title)
    )?;
    let color = if sheet.graph { "#f4f8f1" } else { "#f5f8fb" };
    writeln!(out, "        style=\"rounded,filled\"; color=\"#b5bec7\"; fillcolor=\"{color}\"; margin=14;")?;
    inside(out, index, &sheet.flow, None, 2)?;
    for edge in &sheet.flow.edges {
        draw_edge(out, index, edge)?;
    }
    writeln!(out, "    }}")
}

/// The nodes that stand directly in `within`, then its boxes.
fn inside(out: &mut String, sheet: usize, flow: &Flow, within: Option<BoxId>, depth: usize) -> fmt::Result {
    for (index, node) in flow.nodes.iter().enumerate().filter(|(_, node)| node.within == within) {
        writeln!(out, "{:1$}{2} [{3}];", "", depth * 4, name(sheet, NodeId(index)), look(node))?;
    }
    for (index, region) in flow.boxes.iter().enumerate().filter(|(_, region)| region.within == within) {
        writeln!(out, "{:1$}subgraph cluster_{sheet}_{index} {{", "", depth * 4)?;
        writeln!(
            out,
            "{:1$}label=<<I>{2}</I>>; labeljust=l; fontsize=11; style=\"rounded,dashed\"; bgcolor=\"#00000008\"; color=\"#8a97a3\"; margin=8;",
            "",
            depth * 4 + 4,
            escaped(&region.label)
        )?;
        inside(out, sheet, flow, Some(BoxId(index)), depth + 1)?;
        writeln!(out, "{:1$}}}", "", depth * 4)?;
    }
    Ok(())
}

fn draw_edge(out: &mut String, sheet: usize, edge: &Edge) -> fmt::Result {
    let (from, to) = (name(sheet, edge.from), name(sheet, edge.to));
    let more = if edge.back { ", style=dashed, constraint=false" } else { "" };
    writeln!(out, "        {from} -> {to} [label={}{more}];", quoted(&format!(" {} ", edge.label)))
}

fn name(sheet: usize, node: NodeId) -> String {
    format!("n{sheet}_{}", node.0)
}

fn look(node: &Node) -> String {
    let (shape, fill) = match node.kind {
        Kind::Input => ("shape=box, style=\"filled,rounded\"", INPUT),
        Kind::Result => ("shape=box, style=\"filled,rounded\", penwidth=1.6", INPUT),
        Kind::Block { stack: false, .. } => ("shape=box", BLOCK),
        Kind::Block { stack: true, .. } => ("shape=box3d", BLOCK),
        Kind::Op(_) => ("shape=box, style=\"filled,rounded\", fontsize=11", OP),
        Kind::Prim => {
            ("shape=box, style=\"filled,rounded\", fontsize=11, margin=\"0.06,0.02\", height=0.25, width=0.3", "white")
        }
        Kind::Weight => ("shape=note", "#eceff1"),
        Kind::State => ("shape=cylinder", STATE),
        Kind::Meet => ("shape=diamond, fontsize=10, margin=\"0.02,0.02\", height=0.3", "white"),
        Kind::Turn => ("shape=box, style=\"filled,rounded\", fontsize=11, height=0.25", "white"),
    };
    let title = match node.kind {
        Kind::Block { .. } => format!("<B>{}</B>", escaped(&node.title)),
        Kind::Input
        | Kind::Result
        | Kind::Op(_)
        | Kind::Prim
        | Kind::Weight
        | Kind::State
        | Kind::Meet
        | Kind::Turn => escaped(&node.title),
    };
    let mut rows = vec![title];
    if !node.note.is_empty() {
        rows.push(format!("<FONT POINT-SIZE=\"10\" COLOR=\"{QUIET}\">{}</FONT>", escaped(&node.note)));
    }
    for probe in &node.probes {
        rows.push(format!("<FONT POINT-SIZE=\"9\" COLOR=\"#8a4f7d\">@ {}</FONT>", escaped(probe)));
    }
    let label = match &rows[..] {
        [one] => one.clone(),
        rows => {
            let rows: String = rows.iter().map(|row| format!("<TR><TD>{row}</TD></TR>")).collect();
            format!("<TABLE BORDER=\"0\" CELLBORDER=\"0\" CELLSPACING=\"0\" CELLPADDING=\"1\">{rows}</TABLE>")
        }
    };
    format!("label=<{label}>, {shape}, fillcolor=\"{fill}\"")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// For labels in the HTML of DOT.
fn escaped(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    if escaped.is_empty() { " ".to_owned() } else { escaped }
}
