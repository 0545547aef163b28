//! Written types as checked ones: dtypes, shapes of normal-form dims, aliases opened where they are used.

use super::{
    loops::any_part,
    scope::{Checked, FreeDims, Lowering},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic, suggest},
    dim::{Dim, DimError},
    ir::*,
    source::Span,
};

/// How deep the aliases of types stand in each other.
const MAX_ALIASES: usize = 16;

/// What a written type stands for.
#[derive(Debug, Clone)]
pub(crate) enum Written {
    Tensor(TensorType),
    Matrix(Shape),
    List { item: TensorType, length: Dim },
    Load { ty: LoadType, length: Option<Dim> },
    Tuple(Vec<Written>),
}

pub(crate) fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "F" => DType::F,
        "f64" => DType::F64,
        "f32" => DType::F32,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "i32" => DType::I32,
        "u32" => DType::U32,
        "u8" => DType::U8,
        "bool" => DType::Bool,
        _ => return None,
    })
}

pub(crate) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

pub(crate) fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::U32 | DType::U8)
}

pub(crate) fn shape_text(shape: &Shape) -> String {
    let rest = shape.pack.then(|| "..".to_string());
    rest.into_iter().chain(shape.dims.iter().map(Dim::to_string)).collect::<Vec<_>>().join(", ")
}

pub(crate) fn tensor_text(ty: &TensorType) -> String {
    format!("{}[{}]", ty.dtype.name(), shape_text(&ty.shape))
}

pub(crate) fn type_text(ty: &Type) -> String {
    match ty {
        Type::Tensor(ty) => tensor_text(ty),
        Type::Matrix(shape) => format!("Q[{}]", shape_text(shape)),
        Type::List { item, length } => format!("[{}; {length}]", tensor_text(item)),
    }
}

/// For people: with what it is.
pub(crate) fn value_text(ty: &Type) -> String {
    let what = match ty {
        Type::Tensor(_) => "a tensor",
        Type::Matrix(_) => "a matrix",
        Type::List { .. } => "a list of tensors",
    };
    format!("{what} {}", type_text(ty))
}

fn load_type(name: &str) -> Option<LoadType> {
    Some(match name {
        "dim" | "int" => LoadType::Int,
        "float" => LoadType::Float,
        "bool" => LoadType::Bool,
        "name" => LoadType::Text,
        _ => return None,
    })
}

/// The load type that `ty` names without looking into lengths.
pub(crate) fn plain_load_type(ty: &ast::Type) -> Option<LoadType> {
    match &ty.kind {
        ast::TypeKind::Named { name, shape: None } => load_type(&name.node),
        ast::TypeKind::List { item, .. } => Some(LoadType::List(Box::new(plain_load_type(item)?))),
        ast::TypeKind::Named { .. } | ast::TypeKind::Tuple(_) => None,
    }
}

impl Lowering<'_, '_> {
    pub fn written(&mut self, ty: &ast::Type) -> Checked<Written> {
        self.written_at(ty, 0)
    }

    fn written_at(&mut self, ty: &ast::Type, depth: usize) -> Checked<Written> {
        match &ty.kind {
            ast::TypeKind::Tuple(items) => {
                let mut written = Vec::new();
                for item in items {
                    match self.written_at(item, depth)? {
                        Written::Tuple(_) => return self.fail(Code::TypeMismatch, item.span, "a tuple holds no tuple"),
                        item => written.push(item),
                    }
                }
                Ok(Written::Tuple(written))
            }
            ast::TypeKind::List { item, length } => match self.written_at(item, depth)? {
                Written::Load { ty, .. } => {
                    let length = length.as_ref().map(|l| self.dim(l)).transpose()?;
                    Ok(Written::Load { ty: LoadType::List(Box::new(ty)), length })
                }
                Written::Tensor(tensor) => match length {
                    Some(length) => Ok(Written::List { item: tensor, length: self.dim(length)? }),
                    None => Err(self.error(
                        Diagnostic::new(Code::ListLength, ty.span, "a list of tensors needs its length")
                            .help(format!("write it as a dim, such as `[{}; depth]`", tensor_text(&tensor))),
                    )),
                },
                Written::Matrix(_) | Written::Tuple(_) | Written::List { .. } => self.fail(
                    Code::TypeMismatch,
                    item.span,
                    "a list holds load values or tensors, and no matrices, tuples or lists of tensors",
                ),
            },
            ast::TypeKind::Named { name, shape } => self.named_type(name, shape.as_deref(), ty.span, depth),
        }
    }

    /// Whether opening the alias `name` leads back to it.
    fn contains_itself(&self, name: &str) -> bool {
        let mut seen: Vec<&str> = Vec::new();
        let mut open = vec![name];
        while let Some(at) = open.pop() {
            let Some(alias) = self.checker.items.types.get(at) else { continue };
            let mut parts = vec![&alias.ty];
            while let Some(part) = parts.pop() {
                match &part.kind {
                    ast::TypeKind::Tuple(items) => parts.extend(items),
                    ast::TypeKind::List { item, .. } => parts.push(item),
                    ast::TypeKind::Named { name: inner, .. } if inner.node == name => return true,
                    ast::TypeKind::Named { name: inner, .. } => {
                        if !seen.contains(&inner.node.as_str()) {
                            seen.push(&inner.node);
                            open.push(&inner.node);
                        }
                    }
                }
            }
        }
        false
    }

    fn named_type(
        &mut self,
        name: &ast::Name,
        shape: Option<&[ast::DimExpr]>,
        span: Span,
        depth: usize,
    ) -> Checked<Written> {
        let word = name.node.as_str();
        if let Some(shape) = shape {
            if word == "Q" {
                let shape = self.shape(shape)?;
                if shape.dims.len() < 2 && !shape.pack {
                    return self.fail(Code::RankMismatch, span, "a matrix `Q[.., n, k]` has at least two dims");
                }
                return Ok(Written::Matrix(shape));
            }
            if let Some(dtype) = dtype(word) {
                return Ok(Written::Tensor(TensorType { dtype, shape: self.shape(shape)? }));
            }
        } else if let Some(ty) = load_type(word) {
            return Ok(Written::Load { ty, length: None });
        } else if dtype(word).is_some() || word == "Q" {
            return Err(self.error(
                Diagnostic::new(Code::RankMismatch, span, format!("`{word}` needs its dims"))
                    .help(format!("write `{word}[..]` with the dims, such as `{word}[B, S]`")),
            ));
        }
        let alias = self.sees_config.then(|| self.checker.items.types.get(word).copied()).flatten();
        match (alias, shape) {
            (Some(alias), None) if depth < MAX_ALIASES => {
                self.name_used(name.span, alias.name.span);
                self.written_at(&alias.ty, depth + 1)
            }
            (Some(_), None) if self.contains_itself(word) => {
                self.fail(Code::RecursiveDefinition, span, format!("the type `{word}` contains itself"))
            }
            (Some(_), None) => {
                let message = format!("types stand in each other more than {MAX_ALIASES} deep here");
                self.fail(Code::NestedTooDeep, span, message)
            }
            (Some(_), Some(_)) => {
                self.fail(Code::TypeMismatch, span, format!("the type `{word}` has its dims already"))
            }
            (None, _) => {
                let mut error = Diagnostic::new(Code::UnknownName, name.span, format!("there is no type `{word}`"))
                    .label("not known");
                let mut known: Vec<&str> = vec![
                    "F", "Q", "f32", "f16", "bf16", "f64", "i32", "u32", "u8", "bool", "dim", "int", "float", "name",
                ];
                if self.sees_config {
                    known.extend(self.checker.items.types.keys());
                }
                if let Some(near) = suggest(word, known) {
                    error = error.help(format!("did you mean `{near}`?"));
                }
                Err(self.error(error))
            }
        }
    }

    /// A written shape; `..` stands first or not at all.
    pub fn shape(&mut self, dims: &[ast::DimExpr]) -> Checked<Shape> {
        let mut shape = Shape { pack: false, dims: Vec::new() };
        let mut failed = None;
        for (i, dim) in dims.iter().enumerate() {
            match dim {
                ast::DimExpr::Rest(_) if i == 0 => shape.pack = true,
                ast::DimExpr::Rest(span) => {
                    failed = self
                        .fail::<()>(Code::RankMismatch, *span, "`..` stands for the leading dims, so it comes first")
                        .err();
                }
                ast::DimExpr::Dim(dim) => match self.dim(dim) {
                    Ok(size) if self.below(&size, &Dim::int(0), &[]) => {
                        let message = format!("a dim is not negative, this is `{size}`");
                        failed = self.fail::<()>(Code::TypeMismatch, dim.span, message).err();
                    }
                    Ok(size) => shape.dims.push(size),
                    Err(reported) => failed = Some(reported),
                },
            }
        }
        match failed {
            Some(reported) => Err(reported),
            None => Ok(shape),
        }
    }

    /// A load integer as a dim.
    pub fn dim(&mut self, expr: &ast::Expr) -> Checked<Dim> {
        let value = self.load(expr)?;
        if value.ty != LoadType::Int {
            let message = format!("a dim is an integer, not {}", super::load::type_name(&value.ty));
            return self.fail(Code::TypeMismatch, expr.span, message);
        }
        let dim = self.dim_of(&value).and_then(Dim::bounded);
        self.sound(dim, expr.span)
    }

    /// Reports why a dim has no normal form.
    pub fn sound<T>(&mut self, dim: Result<T, DimError>, span: Span) -> Checked<T> {
        dim.or_else(|error| match error {
            DimError::DivisionBySum => Err(self.error(
                Diagnostic::new(Code::DivisionBySum, span, "this dim divides by a sum")
                    .label("below the bar stands more than one term")
                    .help("name the divisor in the config, as a field or a `let` of its own meaning"),
            )),
            DimError::DivisionByZero => self.fail(Code::DivisionBySum, span, "this dim divides by zero"),
            DimError::Overflow => self.fail(
                Code::DivisionBySum,
                span,
                "this dim is too large: a factor leaves 64 bits, or there are too many terms",
            ),
        })
    }

    /// A signature's types: names that begin with a capital are its free dims.
    pub fn collecting<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.free_dims, FreeDims::Collect);
        let result = inside(self);
        self.free_dims = before;
        result
    }

    /// Says that two dims differ, with both normal forms, and what would prove them equal.
    pub fn dim_mismatch<T>(&mut self, message: String, found: &Dim, needed: &Dim, span: Span) -> Checked<T> {
        let (a, b) = (self.equations.reduce(found), self.equations.reduce(needed));
        let mut error = Diagnostic::new(Code::DimMismatch, span, message).label(format!("`{a}`, not `{b}`"));
        let config = |dim: &Dim| dim.atoms().all(|atom| of_config(&atom.load));
        let constant = |dim: &Dim| dim.as_int().is_some();
        if config(&a) && config(&b) && !(constant(&a) && constant(&b)) {
            let place = match [&a, &b].into_iter().flat_map(Dim::atoms).find_map(|atom| self.section_of(&atom.load)) {
                Some(section) => format!("with the section `{section}`, state it there"),
                None => "of the family, state it in `config`".into(),
            };
            let help = format!("if this holds for every checkpoint {place}: `require {a} == {b}`");
            error = error.help(help);
        }
        Err(self.error(error))
    }

    /// The section, absent from some checkpoints, of a name in `load`.
    fn section_of(&self, load: &Load) -> Option<String> {
        if let LoadKind::Config(path) = &load.kind
            && let [section, _] = path.as_slice()
            && self.checker.config.may_be_absent(section)
        {
            return Some(section.clone());
        }
        let mut found = None;
        load.for_each_part(&mut |part| found = found.take().or_else(|| self.section_of(part)));
        found
    }
}

/// Whether the config alone says what it is, so that a `require` can speak of it.
fn of_config(load: &Load) -> bool {
    !any_part(load, &|part| match &part.kind {
        LoadKind::Parameter(_)
        | LoadKind::Member(_)
        | LoadKind::Local(_)
        | LoadKind::Free(_)
        | LoadKind::Size(_)
        | LoadKind::Matrix(..)
        | LoadKind::Block { .. } => true,
        LoadKind::Int(_)
        | LoadKind::Float(_)
        | LoadKind::Bool(_)
        | LoadKind::Text(_)
        | LoadKind::Format(_)
        | LoadKind::Pi
        | LoadKind::Config(_)
        | LoadKind::Dim(_)
        | LoadKind::Unary(..)
        | LoadKind::Binary(..)
        | LoadKind::Call(..)
        | LoadKind::Op(..)
        | LoadKind::If(..)
        | LoadKind::List(_)
        | LoadKind::Comprehension { .. }
        | LoadKind::Index(..) => false,
    })
}
