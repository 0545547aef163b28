//! The builders' common ground: tokens, the comments between them, lists in brackets, and lists in braces.

use pest::iterators::Pair;

use super::comments::{self, Comment};
use super::layout::{Break, Group, LEVEL, Op};
use crate::parser::grammar::Rule;

pub struct Writer<'t> {
    text: &'t str,
    /// Where the item that is being written begins in the text.
    base: usize,
    /// The text before this is written, its comments included.
    done: usize,
    /// The indent of the line, in columns.
    pub depth: usize,
    pub ops: Vec<Op<'t>>,
}

/// How the entries of a list in braces may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Braces {
    /// So many may share one line, if the author wrote them so.
    pub on_one_line: usize,
    pub group: Group,
}

impl<'t> Writer<'t> {
    pub fn new(text: &'t str) -> Self {
        Writer { text, base: 0, done: 0, depth: 0, ops: Vec::new() }
    }

    pub fn enter_item(&mut self, base: usize) {
        self.base = base;
    }

    pub fn push(&mut self, op: Op<'t>) {
        self.ops.push(op);
    }

    pub fn say(&mut self, text: &'t str) {
        self.push(Op::Text(text));
    }

    pub fn may_break(&mut self, kind: Break) {
        self.push(Op::Break(kind));
    }

    pub fn group(&mut self, group: Group, inside: impl FnOnce(&mut Self)) {
        self.push(Op::Open(group));
        inside(self);
        self.push(Op::Close);
    }

    pub fn indented(&mut self, by: usize, inside: impl FnOnce(&mut Self)) {
        self.push(Op::Indent(by));
        inside(self);
        self.push(Op::Dedent);
    }

    pub fn start_of(&self, pair: &Pair<'t, Rule>) -> usize {
        self.base + pair.as_span().start()
    }

    /// Whether the author wrote it on one line.
    pub fn is_one_line(&self, pair: &Pair<'t, Rule>) -> bool {
        !pair.as_str().trim_end().contains('\n')
    }

    pub fn token(&mut self, token: Pair<'t, Rule>) {
        self.comments_before(self.start_of(&token));
        self.say(token.as_str());
        self.pass(&token);
    }

    /// Goes past a token: the comments on the rest of its line belong to it.
    fn pass(&mut self, token: &Pair<'t, Rule>) {
        self.done = self.base + token.as_span().end();
        for comment in comments::behind(self.text, self.done) {
            self.push(Op::Trailing(comment.text));
            self.done = comment.end;
        }
    }

    /// Leaves a token out: only commas that end lists.
    pub fn leave_out(&mut self, token: &Pair<'t, Rule>) {
        self.comments_before(self.start_of(token));
        self.pass(token);
    }

    fn comments_before(&mut self, start: usize) {
        if self.done < start {
            for comment in comments::between(self.text, self.done, start).0 {
                self.comment(comment);
            }
            self.done = start;
        }
    }

    fn comment(&mut self, comment: Comment<'t>) {
        let begins_line = comment.breaks_before > 0;
        self.push(match comment.is_line() {
            true if !begins_line => Op::Trailing(comment.text),
            false if comment.is_inline() || !begins_line && !comment.text.contains('\n') => Op::Inline(comment.text),
            true | false => Op::Own(comment.text),
        });
    }

    /// All tokens of a pair, with one blank between them.
    pub fn words(&mut self, pair: Pair<'t, Rule>) {
        let mut first = true;
        for token in pair.into_inner() {
            if !std::mem::take(&mut first) {
                self.say(" ");
            }
            self.token(token);
        }
    }

    /// Comments and empty lines before an entry of a list that has a line for each; whether there are any. `first` stands behind
    /// a brace.
    pub fn before_entry(&mut self, start: usize, mut first: bool) -> bool {
        let (comments, breaks) = comments::between(self.text, self.done, start);
        let is_apart = breaks > 1 || !comments.is_empty();
        let is_inline = self.comment_lines(comments, &mut first);
        self.line(breaks, &mut first, is_inline);
        self.done = start;
        is_apart
    }

    /// Comments before a closing brace, or the end of the file.
    pub fn before_end(&mut self, end: usize, mut first: bool) {
        let (comments, _) = comments::between(self.text, self.done, end);
        self.comment_lines(comments, &mut first);
        self.done = end;
    }

    /// Comments between the lines of a list; whether the next entry goes on with the line of the last.
    fn comment_lines(&mut self, comments: Vec<Comment<'t>>, first: &mut bool) -> bool {
        let mut is_inline = false;
        for comment in comments {
            self.line(comment.breaks_before, first, is_inline);
            let begins_line = !is_inline;
            is_inline = comment.is_inline();
            let is_beside = is_inline || !begins_line && !comment.text.contains('\n');
            self.push(if is_beside { Op::Inline(comment.text) } else { Op::Own(comment.text) });
        }
        is_inline
    }

    fn line(&mut self, breaks: usize, first: &mut bool, is_inline: bool) {
        if !is_inline {
            self.push(if breaks > 1 && !*first { Op::BlankLine } else { Op::Newline });
        }
        *first = false;
    }

    /// Whether comments stand between the last token and `start`.
    fn has_comments_before(&self, start: usize) -> bool {
        !comments::between(self.text, self.done, start).0.is_empty()
    }

    /// `{ entries }`; `entry` writes one of them.
    pub fn braces(
        &mut self,
        open: Pair<'t, Rule>,
        entries: Vec<Pair<'t, Rule>>,
        close: Pair<'t, Rule>,
        style: Braces,
        mut entry: impl FnMut(&mut Self, Pair<'t, Rule>),
    ) {
        let end = self.start_of(&close);
        let is_one_line = !self.text[self.start_of(&open)..end].contains('\n') && entries.len() <= style.on_one_line;
        self.push(Op::Open(style.group));
        self.token(open);
        self.push(Op::Indent(LEVEL));
        self.depth += LEVEL;
        let is_empty = entries.is_empty() && !self.has_comments_before(end);
        if is_empty {
            self.done = end;
        } else if is_one_line {
            for pair in entries {
                self.may_break(Break::Blank);
                entry(self, pair);
            }
            if self.has_comments_before(end) {
                self.may_break(Break::Blank);
                self.comments_before(end);
            }
        } else {
            let mut first = true;
            for pair in entries {
                self.before_entry(self.start_of(&pair), std::mem::take(&mut first));
                entry(self, pair);
            }
            self.before_end(end, first);
        }
        self.depth -= LEVEL;
        self.push(Op::Dedent);
        if !is_empty {
            self.push(if is_one_line { Op::Break(Break::Blank) } else { Op::Newline });
        }
        self.token(close);
        self.push(Op::Close);
    }

    /// `(a, b)`, `[a, b]`. Where it does not fit on the line its parts have one of their own, or one each.
    pub fn brackets(&mut self, parts: Vec<Pair<'t, Rule>>, mut part: impl FnMut(&mut Self, Pair<'t, Rule>)) {
        let hugs = parts.iter().filter(|pair| !is_token(pair)).count() == 1;
        let count = parts.len();
        let opens = !hugs && count > 2;
        self.push(Op::Open(Group::Plain));
        for (index, pair) in parts.into_iter().enumerate() {
            if index == 0 {
                self.token(pair);
                if opens {
                    self.push(Op::Indent(LEVEL));
                    self.may_break(Break::Nothing);
                    self.push(Op::Open(Group::Plain));
                }
            } else if index + 1 == count {
                if opens {
                    self.push(Op::IfBroken(","));
                    self.push(Op::Close);
                    self.push(Op::Dedent);
                    self.may_break(Break::Nothing);
                }
                self.token(pair);
            } else if pair.as_rule() != Rule::comma {
                part(self, pair);
            } else if index + 2 == count {
                self.leave_out(&pair);
            } else {
                self.token(pair);
                self.may_break(Break::Blank);
            }
        }
        self.push(Op::Close);
    }
}

fn is_token(pair: &Pair<'_, Rule>) -> bool {
    crate::parser::grammar::token(pair.as_rule()).is_some()
}
