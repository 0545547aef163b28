//! Loops and comprehensions: what they run over, the tensors they carry from turn to turn, and the lists they fill.
//!
//! A list of tensors has a length because one loop fills it, once per turn. So a push stands directly in the body of a loop
//! which stands directly where the list was declared, and the list is read only after the loop.

use std::collections::BTreeSet;

use super::{
    body::{assigned_in, assigned_in_expr},
    scope::{Binding, Checked, Child, Children, Growing, Item, Lowering, Reported, Turn, load},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    dim::Dim,
    ir::*,
    source::Span,
};

/// What a loop runs over.
struct Head {
    over: LoopOver,
    /// How many turns it has.
    length: Dim,
    item: HeadItem,
}

/// A loop's body, and what goes from turn to turn.
struct LoopBody {
    index: Option<LocalId>,
    /// Of the variables in `carried`.
    names: Vec<String>,
    carried: Vec<Carried>,
    region: Region,
    /// The first value that was made inside.
    first_value: usize,
}

/// What the loop's variable is.
enum HeadItem {
    Load(LocalId, LoadType),
    Child(Children, LocalId),
    Value(ValueId),
}

impl Lowering<'_, '_> {
    fn loop_head(&mut self, iterable: &ast::Iterable, item: &ast::Name) -> Checked<Head> {
        let list = match iterable {
            ast::Iterable::Range(low, high) => {
                let (low, high) = (self.load(low)?, self.load(high)?);
                let low = self.coerce(low, &LoadType::Int, "the first index")?;
                let high = self.coerce(high, &LoadType::Int, "the end of the indices")?;
                let length = self.range_length(&low, &high);
                let variable = self.new_variable(&item.node);
                let over = LoopOver::Range { variable, low, high };
                return Ok(Head { over, length, item: HeadItem::Load(variable, LoadType::Int) });
            }
            ast::Iterable::List(list) => list,
        };
        let found = match self.expr(list)? {
            Item::List(items) => Item::Value(self.list_value(items, list.span)?),
            found => found,
        };
        match found {
            Item::Load(value) => {
                let LoadType::List(ty) = value.ty.clone() else {
                    let found = super::load::type_name(&value.ty);
                    let message = format!("`for` takes a list, a range or an array of blocks, not {found}");
                    return self.fail(Code::TypeMismatch, list.span, message);
                };
                let length = self.length_of(&value);
                let variable = self.new_variable(&item.node);
                let over = LoopOver::List { variable, list: value };
                Ok(Head { over, length, item: HeadItem::Load(variable, *ty) })
            }
            Item::Children(children) => {
                let length = self.range_length(&children.low, &children.high);
                let local = self.new_variable(&item.node);
                let over = LoopOver::Children { item: local, array: children.array.clone() };
                Ok(Head { over, length, item: HeadItem::Child(children, local) })
            }
            Item::Value(value) => match self.ty(value).clone() {
                Type::List { item: ty, length } => {
                    let inner = self.new_value(Type::Tensor(ty), item.span);
                    let over = LoopOver::Values { item: inner, list: value };
                    Ok(Head { over, length, item: HeadItem::Value(inner) })
                }
                Type::Tensor(_) | Type::Matrix(_) => Err(self.error(
                    Diagnostic::new(Code::TensorCondition, list.span, "`for` cannot run over a tensor")
                        .help("tensor ops work on whole axes at once"),
                )),
            },
            other => {
                let found = self.describe(&other);
                self.fail(Code::TypeMismatch, list.span, format!("`for` cannot run over {found}"))
            }
        }
    }

    fn range_length(&self, low: &Load, high: &Load) -> Dim {
        let (a, b) = (self.dim_or_atom(low), self.dim_or_atom(high));
        if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
            return Dim::int(b.saturating_sub(a).max(0));
        }
        let difference = || {
            let operands = [high, low].map(|side| Box::new(side.clone()));
            let [high, low] = operands;
            let span = high.span;
            load(LoadKind::Binary(LoadBinary::Subtract, high, low), LoadType::Int, span)
        };
        b.minus(&a).unwrap_or_else(|_| self.dim_or_atom(&difference()))
    }

    /// Binds the loop's variable to what it is in a turn.
    fn bind_item(&mut self, name: &ast::Name, item: &HeadItem, turn: LocalId) {
        let item = match item {
            HeadItem::Load(local, ty) => Item::Load(load(LoadKind::Local(*local), ty.clone(), name.span)),
            HeadItem::Value(value) => Item::Value(*value),
            HeadItem::Child(children, local) => {
                let mut with = super::dims::Translation::default();
                with.locals.insert(children.variable, self.place_of_turn(children, turn, name.span));
                let arguments = children.arguments.iter().map(|a| self.translate(a, &with)).collect();
                let receiver = Receiver::Item { item: *local, path: Vec::new() };
                Item::Child(Child { receiver, block: children.block, arguments })
            }
        };
        self.bind(name, item, false);
    }

    /// The array's own variable in a turn: turns count from 0, arrays from `low`.
    fn place_of_turn(&self, children: &Children, turn: LocalId, span: Span) -> Load {
        let turn = load(LoadKind::Local(turn), LoadType::Int, span);
        if matches!(children.low.kind, LoadKind::Int(0)) {
            return turn;
        }
        let operands = [children.low.clone(), turn].map(Box::new);
        let [low, turn] = operands;
        load(LoadKind::Binary(LoadBinary::Add, low, turn), LoadType::Int, span)
    }

    pub fn for_loop(
        &mut self,
        index: Option<&ast::Name>,
        item: &ast::Name,
        iterable: &ast::Iterable,
        body: &ast::Body,
    ) -> Checked<()> {
        let done = self.filled(index, item, iterable, body);
        if done.is_err() {
            for statement in &body.statements {
                if let ast::Statement::Push { list, .. } = statement {
                    self.poison(&list.node);
                }
            }
        }
        for (name, out) in done? {
            self.values[out.0 as usize].name = Some(name.node.clone());
            if let Some(binding) = self.find_mut(&name.node) {
                binding.item = Item::Value(out);
                binding.mutable = false;
            }
        }
        Ok(())
    }

    /// Lowers a loop; gives the lists that it filled.
    fn filled(
        &mut self,
        index: Option<&ast::Name>,
        item: &ast::Name,
        iterable: &ast::Iterable,
        body: &ast::Body,
    ) -> Checked<Vec<(ast::Name, ValueId)>> {
        let first_local = self.checker.locals.len();
        let head = self.loop_head(iterable, item)?;
        let mut assigned = BTreeSet::new();
        assigned_in(body, &mut BTreeSet::new(), &mut assigned);
        let (pushed, turn) = self.turn((index, item), &head, assigned, |this| {
            this.turns.push(Turn { region: this.regions.len(), pushed: Vec::new() });
            let result = this.body(body).and_then(|item| match &body.value {
                Some(value) => this.unread(&item, value, "assign it, `x = ..;`, or collect it: `[.. for i in ..]`"),
                None => Ok(()),
            });
            let turn = this.turns.pop();
            result.map(|()| turn.map(|turn| turn.pushed).unwrap_or_default())
        })?;
        let items: Vec<ValueId> = pushed.iter().map(|(_, item)| *item).collect();
        let lists = self.close(head, turn, first_local, &items)?;
        Ok(pushed.into_iter().map(|(name, _)| name).zip(lists).collect())
    }

    /// The body of a loop, lowered once for all its turns by `inside`.
    fn turn<T>(
        &mut self,
        (index, item): (Option<&ast::Name>, &ast::Name),
        head: &Head,
        assigned: BTreeSet<String>,
        inside: impl FnOnce(&mut Self) -> Checked<T>,
    ) -> Checked<(T, LoopBody)> {
        let index_local = index.map(|i| self.new_variable(&i.node));
        let number = index_local.unwrap_or_else(|| self.new_variable("turn"));
        let first_value = self.values.len();
        let names = self.mutable_tensors(assigned);
        let mut carried = Vec::new();
        let (result, statements) = self.region(|this| {
            for name in &names {
                if let Some(Binding { item: Item::Value(initial), mutable, span }) = this.find(name).cloned() {
                    let inner = this.new_value(this.ty(initial).clone(), this.values[initial.0 as usize].span);
                    this.values[inner.0 as usize].name = Some(name.clone());
                    this.bind_silently(name, Binding { item: Item::Value(inner), mutable, span });
                    carried.push(Carried { initial, inner });
                }
            }
            if let (Some(name), Some(local)) = (index, index_local) {
                this.bind(name, Item::Load(load(LoadKind::Local(local), LoadType::Int, name.span)), false);
            }
            this.bind_item(item, &head.item, number);
            // The body's own `let`s hide nothing that is carried.
            this.scopes.push(Default::default());
            let result = inside(this);
            this.scopes.pop();
            let mut next = Vec::new();
            for name in &names {
                if let Some(Binding { item: Item::Value(value), .. }) = this.find(name) {
                    next.push(*value);
                }
            }
            result.map(|result| (result, next))
        });
        let (result, results) = result?;
        // Types inside may depend on the number of the turn, which then needs a place.
        let counted = |v: &Value| v.ty.dims().flat_map(|d| d.atoms()).any(|a| mentions(&a.load, number));
        let counted = self.values[first_value..].iter().any(counted);
        let index = index_local.or(counted.then_some(number));
        Ok((result, LoopBody { index, names, carried, region: Region { statements, results }, first_value }))
    }

    /// The loop as a statement. Every turn adds each of `items` to a list; gives those lists.
    fn close(&mut self, head: Head, body: LoopBody, first_local: usize, items: &[ValueId]) -> Checked<Vec<ValueId>> {
        let LoopBody { index, names, carried, region, first_value } = body;
        let mut collected = Vec::new();
        for item in items {
            let span = self.values[item.0 as usize].span;
            let ty = self.tensor_type(*item, span)?;
            let of_this_turn = |l: &Load| match &l.kind {
                LoadKind::Local(local) => local.0 as usize >= first_local,
                LoadKind::Size(v) | LoadKind::Matrix(v, _) => v.0 as usize >= first_value,
                _ => false,
            };
            if let Some(dim) = ty.shape.dims.iter().find(|d| d.atoms().any(|a| any_part(&a.load, &of_this_turn))) {
                let message = format!("the size `{dim}` of this item changes from turn to turn");
                return Err(self.error(
                    Diagnostic::new(Code::ListLength, span, message)
                        .label(super::types::tensor_text(&ty))
                        .help("the tensors of a list have one type"),
                ));
            }
            let out = self.new_value(Type::List { item: ty, length: head.length.clone() }, span);
            collected.push(Collected { item: *item, out });
        }
        let mut outs = Vec::new();
        for (name, Carried { initial, .. }) in names.iter().zip(&carried) {
            let (ty, span) = (self.ty(*initial).clone(), self.values[initial.0 as usize].span);
            let out = self.new_value(ty, span);
            self.values[out.0 as usize].name = Some(name.clone());
            outs.push(out);
            if let Some(binding) = self.find_mut(name) {
                binding.item = Item::Value(out);
            }
        }
        let lists = collected.iter().map(|c| c.out).collect();
        self.push(Statement::For { outs, over: head.over, index, carried, collected, body: region });
        Ok(lists)
    }

    pub fn comprehension(&mut self, item: &ast::Expr, each: &[ast::Each], span: Span) -> Checked<Item> {
        let [only] = each else { return self.nested_comprehension(item, each, span) };
        let first_local = self.checker.locals.len();
        let head = self.loop_head(&only.iterable, &only.item)?;
        let mut assigned = BTreeSet::new();
        assigned_in_expr(item, &mut BTreeSet::new(), &mut assigned);
        let (found, turn) =
            self.turn((only.index.as_ref(), &only.item), &head, assigned, |this| match this.expr(item)? {
                Item::Load(value) => Ok(Ok(value)),
                found @ (Item::Value(_) | Item::List(_) | Item::Tuple(_)) => {
                    let shown = this.describe(&found);
                    match this.values_of(found, item.span)?.as_slice() {
                        [value] => Ok(Err(*value)),
                        _ => this.fail(
                            Code::TypeMismatch,
                            item.span,
                            format!("an item of a list is one tensor, this is {shown}"),
                        ),
                    }
                }
                other => {
                    let found = this.describe(&other);
                    this.fail(Code::TypeMismatch, item.span, format!("an item of a list cannot be {found}"))
                }
            })?;
        match found {
            Err(value) => match self.close(head, turn, first_local, &[value])?.as_slice() {
                [list] => Ok(Item::Value(*list)),
                _ => Err(Reported),
            },
            Ok(value) => {
                let index = if only.index.is_some() { turn.index } else { None };
                let each = vec![self.load_each(head, index, only.item.span)?];
                self.load_comprehension(value, each, &turn.region.statements, span)
            }
        }
    }

    /// With several `for`: of load values only, because a list of tensors is as long as one loop.
    fn nested_comprehension(&mut self, item: &ast::Expr, each: &[ast::Each], span: Span) -> Checked<Item> {
        let (result, statements) = self.region(|this| {
            let mut lowered = Vec::new();
            for each in each {
                let head = this.loop_head(&each.iterable, &each.item)?;
                let index = each.index.as_ref().map(|name| {
                    let local = this.new_variable(&name.node);
                    this.bind(name, Item::Load(load(LoadKind::Local(local), LoadType::Int, name.span)), false);
                    local
                });
                if let HeadItem::Load(local, _) = head.item {
                    this.bind_item(&each.item, &head.item, local);
                }
                lowered.push(this.load_each(head, index, each.item.span)?);
            }
            match this.expr(item)? {
                Item::Load(item) => Ok((item, lowered)),
                Item::Value(_) | Item::List(_) | Item::Tuple(_) => Err(this.error(
                    Diagnostic::new(Code::ListLength, span, "a comprehension of tensors has one `for`")
                        .help("make the inner list in a loop of its own, and `concat` it there"),
                )),
                other => {
                    let found = this.describe(&other);
                    this.fail(Code::TypeMismatch, item.span, format!("an item of a list cannot be {found}"))
                }
            }
        });
        let (item, each) = result?;
        self.load_comprehension(item, each, &statements, span)
    }

    fn load_comprehension(
        &mut self,
        item: Load,
        each: Vec<Each>,
        statements: &[Statement],
        span: Span,
    ) -> Checked<Item> {
        if !statements.is_empty() {
            return self.fail(Code::WrongStage, span, "the items of this list are load values, but work on tensors");
        }
        let ty = LoadType::List(Box::new(item.ty.clone()));
        Ok(Item::Load(load(LoadKind::Comprehension { item: Box::new(item), each }, ty, span)))
    }

    fn load_each(&mut self, head: Head, index: Option<LocalId>, span: Span) -> Checked<Each> {
        let (item, over) = match head.over {
            LoopOver::Range { variable, low, high } => (variable, Over::Range(low, high)),
            LoopOver::List { variable, list } => (variable, Over::List(list)),
            LoopOver::Children { .. } | LoopOver::Values { .. } => {
                return self.fail(Code::WrongStage, span, "a list of load values is made from load lists and ranges");
            }
        };
        Ok(Each { index, item, over })
    }

    /// `let mut seen = []`: the list that a loop of this region may fill.
    pub fn growing(&self) -> Item {
        Item::Growing(Growing { region: self.regions.len() })
    }

    pub fn push_to(&mut self, list: &ast::Name, value: &ast::Expr) -> Checked<()> {
        let item = self.expr(value);
        let Some(Binding { item: found, mutable, span: defined }) = self.find(&list.node).cloned() else {
            return Err(self.unknown_local(list, format!("there is no list `{}`", list.node)));
        };
        self.name_used(list.span, defined);
        let name = &list.node;
        let growing = match found {
            Item::Growing(growing) => growing,
            Item::Poison => return Err(Reported),
            Item::List(items) if items.is_empty() && !mutable => {
                return Err(self.error(
                    Diagnostic::new(
                        Code::NotMutable,
                        list.span,
                        format!("`{name}` grows, but was declared without `mut`"),
                    )
                    .help(format!("declare it with `let mut {name} = []`"))
                    .also(defined, "declared here"),
                ));
            }
            Item::Value(value) if matches!(self.ty(value), Type::List { .. }) => {
                return Err(self.error(
                    Diagnostic::new(Code::ListLength, list.span, format!("`{name}` is complete, and grows no more"))
                        .help("each list is filled by one loop")
                        .also(defined, "declared here"),
                ));
            }
            other => {
                let found = self.describe(&other);
                let message = format!("`push` adds to a list of tensors, `{name}` is {found}");
                return self.fail(Code::TypeMismatch, list.span, message);
            }
        };
        let here = self.regions.len();
        let wrong = match self.turns.last() {
            Some(turn) if turn.region == here && growing.region == here => {
                Some("is declared in the loop, and begins anew in every turn: declare it before the loop")
            }
            Some(turn) if turn.region == here && growing.region + 1 == here => None,
            Some(turn) if turn.region == here => Some(
                "is declared further out than the loop: a list grows in a loop that stands where the list is declared",
            ),
            Some(turn) if growing.region < turn.region => {
                Some("grows under a condition: push in every turn, outside `if`")
            }
            Some(_) | None => Some("grows outside a loop: put the items into a literal list, `[a, b]`"),
        };
        let item = item?;
        if let Some(wrong) = wrong {
            self.poison(name);
            return Err(self.error(
                Diagnostic::new(Code::ListLength, list.span, format!("`{name}` {wrong}"))
                    .also(defined, "declared here"),
            ));
        }
        let at = value.span;
        let item = match self.values_of(item, at)?.as_slice() {
            [one] => *one,
            _ => return self.fail(Code::TypeMismatch, value.span, "an item of a list is one tensor"),
        };
        self.tensor_type(item, at)?;
        let before =
            self.turns.last().and_then(|t| t.pushed.iter().find(|(n, _)| n.node == *name)).map(|(n, _)| n.span);
        if let Some(before) = before {
            return Err(self.error(
                Diagnostic::new(Code::ListLength, list.span, format!("`{name}` grows twice in a turn"))
                    .help("a list gets one item in every turn, so that it is as long as the loop")
                    .also(before, "first here"),
            ));
        }
        if let Some(turn) = self.turns.last_mut() {
            turn.pushed.push((list.clone(), item));
        }
        Ok(())
    }

    fn poison(&mut self, name: &str) {
        if let Some(binding) = self.find_mut(name)
            && matches!(binding.item, Item::Growing(_))
        {
            binding.item = Item::Poison;
        }
    }

    /// A literal list holds tensors of one dtype and rank. Their sizes may differ, as those of `concat` do.
    pub fn list_of_tensors(&mut self, items: &[Item], spans: &[Span]) -> Checked<()> {
        let mut first: Option<TensorType> = None;
        for (item, span) in items.iter().zip(spans.iter().copied()) {
            let (shown, help) = match item {
                Item::Poison => return Err(Reported),
                Item::Value(value) => match self.ty(*value).clone() {
                    Type::Tensor(ty) => {
                        let Some(first) = &first else {
                            first = Some(ty);
                            continue;
                        };
                        if first.dtype != ty.dtype || !same_rank(&first.shape, &ty.shape) {
                            let (a, b) = (super::types::tensor_text(first), super::types::tensor_text(&ty));
                            let message = format!("the first item of this list is {a}, this is {b}");
                            let (code, help) = match first.dtype == ty.dtype {
                                true => (Code::RankMismatch, "the tensors of a list have the same number of axes"),
                                false => (Code::DtypeMismatch, "the tensors of a list have one dtype: write the cast"),
                            };
                            return Err(self.error(Diagnostic::new(code, span, message).help(help)));
                        }
                        continue;
                    }
                    Type::Matrix(_) => (self.describe(item), "a list holds tensors, and a `Q` may be packed"),
                    Type::List { .. } => (self.describe(item), NO_NESTED),
                },
                Item::List(_) | Item::Growing(_) => (self.describe(item), NO_NESTED),
                Item::Load(_) => (self.describe(item), "make it a constant tensor with a cast, such as `F(0.0)`"),
                Item::Tuple(_) => (self.describe(item), "give its parts names with `let (a, b) = ..`"),
                Item::Child(_) | Item::Children(_) | Item::Section(_) | Item::Unit => {
                    (self.describe(item), "the items of a list are load values, or tensors")
                }
            };
            let message = format!("an item of this list is a tensor, not {shown}");
            return Err(self.error(Diagnostic::new(Code::TypeMismatch, span, message).help(help)));
        }
        Ok(())
    }

    /// A literal list as one value: its tensors have one type.
    pub fn list_value(&mut self, items: Vec<Item>, span: Span) -> Checked<ValueId> {
        let mut values = Vec::new();
        for item in items {
            values.extend(self.values_of(item, span)?);
        }
        let Some(first) = values.first() else {
            return self.fail(Code::ListLength, span, "an empty list has no type");
        };
        let item = self.tensor_type(*first, span)?;
        for value in &values[1..] {
            let found = self.ty(*value).clone();
            self.expect_type(&found, &Type::Tensor(item.clone()), "an item of this list", span)?;
        }
        let length = Dim::int(values.len() as i64);
        let out = self.new_value(Type::List { item, length }, span);
        self.push(Statement::List { out, items: values });
        Ok(out)
    }

    /// The value of a body as what leaves it: literal lists are values.
    pub fn settled(&mut self, item: Item, body: &ast::Body) -> Checked<Item> {
        let span = body.value.as_ref().map_or(body.span, |value| value.span);
        Ok(match item {
            Item::List(items) => Item::Value(self.list_value(items, span)?),
            Item::Tuple(items) => {
                let items = items.into_iter().map(|item| self.settled(item, body));
                Item::Tuple(items.collect::<Checked<Vec<_>>>()?)
            }
            other => other,
        })
    }

    pub fn length_of_tensors(&self, item: &Item) -> Option<Dim> {
        match item {
            Item::List(items) => Some(Dim::int(items.len() as i64)),
            Item::Value(value) => match self.ty(*value) {
                Type::List { length, .. } => Some(length.clone()),
                Type::Tensor(_) | Type::Matrix(_) => None,
            },
            _ => None,
        }
    }

    /// `list[i]` of tensors.
    pub fn list_item(&mut self, list: Item, slots: &[ast::Slot], span: Span) -> Checked<Item> {
        let [ast::Slot::At(at)] = slots else {
            return self.fail(Code::TypeMismatch, span, "a list is indexed by one integer");
        };
        let index = self.load(at)?;
        let index = self.coerce(index, &LoadType::Int, "an index")?;
        let length = self.length_of_tensors(&list);
        if let (LoadKind::Int(n), Some(length)) = (&index.kind, length.as_ref().and_then(Dim::as_int))
            && !(0..length).contains(n)
        {
            let message = format!("there is no item {n} in a list of {length}");
            return self.fail(Code::BadAxis, at.span, message);
        }
        if matches!(index.kind, LoadKind::Int(n) if n < 0) {
            return self.fail(Code::BadAxis, at.span, "indices count from 0");
        }
        let list = match (list, &index.kind) {
            (Item::List(mut items), LoadKind::Int(n)) => return Ok(items.swap_remove(*n as usize)),
            (Item::List(items), _) => self.list_value(items, span)?,
            (Item::Value(list), _) => list,
            (_, _) => return Err(Reported),
        };
        let Type::List { item, .. } = self.ty(list).clone() else { return Err(Reported) };
        Ok(Item::Value(self.emit(Prim::Item(index), vec![list], item, span)))
    }

    /// Mutable tensors of the enclosing scopes among `names`, in a fixed order.
    pub fn mutable_tensors(&self, names: BTreeSet<String>) -> Vec<String> {
        let tensor = |n: &String| matches!(self.find(n), Some(Binding { item: Item::Value(_), mutable: true, .. }));
        names.into_iter().filter(tensor).collect()
    }
}

const NO_NESTED: &str =
    "a list of tensors stands in no other list: put its tensors together with `concat`, or keep two lists";

fn same_rank(a: &Shape, b: &Shape) -> bool {
    a.pack == b.pack && a.dims.len() == b.dims.len()
}

pub(crate) fn any_part(load: &Load, holds: &dyn Fn(&Load) -> bool) -> bool {
    let mut found = holds(load);
    load.for_each_part(&mut |part| found |= any_part(part, holds));
    found
}

fn mentions(load: &Load, local: LocalId) -> bool {
    any_part(load, &|part| matches!(&part.kind, LoadKind::Local(l) if *l == local))
}
