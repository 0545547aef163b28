//! `rope_freqs.weight`: llama.cpp stores the outcome of Llama 3's frequency scaling, not its four parameters. They are
//! recovered by computing the outcome for the values every Llama 3 release uses and comparing all of it.

use serde_json::{Value, json};

const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;
const CONTEXT: u64 = 8192;

/// The `rope_scaling` of config.json whose divisors are `stored` (one per pair of a head), or a sentence why there is none.
/// `context` is the file's own `rope.scaling.original_context_length`, where it has one.
pub(super) fn scaling(stored: &[f32], theta: f64, context: Option<u64>) -> Result<Value, String> {
    if stored.iter().all(|&divisor| divisor == 1.0) {
        return Ok(Value::Null);
    }
    let factor = f64::from(stored.iter().copied().fold(1.0, f32::max));
    let context = context.unwrap_or(CONTEXT);
    let head_dim = 2 * stored.len();
    for (pair, &found) in stored.iter().enumerate() {
        let wavelength = 2.0 * std::f64::consts::PI * theta.powf(2.0 * pair as f64 / head_dim as f64);
        let expected = divisor(wavelength, factor, context as f64);
        // The file's numbers went through f32 arithmetic.
        if (f64::from(found) - expected).abs() > 1e-4 * expected {
            return Err(format!(
                "`rope_freqs.weight` is no Llama 3 scaling by {factor} (low 1, high 4, context {context}): pair {pair} \
                 is divided by {found}, expected {expected}"
            ));
        }
    }
    Ok(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": context,
    }))
}

/// `generate_extra_tensors` of llama.cpp's converter; the formula is Llama 3.1's.
fn divisor(wavelength: f64, factor: f64, context: f64) -> f64 {
    if wavelength < context / HIGH {
        1.0
    } else if wavelength > context / LOW {
        factor
    } else {
        let smooth = (context / wavelength - LOW) / (HIGH - LOW);
        1.0 / ((1.0 - smooth) / factor + smooth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divisors(factor: f64, theta: f64, context: f64) -> Vec<f32> {
        let wavelength = |pair: i32| 2.0 * std::f64::consts::PI * theta.powf(f64::from(pair) / 32.0);
        (0..32).map(|pair| divisor(wavelength(pair), factor, context) as f32).collect()
    }

    #[test]
    fn the_parameters_come_back_from_the_divisors() {
        let scaling = scaling(&divisors(32.0, 5e5, 8192.0), 5e5, None).expect("llama 3.2's scaling");
        assert_eq!(scaling["factor"], 32.0);
        assert_eq!(scaling["original_max_position_embeddings"], 8192);
    }

    #[test]
    fn other_divisors_are_refused() {
        let mut stored = divisors(8.0, 5e5, 8192.0);
        stored[16] *= 1.01;
        assert!(scaling(&stored, 5e5, None).expect_err("not llama 3").contains("pair 16"));
        assert_eq!(scaling(&[1.0; 32], 5e5, None), Ok(Value::Null));
    }
}
