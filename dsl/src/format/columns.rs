//! Rows of one list whose parts stand below each other: names, types, and what follows them.

use pest::iterators::Pair;

use super::layout::{Break, Group, LEVEL, Op, WIDTH, flat_width};
use super::write::Writer;
use crate::parser::grammar::Rule;

/// A row, whose blanks are counted when all rows of its list are known. Places are indices into the ops.
#[derive(Debug)]
pub struct Row {
    start: usize,
    end: usize,
    /// Columns left of it.
    depth: usize,
    /// The pad behind its name, and the indent of the lines that go on with it.
    name: Option<(usize, usize)>,
    cells: Vec<Cell>,
}

/// A part behind the name.
#[derive(Debug)]
struct Cell {
    /// The pad before its break; none for the first.
    pad: Option<usize>,
    start: usize,
    /// Whether a wider cell moves what follows in other rows.
    counts: bool,
}

impl<'t> Writer<'t> {
    pub fn row(&mut self, pair: Pair<'t, Rule>, mut part: impl FnMut(&mut Self, &mut Row, Pair<'t, Rule>)) -> Row {
        let mut row = Row { start: self.ops.len(), end: 0, depth: self.depth, name: None, cells: Vec::new() };
        self.push(Op::Open(Group::Plain));
        for inner in pair.into_inner() {
            part(self, &mut row, inner);
        }
        if row.name.is_some() {
            self.push(Op::Dedent);
        }
        self.push(Op::Close);
        row.end = self.ops.len();
        row
    }

    pub fn name_ends(&mut self, row: &mut Row) {
        let pad = self.ops.len();
        self.push(Op::Pad(0));
        self.say(" ");
        row.name = Some((pad, self.ops.len()));
        self.push(Op::Indent(LEVEL));
    }

    /// The next part of a row, in a column of its own.
    pub fn cell(&mut self, row: &mut Row, counts: bool, inside: impl FnOnce(&mut Self)) {
        let pad = (!row.cells.is_empty()).then_some(self.ops.len());
        if pad.is_some() {
            self.push(Op::Pad(0));
            self.may_break(Break::Fill);
        }
        row.cells.push(Cell { pad, start: self.ops.len(), counts });
        inside(self);
    }

    /// The next part of a row, right behind the one before.
    pub fn more(&mut self, inside: impl FnOnce(&mut Self)) {
        self.may_break(Break::Fill);
        inside(self);
    }
}

impl Row {
    /// A comment between its parts puts a row out of the columns.
    fn is_plain(&self, ops: &[Op<'_>]) -> bool {
        let ops = &ops[self.start..self.end];
        let end = ops.iter().rposition(|op| matches!(op, Op::Text(_))).unwrap_or(0);
        !ops[..end].iter().any(|op| matches!(op, Op::Inline(_) | Op::Trailing(_) | Op::Own(_)))
    }

    fn name_width(&self, ops: &[Op<'_>]) -> Option<usize> {
        flat_width(&ops[self.start..self.name?.0])
    }

    fn width(&self, ops: &[Op<'_>]) -> Option<usize> {
        Some(self.depth + flat_width(&ops[self.start..self.end])?)
    }

    /// The width of a cell that another follows, and the pad between them.
    fn cell(&self, column: usize, ops: &[Op<'_>]) -> Option<(usize, usize, bool)> {
        let pad = self.cells.get(column + 1)?.pad?;
        let cell = self.cells.get(column)?;
        Some((flat_width(&ops[cell.start..pad])?, pad, cell.counts))
    }
}

/// Aligns the names and cells of rows that fit on their lines.
pub fn align(ops: &mut [Op<'_>], rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.is_plain(ops)).collect();
    let Some(widest) = rows.iter().filter_map(|row| row.name_width(ops)).max() else { return };
    for row in &rows {
        if let (Some((pad, indent)), Some(width)) = (row.name, row.name_width(ops)) {
            ops[pad] = Op::Pad(widest - width);
            ops[indent] = Op::Indent(widest + 1);
        }
    }
    let rows: Vec<&Row> = rows.into_iter().filter(|row| row.width(ops).is_some_and(|width| width <= WIDTH)).collect();
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    for column in 0..columns {
        let cells: Vec<_> = rows.iter().filter_map(|row| row.cell(column, ops)).collect();
        let widest = cells.iter().filter(|(_, _, counts)| *counts).map(|(width, ..)| *width).max().unwrap_or(0);
        for (width, pad, _) in cells {
            ops[pad] = Op::Pad(widest.saturating_sub(width));
        }
    }
    for row in rows {
        if row.width(ops).is_some_and(|width| width > WIDTH) {
            for pad in row.cells.iter().filter_map(|cell| cell.pad) {
                ops[pad] = Op::Pad(0);
            }
        }
    }
}
