//! One streamed chat completion, read as it comes.

use std::{
    io::{BufRead, BufReader},
    time::{Duration, Instant},
};

use mgraph_runtime::error::{Context, Result, bail};
use serde_json::{Value, json};

/// Ends of SmolLM2's answers, `<|endoftext|>` and `<|im_end|>`, which no answer may choose: each has all its tokens.
const ENDS: [&str; 2] = ["0", "2"];

pub struct Ask<'a> {
    pub server: &'a str,
    pub prompt: String,
    pub max_tokens: usize,
    /// Where reading ends, whether or not the answer does.
    pub until: Instant,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Answer {
    /// When text came.
    pub times: Vec<Instant>,
    /// Of a complete answer: tokens of prompt and answer, as the server counts them.
    pub usage: Option<(u64, u64)>,
}

/// Errors: whatever the server does but answer; to be slow is none.
pub fn ask(ask: &Ask<'_>) -> Result<Answer> {
    let mut answer = Answer::default();
    match read(ask, &mut answer) {
        Err(_) if Instant::now() >= ask.until => Ok(answer),
        Err(error) => Err(error),
        Ok(()) => Ok(answer),
    }
}

fn read(ask: &Ask<'_>, answer: &mut Answer) -> Result<()> {
    let body = json!({
        "messages": [{ "role": "system", "content": "You tell stories." }, { "role": "user", "content": ask.prompt }],
        "max_tokens": ask.max_tokens,
        "temperature": 0.0,
        "logit_bias": { ENDS[0]: -100.0, ENDS[1]: -100.0 },
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    let left = ask.until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut response = ureq::post(format!("http://{}/v1/chat/completions", ask.server))
        .config()
        .timeout_global(Some(left))
        .build()
        .content_type("application/json")
        .send(body.to_string())
        .context("asking")?;
    for line in BufReader::new(response.body_mut().as_reader()).lines() {
        let line = line.context("reading the answer")?;
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            return if answer.usage.is_some() { Ok(()) } else { bail!("the answer ended without its usage") };
        }
        let event: Value = serde_json::from_str(data).with_context(|| format!("an event that is no JSON: {data}"))?;
        if let Some(error) = event.get("error") {
            bail!("the stream failed: {error}");
        }
        if event["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty()) {
            answer.times.push(Instant::now());
        }
        let count = |name: &str| event["usage"][name].as_u64();
        answer.usage = count("prompt_tokens").zip(count("completion_tokens")).or(answer.usage);
    }
    bail!("the answer ended before its end")
}
