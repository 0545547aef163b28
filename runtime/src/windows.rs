//! States of sliding-window layers, kept over their window and one chunk instead of the whole context.
//!
//! That a query never looks further back is proved from the op list ([`mgraph_dsl::windows`]); here is what a session does with it.
//! A state holds consecutive positions in order, so sums run over them as they do over the whole, and where a row's call
//! begins tells alone which is the first: no number depends on what a row did before.

use std::collections::BTreeMap;

use mgraph_dsl::windows;

use crate::{
    error::{Result, ensure},
    model::Model,
    session::SessionOptions,
};

/// What is held begins at a multiple of so many positions: a row moves down once in as many tokens, and vectors of a sum begin
/// where they begin in the whole.
const STEP: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Window {
    /// A query at `p` reads nothing before `p - sees + 1`.
    sees: usize,
    /// Positions that there is room for.
    pub room: usize,
    /// Where the room ends with the whole.
    last: usize,
}

impl Window {
    /// The first position that a row holds when a call begins at `start`.
    pub fn first(self, start: usize) -> usize {
        ((start + 1).saturating_sub(self.sees) / STEP * STEP).min(self.last)
    }

    /// How many positions a row must keep for a state to hold what it needs from `first` on.
    pub fn least(self, first: usize) -> usize {
        if first == 0 { 0 } else { first.next_multiple_of(STEP) + self.sees - 1 }
    }
}

/// By path, the states that need less room than `positions`. None where probes are reported: they show the whole of everything.
pub(crate) fn of(model: &Model, options: &SessionOptions, positions: usize) -> BTreeMap<String, Window> {
    if options.probes.reported() {
        return BTreeMap::new();
    }
    let proved = windows::windows(&model.program, &model.resolved, &model.bindings);
    let windows = proved.into_iter().filter_map(|(path, sees)| {
        let sees = usize::try_from(sees).ok().filter(|sees| (1..positions).contains(sees))?;
        // The window of the first token, what rounding down adds, and the chunk.
        let room = (sees - 1 + STEP - 1 + options.max_chunk.max(1)).next_multiple_of(STEP);
        (room < positions).then(|| (path, Window { sees, room, last: positions - room }))
    });
    windows.collect()
}

/// The first positions that each row holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Firsts {
    windows: Vec<Window>,
    /// By window, then row.
    rows: Vec<Vec<usize>>,
}

/// A row that moves down by `by` positions in the states with this window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub window: Window,
    pub row: usize,
    pub by: usize,
}

impl Firsts {
    pub fn new(windows: &BTreeMap<String, Window>, rows: usize) -> Firsts {
        let mut different: Vec<Window> = windows.values().copied().collect();
        different.sort_unstable();
        different.dedup();
        Firsts { rows: vec![vec![0; rows]; different.len()], windows: different }
    }

    /// The different windows, which number inputs of graphs.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub fn of(&self, window: Window, row: usize) -> usize {
        self.windows.iter().position(|known| *known == window).map_or(0, |at| self.rows[at][row])
    }

    /// What must move before a call of rows from `first_row` on that begin at `starts`, with `width` tokens each.
    ///
    /// Errors: a call that begins before what is held, or is wider than the session's chunks.
    pub fn advance(&mut self, first_row: usize, starts: &[usize], width: usize) -> Result<Vec<Move>> {
        let mut moves = Vec::new();
        for (window, rows) in self.windows.iter().zip(&mut self.rows) {
            for (row, start) in (first_row..).zip(starts) {
                let first = window.first(*start);
                ensure!(
                    *start == 0 || first >= rows[row],
                    "row {row} of a sliding-window layer holds positions from {} on, and a call begins at {start}, which looks \
                     back to {first}; forget the row first",
                    rows[row]
                );
                ensure!(
                    start + width - first <= window.room,
                    "a call of {width} tokens is wider than the chunks that the session was opened for"
                );
                if first > rows[row] {
                    moves.push(Move { window: *window, row, by: first - rows[row] });
                }
                rows[row] = first;
            }
        }
        Ok(moves)
    }

    /// The least number of positions that a row may keep, but for none at all.
    pub fn least(&self, row: usize) -> usize {
        let least = self.windows.iter().zip(&self.rows).map(|(window, rows)| window.least(rows[row]));
        least.max().unwrap_or(0)
    }

    /// A row keeps so many positions.
    ///
    /// Errors: fewer than [`Firsts::least`], but some.
    pub fn forget(&mut self, row: usize, kept: usize) -> Result<()> {
        let least = self.least(row);
        ensure!(
            kept == 0 || kept >= least,
            "row {row} is to keep {kept} positions, but its sliding-window layers have dropped what the next one looks back to; \
             keep {least} or more, or none"
        );
        if kept == 0 {
            self.rows.iter_mut().for_each(|rows| rows[row] = 0);
        }
        Ok(())
    }
}
