//! A text that is being written, made readable: the line with a mistake is blanked, so that the rest of its item is
//! still known while one types. Offsets stay as they are.

use crate::{
    parser,
    source::{FileId, Sources},
};

/// Beyond this the item is left out; each try reads the text once more.
const MAX_BYTES: usize = 100_000;
const MAX_MISTAKES: usize = 8;

/// The text of `file`, readable as far as blanking lines makes it so.
pub(super) fn mend(sources: &Sources, file: FileId, mut parsed: parser::Parsed) -> (Sources, parser::Parsed) {
    let mut sources = sources.clone();
    for _ in 0..MAX_MISTAKES {
        let text = &sources.get(file).text;
        let Some(first) = parsed.errors.first().filter(|_| text.len() <= MAX_BYTES) else { break };
        // A bracket without its partner is named beside the one that does not fit, and a statement without its end is
        // missed on the next line.
        let named = first.related.iter().map(|(span, _)| *span).filter(|span| span.file == file);
        let tries = named.chain([first.span]).flat_map(|span| {
            let here = line_at(text, span.start as usize);
            let before = line_at(text, text[..here.start].trim_end().len());
            [vec![here.clone()], vec![before.clone()], vec![before, here]]
        });
        let better = tries.into_iter().find_map(|lines| {
            let mut mended = Sources::default();
            for id in 0..=file.0 {
                let source = sources.get(FileId(id));
                let text = if id == file.0 { blank(&source.text, &lines) } else { source.text.clone() };
                mended.add(source.name.clone(), text);
            }
            let read = parser::parse_whole_items(&mended, file);
            (read.errors.len() < parsed.errors.len()).then_some((mended, read))
        });
        match better {
            Some(better) => (sources, parsed) = better,
            None => break,
        }
    }
    (sources, parsed)
}

fn line_at(text: &str, offset: usize) -> std::ops::Range<usize> {
    let offset = offset.min(text.len());
    let start = text[..offset].rfind('\n').map_or(0, |n| n + 1);
    let end = text[offset..].find('\n').map_or(text.len(), |n| offset + n);
    start..end
}

fn blank(text: &str, lines: &[std::ops::Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for line in lines {
        bytes[line.clone()].fill(b' ');
    }
    // Whole lines are replaced by ASCII, so what was UTF-8 stays so.
    String::from_utf8(bytes).unwrap_or_default()
}
