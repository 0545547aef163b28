//! What cannot be shown to a model is refused before it costs anything, with a sentence.

use std::io::Cursor;

use image::{Delay, DynamicImage, Frame, ImageFormat, RgbaImage, codecs::gif::GifEncoder};
use mgraph_pictures::{Limits, Picture};

fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    DynamicImage::new_rgb8(width, height).write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn refused(file: &[u8], limits: Limits) -> String {
    Picture::read(file, limits).map(|picture| (picture.width, picture.height)).unwrap_err().to_string()
}

#[test]
fn a_file_that_is_no_picture() {
    let limits = Limits::default();
    for file in [&b""[..], b"GIF", b"hello, world", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7"] {
        assert!(refused(file, limits).contains("no picture"), "{file:?}");
    }
    let whole = encoded(40, 30, ImageFormat::Png);
    for length in [8, 20, 40, whole.len() - 20] {
        let message = refused(&whole[..length], limits);
        assert!(message.contains("cannot be decoded"), "{length} bytes: {message}");
    }
}

#[test]
fn a_small_file_that_unfolds_to_too_much() {
    let file = encoded(3000, 2000, ImageFormat::Png);
    let limits = Limits { pixels: 5_999_999, ..Limits::default() };
    assert!(refused(&file, limits).contains("3000 x 2000, which is 6000000 pixels; at most 5999999"));
    let limits = Limits { bytes: 10, ..Limits::default() };
    assert!(refused(&file, limits).contains("at most 10 are taken"));

    // A header that promises more than anybody has.
    let mut header = encoded(8, 8, ImageFormat::Bmp);
    header[18..26].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f]);
    assert!(refused(&header, Limits::default()).contains("2147483647 x 2147483647"));
    let mut header = encoded(8, 8, ImageFormat::Png);
    header[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 8]);
    assert!(refused(&header, Limits::default()).contains("2147483647 x 8"));
}

/// A decoder makes a picture of what there is, grey where there is nothing; the reference refuses such files.
#[test]
fn a_file_that_ends_early() {
    let limits = Limits::default();
    let jpeg = encoded(64, 48, ImageFormat::Jpeg);
    // Before its scan, as many cameras write it.
    let preview = [&[0xff, 0xe1][..], &(jpeg.len() as u16 + 2).to_be_bytes(), &jpeg].concat();
    let previewed = [&jpeg[..2], &preview, &jpeg[2..]].concat();
    for whole in [jpeg, previewed, encoded(64, 48, ImageFormat::WebP)] {
        Picture::read(&whole, limits).unwrap();
        Picture::read(&[&whole[..], b"what some programs leave behind"].concat(), limits).unwrap();
        for missing in [1, 2, 5, 20] {
            let message = refused(&whole[..whole.len() - missing], limits);
            assert!(message.contains("ends before the picture does"), "{missing} bytes: {message}");
        }
    }
}

#[test]
fn nothing_and_animations() {
    let bmp = encoded(8, 8, ImageFormat::Bmp);
    let png = encoded(8, 8, ImageFormat::Png);
    for (file, width, said) in [(bmp, 18, "0 x 8"), (png.clone(), 16, "0 x 8"), (png, 20, "8 x 0")] {
        let mut file = file;
        file[width..width + 4].copy_from_slice(&[0; 4]);
        assert_eq!(refused(&file, Limits::default()), format!("the picture is {said}: there is nothing in it"));
    }

    let mut file = Vec::new();
    let frame = |shade| {
        Frame::from_parts(
            RgbaImage::from_pixel(6, 5, image::Rgba([shade, 0, 0, 255])),
            0,
            0,
            Delay::from_numer_denom_ms(100, 1),
        )
    };
    GifEncoder::new(&mut file).encode_frames([frame(0), frame(200)]).unwrap();
    assert!(refused(&file, Limits::default()).contains("animated"));
}
