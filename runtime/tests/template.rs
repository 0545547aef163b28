//! Chat templates against what `transformers` renders: see `fixtures/template/README.md`.

use std::path::Path;

use mgraph_runtime::template::{ChatTemplate, Clock, Conversation, Message, TemplateError};
use serde_json::{Map, Value};

fn default(source: &str) -> [(String, String); 1] {
    [("default".to_owned(), source.to_owned())]
}

fn compile(source: &str, special_tokens: Map<String, Value>) -> Result<ChatTemplate, TemplateError> {
    let clock = Clock::Fixed("2024-07-26T09:05:03+00:00[UTC]".parse().expect("a date"));
    ChatTemplate::compile(Path::new("tokenizer_config.json"), default(source), special_tokens, clock)
}

fn render(case: &Value) -> Result<String, TemplateError> {
    let list = |key: &str| case[key].as_array().map(Vec::as_slice);
    let object = |key: &str| case[key].as_object().cloned().unwrap_or_default();
    let variables = object("variables");
    let template = compile(case["template"].as_str().expect("a template"), object("special_tokens"))?;
    template.render_conversation(&Conversation {
        messages: list("messages").expect("messages"),
        tools: list("tools"),
        documents: list("documents"),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap_or(false),
        variables: Some(&variables),
    })
}

#[test]
fn every_case_renders_as_in_transformers() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("fixtures/template/cases.json")).expect("the fixture is JSON");
    let mut wrong = Vec::new();
    for case in &cases {
        let outcome = render(case);
        let right = match (&outcome, case["expected"].as_str(), case["raises"].as_str()) {
            (Ok(text), Some(expected), _) => text == expected,
            (Err(TemplateError::Raised(message)), _, Some(raised)) => message == raised,
            (Err(TemplateError::Failed { .. }), _, _) => case["fails"].is_string(),
            _ => false,
        };
        if !right {
            let expected = [&case["expected"], &case["raises"], &case["fails"]].map(|value| value.as_str());
            wrong.push(format!("{}\n  expected {expected:?}\n  got {outcome:?}", case["name"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_raised_message_reaches_the_user() {
    let template = compile("{{ raise_exception('no system role, please') }}", Map::new()).expect("a valid template");
    let error = template.render(&[Message::user("x")], true).expect_err("it raises");
    assert_eq!(error.to_string(), "the chat template refuses this conversation: no system role, please");
}

#[test]
fn an_endless_template_ends() {
    let endless = "{% macro f(n) %}{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}{% endmacro %}{{ f(1) }}";
    let template = compile(endless, Map::new()).expect("a valid template");
    let error = template.render(&[], false).expect_err("out of fuel");
    assert!(error.to_string().contains("allowance"), "{error}");
}

#[test]
fn a_template_that_fills_memory_is_refused() {
    let loops = |body: &str| {
        format!("{{% for i in range(9999) %}}{{% for j in range(99) %}}{body}{{% endfor %}}{{% endfor %}}")
    };
    let twice = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    let deep = "{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let cases = [
        (loops(&"x".repeat(1000)), "bytes of text"),
        (loops("{{ 'x' * 1000 }}"), "bytes of text"),
        (format!("{twice}{{{{ ns.x }}}}"), "bytes of text"),
        (format!("{twice}{{{{ ns.x | tojson }}}}"), "bytes of text"),
        (format!("{deep}{{{{ ns.x }}}}"), "nested too deeply"),
        (format!("{deep}{{{{ ns.x | tojson }}}}"), "nested too deeply"),
        ("{{ [1] | tojson(indent='x' * 2000) }}".to_owned(), "width of 2000"),
        ("{{ [1] | tojson(separators=['x' * 2000, '']) }}".to_owned(), "width of 2000"),
        ("{{ 'x\ny' | indent(99999999999) }}".to_owned(), "width of 99999999999"),
        ("{{ '%99999999999d' | format(1) }}".to_owned(), "width of 99999999999"),
        ("{{ 'x'.ljust(99999999999) }}".to_owned(), "width of 99999999999"),
        ("{{ '1'.zfill(99999999999) }}".to_owned(), "width of 99999999999"),
        ("{{ '{:>99999999999}'.format(1) }}".to_owned(), "width of 99999999999"),
        ("{{ range(99999) | join('x' * 1000) }}".to_owned(), "bytes of text"),
    ];
    for (source, told) in cases {
        let template = compile(&source, Map::new()).expect("a valid template");
        let error = template.render(&[], false).expect_err("too much").to_string();
        assert!(error.contains(told), "{source:.80}: {error}");
    }
    // A huge indent alone is clamped, as Python's own readers of such templates would wait for it.
    let text = compile("{{ [1] | tojson(indent=99999999999) }}", Map::new()).expect("valid").render(&[], false);
    assert_eq!(text.expect("short"), format!("[\n{}1\n]", " ".repeat(64)));
    let text = compile("{{ 'a\n\nb\n' | indent(2, first=true) }}|{{ 'a\nb' | indent }}", Map::new()).expect("valid");
    assert_eq!(text.render(&[], false).expect("short"), "  a\n\n  b|a\n    b");
}

#[test]
fn operators_and_branches_in_a_row_do_not_overflow_the_stack() {
    let minus = format!("{{{{ {}1 }}}}{{{{ x }}}}", "-".repeat(120_000));
    let branches = format!("{{% if x %}}{}{{% endif %}}", "{%elif 0%}".repeat(12_000));
    for source in [&minus, &branches] {
        let template = compile(source, Map::new()).expect("a valid template");
        assert!(template.reads("x", false) && !template.reads("y", false));
        let text = template.render(&[], false).expect("it renders");
        assert_eq!(text, if source == &minus { "1" } else { "" });
    }
    let error = compile(&"-".repeat(200_000), Map::new()).expect_err("it is too long");
    assert!(error.to_string().contains("200000 bytes"), "{error}");
}

#[test]
fn a_broken_template_names_file_and_line() {
    let error = compile("line one\n{% if %}", Map::new()).expect_err("a syntax error");
    let text = error.to_string();
    assert!(text.contains("tokenizer_config.json") && text.contains("default:2"), "{text}");
}

#[test]
fn templates_are_found_where_models_keep_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("tokenizer_config.json");
    assert!(ChatTemplate::open(dir.path()).expect("no template").is_none());

    std::fs::write(&config, r#"{"chat_template": "string {{ bos_token }}", "bos_token": {"content": "<s>"}}"#)
        .expect("written");
    let open = || ChatTemplate::open(dir.path()).expect("readable").expect("a template");
    assert_eq!(open().render(&[], false).expect("renders"), "string <s>");

    let named =
        r#"{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}"#;
    std::fs::write(&config, named).expect("written");
    assert_eq!(open().render(&[], false).expect("renders"), "plain");
    let tools = Conversation { tools: Some(&[]), ..Conversation::default() };
    assert_eq!(open().render_conversation(&tools).expect("renders"), "tools");

    std::fs::write(dir.path().join("chat_template.jinja"), "file").expect("written");
    assert_eq!(open().render(&[], false).expect("renders"), "file");

    std::fs::remove_file(dir.path().join("chat_template.jinja")).expect("removed");
    std::fs::write(&config, r#"{"chat_template": 3}"#).expect("written");
    assert!(matches!(ChatTemplate::open(dir.path()), Err(TemplateError::Form(_))));
}
