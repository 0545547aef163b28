//! MLX: what each primitive is among the runtime's `mlx::ops`, which take references and return a `Result`.

use mgraph_dsl::ir::{Binary, Compare, LoadType, Prim, Reduce, TwinBackend, Type, Unary};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use crate::{
    backend::{Backend, out_dtype},
    code::Expr,
    dims::tensor,
    error::{Error, Result},
    scope::Scope,
};

pub(crate) struct Mlx;

impl Backend for Mlx {
    fn twin(&self) -> TwinBackend {
        TwinBackend::Mlx
    }

    fn tensor(&self) -> TokenStream {
        quote!(Array)
    }

    fn matrix(&self) -> TokenStream {
        quote!(Matrix)
    }

    fn copies(&self) -> bool {
        false
    }

    fn prim(&self, scope: &Scope<'_>, op: &Prim, arguments: &[TokenStream], out: &Type) -> Result<Expr> {
        let plain = |name: TokenStream| Ok(Expr::fallible(quote!(ops::#name(#(#arguments),*))));
        let of_shape = |name: TokenStream| {
            let shape = scope.shape(&tensor(out)?.shape)?;
            Ok(Expr::fallible(quote!(ops::#name(#(#arguments,)* #shape))))
        };
        let along = |name: TokenStream, axis: &i32| {
            let axis = Literal::i32_unsuffixed(*axis);
            Ok(Expr::fallible(quote!(ops::#name(#(#arguments,)* #axis))))
        };
        let matrix = |name: TokenStream| {
            let (w, rest) =
                arguments.split_first().ok_or_else(|| Error::Ir("a matrix primitive without a matrix".into()))?;
            let w = place(w);
            Ok(Expr::fallible(quote!(#w.#name(#(#rest),*))))
        };
        match op {
            Prim::Unary(unary) => plain(match unary {
                Unary::Negate => quote!(negate),
                Unary::Abs => quote!(abs),
                Unary::Exp => quote!(exp),
                Unary::Log => quote!(log),
                Unary::Sqrt => quote!(sqrt),
                Unary::Rsqrt => quote!(rsqrt),
                Unary::Tanh => quote!(tanh),
                Unary::Sin => quote!(sin),
                Unary::Cos => quote!(cos),
                Unary::Sigmoid => quote!(sigmoid),
                Unary::Erf => quote!(erf),
                Unary::Not => quote!(not),
            }),
            Prim::Binary(binary) => plain(match binary {
                Binary::Add => quote!(add),
                Binary::Subtract => quote!(subtract),
                Binary::Multiply => quote!(multiply),
                Binary::Divide => quote!(divide),
                Binary::Remainder => quote!(remainder),
                Binary::Min => quote!(minimum),
                Binary::Max => quote!(maximum),
                Binary::And => quote!(and),
                Binary::Or => quote!(or),
                Binary::ShiftLeft => quote!(shift_left),
                Binary::ShiftRight => quote!(shift_right),
            }),
            Prim::Compare(compare) => plain(match compare {
                Compare::Equal => quote!(equal),
                Compare::NotEqual => quote!(not_equal),
                Compare::Less => quote!(less),
                Compare::LessEqual => quote!(less_equal),
                Compare::Greater => quote!(greater),
                Compare::GreaterEqual => quote!(greater_equal),
            }),
            Prim::Select => plain(quote!(select)),
            Prim::Convert => {
                let dtype = out_dtype(scope, out)?;
                Ok(Expr::fallible(quote!(ops::convert(#(#arguments,)* #dtype))))
            }
            Prim::Constant(load) => {
                let dtype = out_dtype(scope, out)?;
                let value = scope.scalar(load)?.tokens;
                let name = if load.ty == LoadType::Float { quote!(number) } else { quote!(integer) };
                Ok(Expr::fallible(quote!(ops::#name(#value, #dtype))))
            }
            Prim::ConstantList(load) => {
                let dtype = out_dtype(scope, out)?;
                let list = scope.borrowed(load)?;
                let floats = load.ty == LoadType::List(Box::new(LoadType::Float));
                let name = if floats { quote!(numbers) } else { quote!(integers) };
                Ok(Expr::fallible(quote!(ops::#name(#list, #dtype))))
            }
            Prim::Iota => {
                let dims = &tensor(out)?.shape.dims;
                let dim = dims.first().ok_or_else(|| Error::Ir("an iota without a dim".into()))?;
                let size = scope.dim(dim)?.tokens;
                Ok(Expr::fallible(quote!(ops::iota(#size))))
            }
            Prim::Reshape => of_shape(quote!(reshape)),
            Prim::Transpose(permutation) => {
                let axes = permutation.iter().map(|a| Literal::usize_unsuffixed(*a));
                Ok(Expr::fallible(quote!(ops::transpose(#(#arguments,)* &[#(#axes),*]))))
            }
            Prim::Broadcast => of_shape(quote!(broadcast)),
            Prim::Concat { axis } => {
                let axis = Literal::i32_unsuffixed(*axis);
                Ok(Expr::fallible(quote!(ops::concat(&[#(#arguments),*], #axis))))
            }
            Prim::ConcatList { axis } => along(quote!(concat), axis),
            Prim::Slice(slots) => {
                let cuts = scope.cuts(slots)?;
                Ok(Expr::fallible(quote!(ops::cut(#(#arguments,)* &[#(#cuts),*]))))
            }
            Prim::Reduce { op, axes } => {
                let axes = axes.iter().map(|axis| Literal::i32_unsuffixed(*axis));
                let name = match op {
                    Reduce::Sum => quote!(sum),
                    Reduce::Maximum => quote!(maximum_along),
                    Reduce::Any => quote!(any_along),
                };
                Ok(Expr::fallible(quote!(ops::#name(#(#arguments,)* &[#(#axes),*]))))
            }
            Prim::Dot => plain(quote!(dot)),
            Prim::Matmul => plain(quote!(matmul)),
            Prim::Take { axis } => along(quote!(take), axis),
            Prim::TakeAlong { axis } => along(quote!(take_along), axis),
            Prim::TopKValues(k) => {
                let k = scope.scalar(k)?.tokens;
                Ok(Expr::fallible(quote!(ops::top_k_values(#(#arguments,)* #k))))
            }
            Prim::TopKIndices(k) => {
                let k = scope.scalar(k)?.tokens;
                Ok(Expr::fallible(quote!(ops::top_k_indices(#(#arguments,)* #k))))
            }
            Prim::Update { axis } => along(quote!(update), axis),
            Prim::MatrixDense => matrix(quote!(dense)),
            Prim::MatrixCodes => matrix(quote!(codes)),
            Prim::MatrixBytes => matrix(quote!(bytes)),
            Prim::MatrixScales => matrix(quote!(scales)),
            Prim::MatrixBiases => matrix(quote!(biases)),
            Prim::MatrixRows => matrix(quote!(rows)),
            Prim::Item(at) => {
                let at = scope.scalar(at)?.tokens;
                Ok(Expr::fallible(quote!(item(#(#arguments,)* #at).cloned())))
            }
        }
    }

    fn dim(&self, tensor: &TokenStream, axis: i32) -> TokenStream {
        let axis = Literal::i32_unsuffixed(axis);
        quote!(ops::dim(#tensor, #axis)?)
    }

    fn shape(&self, tensor: &TokenStream) -> TokenStream {
        quote!(&ops::shape(#tensor))
    }

    fn dtype(&self, tensor: &TokenStream) -> TokenStream {
        quote!(ops::dtype(#tensor)?)
    }

    fn probe(&self, pattern: &str, holes: &[TokenStream], value: &TokenStream) -> Expr {
        Expr::fallible(quote!(cx.probe(format_args!(#pattern #(, #holes)*), #value)))
    }

    fn weight(&self, _: &TokenStream, _: bool) -> Option<Expr> {
        None
    }

    fn state_read(&self, place: &TokenStream) -> Expr {
        Expr::fallible(quote!(cx.state(&#place)))
    }

    fn state_write(&self, place: &TokenStream, value: &TokenStream) -> TokenStream {
        quote!(cx.set_state(&#place, #value)?;)
    }

    fn state_update(&self, place: &TokenStream, x: &TokenStream, positions: &TokenStream, axis: i32) -> Option<Expr> {
        let axis = Literal::i32_unsuffixed(axis);
        Some(Expr::fallible(quote!(cx.update_state(&#place, #x, #positions, #axis))))
    }

    fn held_part(&self, place: &TokenStream, value: &TokenStream, axis: i32) -> TokenStream {
        let axis = Literal::i32_unsuffixed(axis);
        quote!(&cx.held_part(&#place, #value, #axis)?)
    }

    fn turn(&self, carried: &[Ident]) -> TokenStream {
        if carried.is_empty() { TokenStream::new() } else { quote!(cx.begin(&[#(&#carried),*])?;) }
    }
}

/// `&w` as the receiver of a method.
fn place(passed: &TokenStream) -> TokenStream {
    let mut tokens = passed.clone().into_iter().peekable();
    if tokens.next_if(|first| first.to_string() == "&").is_some() { tokens.collect() } else { passed.clone() }
}
