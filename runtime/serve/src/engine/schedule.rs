//! Which call comes next: a state machine over the rows of a session. It knows neither tokens nor models, so that its
//! decisions can be tested as traces.
//!
//! Every tick decodes all rows that have a prompt behind them, and feeds one chunk of one prompt: a long prompt costs the others
//! one chunk per token, never all of it. Of several prompts that one is fed which has waited longest since its last chunk (a new
//! one since it came): each has its turn, and none waits for the end of a longer one.

use std::{cmp::Reverse, ops::Range};

/// What holds for the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Rows of the session.
    pub rows: usize,
    /// Positions of a row.
    pub capacity: usize,
    /// Rows are decoded together; otherwise each in a call of its own.
    pub batched: bool,
    /// What a call costs beside its rows, in rows.
    pub call: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Idle,
    /// A prompt of `length` tokens is being fed; `served` is the tick of its last chunk, or of its arrival.
    Prefill {
        length: usize,
        served: u64,
    },
    Decode,
}

/// One row of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub work: Work,
    /// Positions whose states are those of the row's tokens, from 0 on.
    pub filled: usize,
    /// The tick at which a request last left; 0 for never.
    pub used: u64,
}

/// One call on the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// One token for each row of `rows`. Those not in `active` are computed along and mean nothing: each row's token goes to
    /// the position that `positions` has for it.
    Decode { rows: Range<usize>, active: Vec<usize>, positions: Vec<usize> },
    /// The next chunk of a row's prompt.
    Prefill { row: usize },
}

#[derive(Debug, Clone)]
pub struct Schedule {
    rules: Rules,
    rows: Vec<Row>,
    tick: u64,
}

impl Schedule {
    pub fn new(rules: Rules) -> Schedule {
        let row = Row { work: Work::Idle, filled: 0, used: 0 };
        Schedule { rules, rows: vec![row; rules.rows], tick: 0 }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn idle(&self) -> impl Iterator<Item = usize> {
        let idle = |(at, row): (usize, &Row)| (row.work == Work::Idle).then_some(at);
        self.rows.iter().enumerate().filter_map(idle)
    }

    /// The idle row for a request of which `common(row)` tokens are there already: the most of them; else a row never used, the
    /// lowest; else the one not used for longest.
    pub fn choose(&self, common: impl Fn(usize) -> usize) -> Option<usize> {
        self.idle().max_by_key(|row| (common(*row), Reverse((self.rows[*row].used, *row))))
    }

    /// A request begins in an idle row: `kept` of its `length` tokens are there already, less than all.
    pub fn begin(&mut self, row: usize, kept: usize, length: usize) {
        debug_assert!(self.rows[row].work == Work::Idle && kept < length && kept <= self.rows[row].filled);
        self.rows[row].filled = kept;
        self.rows[row].work = Work::Prefill { length, served: self.tick };
    }

    /// What to do now, in order. Empty when there is nothing to do.
    pub fn calls(&mut self) -> Vec<Call> {
        self.tick += 1;
        let mut calls = self.decodes();
        let waits = |(at, row): (usize, &Row)| match row.work {
            Work::Prefill { served, .. } => Some((served, at)),
            Work::Idle | Work::Decode => None,
        };
        if let Some((_, row)) = self.rows.iter().enumerate().filter_map(waits).min() {
            calls.push(Call::Prefill { row });
        }
        calls
    }

    /// A chunk of `taken` tokens was fed; whether it was the last of the prompt.
    pub fn fed(&mut self, row: usize, taken: usize) -> bool {
        let tick = self.tick;
        let row = &mut self.rows[row];
        row.filled += taken;
        match &mut row.work {
            Work::Prefill { length, served } => {
                *served = tick;
                let done = row.filled >= *length;
                if done {
                    row.work = Work::Decode;
                }
                done
            }
            Work::Idle | Work::Decode => false,
        }
    }

    /// A token of the answer was fed to `row`.
    pub fn decoded(&mut self, row: usize) {
        self.rows[row].filled += 1;
    }

    /// The request in `row` is over; its states stay until another one comes.
    pub fn end(&mut self, row: usize) {
        self.rows[row].work = Work::Idle;
        self.rows[row].used = self.tick.max(1);
    }

    fn decodes(&mut self) -> Vec<Call> {
        let decoding = |(at, row): (usize, &Row)| (row.work == Work::Decode).then_some(at);
        let active: Vec<usize> = self.rows.iter().enumerate().filter_map(decoding).collect();
        let ranges = if self.rules.batched {
            ranges(&active, self.rules)
        } else {
            active.iter().map(|row| *row..row + 1).collect()
        };
        ranges.into_iter().map(|rows| self.decode(rows, &active)).collect()
    }

    /// An idle row writes behind what it holds; where it is full, it gives up its last position.
    fn decode(&mut self, rows: Range<usize>, active: &[usize]) -> Call {
        let active: Vec<usize> = active.iter().copied().filter(|row| rows.contains(row)).collect();
        let mut positions = Vec::with_capacity(rows.len());
        for at in rows.clone() {
            let row = &mut self.rows[at];
            row.filled = row.filled.min(self.rules.capacity - 1);
            positions.push(row.filled);
        }
        Call::Decode { rows, active, positions }
    }
}

/// [`Rules::call`] for weights of a kind. A line through the time of a core that calls of 1, 2, 4 and 8 rows take, which the book's
/// page on speed has: dense weights 5.1 rows on IREE and 10.0 on MLX, because a call reads them once; packed ones 0.5 and 1.0,
/// because they are unpacked for each row anew. One number stands for both backends; it is theirs to within a tenth of a step.
pub fn call(is_packed: bool) -> usize {
    if is_packed { 1 } else { 7 }
}

/// Ranges of rows that cover all of `active` (ascending) at the least cost. Their lengths are powers of two, or all rows, so that
/// a backend that compiles per shape has few shapes.
fn ranges(active: &[usize], Rules { rows, call, .. }: Rules) -> Vec<Range<usize>> {
    // The best way to cover the first n of `active`: its cost, and where its last range begins. Of equals the
    // one with fewer rows that nobody needs.
    let mut best: Vec<(usize, Reverse<usize>)> = vec![(0, Reverse(0))];
    for end in 1..=active.len() {
        let with_last = |begin: usize| {
            let cost = best[begin].0 + call + length(active[end - 1] - active[begin] + 1, rows);
            (cost, Reverse(begin))
        };
        let found = (0..end).map(with_last).min().unwrap_or_default();
        best.push(found);
    }
    let mut found = Vec::new();
    let mut end = active.len();
    while end > 0 {
        let Reverse(begin) = best[end].1;
        let length = length(active[end - 1] - active[begin] + 1, rows);
        let first = active[begin].min(rows - length);
        found.push(first..first + length);
        end = begin;
    }
    found.reverse();
    found
}

/// Row counts of calls that cover `span` rows.
fn length(span: usize, rows: usize) -> usize {
    span.next_power_of_two().min(rows)
}

/// All lengths that [`Schedule::calls`] may ask for.
pub fn lengths(rules: Rules) -> Vec<usize> {
    if !rules.batched {
        return vec![1];
    }
    let mut lengths: Vec<usize> = (1..=rules.rows).map(|span| length(span, rules.rows)).collect();
    lengths.dedup();
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests `(arrives at tick, prompt, answer)` on a session that takes chunks of 4: one line a tick, `p2` for a chunk of
    /// request 2, `d0-3(0,3)` for a call over rows 0 to 3 that decodes rows 0 and 3; `-` for none.
    fn trace(rules: Rules, requests: &[(usize, usize, usize)]) -> Vec<String> {
        const CHUNK: usize = 4;
        let mut schedule = Schedule::new(rules);
        let mut waiting: std::collections::VecDeque<usize> = (0..requests.len()).collect();
        let mut running: Vec<Option<(usize, usize)>> = vec![None; rules.rows];
        let mut lines = Vec::new();
        for tick in 0..10_000 {
            while let Some(&next) = waiting.front().filter(|next| requests[**next].0 <= tick) {
                let Some(row) = schedule.choose(|_| 0) else { break };
                waiting.pop_front();
                schedule.begin(row, 0, requests[next].1);
                running[row] = Some((next, requests[next].2));
            }
            if waiting.is_empty() && schedule.idle().count() == rules.rows {
                return lines;
            }
            let mut line = Vec::new();
            let answered = |schedule: &mut Schedule, running: &mut Vec<Option<(usize, usize)>>, row: usize| {
                let (request, left) = running[row].expect("a request runs there");
                running[row] = Some((request, left - 1)).filter(|_| left > 1);
                if left == 1 {
                    schedule.end(row);
                }
            };
            for call in schedule.calls() {
                match call {
                    Call::Decode { rows, active, positions } => {
                        assert_eq!(positions.len(), rows.len());
                        let named: Vec<String> = active.iter().map(usize::to_string).collect();
                        line.push(format!("d{}-{}({})", rows.start, rows.end - 1, named.join(",")));
                        for row in active {
                            schedule.decoded(row);
                            answered(&mut schedule, &mut running, row);
                        }
                    }
                    Call::Prefill { row } => {
                        let (request, _) = running[row].expect("a request runs there");
                        let left = requests[request].1 - schedule.rows()[row].filled;
                        line.push(format!("p{request}"));
                        if schedule.fed(row, left.min(CHUNK)) {
                            answered(&mut schedule, &mut running, row);
                        }
                    }
                }
            }
            lines.push(if line.is_empty() { "-".into() } else { line.join(" ") });
        }
        panic!("it never ends: {lines:?}");
    }

    const FOUR: Rules = Rules { rows: 4, capacity: 64, batched: true, call: 7 };

    #[test]
    fn a_request_alone() {
        assert_eq!(trace(FOUR, &[(0, 9, 3)]), ["p0", "p0", "p0", "d0-0(0)", "d0-0(0)"]);
        assert_eq!(trace(FOUR, &[(2, 1, 1)]), ["-", "-", "p0"]);
    }

    #[test]
    fn a_long_prompt_takes_turns_with_answers_and_with_other_prompts() {
        let found = trace(FOUR, &[(0, 2, 6), (1, 12, 2), (2, 3, 2)]);
        let wanted = ["p0", "d0-0(0) p1", "d0-0(0) p1", "d0-0(0) p2", "d0-3(0,2) p1", "d0-1(0,1)"];
        assert_eq!(found, wanted);
    }

    #[test]
    fn pinned_rows_have_calls_of_their_own() {
        let found = trace(Rules { batched: false, ..FOUR }, &[(0, 1, 3), (0, 1, 3)]);
        assert_eq!(found, ["p0", "d0-0(0) p1", "d0-0(0) d1-1(1)", "d1-1(1)"]);
    }

    #[test]
    fn more_requests_than_rows_come_in_order() {
        let rules = Rules { rows: 1, ..FOUR };
        assert_eq!(trace(rules, &[(0, 1, 2), (0, 5, 1), (0, 1, 1)]), ["p0", "d0-0(0)", "p1", "p1", "p2"]);
    }

    #[test]
    fn no_prompt_waits_longer_than_one_chunk_of_each_other() {
        // One prompt of 40 chunks, eight of one chunk, on nine rows: the short ones are through after nine turns.
        let mut requests = vec![(0, 160, 1)];
        requests.extend((0..8).map(|_| (1, 4, 1)));
        let found = trace(Rules { rows: 9, capacity: 200, batched: true, call: 7 }, &requests);
        let last = (1..=8).filter_map(|request| found.iter().position(|line| line.contains(&format!("p{request}"))));
        assert!(last.max().is_some_and(|tick| tick <= 10), "{found:?}");
        assert_eq!(found.iter().filter(|line| line.contains("p0")).count(), 40);
        // And new ones without end do not keep the long one from its turn.
        let mut requests = vec![(0, 40, 1)];
        requests.extend((0..60).map(|at| (at, 4, 1)));
        let found = trace(Rules { rows: 9, capacity: 200, batched: true, call: 7 }, &requests);
        let turns: Vec<usize> = (0..found.len()).filter(|at| found[*at].split(' ').any(|call| call == "p0")).collect();
        assert!(turns.windows(2).all(|pair| pair[1] - pair[0] <= 9), "{turns:?}");
    }

    #[test]
    fn ranges_cover_active_rows_cheaply() {
        /// Active rows, of how many, first and one past the last of each range: with dense weights, with packed ones.
        type Case = (&'static [usize], usize, &'static [[usize; 2]], &'static [[usize; 2]]);
        let cases: &[Case] = &[
            (&[], 8, &[], &[]),
            (&[3], 8, &[[3, 4]], &[[3, 4]]),
            (&[0, 1, 2], 8, &[[0, 4]], &[[0, 2], [2, 3]]),
            (&[5, 6, 7], 8, &[[4, 8]], &[[5, 7], [7, 8]]),
            (&[0, 1, 2, 3, 4], 8, &[[0, 8]], &[[0, 4], [4, 5]]),
            (&[0, 1, 2, 3, 4, 5, 6], 8, &[[0, 8]], &[[0, 8]]),
            (&[0, 1, 2, 3, 4, 5, 6, 7], 8, &[[0, 8]], &[[0, 8]]),
            (&[0, 15], 16, &[[0, 1], [15, 16]], &[[0, 1], [15, 16]]),
            (&[0, 4], 6, &[[0, 6]], &[[0, 1], [4, 5]]),
        ];
        let rules = |rows, is_packed| Rules { rows, capacity: 8, batched: true, call: call(is_packed) };
        for (active, rows, dense, packed) in cases {
            for (is_packed, wanted) in [(false, dense), (true, packed)] {
                let found = ranges(active, rules(*rows, is_packed));
                let found: Vec<[usize; 2]> = found.into_iter().map(|range| [range.start, range.end]).collect();
                assert_eq!(&found, wanted, "{active:?} of {rows}, packed: {is_packed}");
            }
        }
        for rows in 1..=9 {
            let lengths = lengths(rules(rows, false));
            for set in 0..1usize << rows {
                let active: Vec<usize> = (0..rows).filter(|row| set >> row & 1 == 1).collect();
                let found = ranges(&active, rules(rows, false));
                assert!(active.iter().all(|row| found.iter().filter(|range| range.contains(row)).count() == 1));
                assert!(found.iter().all(|range| range.end <= rows && lengths.contains(&range.len())), "{found:?}");
            }
        }
    }

    #[test]
    fn rows_that_are_computed_along_write_behind_what_they_hold() {
        let mut schedule = Schedule::new(Rules { rows: 4, capacity: 8, batched: true, call: 7 });
        for (row, length) in [(0, 3), (1, 8), (2, 2)] {
            schedule.begin(row, 0, length);
            schedule.fed(row, length);
        }
        schedule.end(1);
        let calls = schedule.calls();
        assert_eq!(calls, [Call::Decode { rows: 0..4, active: vec![0, 2], positions: vec![3, 7, 2, 0] }]);
        assert_eq!(schedule.rows()[1].filled, 7, "the full row has lost its last position");
    }

    #[test]
    fn a_request_goes_where_most_of_it_is_and_else_where_nobody_was_for_longest() {
        let mut schedule = Schedule::new(Rules { rows: 3, capacity: 8, batched: true, call: 7 });
        assert_eq!(schedule.choose(|_| 0), Some(0));
        for row in [1, 0] {
            schedule.begin(row, 0, 2);
            schedule.calls();
            schedule.fed(row, 2);
            schedule.end(row);
        }
        assert_eq!(schedule.choose(|_| 0), Some(2), "never used");
        assert_eq!(schedule.choose(|row| usize::from(row == 0)), Some(0));
        schedule.begin(2, 0, 1);
        assert_eq!(schedule.choose(|_| 0), Some(1), "not used for longest");
    }
}
