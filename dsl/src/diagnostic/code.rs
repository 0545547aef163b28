//! The table of error codes. The enum, the numbers, the titles and the explanations all come from these rows.
//!
//! Groups: `mg00` syntax, `mg01` names, `mg02` types and dtypes, `mg03` dims and shapes, `mg04` things that may be
//! absent, `mg05` weights and stored names, `mg06` graphs, inputs, state and probes, `mg07` load, `mg09` not built yet.
//! A number is never used again for another mistake.

use std::fmt;

macro_rules! codes {
    ($($name:ident = $number:literal, $title:literal, $explanation:literal;)*) => {
        /// What kind of mistake it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Code {
            $(#[doc = $title] $name = $number,)*
        }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// A few words, for lists.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }

            /// A paragraph, for a reader who met the code for the first time.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$name => $explanation,)* }
            }
        }
    };
}

codes! {
    UnexpectedToken = 1, "unexpected text",
        "The text does not fit the grammar at this place. The message says what could stand here.";
    UnclosedBracket = 2, "a bracket that is never closed",
        "Every `(`, `[` and `{` needs its partner within the same item. An item that begins inside open brackets means that one was forgotten before it.";
    UnmatchedBracket = 3, "a closing bracket without its partner",
        "A `)`, `]` or `}` closes the nearest open bracket, and must be of the same kind.";
    NestedTooDeep = 4, "nested too deep",
        "Brackets, operators and `else if` nest to a fixed depth, far beyond what a family needs. Split the expression with `let`.";
    UnknownCharacter = 5, "a character outside the language",
        "Outside strings and comments the language is ASCII, and uses no `#`, `$`, `'`, `?`, `\\`, `^`, `~` and no back quote.";
    UnterminatedText = 6, "a string or comment that never ends",
        "A string ends with `\"` on the line it began; `/*` ends with `*/`, and such comments nest.";
    BadNumber = 7, "a malformed number",
        "Numbers are `12`, `1_000`, `0.5` and `1e-5`: digits on both sides of the dot, and no suffix. Integers fit 64 bits.";
    ReservedWord = 8, "a reserved word as a name",
        "The words that open items, members and statements cannot name anything else.";
    BadEscape = 9, "an unknown escape in a string",
        "Strings know two escapes, `\\\"` and `\\\\`.";
    MisplacedHeader = 10, "a misplaced `family` line",
        "`family NAME for \"MODEL_TYPE\"` stands once, before everything else in the file.";
    FileTooLarge = 11, "a file that is too large",
        "A `.mgraph` file is a page or two; texts beyond the limit are surely something else.";
    MissingHeader = 12, "no `family` line",
        "A family file begins with `family NAME for \"MODEL_TYPE\"`; only the prelude has none.";

    UnknownName = 101, "an unknown name",
        "The name is not a config field, a parameter, a local, a field of this block, an op or a primitive that is visible here.";
    DuplicateName = 102, "a name defined twice",
        "Within one file an op, block, type or config field has one definition; within one block, a field or function; and none may redefine the prelude.";
    HidesConfigName = 103, "a name that hides a config name",
        "Config fields are visible in the whole file. No local name, field or parameter may take one of their names.";
    RecursiveDefinition = 104, "a definition that contains itself",
        "Ops, blocks and types are inlined, so none may reach itself.";
    NotMutable = 105, "an assignment to a name that cannot change",
        "A name that is assigned is declared with `let mut`, or as a `mut` parameter.";
    CapitalName = 106, "a config name that begins with a capital",
        "A dim that begins with a capital is free: a call binds it. What is known at load begins with a small letter.";

    TypeMismatch = 201, "a value of the wrong type",
        "The value has another type than this place needs.";
    DtypeMismatch = 202, "two dtypes meet",
        "Dtypes are never promoted. Write the cast that is meant, such as `F(x)` or `f32(y)`.";
    FractionMeetsIntegers = 203, "a fraction meets an integer tensor",
        "A load number takes the dtype of the tensor that it meets, and a fraction is no integer.";
    NarrowSum = 204, "a sum in a narrow float",
        "`sum` takes f32, f64 or integers: a bf16 sum of 4,096 ones would be 256. Write `sum(f32(x))`.";
    WrongArguments = 205, "arguments that do not fit",
        "A call gives every parameter without default exactly once, positional arguments before named ones.";
    TensorCondition = 206, "a tensor as a condition",
        "`if` and `for` are decided before the call, from load values and sizes. Choose by a tensor with `select`.";
    NotCallable = 207, "a call of something that cannot be called",
        "Ops, primitives, fields whose block has an `fn`, and named functions of a field can be called. Values cannot.";
    WrongStage = 208, "a value that is known too late",
        "A load expression cannot use tensors: config `let`s, block arguments, dims, bounds of slices and conditions are computed before any call.";

    DimMismatch = 301, "dims that are not provably equal",
        "Two dims are equal when their normal forms are, after the equations of `require` and of the enclosing conditions. If the equation holds for every checkpoint of the family, state it with `require`.";
    RankMismatch = 302, "a wrong number of axes",
        "The shape has another number of axes than this place needs.";
    RegroupingReshape = 303, "a reshape that regroups",
        "A reshape splits an axis or merges neighbours. Regrouping several axes into several others is what a forgotten transpose looks like; say it with two reshapes.";
    DivisionBySum = 304, "a dim divided by a sum",
        "Below the division bar of a dim stands a single term.";
    UnboundDim = 305, "a free dim that nothing binds",
        "A dim that begins with a capital is bound where it stands alone in the shape of a parameter.";
    BadAxis = 306, "an axis that does not exist",
        "Axes count from 0, or from -1 backwards, and are load integers.";

    MaybeAbsent = 401, "something that may be absent",
        "What is declared with `if` exists only where its condition is known to hold: inside an `if` over the same condition.";

    DoublyClaimed = 501, "two fields on one stored tensor",
        "Two fields may share a stored path only when their conditions exclude each other.";
    PackedMisuse = 502, "a packed matrix used as a tensor",
        "A `Q` may be packed in the checkpoint. Use `linear(x, w)` or `lookup(w, ids)`.";

    UnknownGraph = 601, "a graph the runtime does not know",
        "The graphs are `embed`, `vision`, `merge`, `attach` and `forward`, and their inputs and results are fixed.";
    UnknownInput = 602, "an input the runtime does not know",
        "Inputs of graphs are named, and have the dtype and rank of the table in the language reference.";
    MissingGraph = 603, "a graph that is missing",
        "`embed` and `forward` are required.";
    StateMisuse = 604, "state outside its block, or of the wrong shape",
        "A `state` is named only in its own block, and its first dim is `B`.";
    RepeatedProbe = 605, "a probe name that may repeat",
        "A probe name occurs once in a call. Inside a loop it needs a hole, such as `\"layer.{i}\"`.";

    ConfigField = 701, "a config value that cannot be used",
        "The value is missing, or outside the type or set that the family accepts.";
    RequireFailed = 702, "a `require` that does not hold",
        "The checkpoint breaks an equation that the family relies on.";

    NotSupportedYet = 901, "a part of the language that is not built yet",
        "The construct belongs to the language, but this version cannot lower it. Say it another way, or write the computation out.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mg{:04}", *self as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn rows_are_in_order() {
        assert!(Code::ALL.is_sorted_by(|a, b| (*a as u16) < (*b as u16)));
    }
}
