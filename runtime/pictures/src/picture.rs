//! A picture of a request: decoded within limits, turned upright, in eight bits of red, green and blue.

use std::io::Cursor;

use image::{
    AnimationDecoder, DynamicImage, GenericImageView, ImageDecoder, ImageError, ImageFormat, ImageReader,
    codecs::{gif::GifDecoder, png::PngDecoder, webp::WebPDecoder},
    metadata::Orientation,
};

/// What a picture may cost. Both are checked before it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the file.
    pub bytes: usize,
    /// Width times height: what a small file unfolds to.
    pub pixels: u64,
}

impl Default for Limits {
    /// 20 MB, and 64 million pixels: the largest of common cameras.
    fn default() -> Limits {
        Limits { bytes: 20_000_000, pixels: 64_000_000 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    #[error("the picture has {size} bytes; at most {limit} are taken")]
    TooManyBytes { size: usize, limit: usize },
    #[error("the picture is {width} x {height}, which is {} pixels; at most {limit} are taken", u64::from(*.width) * u64::from(*.height))]
    TooManyPixels { width: u32, height: u32, limit: u64 },
    #[error("the picture is {width} x {height}: there is nothing in it")]
    Empty { width: u32, height: u32 },
    #[error("the picture is animated; send one frame as a picture of its own")]
    Animated,
    #[error("this is no picture in a format that is read (PNG, JPEG, WebP, GIF, BMP)")]
    UnknownFormat,
    #[error("the picture cannot be decoded: {0}")]
    Broken(String),
    #[error("the file ends before the picture does; fetch it again")]
    CutShort,
}

/// Eight bits per channel, rows from the top, red, green and blue of each pixel together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub width: usize,
    pub height: usize,
    pub rgb: Vec<u8>,
}

impl Picture {
    /// Width and height as the file's header has them, before its orientation; nothing is decoded.
    pub fn size(file: &[u8], limits: Limits) -> Result<(u32, u32), PictureError> {
        let (decoder, _) = opened(file, limits)?;
        Ok(decoder.dimensions())
    }

    /// Decodes a file as the reference implementations do: turned as its EXIF orientation says; what is transparent
    /// before white; of 16 bits the upper eight.
    pub fn read(file: &[u8], limits: Limits) -> Result<Picture, PictureError> {
        let (mut decoder, format) = opened(file, limits)?;
        let mut allowed = image::Limits::default();
        // Of 16 bits and four channels, and as much again for the decoder's own work.
        allowed.max_alloc = Some(limits.pixels.saturating_mul(16).saturating_add(1 << 20));
        decoder.set_limits(allowed).map_err(|e| broken(&e))?;
        if cut_short(file, format) {
            return Err(PictureError::CutShort);
        }
        if animated(file, format)? {
            return Err(PictureError::Animated);
        }
        // A file whose EXIF cannot be read is shown as it lies.
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let mut decoded = DynamicImage::from_decoder(decoder).map_err(|e| broken(&e))?;
        decoded.apply_orientation(orientation);
        let (width, height) = decoded.dimensions();
        Ok(Picture { width: width as usize, height: height as usize, rgb: rgb(decoded) })
    }
}

/// A decoder of the file, whose size is within the limits.
fn opened(file: &[u8], limits: Limits) -> Result<(impl ImageDecoder, ImageFormat), PictureError> {
    if file.len() > limits.bytes {
        return Err(PictureError::TooManyBytes { size: file.len(), limit: limits.bytes });
    }
    let mut reader = ImageReader::new(Cursor::new(file)).with_guessed_format().map_err(|e| broken(&e.into()))?;
    let format = reader.format().filter(ImageFormat::reading_enabled).ok_or(PictureError::UnknownFormat)?;
    let size = |(width, height): (u32, u32)| match u64::from(width) * u64::from(height) {
        0 => Err(PictureError::Empty { width, height }),
        pixels if pixels > limits.pixels => Err(PictureError::TooManyPixels { width, height, limit: limits.pixels }),
        _ => Ok(()),
    };
    // Decoders call such headers wrong in ways of their own.
    stated(file, format).map_or(Ok(()), size)?;
    let mut allowed = image::Limits::default();
    // What lies before the pixels: a color profile unfolds too.
    allowed.max_alloc = Some(HEADER);
    reader.limits(allowed);
    let decoder = reader.into_decoder().map_err(|e| broken(&e))?;
    size(decoder.dimensions())?;
    Ok((decoder, format))
}

/// Bytes that the header of a file may unfold to.
const HEADER: u64 = 64 << 20;

fn broken(error: &ImageError) -> PictureError {
    PictureError::Broken(error.to_string().trim().to_owned())
}

/// Width and height as the header of a PNG or BMP has them.
fn stated(file: &[u8], format: ImageFormat) -> Option<(u32, u32)> {
    let word = |at: usize| file.get(at..)?.first_chunk::<4>().copied();
    match format {
        ImageFormat::Png => Some((u32::from_be_bytes(word(16)?), u32::from_be_bytes(word(20)?))),
        // The older header has 16 bits for each.
        ImageFormat::Bmp if word(14)? == 12u32.to_le_bytes() => {
            let [w0, w1, h0, h1] = word(18)?;
            Some((u16::from_le_bytes([w0, w1]).into(), u16::from_le_bytes([h0, h1]).into()))
        }
        // The height of rows from the top is negative.
        ImageFormat::Bmp => {
            let width = u32::try_from(i32::from_le_bytes(word(18)?)).ok()?;
            Some((width, i32::from_le_bytes(word(22)?).unsigned_abs()))
        }
        _ => None,
    }
}

/// Whether the end is missing, where a decoder would fill the rest with grey and say nothing.
fn cut_short(file: &[u8], format: ImageFormat) -> bool {
    match format {
        ImageFormat::Jpeg => !jpeg_ends(file),
        // The size in the header is of what follows it.
        ImageFormat::WebP => file
            .get(4..8)
            .and_then(<[u8]>::first_chunk)
            .is_none_or(|size| u32::from_le_bytes(*size) as usize > file.len() - 8),
        _ => false,
    }
}

/// Whether the marker that ends a JPEG comes after its last scan. What precedes may have a whole picture in it, as a preview.
fn jpeg_ends(file: &[u8]) -> bool {
    const START_OF_SCAN: u8 = 0xda;
    const END: u8 = 0xd9;
    let mut at = 2;
    let mut scanned = false;
    while let Some(marker) = file.get(at..).and_then(|rest| rest.windows(2).position(is_marker)) {
        at += marker + 2;
        match file[at - 1] {
            END if scanned => return true,
            kind => {
                scanned |= kind == START_OF_SCAN;
                let Some(size) = file.get(at..).and_then(<[u8]>::first_chunk) else { return false };
                at += usize::from(u16::from_be_bytes(*size));
            }
        }
    }
    false
}

/// Neither a byte 255 among the samples, nor a mark to begin anew at, nor what fills up.
fn is_marker(pair: &[u8]) -> bool {
    matches!(pair, [0xff, kind] if !matches!(kind, 0x00 | 0x01 | 0xd0..=0xd8 | 0xff))
}

fn animated(file: &[u8], format: ImageFormat) -> Result<bool, PictureError> {
    let file = Cursor::new(file);
    Ok(match format {
        ImageFormat::Gif => {
            let frames = GifDecoder::new(file).map_err(|e| broken(&e))?.into_frames();
            frames.take(2).filter(Result::is_ok).count() > 1
        }
        ImageFormat::WebP => WebPDecoder::new(file).map_err(|e| broken(&e))?.has_animation(),
        ImageFormat::Png => {
            let mut allowed = image::Limits::default();
            allowed.max_alloc = Some(HEADER);
            PngDecoder::with_limits(file, allowed).and_then(|png| png.is_apng()).map_err(|e| broken(&e))?
        }
        _ => false,
    })
}

/// The upper eight bits of each sample; where there is alpha, before white.
fn rgb(decoded: DynamicImage) -> Vec<u8> {
    let upper = |sample: &u16| (sample >> 8) as u8;
    match &decoded {
        DynamicImage::ImageLuma16(grey) => grey.iter().flat_map(|sample| [upper(sample); 3]).collect(),
        DynamicImage::ImageRgb16(color) => color.iter().map(upper).collect(),
        DynamicImage::ImageLumaA16(_) | DynamicImage::ImageRgba16(_) => {
            before_white(decoded.to_rgba16().pixels().map(|pixel| pixel.0.map(|sample| upper(&sample))))
        }
        DynamicImage::ImageLumaA8(_) | DynamicImage::ImageRgba8(_) => {
            before_white(decoded.to_rgba8().pixels().map(|pixel| pixel.0))
        }
        _ => decoded.into_rgb8().into_raw(),
    }
}

fn before_white(pixels: impl Iterator<Item = [u8; 4]>) -> Vec<u8> {
    let blend = |[red, green, blue, alpha]: [u8; 4]| {
        let alpha = u32::from(alpha);
        [red, green, blue]
            .map(|sample| ((u32::from(sample) * alpha + 255 * (255 - alpha)) * 2 + 255) / 510)
            .map(|sum| sum as u8)
    };
    pixels.flat_map(blend).collect()
}
