//! Where lines break. The builders write a stream of [`Op`]s; this prints it into lines of at most [`WIDTH`] columns.
//!
//! A group stands on one line if it fits there, and else breaks at its own [`Break`]s, outermost group first (Oppen,
//! "Prettyprinting", 1980). The stream is flat, so neither printing nor dropping it recurses. A comment behind the code waits
//! for the end of its line, however much code comes before that, and has no width.

use std::borrow::Cow;

pub const WIDTH: usize = 120;
pub const LEVEL: usize = 4;

#[derive(Debug, Clone)]
pub enum Op<'t> {
    Text(&'t str),
    /// Blanks that align what follows.
    Pad(usize),
    /// Stands only where its group is broken.
    IfBroken(&'static str),
    /// A comment between two tokens of a line.
    Inline(&'t str),
    /// A comment at the end of the line.
    Trailing(&'t str),
    /// A comment that has its line, or its lines, for itself.
    Own(&'t str),
    Break(Break),
    /// Ends the line.
    Newline,
    /// Ends the line and leaves one empty.
    BlankLine,
    Open(Group),
    Close,
    Indent(usize),
    Dedent,
    /// A definition begins with the next text.
    Definition,
    DefinitionEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// A blank or a line break.
    Blank,
    /// Nothing or a line break.
    Nothing,
    /// A blank; a line break, where the group is broken, only before what does not fit on the line.
    Fill,
    /// A blank or a line break before the `{` of a body; a blank behind parameters that end on a line of their own.
    Brace,
    /// A blank, or a line break with an indent of one level, before the `else` of a branch.
    Else,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Plain,
    /// A branch with short arms: it breaks before each `else` if every arm then fits on its line, and nowhere itself if not.
    Branch,
    /// The body behind a head; broken if that is.
    Body,
    /// The head of a function.
    Head,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Flat,
    Broken,
    /// A branch that breaks in its arms only.
    Glued,
}

pub fn print(ops: &[Op<'_>]) -> String {
    let mut printer = Printer {
        forced: forced(ops),
        ops,
        at: 0,
        open: Vec::new(),
        head_broken: false,
        indents: Vec::new(),
        line: Line::default(),
        lines: Vec::new(),
        definitions: Vec::new(),
        extents: Vec::new(),
    };
    while printer.at < ops.len() {
        printer.step();
        printer.at += 1;
    }
    printer.end_line();
    let Printer { mut lines, extents, .. } = printer;
    separate(&mut lines, &extents);
    align_comments(&mut lines);
    let mut out = String::new();
    for line in lines {
        out += &line.text();
        out.push('\n');
    }
    out
}

/// The width of a stretch on one line; `None` if it cannot stand on one.
pub fn flat_width(ops: &[Op<'_>]) -> Option<usize> {
    ops.iter().map(Op::flat_width).sum()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

impl Op<'_> {
    fn flat_width(&self) -> Option<usize> {
        match self {
            Op::Text(text) => Some(width(text)),
            Op::Pad(count) => Some(*count),
            Op::Inline(text) => (!text.contains('\n')).then(|| width(text) + 2),
            Op::Break(Break::Blank | Break::Fill | Break::Brace | Break::Else) => Some(1),
            Op::Break(Break::Nothing) | Op::IfBroken(_) | Op::Open(_) | Op::Close | Op::Indent(_) | Op::Dedent => {
                Some(0)
            }
            Op::Trailing(_) | Op::Definition | Op::DefinitionEnd => Some(0),
            Op::Own(_) | Op::Newline | Op::BlankLine => None,
        }
    }
}

/// Which groups hold something that ends a line. A comment behind the code does where more of the group follows.
fn forced(ops: &[Op<'_>]) -> Vec<bool> {
    let mut forced = vec![false; ops.len()];
    let mut open: Vec<usize> = Vec::new();
    // How many of the open groups hold a comment behind the code that nothing followed yet.
    let mut commented = 0;
    for (index, op) in ops.iter().enumerate() {
        match op {
            Op::Open(_) => open.push(index),
            Op::Close => {
                if let Some(inner) = open.pop()
                    && forced[inner]
                    && let Some(&outer) = open.last()
                {
                    forced[outer] = true;
                }
                commented = commented.min(open.len());
            }
            Op::Trailing(_) => commented = open.len(),
            Op::Text(_) | Op::Inline(_) if commented > 0 => {
                forced[open[commented - 1]] = true;
                commented = 0;
            }
            other => {
                if other.flat_width().is_none()
                    && let Some(&group) = open.last()
                {
                    forced[group] = true;
                }
            }
        }
    }
    forced
}

#[derive(Debug, Default)]
struct Line<'t> {
    indent: usize,
    code: String,
    comments: Vec<&'t str>,
    /// Blanks between code and comment.
    gap: usize,
    /// Whether the code is a comment, or a part of one.
    is_comment: bool,
    /// The comments in the code, and where each begins.
    inline: Vec<(usize, &'t str)>,
}

impl Line<'_> {
    fn is_empty(&self) -> bool {
        self.code.is_empty() && self.comments.is_empty()
    }

    fn width(&self) -> usize {
        self.indent + width(&self.code)
    }

    fn text(&self) -> Cow<'_, str> {
        if self.is_empty() {
            return Cow::Borrowed("");
        }
        let mut text = format!("{:1$}{2}", "", self.indent, self.code);
        if !self.comments.is_empty() {
            text += &format!("{:1$}{2}", "", self.gap, self.comments.join(" "));
        }
        Cow::Owned(text)
    }
}

struct Printer<'p, 't> {
    ops: &'p [Op<'t>],
    forced: Vec<bool>,
    at: usize,
    open: Vec<(Group, Mode)>,
    /// Whether the head that ended last was broken.
    head_broken: bool,
    indents: Vec<usize>,
    line: Line<'t>,
    lines: Vec<Line<'t>>,
    /// First lines of the definitions that have not ended.
    definitions: Vec<usize>,
    /// First and last lines of those that have.
    extents: Vec<(usize, usize)>,
}

impl<'t> Printer<'_, 't> {
    fn mode(&self) -> Mode {
        self.open.last().map_or(Mode::Broken, |(_, mode)| *mode)
    }

    fn indent(&self) -> usize {
        self.indents.last().copied().unwrap_or(0)
    }

    fn step(&mut self) {
        match self.ops[self.at] {
            Op::Text(text) => self.code(text),
            Op::Pad(count) => self.blanks(count),
            Op::IfBroken(text) => {
                if self.mode() != Mode::Flat {
                    self.code(text);
                }
            }
            Op::Inline(text) => self.inline(text),
            Op::Trailing(text) => self.line.comments.push(text),
            Op::Own(text) => {
                self.end_line();
                let first = self.lines.len();
                self.verbatim(text);
                self.end_line();
                self.lines[first..].iter_mut().for_each(|line| line.is_comment = true);
            }
            Op::Break(kind) => self.may_break(kind),
            Op::Newline => self.end_line(),
            Op::BlankLine => {
                self.end_line();
                if !self.lines.is_empty() {
                    self.lines.push(Line::default());
                }
            }
            Op::Open(group) => self.open(group),
            Op::Close => {
                if let Some((Group::Head, mode)) = self.open.pop() {
                    self.head_broken = mode == Mode::Broken;
                }
            }
            Op::Indent(by) => self.indents.push(self.indent() + by),
            Op::Dedent => {
                self.indents.pop();
            }
            Op::Definition => self.definitions.push(self.lines.len()),
            Op::DefinitionEnd => {
                let last = self.lines.len();
                self.extents.extend(self.definitions.pop().map(|first| (first, last)));
            }
        }
    }

    fn code(&mut self, text: &str) {
        if text == " " {
            return self.blanks(1);
        }
        // What follows a comment begins a line, but for the marks that end something.
        if !self.line.comments.is_empty() && !matches!(text, "," | ";") {
            self.end_line();
        }
        // A blank is due behind a comment, unless a mark follows that stands close.
        if self.line.code.ends_with("*/") && !text.starts_with([' ', ',', ';', ')', ']']) {
            self.line.code.push(' ');
        }
        self.line.code += text;
    }

    fn inline(&mut self, text: &'t str) {
        if !self.line.comments.is_empty() {
            self.end_line();
        }
        if !self.line.code.is_empty() && !self.line.code.ends_with([' ', '(', '[']) {
            self.line.code.push(' ');
        }
        let before = self.line.code.len();
        self.code(text);
        self.line.inline.push((before, text));
    }

    /// The lines of a comment after the first stay as they are.
    fn verbatim(&mut self, text: &str) {
        let mut parts = text.split('\n');
        self.code(parts.next().unwrap_or_default());
        for part in parts {
            self.line.is_comment = true;
            self.push_line();
            self.line.code += part;
        }
    }

    /// The next line has the indent of the place where this one ends.
    fn end_line(&mut self) {
        if !self.line.is_empty() {
            self.push_line();
        }
        self.line.indent = self.indent();
    }

    fn push_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        line.code.truncate(line.code.trim_end().len());
        // Comments that end the line are such behind the code.
        while let Some((before, text)) = line.inline.pop()
            && before > 0
            && line.code.len() == before + text.len()
        {
            line.code.truncate(line.code[..before].trim_end().len());
            line.comments.insert(0, text);
        }
        self.lines.push(line);
    }

    fn blanks(&mut self, count: usize) {
        if !self.line.code.is_empty() {
            self.line.code.extend(std::iter::repeat_n(' ', count));
        }
    }

    fn may_break(&mut self, kind: Break) {
        let breaks = match (self.mode(), kind) {
            (Mode::Flat | Mode::Glued, _) => false,
            (Mode::Broken, Break::Fill) => !self.line.comments.is_empty() || !self.segment_fits(),
            (Mode::Broken, Break::Brace) => !self.line.comments.is_empty() || !self.line.code.starts_with(')'),
            (Mode::Broken, Break::Blank | Break::Nothing | Break::Else) => true,
        };
        if breaks {
            self.end_line();
            self.line.indent += if kind == Break::Else { LEVEL } else { 0 };
        } else if kind != Break::Nothing {
            self.blanks(1);
        }
    }

    fn open(&mut self, group: Group) {
        let is_forced = self.forced[self.at] || group == Group::Body && self.head_broken;
        let mode = match (self.mode(), group) {
            (Mode::Flat, _) => Mode::Flat,
            _ if !is_forced && self.fits() => Mode::Flat,
            (_, Group::Branch) if is_forced || !self.arms_fit() => Mode::Glued,
            _ => Mode::Broken,
        };
        if group == Group::Body {
            self.head_broken = false;
        }
        self.open.push((group, mode));
    }

    fn room(&self) -> usize {
        WIDTH.saturating_sub(self.line.width())
    }

    /// Whether the group that opens here fits on the line, with what cannot be parted from its end.
    fn fits(&self) -> bool {
        self.fit(self.at, self.room(), None)
    }

    /// Whether what follows a break fits on this line, up to the next break of its group.
    fn segment_fits(&self) -> bool {
        self.room() > 0 && self.fit(self.at + 1, self.room() - 1, None)
    }

    /// Whether each arm of the branch that opens here fits on a line that begins with its `else`.
    fn arms_fit(&self) -> bool {
        // The blank before `else` is counted and not written.
        self.fit(self.at, self.room(), Some(WIDTH.saturating_sub(self.indent() + LEVEL) + 1))
    }

    /// Whether the text from `start` fits into `room` up to the first place that may break. Inside a group that opens on the
    /// way nothing breaks, until the outermost has closed. `each_arm` is the room of a line that begins with `else`.
    fn fit(&self, start: usize, mut room: usize, each_arm: Option<usize>) -> bool {
        let glued = self.mode() == Mode::Glued;
        let mut depth = 0;
        let mut closed = !matches!(self.ops.get(start), Some(Op::Open(_)));
        let whole_segment = closed;
        for op in &self.ops[start..] {
            let outside = depth <= 0 || closed && !whole_segment;
            let is_else = matches!(op, Op::Break(Break::Else));
            if outside && matches!(op, Op::Break(_) | Op::Newline | Op::BlankLine | Op::Own(_)) && !(is_else && glued) {
                return true;
            }
            match op {
                Op::Open(_) => depth += 1,
                Op::Close => {
                    depth -= 1;
                    closed |= depth <= 0;
                }
                other => {
                    if let Some(each_arm) = each_arm
                        && is_else
                        && depth == 1
                        && !outside
                    {
                        room = each_arm;
                    }
                    match other.flat_width() {
                        Some(width) if width <= room => room -= width,
                        Some(_) | None => return false,
                    }
                }
            }
        }
        true
    }
}

/// A definition of several lines has an empty line before its comments and behind it, unless the list begins or ends there.
fn separate(lines: &mut Vec<Line<'_>>, definitions: &[(usize, usize)]) {
    let mut places = Vec::new();
    for &(first, last) in definitions.iter().filter(|(first, last)| last > first) {
        let above = lines[..first].iter().rev().take_while(|line| line.is_comment).count();
        let begins = first - above;
        let is_beside = |line: &Line<'_>| !line.is_empty() && line.indent >= lines[first].indent;
        if begins > 0 && is_beside(&lines[begins - 1]) {
            places.push(begins);
        }
        if lines.get(last + 1).is_some_and(is_beside) {
            places.push(last + 1);
        }
    }
    places.sort_unstable();
    places.dedup();
    for place in places.into_iter().rev() {
        lines.insert(place, Line::default());
    }
}

/// Comments behind neighbouring lines of one indent stand below each other.
fn align_comments(lines: &mut [Line<'_>]) {
    let mut start = 0;
    while start < lines.len() {
        let has_comment = |line: &Line<'_>| !line.comments.is_empty() && !line.code.is_empty();
        let same = |line: &Line<'_>| has_comment(line) && line.indent == lines[start].indent;
        let length = lines[start..].iter().take_while(|line| same(line)).count();
        let end = start + length.max(1);
        let column = lines[start..start + length].iter().map(Line::width).max().unwrap_or(0) + 2;
        for line in &mut lines[start..start + length] {
            line.gap = column - line.width();
        }
        start = end;
    }
}
