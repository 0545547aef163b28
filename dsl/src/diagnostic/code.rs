//! The table of error codes. The enum, the numbers and the titles come from these rows; the page of each code is
//! `explain/mgNNNN.md` beside this file. A number is never used again for another mistake.

use std::fmt;

macro_rules! codes {
    ($($name:ident = $number:literal, $title:literal;)*) => {
        /// What kind of mistake it is.
        // The four digits are the page's name too.
        #[allow(clippy::zero_prefixed_literal)]
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

            /// The text of `explain/mgNNNN.md`.
            pub(super) fn page(self) -> &'static str {
                match self {
                    $(Code::$name => include_str!(concat!("explain/mg", stringify!($number), ".md")),)*
                }
            }
        }
    };
}

codes! {
    UnexpectedToken = 0001, "unexpected text";
    UnclosedBracket = 0002, "a bracket that is never closed";
    UnmatchedBracket = 0003, "a closing bracket without its partner";
    NestedTooDeep = 0004, "nested too deep";
    UnknownCharacter = 0005, "a character outside the language";
    UnterminatedText = 0006, "a string or comment that never ends";
    BadNumber = 0007, "a malformed number";
    ReservedWord = 0008, "a reserved word as a name";
    BadEscape = 0009, "an unknown escape in a string";
    MisplacedHeader = 0010, "a misplaced `family` line";
    FileTooLarge = 0011, "a file that is too large";
    MissingHeader = 0012, "no `family` line";

    UnknownName = 0101, "an unknown name";
    DuplicateName = 0102, "a name defined twice";
    HidesConfigName = 0103, "a name that hides a config name";
    RecursiveDefinition = 0104, "a definition that contains itself";
    NotMutable = 0105, "an assignment to a name that cannot change";
    CapitalName = 0106, "a config name that begins with a capital";

    TypeMismatch = 0201, "a value of the wrong type";
    DtypeMismatch = 0202, "two dtypes meet";
    FractionMeetsIntegers = 0203, "a fraction meets an integer tensor";
    NarrowSum = 0204, "a sum in a narrow float";
    WrongArguments = 0205, "arguments that do not fit";
    TensorCondition = 0206, "a tensor as a condition";
    NotCallable = 0207, "a call of something that cannot be called";
    WrongStage = 0208, "a value that is known too late";
    ListLength = 0209, "a list of tensors without a length";
    NeverComputed = 0210, "a value that can never be computed";

    DimMismatch = 0301, "dims that are not provably equal";
    RankMismatch = 0302, "a wrong number of axes";
    RegroupingReshape = 0303, "a reshape that regroups";
    DivisionBySum = 0304, "a dim divided by a sum";
    UnboundDim = 0305, "a free dim that nothing binds";
    BadAxis = 0306, "an axis that does not exist";

    MaybeAbsent = 0401, "something that may be absent";

    DoublyClaimed = 0501, "two fields on one stored tensor";
    PackedMisuse = 0502, "a packed matrix used as a tensor";
    DerivedWeight = 0503, "a derived weight that needs more than weights";

    UnknownGraph = 0601, "a graph the runtime does not know";
    UnknownInput = 0602, "an input the runtime does not know";
    MissingGraph = 0603, "a graph that is missing";
    StateMisuse = 0604, "state outside its block, or of the wrong shape";
    RepeatedProbe = 0605, "a probe name that may repeat";
    WrongProcessor = 0606, "a processor that is missing or does not fit";

    ConfigField = 0701, "a config value that cannot be used";
    RequireFailed = 0702, "a `require` that does not hold";
}

impl Code {
    /// What the codes with the same first two digits are about.
    pub fn group(self) -> &'static str {
        match self as u16 / 100 {
            0 => "syntax",
            1 => "names",
            2 => "types and dtypes",
            3 => "dims and shapes",
            4 => "things that may be absent",
            5 => "weights and stored names",
            6 => "graphs, inputs, state and probes",
            7 => "loading a checkpoint",
            _ => "others",
        }
    }
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
