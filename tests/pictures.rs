//! `mlxcel generate --image`, from a file to an answer: tokens and answers as the reference implementation's
//! (`small_vlm/make.py`), the same on every executor, and one sentence for everything that is wrong with a request.

mod small_vlm;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use mgraph_runtime::{
    backend::{self, Backend},
    engine::{self, Prompt},
    model::Model,
    parity::{Fed, Golden},
    pictures::{OfTokens, Pictures, Seen},
    probes::Probes,
    request::{Limits, Picture, Request, Requests},
    sampler::{Sampler, Settings},
    session::{Float, Numerics, SessionOptions},
    template::Conversation,
};
use serde_json::{Value, json};
use small_vlm::{REAL, object, root, small_vlm};
use tempfile::TempDir;

static CHECKPOINT: LazyLock<TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    small_vlm(dir.path());
    dir
});

fn picture(name: &str) -> PathBuf {
    root().join("runtime/pictures/tests/pooled_crops").join(name)
}

fn expected() -> Vec<Value> {
    let Value::Array(cases) = object(&root().join("tests/small_vlm/expected.json"))["cases"].take() else {
        panic!("no cases")
    };
    cases
}

fn request(requests: &Requests, case: &Value) -> Request {
    let files = case["files"].as_array().unwrap();
    let read =
        |file: &Value| Picture::read(&fs::read(picture(file.as_str().unwrap())).unwrap(), Limits::default()).unwrap();
    let pictures: Vec<Picture> = files.iter().map(read).collect();
    let said = &case["said"];
    if let Some(text) = said.as_str() {
        return requests.text(text, &pictures).unwrap();
    }
    let messages = said.as_array().unwrap();
    requests
        .chat(&Conversation { messages, add_generation_prompt: true, ..Conversation::default() }, &pictures)
        .unwrap()
}

#[test]
fn requests_and_answers_are_those_of_the_reference() {
    let model = Model::open(CHECKPOINT.path(), mgraph_models::FAMILIES).unwrap();
    let requests = Requests::open(&model).unwrap();
    let options = SessionOptions {
        rows: 1,
        capacity: 128,
        max_chunk: 64,
        dtype: Float::F32,
        numerics: Numerics::Pinned,
        probes: Probes::Unread,
    };
    let mut session = backend::open(Backend::Reference, &model, options).unwrap();
    let cases = expected();
    assert!(cases.len() >= 10, "{} cases", cases.len());
    for case in &cases {
        let what = &case["what"];
        let Request { tokens, pictures } = request(&requests, case);
        assert_eq!(json!(tokens), case["input_ids"], "{what}");
        let types = case["mm_token_type_ids"].as_array().unwrap();
        match pictures.of_tokens.as_deref() {
            Some(OfTokens::Spans(spans)) => assert_eq!(&json!(spans), &case["mm_token_type_ids"], "{what}"),
            None => assert!(types.iter().all(|kind| *kind == 0), "{what}"),
            Some(other) => panic!("{what}: {other:?}"),
        }
        session.reset().unwrap();
        let seen = Seen::look(session.as_mut(), &model, &pictures, 0, None).unwrap();
        let mut sampler = Sampler::new(Settings::GREEDY).unwrap();
        let prompt = Prompt { tokens: &tokens, seen: Some(&seen) };
        let outcome = engine::generate(session.as_mut(), &mut sampler, prompt, 6, &[], &mut |_| Ok(true)).unwrap();
        assert_eq!(json!(outcome.tokens), case["answer"], "{what}");
    }
}

/// What the goldens were fed came from the reference's own processor: of its tokens we tell the same.
#[test]
fn of_the_tokens_of_a_golden_we_tell_what_it_was_fed() {
    let dir = root().join("tests/goldens/molmo2");
    let model = Model::open(&dir, mgraph_models::FAMILIES).unwrap();
    let Fed { tokens, pictures, .. } =
        Fed::of(&model, &Golden::open(&dir.join("golden.safetensors")).unwrap()).unwrap();
    let config = object(&dir.join("config.json"));
    let id = |key: &str| config[key].as_i64().unwrap() as i32;
    let seeing = small_vlm::ADDED.iter().filter(|(key, _)| !key.is_empty()).map(|(key, _)| id(key));
    let told = OfTokens::one_span(&tokens, &seeing.collect::<Vec<_>>());
    assert_eq!(told.as_ref(), pictures.of_tokens.as_deref());

    let [(_, pixels), (_, pooling)] = &pictures.vision[..] else { panic!("two inputs") };
    let patch = id("image_patch_id");
    let made = Pictures::pooled_crops(&tokens, patch, (pixels.clone(), pooling.clone()), None).unwrap();
    assert_eq!(made.feature_rows, pictures.feature_rows);
    // 41 windows, of which two are padding: the reference drops their rows, and the tokens have the other 39 in order.
    let windows = pooling.to_f64();
    let real = (0..41).filter(|row| windows[row * 4..(row + 1) * 4].iter().any(|patch| *patch >= 0.0));
    let rows = made.feature_rows.iter().copied().filter(|row| *row >= 0);
    assert_eq!(rows.collect::<Vec<_>>(), real.map(|row| row as i32).collect::<Vec<_>>());
    let short = Pictures::pooled_crops(&tokens[..40], patch, (pixels.clone(), pooling.clone()), None);
    assert!(short.unwrap_err().to_string().contains("features more than"));
}

#[test]
fn a_context_holds_the_largest_picture_by_default() {
    let model = Model::open(CHECKPOINT.path(), mgraph_models::FAMILIES).unwrap();
    // What the config says is less than words and a picture.
    assert_eq!(Requests::open(&model).unwrap().default_capacity(), 512);
    let dir = spoiled("config.json", |config| config["text_config"]["max_position_embeddings"] = json!(36_864));
    let model = Model::open(dir.path(), mgraph_models::FAMILIES).unwrap();
    // Rows of features, each with its end, between two marks: of the view, and of four crops one below the other.
    let picture = (3 * (3 + 1) + 2) + (7 * (3 + 1) + 2);
    assert_eq!(Requests::open(&model).unwrap().default_capacity(), 4096 + picture);
}

fn generate(dir: &Path, images: &[PathBuf], prompt: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
    command.args(["generate", "--max-tokens", "6", "--print-ids", "--prompt", prompt, "--model"]).arg(dir);
    for image in images {
        command.arg("--image").arg(image);
    }
    command.args(more).output().unwrap()
}

/// A PNG and a JPEG. The JPEG is a few levels from what the reference decodes, which changes no token.
#[test]
fn every_executor_gives_the_answer_of_the_reference() {
    let case = &expected()[0];
    assert_eq!(case["files"], json!(["photo.jpg", "rgba.png"]));
    let pictures = [picture("photo.jpg"), picture("rgba.png")];
    let runs = [("reference", "pinned"), ("mlx", "pinned"), ("mlx", "fused"), ("iree", "pinned"), ("iree", "fused")];
    for (backend, numerics) in runs {
        let more = ["--backend", backend, "--numerics", numerics];
        let output = generate(CHECKPOINT.path(), &pictures, "Describe both in one sentence each.", &more);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{backend}, {numerics}: {text}");
        let ids = text.lines().find_map(|line| line.strip_prefix("ids "));
        let ids: Value = serde_json::from_str(ids.unwrap_or_else(|| panic!("no ids in\n{text}"))).unwrap();
        assert_eq!(ids, case["answer"], "{backend}, {numerics}");
    }
}

/// The checkpoint with one of its JSON files changed.
fn spoiled(file: &str, edit: impl FnOnce(&mut Value)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(CHECKPOINT.path()).unwrap() {
        let entry = entry.unwrap();
        std::os::unix::fs::symlink(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    let path = dir.path().join(file);
    let mut content = object(&path);
    edit(&mut content);
    fs::remove_file(&path).unwrap();
    if !content.is_null() {
        fs::write(&path, content.to_string()).unwrap();
    }
    dir
}

/// Exit code 2, one sentence, and no weight was read.
#[track_caller]
fn refused(dir: &Path, images: &[PathBuf], prompt: &str, more: &[&str], sentence: &str) {
    let output = generate(dir, images, prompt, &[&["--backend", "mlx"], more].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty() && !text.contains("loading") && !text.contains("panicked"), "{text}");
    let errors: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    let [error] = errors[..] else { panic!("{text}") };
    assert!(error.contains(sentence), "expected {sentence:?} in {error:?}");
}

/// 24 bits per pixel, rows of nothing.
fn bitmap(width: u32, height: u32) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = b"BM".to_vec();
    file.extend(words(&[54 + 16, 0, 54, 40, width, height, 1 | 24 << 16, 0, 16, 2835, 2835, 0, 0]));
    file.extend([0; 16]);
    file
}

/// Frames of `side` x `side`, at most 1.
fn animation(side: u8, frames: usize) -> Vec<u8> {
    let mut file = [b"GIF89a", &[side, 0, side, 0][..], b"\x80\0\0\0\0\0\xff\xff\xff"].concat();
    for _ in 0..frames {
        file.extend([b"\x2c\0\0\0\0", &[side, 0, side, 0][..], b"\0\x02\x02\x44\x01\0"].concat());
    }
    file.push(0x3b);
    file
}

#[test]
fn a_file_that_cannot_be_shown() {
    let dir = tempfile::tempdir().unwrap();
    let written = |name: &str, bytes: &[u8]| {
        fs::write(dir.path().join(name), bytes).unwrap();
        dir.path().join(name)
    };
    let long = dir.path().join("long.png");
    File::create(&long).unwrap().set_len(20_000_001).unwrap();
    let png = fs::read(picture("odd.png")).unwrap();
    let jpeg = fs::read(picture("photo.jpg")).unwrap();
    let cases = [
        (PathBuf::from("no/such.png"), "--image no/such.png: No such file"),
        (dir.path().to_owned(), "Is a directory"),
        (written("words.png", b"words"), "words.png: this is no picture in a format that is read (PNG, JPEG"),
        (written("short.png", &png[..png.len() / 2]), "short.png: the picture cannot be decoded"),
        (written("short.jpg", &jpeg[..jpeg.len() - 50]), "short.jpg: the file ends before the picture does"),
        (PathBuf::from("/dev/zero"), "--image /dev/zero: the picture has 20000001 bytes"),
        (long, "long.png: the picture has 20000001 bytes; at most 20000000 are taken"),
        (written("wide.bmp", &bitmap(30_000, 30_000)), "30000 x 30000, which is 900000000 pixels; at most 64000000"),
        (written("none.gif", &animation(0, 1)), "none.gif: the picture is 0 x 0: there is nothing in it"),
        (written("moves.gif", &animation(1, 2)), "moves.gif: the picture is animated; send one frame"),
    ];
    for (file, sentence) in cases {
        refused(CHECKPOINT.path(), &[picture("odd.png"), file], "What is this?", &[], sentence);
    }
}

#[test]
fn a_prompt_that_its_pictures_do_not_fit() {
    let one = [picture("odd.png")];
    let dir = CHECKPOINT.path();
    let two = "the prompt has places for 2 pictures, marked <|image|>, and 1 was given";
    refused(dir, &one, "<|image|> or <|image|>?", &[], two);
    refused(dir, &one, "<|image|> or <|image|>?", &["--raw"], two);
    refused(dir, &[], "What is <|image|>?", &[], "places for 1 picture, marked <|image|>, and none was given");
    refused(dir, &one, "What does <im_patch> mean?", &[], "the prompt says <im_patch>, which only pictures may");
    refused(dir, &one, "What is this?", &["--ctx-size", "32"], "but the context holds 32. Raise --ctx-size to ");
    let many: Vec<PathBuf> = (0..16).map(|_| picture("landscape.png")).collect();
    refused(dir, &many, "What is this?", &[], "but the model was made for 512 (max_position_embeddings");
    let wordy = spoiled("tokenizer.json", |tokenizer| {
        let tokens = tokenizer["added_tokens"].as_array_mut().unwrap();
        let mut more = tokens.last().unwrap().clone();
        more["id"] = json!(49_162);
        more["content"] = json!("<more>");
        tokens.push(more);
    });
    refused(wordy.path(), &one, "What is <more>?", &[], "token 49162 is not in the model's vocabulary of 49162");
}

#[test]
fn a_checkpoint_that_cannot_see() {
    let one = [picture("odd.png")];
    let blind = |dir: &Path, sentence: &str| refused(dir, &one, "What is this?", &[], sentence);
    blind(&root().join(REAL), "family llama has no image processor, it reads words alone");

    let mllama = spoiled("config.json", |config| *config = object(&root().join("tests/goldens/mllama/config.json")));
    fs::remove_file(mllama.path().join("model.safetensors")).unwrap();
    fs::copy(root().join("tests/goldens/mllama/model.safetensors"), mllama.path().join("model.safetensors")).unwrap();
    blind(mllama.path(), "family mllama needs the image processor aspect_tiles, which is not built");

    let missing = spoiled("preprocessor_config.json", |settings| *settings = Value::Null);
    blind(missing.path(), "preprocessor_config.json is missing; copy it from the original model");
    let output = generate(missing.path(), &[], "What is this?", &["--backend", "reference"]);
    assert!(output.status.success(), "words alone need no processor: {}", String::from_utf8_lossy(&output.stderr));

    let odd = spoiled("preprocessor_config.json", |settings| settings["size"] = json!({"height": 24, "width": 24}));
    blind(odd.path(), "makes crops of 36 patches of 48 numbers, and the tower in config.json takes [25, 48]");
    let wrong = spoiled("preprocessor_config.json", |settings| settings["max_crops"] = json!(0));
    blind(wrong.path(), "preprocessor_config.json: \"max_crops\" is 0; expected");
    let other = spoiled("config.json", |config| config["image_patch_id"] = json!(49_153));
    blind(
        other.path(),
        "<im_patch> is token 49154 in tokenizer.json, and config.json says \"image_patch_id\" is 49153",
    );
    let few = spoiled("tokenizer.json", |tokenizer| {
        let tokens = tokenizer["added_tokens"].as_array_mut().unwrap();
        tokens.retain(|token| token["content"] != "<im_col>");
    });
    blind(few.path(), "has no token <im_col>");
    let words = spoiled("tokenizer_config.json", |config| {
        config["chat_template"] = json!("{% for m in messages %}{{ m['role'] }}{% endfor %}");
    });
    blind(
        words.path(),
        "places for 0 pictures, marked <|image|>, and 1 was given; the checkpoint's chat template marks them",
    );
}

/// For `small_vlm/make.py`, which asks the reference implementation.
#[test]
#[ignore = "writes 40 MB to where SMALL_VLM says"]
fn write_the_checkpoint() {
    let dir = PathBuf::from(std::env::var_os("SMALL_VLM").expect("SMALL_VLM names a folder"));
    fs::create_dir_all(&dir).unwrap();
    small_vlm(&dir);
}
