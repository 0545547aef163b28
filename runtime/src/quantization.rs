//! MLX affine quantization: which modules of a checkpoint are packed, and how codes lie in their words.
//!
//! A packed matrix `[rows, columns]` is stored as codes `weight: u32[rows, columns * bits / 32]`, `scales` and `biases`
//! `[rows, columns / group]`; element `j` of a row is `scales[j / group] * code[j] + biases[j / group]`. Codes follow one
//! another from the lowest bit of the first word up, without gaps, so 3, 5 and 6 bits straddle words
//! (MLX `mx.quantize`, documented with that layout).

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use thiserror::Error;

pub const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
pub const GROUPS: [u32; 3] = [32, 64, 128];

/// How one module is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affine {
    pub bits: u32,
    pub group: u32,
}

/// The `quantization` section of a config: a default, and modules that differ from it by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quantization {
    default: Option<Affine>,
    overrides: BTreeMap<String, Option<Affine>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantizationError {
    #[error("`{section}` is {found}; expected an object with `bits` and `group_size`")]
    NotObject { section: &'static str, found: String },
    #[error("`{at}.{key}` is {found}; expected one of {expected}")]
    Unsupported { at: String, key: &'static str, found: String, expected: String },
    #[error("`{at}.mode` is {found}; only MLX `affine` quantization is supported")]
    Mode { at: String, found: String },
    #[error(
        "`quantization_config.quant_method` is {0}; only checkpoints quantized by MLX (affine) can be \
         loaded, convert the unquantized checkpoint instead"
    )]
    Method(String),
}

impl Quantization {
    /// Reads `quantization`, or `quantization_config` where that is absent. A config with neither is dense.
    pub fn from_config(config: &Value) -> Result<Quantization, QuantizationError> {
        let present = |key| config.get(key).filter(|value| !value.is_null());
        let (section, value) = match (present("quantization"), present("quantization_config")) {
            (Some(value), _) => ("quantization", value),
            (None, Some(value)) => ("quantization_config", value),
            (None, None) => return Ok(Quantization::default()),
        };
        let Value::Object(map) = value else {
            return Err(QuantizationError::NotObject { section, found: value.to_string() });
        };
        if let Some(method) = map.get("quant_method") {
            return Err(QuantizationError::Method(method.to_string()));
        }
        let default = affine(section, map)?;
        let mut overrides = BTreeMap::new();
        for (path, value) in map {
            match value {
                Value::Bool(false) => overrides.insert(path.clone(), None),
                Value::Object(entry) => {
                    overrides.insert(path.clone(), Some(affine(&format!("{section}.{path}"), entry)?))
                }
                // `true` restates the default; numbers and strings are the default's own fields.
                Value::Bool(true) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => continue,
            };
        }
        Ok(Quantization { default: Some(default), overrides })
    }

    /// How the module at `path` (such as `model.layers.0.mlp.up_proj`) is packed if it is; `None` means dense.
    /// The default applies to every module without an entry, whether or not its tensors turn out to be packed.
    pub fn for_path(&self, path: &str) -> Option<Affine> {
        self.overrides.get(path).copied().unwrap_or(self.default)
    }

    pub fn is_dense(&self) -> bool {
        self.default.is_none()
    }
}

fn affine(at: &str, map: &Map<String, Value>) -> Result<Affine, QuantizationError> {
    if let Some(mode) = map.get("mode").filter(|mode| mode.as_str() != Some("affine")) {
        return Err(QuantizationError::Mode { at: at.to_owned(), found: mode.to_string() });
    }
    let field = |key: &'static str, allowed: &[u32]| {
        let value = map.get(key).and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
        value.filter(|value| allowed.contains(value)).ok_or_else(|| QuantizationError::Unsupported {
            at: at.to_owned(),
            key,
            found: map.get(key).map_or("absent".to_owned(), Value::to_string),
            expected: allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        })
    };
    Ok(Affine { bits: field("bits", &BITS)?, group: field("group_size", &GROUPS)? })
}

/// Packs codes of `bits` bits each; higher bits of a code are dropped. A last, partly used word is padded with zeros.
pub fn pack(codes: &[u8], bits: u32) -> Vec<u32> {
    let mut words = Vec::with_capacity((codes.len() * bits as usize).div_ceil(32));
    let (mut window, mut filled) = (0u64, 0);
    for &code in codes {
        window |= (u64::from(code) & mask(bits)) << filled;
        filled += bits;
        if filled >= 32 {
            words.push(window as u32);
            window >>= 32;
            filled -= 32;
        }
    }
    if filled > 0 {
        words.push(window as u32);
    }
    words
}

/// Takes the first `count` codes of `bits` bits each out of their words; fewer when the words end before.
pub fn unpack(words: &[u32], bits: u32, count: usize) -> Vec<u8> {
    let mut codes = Vec::with_capacity(count.min(words.len() * 32 / bits.max(1) as usize));
    let (mut window, mut filled) = (0u64, 0);
    let mut words = words.iter();
    while codes.len() < count {
        if filled < bits {
            let Some(&word) = words.next() else { break };
            window |= u64::from(word) << filled;
            filled += 32;
        }
        codes.push((window & mask(bits)) as u8);
        window >>= bits;
        filled -= bits;
    }
    codes
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn codes_lie_without_gaps_from_the_lowest_bit() {
        assert_eq!(pack(&[1, 2, 3, 4, 5, 6, 7, 8], 4), [0x8765_4321]);
        assert_eq!(pack(&[7; 11], 3), [u32::MAX, 1]);
        assert_eq!(pack(&[0, 0, 0, 0, 0, 0b110101], 6), [0b01 << 30, 0b1101]);
    }

    #[test]
    fn unpack_undoes_pack_for_every_width() {
        for bits in BITS {
            let codes: Vec<u8> = (0..96u32).map(|i| ((i * 37 + 11) & mask(bits) as u32) as u8).collect();
            let words = pack(&codes, bits);
            assert_eq!(words.len(), 3 * bits as usize, "{bits} bits");
            assert_eq!(unpack(&words, bits, codes.len()), codes, "{bits} bits");
        }
    }

    #[test]
    fn overrides_win_and_false_means_dense() {
        let config = json!({"quantization": {
            "group_size": 32, "bits": 4, "mode": "affine",
            "model.embed_tokens": {"group_size": 64, "bits": 8},
            "lm_head": false,
        }});
        let quantization = Quantization::from_config(&config).expect("a valid section");
        assert_eq!(quantization.for_path("model.norm"), Some(Affine { bits: 4, group: 32 }));
        assert_eq!(quantization.for_path("model.embed_tokens"), Some(Affine { bits: 8, group: 64 }));
        assert_eq!(quantization.for_path("lm_head"), None);
    }

    #[test]
    fn a_config_without_the_section_is_dense() {
        let quantization = Quantization::from_config(&json!({"quantization": null})).expect("dense");
        assert!(quantization.is_dense());
        assert_eq!(quantization.for_path("lm_head"), None);
    }

    #[test]
    fn unsupported_settings_are_named() {
        let message = |config| Quantization::from_config(&config).expect_err("must be refused").to_string();
        assert_eq!(
            message(json!({"quantization": {"group_size": 32, "bits": 7}})),
            "`quantization.bits` is 7; expected one of 2, 3, 4, 5, 6, 8"
        );
        assert!(message(json!({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}})).contains("mxfp4"));
        assert!(message(json!({"quantization_config": {"quant_method": "gptq", "bits": 4}})).contains("gptq"));
    }
}
