//! Passes over the logits of one row: every token that is sampled pays for them.

/// The first logit that no sampler can use: NaN, or positive infinity.
pub fn first_unusable(logits: &[f32]) -> Option<(usize, f32)> {
    logits.iter().copied().enumerate().find(|(_, x)| x.is_nan() || *x == f32::INFINITY)
}

/// The lowest id among the largest logits; `None` when there is none above `-inf`.
pub fn largest(logits: &[f32]) -> Option<(u32, f32)> {
    let mut best: Option<(u32, f32)> = None;
    for (token, &logit) in (0u32..).zip(logits) {
        if logit > best.map_or(f32::NEG_INFINITY, |(_, logit)| logit) {
            best = Some((token, logit));
        }
    }
    best
}

/// The `count` largest logits above `-inf` and their ids, largest first, equals by id.
pub fn likeliest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    // Adding 0 makes one of the two zeros, which are equal.
    let order = |a: &(u32, f32), b: &(u32, f32)| (b.1 + 0.0).total_cmp(&(a.1 + 0.0)).then(a.0.cmp(&b.0));
    let mut found: Vec<(u32, f32)> =
        (0u32..).zip(logits.iter().copied()).filter(|(_, logit)| *logit > f32::NEG_INFINITY).collect();
    if count < found.len() {
        if count > 0 {
            found.select_nth_unstable_by(count - 1, order);
        }
        found.truncate(count);
    }
    found.sort_unstable_by(order);
    found
}

/// The natural logarithm of the sum of exponentials, in f64, in the order of the ids.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let Some((_, best)) = largest(logits) else { return f64::NEG_INFINITY };
    let best = f64::from(best);
    let sum: f64 = logits.iter().map(|logit| libm::exp(f64::from(*logit) - best)).sum();
    best + libm::log(sum)
}

/// The weight of a logit beside the largest one, at a temperature above 0: 1 for the largest.
pub fn weight(logit: f32, best: f32, temperature: f32) -> f64 {
    libm::exp((f64::from(logit) - f64::from(best)) / f64::from(temperature))
}

/// The sum of all weights, in the order of the ids.
pub fn weights(logits: &[f32], best: f32, temperature: f32) -> f64 {
    logits.iter().map(|logit| weight(*logit, best, temperature)).sum()
}

/// Rules out every token whose bit is not set; ids beyond the words are ruled out too.
pub fn keep_only(logits: &mut [f32], allowed: &[u32]) {
    let mut words = allowed.iter().copied();
    for chunk in logits.chunks_mut(32) {
        let word = words.next().unwrap_or(0);
        if word != u32::MAX {
            for (bit, logit) in chunk.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f32 = f32::NEG_INFINITY;

    #[test]
    fn equals_are_ordered_by_id() {
        let logits = [1.0, 3.0, NONE, 3.0, -2.0];
        assert_eq!(largest(&logits), Some((1, 3.0)));
        assert_eq!(likeliest(&logits, 3), [(1, 3.0), (3, 3.0), (0, 1.0)]);
        assert_eq!(likeliest(&logits, 9).len(), 4);
        assert_eq!(likeliest(&logits, 0), []);
        assert_eq!((largest(&[NONE]), likeliest(&[NONE], 2)), (None, Vec::new()));
        let ids = |logits: &[f32]| likeliest(logits, 2).into_iter().map(|(token, _)| token).collect::<Vec<_>>();
        assert_eq!([ids(&[-0.0, 0.0, 0.0]), ids(&[0.0, -0.0, -1.0])], [[0, 1], [0, 1]]);
    }

    #[test]
    fn a_mask_keeps_its_bits_and_nothing_beyond() {
        let mut logits = vec![1.0; 70];
        keep_only(&mut logits, &[u32::MAX, 0b101]);
        let kept: Vec<usize> = (0..70).filter(|i| logits[*i] > NONE).collect();
        assert_eq!(kept, (0..33).chain([34]).collect::<Vec<_>>());
    }

    #[test]
    fn logarithms_of_sums() {
        assert!((log_sum_exp(&[0.0, 0.0, NONE]) - 2f64.ln()).abs() < 1e-15);
        assert!((log_sum_exp(&[1000.0, -1000.0]) - 1000.0).abs() < 1e-12);
        assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
    }

    #[test]
    fn what_cannot_be_used_is_found() {
        assert!(first_unusable(&[0.0, f32::NAN]).is_some_and(|(at, _)| at == 1));
        assert_eq!(first_unusable(&[NONE, f32::INFINITY]), Some((1, f32::INFINITY)));
        assert_eq!(first_unusable(&[NONE, 1.0]), None);
    }
}
