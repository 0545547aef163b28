//! What the engine counts, through the facade `metrics`: whoever serves them installs a recorder. Names are those of vLLM where it
//! has the number, so that its dashboards show ours; `_total` is left to the exporter.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::request::Refusal;

pub const RUNNING: &str = "vllm:num_requests_running";
pub const WAITING: &str = "vllm:num_requests_waiting";
pub const CACHE_USE: &str = "vllm:kv_cache_usage_perc";
pub const PROMPT_TOKENS: &str = "vllm:prompt_tokens";
pub const ANSWER_TOKENS: &str = "vllm:generation_tokens";
pub const PREFIX_QUERIES: &str = "vllm:prefix_cache_queries";
pub const PREFIX_HITS: &str = "vllm:prefix_cache_hits";
pub const FINISHED: &str = "vllm:request_success";
pub const FIRST_TOKEN: &str = "vllm:time_to_first_token_seconds";
pub const BETWEEN_TOKENS: &str = "vllm:inter_token_latency_seconds";
pub const WHOLE: &str = "vllm:e2e_request_latency_seconds";
pub const QUEUED: &str = "vllm:request_queue_time_seconds";
pub const PREFILL: &str = "vllm:request_prefill_time_seconds";
pub const DECODE: &str = "vllm:request_decode_time_seconds";
pub const PREPARING: &str = "mlxcel:num_requests_preparing";
pub const GRAMMARS: &str = "mlxcel:grammars_compiled";
pub const REJECTED: &str = "mlxcel:requests_rejected";
pub const FAILED: &str = "mlxcel:requests_failed";

/// Gauges and counters, and what they say.
const COUNTS: [(&str, bool, &str); 12] = [
    (RUNNING, true, "Requests that hold a row of the session"),
    (WAITING, true, "Requests that wait for a row"),
    (PREPARING, true, "Requests whose bodies are read, tokenized and decoded: they have a place in the line"),
    (GRAMMARS, false, "Forms of answers that were compiled"),
    (CACHE_USE, true, "Share of all positions that hold states, 0 to 1"),
    (PROMPT_TOKENS, false, "Tokens of prompts whose states were computed"),
    (ANSWER_TOKENS, false, "Tokens that were generated"),
    (PREFIX_QUERIES, false, "Tokens of prompts that were looked up in what rows hold"),
    (PREFIX_HITS, false, "Tokens of prompts whose states were there already"),
    (FINISHED, false, "Answers, by what ended them"),
    (REJECTED, false, "Requests that were not taken, by reason"),
    (FAILED, false, "Requests that ended before their answer was complete, by reason"),
];

/// Histograms, in seconds.
const TIMES: [(&str, &str); 6] = [
    (FIRST_TOKEN, "From the request to its first token"),
    (BETWEEN_TOKENS, "From one token to the next"),
    (WHOLE, "From the request to the end of its answer"),
    (QUEUED, "From the request until it got a row"),
    (PREFILL, "Until the whole prompt was fed"),
    (DECODE, "From the first token to the last"),
];

/// Tells the installed recorder what the numbers mean.
pub fn describe() {
    for (name, is_gauge, what) in COUNTS {
        if is_gauge { describe_gauge!(name, what) } else { describe_counter!(name, what) }
    }
    for (name, what) in TIMES {
        describe_histogram!(name, Unit::Seconds, what);
    }
}

pub(super) fn load(running: usize, waiting: usize, cache: f64) {
    gauge!(RUNNING).set(running as f64);
    gauge!(WAITING).set(waiting as f64);
    gauge!(CACHE_USE).set(cache);
}

pub(super) fn preparing(count: usize) {
    gauge!(PREPARING).set(count as f64);
}

pub(super) fn grammar() {
    counter!(GRAMMARS).increment(1);
}

pub(super) fn begun(prompt: usize, kept: usize, queued: Duration) {
    counter!(PREFIX_QUERIES).increment(prompt as u64);
    counter!(PREFIX_HITS).increment(kept as u64);
    histogram!(QUEUED).record(queued);
}

pub(super) fn fed(tokens: usize) {
    counter!(PROMPT_TOKENS).increment(tokens as u64);
}

pub(super) fn token() {
    counter!(ANSWER_TOKENS).increment(1);
}

pub(super) fn first_token(since_request: Duration, prefill: Duration) {
    histogram!(FIRST_TOKEN).record(since_request);
    histogram!(PREFILL).record(prefill);
}

pub(super) fn next_token(since_last: Duration) {
    histogram!(BETWEEN_TOKENS).record(since_last);
}

pub(super) fn finished(reason: &'static str, whole: Duration, decode: Duration) {
    counter!(FINISHED, "finished_reason" => reason).increment(1);
    histogram!(WHOLE).record(whole);
    histogram!(DECODE).record(decode);
}

pub(super) fn rejected(refusal: &Refusal) {
    let reason = match refusal {
        Refusal::Loading(_) => "loading",
        Refusal::Draining => "draining",
        Refusal::Full { .. } => "full",
        Refusal::Crowded { .. } => "memory",
        Refusal::TooLarge { .. } => "too_large",
        Refusal::TooMany { .. } | Refusal::NeverFits { .. } | Refusal::TooLong { .. } => "never_fits",
        Refusal::Invalid(_) => "invalid",
        Refusal::Failed(_) => "failed",
    };
    counter!(REJECTED, "reason" => reason).increment(1);
}

pub(super) fn failed(reason: &'static str) {
    counter!(FAILED, "reason" => reason).increment(1);
}
