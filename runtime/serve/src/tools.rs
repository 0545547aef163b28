//! Tools: how a template's model is told of them, how it writes a call, how a call is forced, and how calls are read out of an
//! answer while it streams. Each form that models write is one row of [`FORMS`].

use serde_json::{Map, Value, json};

use crate::{
    api::chat::{Choice, Function, Tools},
    engine::guided,
};

/// How a model writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// What a chat template says that tells its model to write so.
    pub sign: &'static str,
    /// What stands around a call; both empty where the whole answer is the call, or a list of calls.
    pub open: &'static str,
    pub close: &'static str,
    /// The key of the arguments, beside `name`.
    pub arguments: &'static str,
    pub models: &'static str,
}

/// In the order in which they are looked for.
pub const FORMS: &[Form] = &[
    Form {
        sign: "<tool_call>",
        open: "<tool_call>",
        close: "</tool_call>",
        arguments: "arguments",
        models: "Hermes, Qwen 2.5 and 3, SmolLM 3",
    },
    Form { sign: "[TOOL_CALLS]", open: "", close: "", arguments: "arguments", models: "Mistral" },
    Form { sign: "\"parameters\"", open: "", close: "", arguments: "parameters", models: "Llama 3.1 and 3.2" },
];

/// A call by another form inside the same signs (Qwen 3 Coder).
const FOREIGN: &str = "<function=";

/// What a chat template makes of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It lists them, and its model writes calls in this form.
    Template(Form),
    /// It has no place for them: they are listed in a message, in the first form.
    Written(Form),
    /// It lists them, for calls in a form that is not read.
    Unread,
}

impl Told {
    /// `lists`: whether the template reads `tools`.
    pub fn of(template: &str, lists: bool) -> Told {
        match FORMS.iter().find(|form| template.contains(form.sign)) {
            Some(_) if lists && template.contains(FOREIGN) => Told::Unread,
            Some(form) if lists => Told::Template(*form),
            None if lists => Told::Unread,
            Some(_) | None => Told::Written(FORMS[0]),
        }
    }
}

/// What the list of tools begins with.
pub const LIST: &str = "<tools>";

/// The message that lists tools for a template that has no place for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    System,
    /// The first of the user, for templates that refuse a system message.
    User,
}

/// Messages for a template that has no place for tools: they are listed in a message, calls and their answers are text.
pub fn written_out(messages: Vec<Value>, tools: &Tools, form: Form, listed: Listed) -> Vec<Value> {
    let mut list =
        format!("You may call functions. They are listed here, each as JSON with a schema of its arguments:\n{LIST}\n");
    for tool in &tools.listed {
        list.push_str(&format!("{tool}\n"));
    }
    list.push_str(&format!(
        "</tools>\nTo call one, write:\n{}\n{{\"name\": NAME, {:?}: ARGUMENTS}}\n{}",
        form.open, form.arguments, form.close
    ));
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let mut told: Vec<Value> = Vec::new();
    let mut rest = messages.into_iter().peekable();
    match listed {
        Listed::System => {
            let system = rest.next_if(|message| message["role"] == "system").map(|message| text(&message) + "\n\n");
            told.push(json!({"role": "system", "content": system.unwrap_or_default() + &list}));
        }
        Listed::User => told.push(json!({"role": "user", "content": list})),
    }
    // Whether the last message is the user's by our hand: what follows of theirs is part of it, for templates where roles alternate.
    let mut open = listed == Listed::User;
    for mut message in rest {
        let mut ours = false;
        if let Some(Value::Array(calls)) = message.get("tool_calls") {
            let mut content = text(&message);
            for call in calls {
                let function = &call["function"];
                let call = json!({"name": function["name"], form.arguments: function["arguments"]});
                let newline = if content.is_empty() { "" } else { "\n" };
                content.push_str(&format!("{newline}{}\n{call}\n{}", form.open, form.close));
            }
            message = json!({"role": "assistant", "content": content});
        } else if message["role"] == "tool" {
            let content = format!("<tool_response>\n{}\n</tool_response>", text(&message));
            message = json!({"role": "user", "content": content});
            ours = true;
        }
        let is_user = message["role"] == "user";
        match told.last_mut().filter(|_| open && is_user) {
            Some(before) => before["content"] = joined(before["content"].take(), message["content"].take()),
            None => told.push(message),
        }
        open = ours;
    }
    told
}

/// One content of two, each a text or parts.
fn joined(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::String(first), Value::String(second)) => format!("{first}\n\n{second}").into(),
        (first, second) => {
            let parts = |content: Value| match content {
                Value::Array(parts) => parts,
                text => vec![json!({"type": "text", "text": text})],
            };
            [parts(first), parts(second)].concat().into()
        }
    }
}

/// The grammar of an answer that must be a call, in the notation of `llguidance`; `None` where none is forced.
///
/// Each schema is a root of its own, so that references inside it are found.
pub fn forced(tools: &Tools, form: Form) -> Option<String> {
    let allowed: Vec<&Function> = match &tools.choice {
        Choice::Auto => return None,
        Choice::Required => tools.functions.iter().collect(),
        Choice::Named(name) => tools.functions.iter().filter(|function| function.name == *name).collect(),
    };
    // A list of calls where the form has no signs around each is left to models that write it by themselves.
    let repeated = tools.several && tools.choice == Choice::Required && !form.open.is_empty();
    let around = |sign: &str| if sign.is_empty() { String::new() } else { Value::from(sign).to_string() };
    let newline = if form.open.is_empty() { "" } else { "\"\\n\"" };
    let mut grammar = format!(
        "start: call{}\ncall: {} {newline} ({}) {newline} {}\n",
        if repeated { " (\"\\n\" call)*" } else { "" },
        around(form.open),
        (0..allowed.len()).map(|at| format!("call_{at}")).collect::<Vec<_>>().join(" | "),
        around(form.close),
    );
    for (at, function) in allowed.iter().enumerate() {
        let begin = format!("{{\"name\": {}, {:?}: ", Value::from(function.name.as_str()), form.arguments);
        let schema = function.parameters.clone().unwrap_or_else(any_object);
        let schema = guided(&Value::Object(schema));
        grammar.push_str(&format!("call_{at}: {} args_{at} \"}}\"\nargs_{at}: %json {schema}\n", Value::from(begin)));
    }
    Some(grammar)
}

fn any_object() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), Value::from("object"))])
}

/// A call as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// JSON, as text.
    pub arguments: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Text(String),
    Call(Call),
}

/// Reads calls out of an answer that arrives in pieces. However it is cut, the same is read.
#[derive(Debug, Clone)]
pub struct Reader {
    /// None: there are no tools, all is text.
    form: Option<Form>,
    names: Vec<String>,
    most: usize,
    held: String,
    within: bool,
    /// White space before the sign that is open: part of a call, and text where it turns out that there is none.
    space: String,
    /// Something that is no white space was given out, so the answer as a whole is no call.
    begun: bool,
}

impl Reader {
    pub fn new(tools: Option<(&Tools, Form)>) -> Reader {
        let names = tools.map(|(tools, _)| tools.functions.iter().map(|function| function.name.clone()).collect());
        Reader {
            form: tools.map(|(_, form)| form),
            names: names.unwrap_or_default(),
            most: if tools.is_some_and(|(tools, _)| tools.several) { usize::MAX } else { 1 },
            held: String::new(),
            within: false,
            space: String::new(),
            begun: false,
        }
    }

    pub fn push(&mut self, piece: &str) -> Vec<Said> {
        let Some(form) = self.form else { return text(piece.to_owned()) };
        self.held.push_str(piece);
        if form.open.is_empty() { self.whole() } else { self.signed(form) }
    }

    /// What was held back when the answer ends.
    pub fn finish(&mut self) -> Vec<Said> {
        let held = std::mem::take(&mut self.held);
        let Some(form) = self.form else { return text(held) };
        let calls = match (form.open.is_empty(), self.within) {
            (true, _) if self.begun => None,
            (true, _) => self.calls(&held, form),
            (false, true) => self.calls(&held, form),
            (false, false) => None,
        };
        match calls {
            Some(calls) => calls,
            None if self.within => text(format!("{}{}{held}", self.space, form.open)),
            None => text(held),
        }
    }

    /// The answer as a whole may be a call as long as it looks like JSON.
    fn whole(&mut self) -> Vec<Said> {
        match self.held.trim_start().chars().next() {
            None | Some('{' | '[') if !self.begun => Vec::new(),
            None | Some(_) => {
                self.begun = true;
                text(std::mem::take(&mut self.held))
            }
        }
    }

    fn signed(&mut self, form: Form) -> Vec<Said> {
        let mut said = Vec::new();
        loop {
            let sign = if self.within { form.close } else { form.open };
            let Some(at) = self.held.find(sign) else { break };
            let rest = self.held.split_off(at + sign.len());
            let mut before = std::mem::replace(&mut self.held, rest);
            before.truncate(at);
            if self.within {
                let calls = self.calls(&before, form);
                let space = std::mem::take(&mut self.space);
                said.extend(calls.unwrap_or_else(|| text(format!("{space}{}{before}{}", form.open, form.close))));
            } else {
                self.space = before.split_off(before.trim_end().len());
                said.extend(text(before));
            }
            self.within = !self.within;
        }
        if !self.within {
            let kept = beginning(&self.held, form.open);
            let free = &self.held[..self.held.len() - kept];
            let free = free.trim_end().len();
            let rest = self.held.split_off(free);
            said.extend(text(std::mem::replace(&mut self.held, rest)));
        }
        said
    }

    fn calls(&mut self, json: &str, form: Form) -> Option<Vec<Said>> {
        let value: Value = serde_json::from_str(json.trim()).ok()?;
        let listed = match value {
            Value::Array(calls) => calls,
            one => vec![one],
        };
        let call = |call: &Value| {
            let name = call.get("name")?.as_str()?.to_owned();
            let arguments = call.get(form.arguments).filter(|arguments| arguments.is_object())?.to_string();
            self.names.contains(&name).then_some(Said::Call(Call { name, arguments }))
        };
        let mut calls: Vec<Said> = listed.iter().map(call).collect::<Option<_>>()?;
        if calls.is_empty() {
            return None;
        }
        calls.truncate(self.most);
        self.most -= calls.len();
        Some(calls)
    }
}

fn text(text: String) -> Vec<Said> {
    if text.is_empty() { Vec::new() } else { vec![Said::Text(text)] }
}

/// How many bytes at the end of `text` are the beginning of `sign`.
fn beginning(text: &str, sign: &str) -> usize {
    let most = text.len().min(sign.len().saturating_sub(1));
    (1..=most).rev().find(|length| text.as_bytes().ends_with(&sign.as_bytes()[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Call, FORMS, Form, Listed, Reader, Said, Told, forced, written_out};
    use crate::api::chat::{Choice, Function, Tools};

    fn tools(choice: Choice) -> Tools {
        let function = |name: &str| Function { name: name.into(), description: None, parameters: None, strict: None };
        let listed = vec![json!({"type": "function", "function": {"name": "f"}})];
        Tools { functions: vec![function("f"), function("g")], listed, choice, several: true }
    }

    fn call(name: &str, arguments: &str) -> Said {
        Said::Call(Call { name: name.into(), arguments: arguments.into() })
    }

    fn say(text: &str) -> Said {
        Said::Text(text.into())
    }

    /// Neighbouring texts are one.
    fn joined(said: Vec<Said>) -> Vec<Said> {
        let mut out: Vec<Said> = Vec::new();
        for one in said {
            match (out.last_mut(), one) {
                (Some(Said::Text(before)), Said::Text(more)) => before.push_str(&more),
                (_, one) => out.push(one),
            }
        }
        out
    }

    fn read(form: Form, answer: &str, cuts: usize) -> Vec<Said> {
        let tools = tools(Choice::Auto);
        let mut reader = Reader::new(Some((&tools, form)));
        let characters: Vec<char> = answer.chars().collect();
        let mut said = Vec::new();
        for piece in characters.chunks(cuts) {
            said.extend(reader.push(&piece.iter().collect::<String>()));
        }
        said.extend(reader.finish());
        joined(said)
    }

    #[test]
    fn calls_are_read_however_the_answer_is_cut() {
        let [hermes, mistral, llama] = [FORMS[0], FORMS[1], FORMS[2]];
        let cases: [(Form, &str, Vec<Said>); 12] = [
            (hermes, "a < b, and <tool is text", vec![say("a < b, and <tool is text")]),
            (
                hermes,
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
                vec![call("f", "{\"x\":1}")],
            ),
            (
                hermes,
                "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>\n",
                vec![say("I look."), call("f", "{}"), call("g", "{}"), say("\n")],
            ),
            // The answer ended before the sign did.
            (hermes, "<tool_call>{\"name\":\"g\",\"arguments\":{}}", vec![call("g", "{}")]),
            // No such tool, and no JSON.
            (
                hermes,
                "<tool_call>{\"name\":\"h\",\"arguments\":{}}</tool_call>",
                vec![say("<tool_call>{\"name\":\"h\",\"arguments\":{}}</tool_call>")],
            ),
            (hermes, "a <tool_call>f(1)</tool_call>é", vec![say("a <tool_call>f(1)</tool_call>é")]),
            (hermes, "a\n<tool_call>", vec![say("a\n<tool_call>")]),
            (hermes, "<tool_call>{\"name\":", vec![say("<tool_call>{\"name\":")]),
            (llama, " {\"name\": \"f\", \"parameters\": {\"x\": \"é\"}}", vec![call("f", "{\"x\":\"é\"}")]),
            (llama, "{ is a brace", vec![say("{ is a brace")]),
            (
                mistral,
                "[{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":{}}]",
                vec![call("f", "{}"), call("g", "{}")],
            ),
            (
                mistral,
                "words [{\"name\":\"f\",\"arguments\":{}}]",
                vec![say("words [{\"name\":\"f\",\"arguments\":{}}]")],
            ),
        ];
        for (form, answer, said) in cases {
            for cuts in [1, 2, 3, 7, 1000] {
                assert_eq!(read(form, answer, cuts), said, "{answer:?} in pieces of {cuts}");
            }
        }
    }

    #[test]
    fn a_template_says_how_its_model_calls() {
        let cases = [
            ("{{ tools }}<tool_call>", true, Told::Template(FORMS[0])),
            ("{{ tools }} {\"name\": .., \"parameters\": ..}", true, Told::Template(FORMS[2])),
            ("{{ tools }}<tool_call><function=", true, Told::Unread),
            ("{{ tools }}", true, Told::Unread),
            ("{{ messages }}", false, Told::Written(FORMS[0])),
        ];
        for (template, lists, told) in cases {
            assert_eq!(Told::of(template, lists), told, "{template}");
        }
    }

    #[test]
    fn tools_are_written_out_where_a_template_has_no_place_for_them() {
        let messages = vec![
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "?"}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}),
            json!({"role": "tool", "content": "2", "tool_call_id": "1"}),
        ];
        let told = written_out(messages, &tools(Choice::Auto), FORMS[0], Listed::System);
        assert!(told[0]["content"].as_str().is_some_and(|text| text.starts_with("Be brief.\n\nYou may call")));
        assert_eq!(told[2]["content"], "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}\n</tool_call>");
        assert_eq!(told[3], json!({"role": "user", "content": "<tool_response>\n2\n</tool_response>"}));
    }

    #[test]
    fn roles_alternate_where_tools_answer_in_a_row() {
        let answer = |text: &str| json!({"role": "tool", "content": text, "tool_call_id": "1"});
        let said = |role: &str, text: &str| json!({"role": role, "content": text});
        let messages = vec![
            said("user", "?"),
            said("assistant", "I look."),
            answer("1"),
            answer("2"),
            said("user", "And?"),
            said("user", "Well?"),
        ];
        let roles = |listed: Listed| {
            let told = written_out(messages.clone(), &tools(Choice::Auto), FORMS[0], listed);
            told.iter().map(|one| one["role"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join(" ")
        };
        // What the client itself sends in a row is its own.
        assert_eq!(roles(Listed::System), "system user assistant user user");
        assert_eq!(roles(Listed::User), "user assistant user user");
        let told = written_out(messages.clone(), &tools(Choice::Auto), FORMS[0], Listed::User);
        assert!(told[0]["content"].as_str().is_some_and(|text| text.contains("<tools>") && text.ends_with("\n\n?")));
        let answers = "<tool_response>\n1\n</tool_response>\n\n<tool_response>\n2\n</tool_response>\n\nAnd?";
        assert_eq!(told[2]["content"], answers);
        let picture = vec![json!({"role": "user", "content": [{"type": "image"}]})];
        let told = written_out(picture, &tools(Choice::Auto), FORMS[0], Listed::User);
        assert_eq!((&told[0]["content"][0]["type"], &told[0]["content"][1]["type"]), (&json!("text"), &json!("image")));
    }

    #[test]
    fn a_call_is_forced_by_a_grammar_with_a_root_for_each_schema() {
        assert_eq!(forced(&tools(Choice::Auto), FORMS[0]), None);
        let named = forced(&tools(Choice::Named("g".into())), FORMS[0]).expect("a grammar");
        assert_eq!(
            named,
            "start: call\n\
             call: \"<tool_call>\" \"\\n\" (call_0) \"\\n\" \"</tool_call>\"\n\
             call_0: \"{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": \" args_0 \"}\"\n\
             args_0: %json {\"type\":\"object\",\"x-guidance\":{\"whitespace_pattern\":\"[\\\\x20\\\\x0A\\\\x0D\\\\x09]{1,16}\"}}\n"
        );
        let required = forced(&tools(Choice::Required), FORMS[2]).expect("a grammar");
        assert!(required.starts_with("start: call\ncall:   (call_0 | call_1)"), "{required}");
    }
}
