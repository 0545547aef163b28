//! Mutations that leave JSON what it is: values, and fields with their names, move, go, come twice, or come from bodies of the
//! corpus. Bytes are left to libFuzzer, which also changes what is no JSON.

use std::{fs, path::Path, sync::LazyLock};

use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Map, Value, json};

/// What is put in, beside all that the corpus has.
static DONORS: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
    let mut donors = Vec::new();
    for value in [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("\u{0}\n\"\\é😀"),
        json!("x".repeat(70)),
        json!([]),
        json!({}),
    ] {
        donors.push((String::new(), value));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/body");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = fs::read(entry.path()).unwrap_or_default();
        if let Ok(value) = serde_json::from_slice::<Value>(&text) {
            collect("", &value, &mut donors);
        }
    }
    donors
});

fn collect(name: &str, value: &Value, donors: &mut Vec<(String, Value)>) {
    donors.push((name.to_owned(), value.clone()));
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| collect(name, value, donors)),
        Value::Array(values) => values.iter().for_each(|value| collect("", value, donors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Changes `data[..size]` in place; the new size.
pub fn mutate(data: &mut [u8], size: usize, most: usize, seed: u32) -> usize {
    let mut random = Random(u64::from(seed) + 1);
    let read = serde_json::from_slice::<Value>(&data[..size]);
    let Some(mut body) = read.ok().filter(|_| random.below(4) > 0) else { return fuzzer_mutate(data, size, most) };
    for _ in 0..=random.below(3) {
        let count = count(&body);
        let mut at = random.below(count);
        change(&mut body, &mut at, &mut random);
    }
    let text = body.to_string();
    if text.len() > most {
        return fuzzer_mutate(data, size, most);
    }
    data[..text.len()].copy_from_slice(text.as_bytes());
    text.len()
}

/// Values in a value, itself among them.
fn count(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    1 + inner
}

/// Changes the value that is the `at`th, counted from the outside; whether it was found.
fn change(value: &mut Value, at: &mut usize, random: &mut Random) -> bool {
    if *at == 0 {
        once(value, random);
        return true;
    }
    *at -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().any(|value| change(value, at, random)),
        Value::Array(values) => values.iter_mut().any(|value| change(value, at, random)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn once(value: &mut Value, random: &mut Random) {
    let (name, donor) = &DONORS[random.below(DONORS.len())];
    match value {
        Value::Object(fields) if random.below(4) > 0 => field(fields, name, donor, random),
        Value::Array(values) if random.below(4) > 0 => match random.below(3) {
            0 if !values.is_empty() => drop(values.remove(random.below(values.len()))),
            1 if !values.is_empty() => values.push(values[random.below(values.len())].clone()),
            _ => values.insert(random.below(values.len() + 1), donor.clone()),
        },
        // The same kind of value, from a field of any name, is taken more often than another kind.
        _ => {
            let kind = std::mem::discriminant(value);
            let alike = (0..8).map(|_| &DONORS[random.below(DONORS.len())].1);
            let alike = alike.into_iter().find(|other| std::mem::discriminant(*other) == kind);
            *value = alike.unwrap_or(donor).clone();
        }
    }
}

fn field(fields: &mut Map<String, Value>, name: &str, donor: &Value, random: &mut Random) {
    let chosen = fields.keys().nth(random.below(fields.len())).cloned();
    match (random.below(4), chosen) {
        (0, Some(chosen)) => drop(fields.shift_remove(&chosen)),
        // Under another name.
        (1, Some(chosen)) => {
            let moved = fields.shift_remove(&chosen).unwrap_or_default();
            fields.insert(name.to_owned(), moved);
        }
        (2, Some(chosen)) => drop(fields.insert(chosen, donor.clone())),
        _ => drop(fields.insert(name.to_owned(), donor.clone())),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// Less than `most`; 0 where that is none.
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % most.max(1) as u64) as usize
    }
}
