//! TF32, the narrow products of f32 that MLX uses by itself where its GPU has them: held off for a family that forbids it.
//!
//! MLX reads [`VARIABLE`] once, when it first has to know, and never again: what the first family of a process needs holds for
//! all of its life.

use std::sync::{Mutex, PoisonError};

use crate::error::{Result, bail};

/// 0: products of f32 are products of f32. MLX's default is 1.
pub const VARIABLE: &str = "MLX_ENABLE_TF32";

/// What the process is held to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    Off,
    /// The family that came first allows it, and nothing else forbids it.
    On {
        family: String,
    },
}

/// Holds what `family` says of TF32. Called before anything of MLX runs for it.
///
/// Errors: the family forbids TF32, and the environment asks for it, or a family that allows it came before.
pub fn hold(family: &str, allowed: bool) -> Result<()> {
    static HELD: Mutex<Option<Held>> = Mutex::new(None);
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let set = std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned());
    let decided = decide(held.as_ref(), set.as_deref(), family, allowed)?;
    if decided == Held::Off && set.is_none() {
        // SAFETY: Rust's own readers of the environment wait for this one. Of C's, MLX reads it on first use of what the variable
        // names, which is later and ordered after this; IREE and OpenBLAS read theirs when they start, not while they run.
        unsafe { std::env::set_var(VARIABLE, "0") };
    }
    *held = Some(decided);
    Ok(())
}

fn decide(held: Option<&Held>, set: Option<&str>, family: &str, allowed: bool) -> Result<Held> {
    match (held, allowed) {
        (Some(Held::Off), _) => Ok(Held::Off),
        (Some(on @ Held::On { .. }), true) => Ok(on.clone()),
        (Some(Held::On { family: first }), false) => bail!(
            "family {family} forbids TF32 (`numerics {{ tf32 forbid }}`), but MLX already runs with it in this process, for \
             family {first}, which allows it: run {family} in a process of its own, or set {VARIABLE}=0 for both"
        ),
        (None, allowed) => match (set, allowed) {
            (Some(value), _) if off(value) => Ok(Held::Off),
            (Some(value), false) => bail!(
                "family {family} forbids TF32 (`numerics {{ tf32 forbid }}`), but {VARIABLE}={value} asks MLX for it: unset the \
                 variable, or write `tf32 allow` in a copy of the family"
            ),
            (None, false) => Ok(Held::Off),
            (Some(_) | None, true) => Ok(Held::On { family: family.to_owned() }),
        },
    }
}

/// As MLX reads it, by C's `atoi`: what does not begin with a number is 0.
fn off(value: &str) -> bool {
    let digits = value.trim_start().trim_start_matches(['+', '-']);
    digits.bytes().take_while(u8::is_ascii_digit).all(|digit| digit == b'0')
}

#[cfg(test)]
mod tests {
    use super::{Held, decide};

    #[test]
    fn what_forbids_tf32_wins_or_is_refused() {
        let on = || Held::On { family: "loose".into() };
        let cases = [
            (None, None, false, Some(Held::Off)),
            (None, None, true, Some(on())),
            (None, Some("0"), true, Some(Held::Off)),
            (None, Some("off"), false, Some(Held::Off)),
            (None, Some("00"), false, Some(Held::Off)),
            (None, Some("1"), true, Some(on())),
            (None, Some("1"), false, None),
            (None, Some(" 2x"), false, None),
            (Some(Held::Off), Some("0"), true, Some(Held::Off)),
            (Some(Held::Off), Some("0"), false, Some(Held::Off)),
            (Some(on()), None, true, Some(on())),
            (Some(on()), None, false, None),
            (Some(on()), Some("0"), false, None),
        ];
        for (held, set, allowed, expected) in cases {
            let decided = decide(held.as_ref(), set, if allowed { "loose" } else { "strict" }, allowed);
            assert_eq!(decided.as_ref().ok(), expected.as_ref(), "{held:?} {set:?} {allowed}");
            if let Err(error) = decided {
                assert!(error.to_string().contains("strict forbids TF32"), "{error}");
            }
        }
    }
}
