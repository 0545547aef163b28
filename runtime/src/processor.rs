//! The image processor of a checkpoint: which of ours a family's declaration names, and what the checkpoint's files say to it.
//! The one table from the processors of the language to the code of `mgraph-pictures`.

use std::sync::Arc;

use mgraph_dsl::ir::{self, ProcessorKind};
use mgraph_pictures::{
    Picture,
    pooled_crops::{MARK, Placeholder, SEEING, Settings},
};
use serde_json::Value;

use crate::{
    checkpoint::read_object,
    error::{Context, Result, anyhow, bail, ensure},
    inputs,
    model::Model,
    pictures::{OfTokens, Pictures},
    tensor::Tensor,
    tokenizer::{Tokenizer, token_text},
};

/// What a checkpoint's requests are made with, beside its tokenizer and chat template.
#[derive(Debug)]
pub enum Processor {
    /// The family reads words alone, or its processor is not built: a sentence.
    Blind(String),
    PooledCrops(Box<PooledCrops>),
}

/// Whether pictures of files can be given to families of this processor; their graphs run all the same.
pub fn is_built(kind: ProcessorKind) -> bool {
    match kind {
        ProcessorKind::PooledCrops => true,
        ProcessorKind::NativeGrid | ProcessorKind::AspectTiles => false,
    }
}

impl Processor {
    /// Errors: a file beside config.json that is no JSON object. A processor that cannot be had is none: words still can be read.
    pub fn open(model: &Model, tokenizer: &Tokenizer) -> Result<Processor> {
        let family = &model.program.name;
        let Some(declared) = &model.program.processor else {
            return Ok(Processor::Blind(format!("family {family} has no image processor, it reads words alone")));
        };
        Ok(match declared.kind {
            ProcessorKind::PooledCrops => {
                Processor::PooledCrops(Box::new(PooledCrops::open(model, tokenizer, declared)?))
            }
            kind @ (ProcessorKind::NativeGrid | ProcessorKind::AspectTiles) => Processor::Blind(format!(
                "family {family} needs the image processor {}, which is not built; of words alone it runs",
                kind.name()
            )),
        })
    }

    /// Whether requests may have pictures.
    ///
    /// Errors: why not.
    pub fn can_see(&self) -> Result<()> {
        match self {
            Processor::Blind(why) => bail!("{why}"),
            Processor::PooledCrops(processor) => processor.eyes().map(|_| ()),
        }
    }

    /// Most tokens that one picture takes in a prompt; 0 where there can be none.
    pub fn most_tokens(&self) -> usize {
        match self {
            Processor::Blind(_) => 0,
            Processor::PooledCrops(processor) => processor.eyes().map_or(0, |eyes| eyes.settings.most_tokens()),
        }
    }

    /// Tokens that this picture takes in a prompt; 0 where there can be none.
    pub fn tokens_of(&self, picture: &Picture) -> usize {
        let of =
            |Eyes { settings, .. }: &Eyes| settings.placeholders(settings.layout(picture.width, picture.height)).len();
        match self {
            Processor::Blind(_) => 0,
            Processor::PooledCrops(processor) => processor.eyes().map_or(0, of),
        }
    }

    /// What stands for a picture in the text of a prompt.
    pub fn mark(&self) -> Option<&str> {
        match self {
            Processor::Blind(_) => None,
            Processor::PooledCrops(processor) => Some(&processor.mark),
        }
    }

    /// The tokens of a prompt, and its pictures as the graphs take them. `templated`: a chat template has made `text`.
    ///
    /// Errors: pictures that cannot be looked at, and others than the text has places for.
    pub fn read(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        templated: bool,
        pictures: &[Picture],
    ) -> Result<(Vec<u32>, Pictures)> {
        match self {
            Processor::Blind(why) => {
                ensure!(pictures.is_empty(), "{why}");
                Ok((tokenizer.encode(text, !templated)?, Pictures::default()))
            }
            Processor::PooledCrops(processor) => processor.read(tokenizer, text, templated, pictures),
        }
    }
}

/// `pooled_crops`, as `Molmo2Processor` of Hugging Face `transformers` 5.23 goes about it.
#[derive(Debug)]
pub struct PooledCrops {
    eyes: Result<Eyes, String>,
    mark: String,
    /// What every prompt begins with.
    begin: Option<String>,
    /// Tokens that see each other both ways.
    seeing: Vec<i32>,
}

/// What is needed where there are pictures.
#[derive(Debug)]
struct Eyes {
    settings: Settings,
    image_token: i32,
}

impl PooledCrops {
    fn open(model: &Model, tokenizer: &Tokenizer, declared: &ir::Processor) -> Result<PooledCrops> {
        let config = read_object(&model.checkpoint.dir().join("tokenizer_config.json"))?.unwrap_or_default();
        let text = |token: &Value| token_text(token).filter(|text| !text.is_empty()).map(str::to_owned);
        let token = |name: &str| config.get(name).and_then(text);
        let extra = || config.get("extra_special_tokens")?.get("image_token").and_then(text);
        Ok(PooledCrops {
            eyes: Eyes::open(model, tokenizer, declared).map_err(|error| format!("{error:#}")),
            mark: token("image_token").or_else(extra).unwrap_or_else(|| MARK.to_owned()),
            begin: token("bos_token").or_else(|| token("eos_token")),
            seeing: SEEING.iter().filter_map(|text| tokenizer.token_to_id(text)).map(|id| id as i32).collect(),
        })
    }

    fn eyes(&self) -> Result<&Eyes> {
        self.eyes.as_ref().map_err(|why| anyhow!("pictures cannot be given to this checkpoint: {why}"))
    }

    fn read(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        templated: bool,
        pictures: &[Picture],
    ) -> Result<(Vec<u32>, Pictures)> {
        if !pictures.is_empty() {
            self.eyes()?;
        }
        let places = text.matches(&self.mark).count();
        let text = match templated || places > 0 {
            true => text.to_owned(),
            false => self.mark.repeat(pictures.len()) + text,
        };
        let places = text.matches(&self.mark).count();
        ensure!(
            places == pictures.len(),
            "the prompt has places for {}, marked {}, and {} given{}",
            counted(places),
            self.mark,
            given(pictures.len()),
            if templated && places < pictures.len() { "; the checkpoint's chat template marks them" } else { "" }
        );
        let begin = self.begin.as_deref().filter(|begin| !text.starts_with(begin)).unwrap_or_default();
        let patch = Placeholder::Patch.text();
        ensure!(!text.contains(patch), "the prompt says {patch}, which only pictures may; write it otherwise");
        if pictures.is_empty() {
            let tokens = tokenizer.encode(&[begin, &text].concat(), !templated)?;
            let of_tokens = OfTokens::one_span(&signed(&tokens), &self.seeing).map(Arc::new);
            return Ok((tokens, Pictures { of_tokens, ..Pictures::default() }));
        }
        let Eyes { settings, image_token } = self.eyes()?;
        let mut written = begin.to_owned();
        let mut between = text.split(&self.mark);
        written.extend(between.next());
        for (picture, after) in pictures.iter().zip(between) {
            let layout = settings.layout(picture.width, picture.height);
            written.extend(settings.placeholders(layout).into_iter().map(Placeholder::text));
            written.push_str(after);
        }
        let tokens = tokenizer.encode(&written, !templated)?;
        let ids = signed(&tokens);
        let made = settings.prepare(pictures);
        let pixels = Tensor::from_f32(&made.pixels_shape, &made.pixels);
        let pooling = Tensor::from_i32(&made.pooling_shape, &made.pooling);
        let of_tokens = OfTokens::one_span(&ids, &self.seeing).map(Arc::new);
        Ok((tokens, Pictures::pooled_crops(&ids, *image_token, (pixels, pooling), of_tokens)?))
    }
}

impl Eyes {
    /// Errors: files that are missing, wrong, or contradict each other.
    fn open(model: &Model, tokenizer: &Tokenizer, declared: &ir::Processor) -> Result<Eyes> {
        let dir = model.checkpoint.dir();
        let file = dir.join(&declared.settings);
        let own = read_object(&file)?;
        let whole = read_object(&dir.join("processor_config.json"))?.map(Value::Object);
        let nested = || whole.as_ref()?.get("image_processor").filter(|nested| nested.is_object()).cloned();
        let (own, file) = match own {
            Some(own) => (Value::Object(own), file),
            None => {
                let nested = nested().with_context(|| {
                    format!("{} is missing; copy it from the original model into this directory", file.display())
                })?;
                (nested, dir.join("processor_config.json"))
            }
        };
        let settings = Settings::read(&own, whole.as_ref()).with_context(|| file.display().to_string())?;
        let image_token = image_token(model.checkpoint.config(), declared)?;
        for placeholder in Placeholder::ALL {
            let text = placeholder.text();
            let id = tokenizer.token_to_id(text);
            let id = id.with_context(|| format!("tokenizer.json in {} has no token {text}", dir.display()))?;
            ensure!(
                placeholder != Placeholder::Patch || id as i32 == image_token,
                "{}: {text} is token {id} in tokenizer.json, and config.json says {:?} is {image_token}",
                dir.display(),
                declared.image_token
            );
        }
        let taken = inputs::declared_shape(&model.program, &model.resolved, "vision", "pixels")?;
        let made = settings.prepare(&[]).pixels_shape;
        ensure!(
            taken.get(1..) == made.get(1..),
            "{} makes crops of {} patches of {} numbers, and the tower in config.json takes {:?}",
            file.display(),
            made[1],
            made[2],
            &taken[1.min(taken.len())..]
        );
        Ok(Eyes { settings, image_token })
    }
}

/// The token that stands for a place of a picture.
pub fn image_token(config: &Value, declared: &ir::Processor) -> Result<i32> {
    let key = &declared.image_token;
    let stated = key.split('.').try_fold(config, |object, key| object.get(key));
    let id = stated.and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok());
    id.with_context(|| format!("config.json has no token id {key:?}"))
}

fn signed(tokens: &[u32]) -> Vec<i32> {
    tokens.iter().map(|token| *token as i32).collect()
}

fn counted(pictures: usize) -> String {
    if pictures == 1 { "1 picture".into() } else { format!("{pictures} pictures") }
}

fn given(pictures: usize) -> String {
    match pictures {
        0 => "none was".into(),
        1 => "1 was".into(),
        more => format!("{more} were"),
    }
}
