//! A cursor over bytes of unknown honesty. Nothing here indexes or adds without a check.

/// A failure is an offset and what was expected there; the caller adds the file's name.
pub(super) type Result<T> = std::result::Result<T, (usize, String)>;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, offset: 0 }
    }

    pub(super) fn at(bytes: &'a [u8], offset: usize) -> Reader<'a> {
        Reader { bytes, offset }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count));
        let taken = taken.ok_or_else(|| {
            (
                self.offset,
                format!("{count} bytes were expected, but only {} are left: the file is truncated", rest.len()),
            )
        })?;
        self.offset += taken.len();
        Ok(taken)
    }

    /// `count` items of `size` bytes each.
    pub(super) fn items(&mut self, count: u64, size: u64) -> Result<&'a [u8]> {
        let total = count.checked_mul(size);
        let total = total.ok_or_else(|| (self.offset, format!("an array of {count} items cannot be in this file")))?;
        self.take(total)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn string(&mut self) -> Result<&'a str> {
        let at = self.offset;
        let length = self.u64()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|error| (at, format!("a string is not UTF-8: {error}")))
    }
}
