//! Processors: host code of the runtime that turns pictures into tensors. The table is closed; a processor is chosen by what
//! it does, not by family.

use super::DType;
use crate::source::Span;

/// `processor pooled_crops(settings = "preprocessor_config.json", image_token = "image_patch_id")`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    pub kind: ProcessorKind,
    /// The file beside config.json that holds sizes, means and deviations.
    pub settings: String,
    /// The key of config.json whose value is the token that stands for a place of a picture.
    pub image_token: String,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessorKind {
    /// A picture as overlapping crops and a view of the whole, cut into patches; each feature is pooled from a few of them.
    PooledCrops,
    /// A picture at its own size, as a grid of patches.
    NativeGrid,
    /// A picture as up to so many square tiles, laid out in one of a few aspect ratios.
    AspectTiles,
}

/// A tensor that a processor makes of the pictures of a request: an input of `graph vision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorOutput {
    pub name: &'static str,
    pub dtype: DType,
    pub rank: usize,
    /// The axes, in words.
    pub axes: &'static str,
}

const fn output(name: &'static str, dtype: DType, rank: usize, axes: &'static str) -> ProcessorOutput {
    ProcessorOutput { name, dtype, rank, axes }
}

impl ProcessorKind {
    pub const ALL: [ProcessorKind; 3] =
        [ProcessorKind::PooledCrops, ProcessorKind::NativeGrid, ProcessorKind::AspectTiles];

    /// As a family writes it.
    pub fn name(self) -> &'static str {
        match self {
            ProcessorKind::PooledCrops => "pooled_crops",
            ProcessorKind::NativeGrid => "native_grid",
            ProcessorKind::AspectTiles => "aspect_tiles",
        }
    }

    pub fn named(name: &str) -> Option<ProcessorKind> {
        ProcessorKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn outputs(self) -> &'static [ProcessorOutput] {
        match self {
            ProcessorKind::PooledCrops => {
                &const {
                    [
                        output("pixels", DType::F, 3, "crops, patches of a crop, numbers of a patch"),
                        output("pooling", DType::I32, 2, "features, the patches that each is pooled from (-1 is none)"),
                    ]
                }
            }
            ProcessorKind::NativeGrid => {
                &const {
                    [
                        output("pixels", DType::F, 2, "patches, numbers of a patch"),
                        output("grid", DType::I32, 2, "row and column, patches"),
                        output("picture", DType::I32, 1, "patches: which picture each is of"),
                    ]
                }
            }
            ProcessorKind::AspectTiles => {
                &const {
                    [
                        output("pixels", DType::F, 5, "pictures, tiles, channels, height, width"),
                        output("ratio", DType::I32, 1, "pictures: the number of each one's aspect ratio"),
                        output("tile_present", DType::Bool, 2, "pictures, tiles"),
                    ]
                }
            }
        }
    }

    /// The input of `forward` that tells tokens about pictures.
    pub fn of_tokens(self) -> &'static str {
        match self {
            ProcessorKind::PooledCrops => "spans",
            ProcessorKind::NativeGrid => "axis_positions",
            ProcessorKind::AspectTiles => "tile_sight",
        }
    }
}
