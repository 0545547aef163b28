"""What the official OpenAI client makes of a running server: `client.py URL KEY [PICTURE_URL]`.

Without a picture the server has SmolLM2-135M-Instruct, and every check of words runs; with one, a small model that sees, and the
checks of pictures run. Each check prints its name and seconds; the exit status is 1 where one fails.
"""

import base64
import json
import struct
import sys
import time
import traceback
import zlib

import openai

url, key = sys.argv[1:3]
client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60)
MODEL = client.models.list().data[0].id
PARIS = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"model": MODEL, "temperature": 0}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"enum": [1, 2, 3]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


def chat(messages=PARIS, **parameters):
    return client.chat.completions.create(**GREEDY | {"messages": messages, "max_tokens": 24} | parameters)


def text(answer, at=0):
    return answer.choices[at].message.content


def answers():
    answer = chat()
    assert "Paris" in text(answer), answer
    assert answer.choices[0].finish_reason == "stop", answer
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.completion_tokens < 24, usage
    assert "<|im_end|>" not in text(answer), answer
    assert client.models.retrieve(MODEL).id == MODEL


def parts_and_roles():
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of France?"}]
    answer = chat([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}])
    assert answer.usage.prompt_tokens > 0 and text(answer)


def streams():
    whole = text(chat())
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    told = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert told == whole, (told, whole)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0, chunks[-1]
    assert len({c.id for c in chunks}) == 1
    assert all(c.usage is None for c in chat(stream=True)), "usage is sent when asked for"


def length():
    answer = chat(max_completion_tokens=2, max_tokens=openai.omit)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 2, answer


def stops():
    answer = chat(stop=["al of Fr"])
    assert text(answer).endswith("capit"), answer
    assert answer.choices[0].finish_reason == "stop", answer
    streamed = "".join(c.choices[0].delta.content or "" for c in chat(stop="al of Fr", stream=True))
    assert streamed == text(answer), streamed
    paris = tokens(" Paris")
    answer = chat(extra_body={"stop_token_ids": paris[:1]})
    assert text(answer).endswith(" is"), answer


def seeds():
    def drawn(seed):
        return text(chat(temperature=1.5, seed=seed, max_tokens=12))

    assert drawn(7) == drawn(7) and len({drawn(seed) for seed in range(7, 11)}) > 1
    first = chat(temperature=1.5, seed=7, n=3, max_tokens=12)
    assert [c.index for c in first.choices] == [0, 1, 2]
    assert len({c.message.content for c in first.choices}) > 1 and text(first) == drawn(7), first
    alone = chat(temperature=1.5, seed=7, max_tokens=12).usage.prompt_tokens
    assert first.usage.prompt_tokens == alone, "one prompt counts once"


def sampling():
    whole = text(chat())
    assert text(chat(temperature=2, top_p=1e-6, seed=1)) == whole, "the smallest nucleus is greedy"
    assert text(chat(temperature=2, extra_body={"top_k": 1})) == whole, "the likeliest alone is greedy"
    assert text(chat(temperature=2, extra_body={"min_p": 1})) == whole
    biased = chat(extra_body={"logit_bias": {"7042": 100}}, max_tokens=3)
    assert len(set(tokens(text(biased)))) == 1, biased
    repeated = chat(extra_body={"repetition_penalty": 5.0}, presence_penalty=2, frequency_penalty=2)
    assert text(repeated) != whole


def tokens(content):
    return client.with_options(base_url=url).post("/tokenize", cast_to=object, body={"content": content})["tokens"]


def logarithms():
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == 4 and all(len(t.top_logprobs) == 3 for t in content), content
    assert b"".join(bytes(t.bytes) for t in content).decode() == text(answer), content
    for token in content:
        best = [t.logprob for t in token.top_logprobs]
        assert best == sorted(best, reverse=True) and token.logprob == best[0] <= 0, token
    chunks = [c for c in chat(logprobs=True, max_tokens=4, stream=True) if c.choices]
    streamed = [t.logprob for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert len(streamed) == 4 and all(abs(a - b.logprob) < 1e-3 for a, b in zip(streamed, content)), streamed


def formats():
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    made = json.loads(text(chat([{"role": "user", "content": "Invent a person."}], response_format=form, max_tokens=60)))
    assert set(made) == {"name", "age"} and 0 <= made["age"] <= 99, made
    answer = chat([{"role": "user", "content": "A JSON object."}], response_format={"type": "json_object"}, max_tokens=80)
    assert answer.choices[0].finish_reason == "length" or isinstance(json.loads(text(answer)), dict), answer


def tools():
    asked = [{"role": "user", "content": "How is the weather in Paris?"}]
    forced = {"type": "function", "function": {"name": "get_weather"}}
    answer = chat(asked, tools=[TOOL], tool_choice=forced, max_tokens=80).choices[0]
    call = answer.message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "get_weather" and arguments["days"] in (1, 2, 3) and "city" in arguments, call
    assert answer.finish_reason == "tool_calls" and answer.message.content is None, answer
    chunks = list(chat(asked, tools=[TOOL], tool_choice=forced, max_tokens=80, stream=True))
    calls = [d for c in chunks for d in c.choices[0].delta.tool_calls or []]
    assert [c.function.arguments for c in calls] == [call.function.arguments] and calls[0].index == 0, calls
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    told = asked + [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "Rain."}]
    assert chat(told, tools=[TOOL], max_tokens=4).usage.prompt_tokens > 50
    told[1] = answer.message.model_dump()
    assert chat(told, tools=[TOOL], max_tokens=4).usage.prompt_tokens > 50, "as the client writes it out"
    assert text(chat(tools=[TOOL], tool_choice="none")) == text(chat()), "no tool is told of"


def completions():
    answer = client.completions.create(model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=3)
    assert "Paris" in answer.choices[0].text and answer.object == "text_completion", answer
    both = client.completions.create(model=MODEL, prompt=["One two three", "A B C"], temperature=0, max_tokens=2, n=2)
    assert [c.index for c in both.choices] == [0, 1, 2, 3] and both.choices[0].text == both.choices[1].text, both
    chunks = client.completions.create(**GREEDY, prompt=tokens("The capital of France is"), max_tokens=3, stream=True)
    assert "".join(c.choices[0].text for c in chunks) == answer.choices[0].text
    told = client.completions.create(**GREEDY, prompt="One two", max_tokens=2, logprobs=2).choices[0].logprobs
    assert len(told.tokens) == 2 and told.text_offset == [0, len(told.tokens[0])] and len(told.top_logprobs[0]) == 2, told


def own_routes():
    own = client.with_options(base_url=url)
    ids = tokens("Hello, wörld")
    back = own.post("/detokenize", cast_to=object, body={"tokens": ids})
    assert back == {"content": "Hello, wörld"}, back
    assert own.get("/health", cast_to=object)["status"] == "ok" == own.get("/ready", cast_to=object)["status"]
    prompt = own.post("/apply-template", cast_to=object, body={"messages": PARIS})["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n") and "capital of France" in prompt, prompt
    assert own.get("/props", cast_to=object)["vocabulary"] > 1000
    assert len(own.get("/slots", cast_to=object)) > 0
    assert "/v1/chat/completions" in own.get("/openapi.json", cast_to=object)["paths"]
    counted = own.get("/metrics", cast_to=str)
    for name in ["num_requests_running", "time_to_first_token_seconds_bucket", 'vllm:generation_tokens_total{model_name="', "http_requests_total"]:
        assert name in counted, name


# What is refused: the parameters, the status, the parameter that is named, the code.
REFUSED = [
    ({"temperature": -1}, 400, "temperature", "invalid_value"),
    ({"top_p": 0}, 400, "top_p", "invalid_value"),
    ({"n": 0}, 400, "n", "invalid_value"),
    ({"max_tokens": 0}, 400, "max_tokens", "invalid_value"),
    ({"extra_body": {"stop": 5}}, 400, "stop", "invalid_type"),
    ({"stop": [""]}, 400, "stop", "invalid_value"),
    ({"stop": ["x" * 4097]}, 400, "stop", "invalid_value"),
    ({"extra_body": {"repetition_penalty": 1e-30}}, 400, "repetition_penalty", "invalid_value"),
    ({"extra_body": {"temperature": "hot"}}, 400, "temperature", "invalid_type"),
    ({"logit_bias": {"9999999": 1}}, 400, "logit_bias.9999999", "invalid_value"),
    ({"logit_bias": {"5": 101}}, 400, "logit_bias.5", "invalid_value"),
    ({"top_logprobs": 2}, 400, "top_logprobs", "invalid_value"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options", "invalid_value"),
    ({"store": True}, 400, "store", "unsupported_parameter"),
    ({"extra_body": {"temprature": 1}}, 400, "temprature", "unknown_parameter"),
    ({"messages": []}, 400, "messages", "invalid_value"),
    ({"messages": [{"role": "robot", "content": "?"}]}, 400, "messages[0].role", "invalid_type"),
    ({"messages": [{"role": "user", "content": 5}]}, 400, "messages[0].content", "invalid_type"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "invalid_value"),
    ({"model": "gpt-4"}, 404, "model", "model_not_found"),
    ({"max_tokens": 10**6}, 400, None, "context_length_exceeded"),
    ({"messages": [{"role": "user", "content": "word " * 10_000}]}, 400, None, "context_length_exceeded"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, 400, "tool_choice", "invalid_value"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}},
        400,
        "response_format",
        "invalid_value",
    ),
]


def picture(address):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}, {"type": "text", "text": "What?"}]}]


# Pictures that are refused by a model that sees: the address, and what the message says.
UNSEEN = [
    ("data:image/png;base64,A*A", "base64"),
    ("data:image/png;base64," + base64.b64encode(b"no picture").decode(), "no picture"),
    ("data:text/plain,hello", "expected image/"),
    ("https://example.org/a.png", "none is fetched"),
    ("file:///etc/passwd", "--allow-local-files"),
]


def refusals():
    for parameters, status, param, code in REFUSED:
        refused(parameters, status, param, code)
    refused({"messages": picture("data:image/png;base64,AAAA")}, 400, "messages[0].content[0]", "images_not_supported")
    for attempt, status in [
        (lambda: client.with_options(api_key="wrong").models.list(), 401),
        (lambda: client.post("/embeddings", cast_to=object, body={}), 404),
        (lambda: client.get("/chat/completions", cast_to=object), 405),
        (lambda: client.post("/completions", cast_to=object, body={"prompt": ""}), 400),
        (lambda: client.post("/completions", cast_to=object, body={"prompt": [0, 10**9]}), 400),
        (lambda: client.post("/completions", cast_to=object, body={}), 400),
        (lambda: client.post("/completions", cast_to=object, body={"prompt": "x" * 3_000_000}), 413),
    ]:
        try:
            attempt()
        except openai.APIStatusError as error:
            assert error.status_code == status and error.body["message"], (status, error)
        else:
            raise AssertionError(f"{status} was expected")


def refused(parameters, status, param, code, says=""):
    try:
        answer = chat(**parameters)
    except openai.APIStatusError as error:
        found = (error.status_code, error.param, error.code)
        assert found == (status, param, code), (parameters, found, error)
        assert says in error.message, error
    else:
        raise AssertionError(f"{parameters} were taken: {answer}")


def shade(grey):
    """A picture of 20 by 20 points of one shade."""

    def part(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = zlib.compress((b"\0" + bytes([grey] * 20)) * 20)
    header = struct.pack(">IIBBBBB", 20, 20, 8, 0, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", rows) + part(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(file).decode()


def first(address):
    """What the likeliest first tokens are after a picture, each with its chance."""
    answer = chat(picture(address), max_tokens=1, logprobs=True, top_logprobs=5)
    return answer.usage.prompt_tokens, [(t.token, t.logprob) for t in answer.choices[0].logprobs.content[0].top_logprobs]


def tells_apart():
    black, white, again = first(shade(0)), first(shade(255)), first(shade(0))
    assert black[0] == white[0], "as many tokens, whatever is to be seen"
    assert max(abs(a - b) for (_, a), (_, b) in zip(black[1], white[1])) > 0.01, (black, white)
    assert [token for token, _ in black[1]] == [token for token, _ in again[1]], (black, again)
    assert all(abs(a - b) < 1e-3 for (_, a), (_, b) in zip(black[1], again[1])), (black, again)


def sees():
    address = sys.argv[3]
    whole = text(chat(picture(address), max_tokens=8))
    blind = chat([{"role": "user", "content": "What?"}], max_tokens=8)
    seen = chat(picture(address), max_tokens=8)
    assert text(seen) == whole and seen.usage.prompt_tokens > blind.usage.prompt_tokens + 10, (seen, blind)
    streamed = "".join(c.choices[0].delta.content or "" for c in chat(picture(address), max_tokens=8, stream=True))
    assert streamed == whole, (streamed, whole)


def refuses_pictures():
    for address, says in UNSEEN:
        refused({"messages": picture(address)}, 400, "messages[0].content[0]", "invalid_image", says)
    many = [{"role": "user", "content": picture(sys.argv[3])[0]["content"] * 9}]
    refused({"messages": many}, 400, "messages", "too_many_images")


WORDS = [answers, parts_and_roles, streams, length, stops, seeds, sampling, logarithms, formats, tools, completions, own_routes, refusals]
PICTURES = [sees, tells_apart, refuses_pictures]

failed = 0
for check in PICTURES if len(sys.argv) > 3 else WORDS:
    begun = time.monotonic()
    try:
        check()
    except Exception:
        failed += 1
        traceback.print_exc()
    print(f"{check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
sys.exit(failed > 0)
