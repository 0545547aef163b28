//! StableHLO: what each primitive is among the methods of the runtime's `hlo::Build`, which take `Copy` handles. What
//! cannot be built is recorded there and reported once, so these calls return no `Result`.

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

pub(crate) struct Hlo;

impl Backend for Hlo {
    fn twin(&self) -> TwinBackend {
        TwinBackend::Hlo
    }

    fn tensor(&self) -> TokenStream {
        quote!(V)
    }

    fn matrix(&self) -> TokenStream {
        quote!(Matrix)
    }

    fn copies(&self) -> bool {
        true
    }

    fn prim(&self, scope: &Scope<'_>, op: &Prim, arguments: &[TokenStream], out: &Type) -> Result<Expr> {
        let plain = |name: TokenStream| Ok(Expr::plain(quote!(cx.#name(#(#arguments),*))));
        let of_shape = |name: TokenStream| {
            let shape = scope.shape(&tensor(out)?.shape)?;
            Ok(Expr::plain(quote!(cx.#name(#(#arguments,)* #shape))))
        };
        let along = |name: TokenStream, axis: &i32| {
            let axis = Literal::i32_unsuffixed(*axis);
            Ok(Expr::plain(quote!(cx.#name(#(#arguments,)* #axis))))
        };
        match op {
            Prim::Unary(unary) => plain(match unary {
                Unary::Negate => quote!(negate),
                Unary::Abs => quote!(abs),
                Unary::Exp => quote!(exponential),
                Unary::Log => quote!(log),
                Unary::Sqrt => quote!(sqrt),
                Unary::Rsqrt => quote!(rsqrt),
                Unary::Tanh => quote!(tanh),
                Unary::Sin => quote!(sine),
                Unary::Cos => quote!(cosine),
                Unary::Sigmoid => quote!(logistic),
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
            Prim::Compare(compare) => {
                let direction = match compare {
                    Compare::Equal => quote!(Equal),
                    Compare::NotEqual => quote!(NotEqual),
                    Compare::Less => quote!(Less),
                    Compare::LessEqual => quote!(LessEqual),
                    Compare::Greater => quote!(Greater),
                    Compare::GreaterEqual => quote!(GreaterEqual),
                };
                Ok(Expr::plain(quote!(cx.compare(Compare::#direction, #(#arguments),*))))
            }
            Prim::Select => plain(quote!(select)),
            Prim::Convert => {
                let dtype = out_dtype(scope, out)?;
                Ok(Expr::plain(quote!(cx.convert(#(#arguments,)* #dtype))))
            }
            Prim::Constant(load) => {
                let dtype = out_dtype(scope, out)?;
                let value = scope.scalar(load)?.tokens;
                let name = if load.ty == LoadType::Float { quote!(number) } else { quote!(integer) };
                Ok(Expr::plain(quote!(cx.#name(#value, #dtype))))
            }
            Prim::ConstantList(load) => {
                let dtype = out_dtype(scope, out)?;
                let list = scope.borrowed(load)?;
                let floats = load.ty == LoadType::List(Box::new(LoadType::Float));
                let name = if floats { quote!(numbers) } else { quote!(integers) };
                Ok(Expr::plain(quote!(cx.#name(#list, #dtype))))
            }
            Prim::Iota => {
                let dims = &tensor(out)?.shape.dims;
                let dim = dims.first().ok_or_else(|| Error::Ir("an iota without a dim".into()))?;
                let size = scope.dim(dim)?.tokens;
                Ok(Expr::plain(quote!(cx.iota(#size))))
            }
            Prim::Reshape => of_shape(quote!(reshape)),
            Prim::Transpose(permutation) => {
                let axes = permutation.iter().map(|a| Literal::usize_unsuffixed(*a));
                Ok(Expr::plain(quote!(cx.transpose(#(#arguments,)* &[#(#axes),*]))))
            }
            Prim::Broadcast => of_shape(quote!(broadcast)),
            Prim::Concat { axis } => {
                let axis = Literal::i32_unsuffixed(*axis);
                Ok(Expr::plain(quote!(cx.concat(&[#(#arguments),*], #axis))))
            }
            Prim::ConcatList { axis } => along(quote!(concat), axis),
            Prim::Slice(slots) => {
                let cuts = scope.cuts(slots)?;
                Ok(Expr::plain(quote!(cx.cut(#(#arguments,)* &[#(#cuts),*]))))
            }
            Prim::Reduce { op, axes } => {
                let axes = axes.iter().map(|axis| Literal::i32_unsuffixed(*axis));
                let name = match op {
                    Reduce::Sum => quote!(sum),
                    Reduce::Maximum => quote!(maximum_along),
                    Reduce::Any => quote!(any_along),
                };
                Ok(Expr::plain(quote!(cx.#name(#(#arguments,)* &[#(#axes),*]))))
            }
            Prim::Dot => plain(quote!(dot)),
            Prim::Matmul => plain(quote!(matmul)),
            Prim::Take { axis } => along(quote!(take), axis),
            Prim::TakeAlong { axis } => along(quote!(take_along), axis),
            Prim::TopKValues(k) => {
                let k = scope.scalar(k)?.tokens;
                Ok(Expr::plain(quote!(cx.top_k_values(#(#arguments,)* #k))))
            }
            Prim::TopKIndices(k) => {
                let k = scope.scalar(k)?.tokens;
                Ok(Expr::plain(quote!(cx.top_k_indices(#(#arguments,)* #k))))
            }
            Prim::Update { axis } => along(quote!(update), axis),
            Prim::MatrixDense => plain(quote!(dense)),
            Prim::MatrixCodes => plain(quote!(codes)),
            Prim::MatrixBytes => plain(quote!(bytes)),
            Prim::MatrixScales => plain(quote!(scales)),
            Prim::MatrixBiases => plain(quote!(biases)),
            Prim::MatrixRows => plain(quote!(rows)),
            Prim::Item(at) => {
                let at = scope.scalar(at)?.tokens;
                Ok(Expr::fallible(quote!(item(#(#arguments,)* #at).copied())))
            }
        }
    }

    fn dim(&self, tensor: &TokenStream, axis: i32) -> TokenStream {
        let axis = Literal::i32_unsuffixed(axis);
        quote!(cx.dim(#tensor, #axis))
    }

    fn shape(&self, tensor: &TokenStream) -> TokenStream {
        quote!(&cx.shape(#tensor))
    }

    fn dtype(&self, tensor: &TokenStream) -> TokenStream {
        quote!(cx.dtype(#tensor))
    }

    fn probe(&self, pattern: &str, holes: &[TokenStream], value: &TokenStream) -> Expr {
        if holes.is_empty() {
            let name = pattern.replace("{{", "{").replace("}}", "}");
            return Expr::plain(quote!(cx.probe(#name, #value)));
        }
        Expr::plain(quote!(cx.probe(&format!(#pattern #(, #holes)*), #value)))
    }

    fn weight(&self, place: &TokenStream, matrix: bool) -> Option<Expr> {
        let name = if matrix { quote!(matrix) } else { quote!(weight) };
        Some(Expr::plain(quote!(cx.#name(&#place))))
    }

    fn state_read(&self, place: &TokenStream) -> Expr {
        Expr::plain(quote!(cx.state(&#place)))
    }

    fn state_write(&self, place: &TokenStream, value: &TokenStream) -> TokenStream {
        quote!(cx.set_state(&#place, #value);)
    }

    fn state_update(&self, _: &TokenStream, _: &TokenStream, _: &TokenStream, _: i32) -> Option<Expr> {
        None
    }

    fn held_part(&self, place: &TokenStream, value: &TokenStream, axis: i32) -> TokenStream {
        let axis = Literal::i32_unsuffixed(axis);
        quote!(cx.held_part(&#place, #value, #axis))
    }

    fn turn(&self, _: &[Ident]) -> TokenStream {
        TokenStream::new()
    }
}
