//! Memory of what requests bring: their bodies while they are read, pictures while they are decoded and until their request is
//! over. All of them together have one bound, so that no number of requests takes the machine's memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::request::Refusal;

#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    held: AtomicUsize,
}

impl Memory {
    pub fn new(most: usize) -> Arc<Memory> {
        Arc::new(Memory { most, held: AtomicUsize::new(0) })
    }
}

/// A share of the memory, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Charge {
    pub fn none(memory: &Arc<Memory>) -> Charge {
        Charge { memory: Arc::clone(memory), bytes: 0 }
    }

    /// Takes `bytes` more.
    ///
    /// Errors: there are not as many at present, or this charge alone would be more than all.
    pub fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        let most = self.memory.most;
        let needed = self.bytes.saturating_add(bytes);
        if needed > most {
            return Err(Refusal::TooLarge { needed, most });
        }
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
        match self.memory.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => {
                self.bytes = needed;
                Ok(())
            }
            Err(held) => Err(Refusal::Crowded { held, needed, most }),
        }
    }

    /// Gives back all but `bytes`.
    pub fn keep(&mut self, bytes: usize) {
        let given = self.bytes.saturating_sub(bytes);
        self.bytes -= given;
        self.memory.held.fetch_sub(given, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Charge, Memory};
    use crate::request::Refusal;

    #[test]
    fn all_charges_together_stay_within_the_memory() {
        let memory = Memory::new(100);
        let (mut one, mut other) = (Charge::none(&memory), Charge::none(&memory));
        assert_eq!(one.add(70), Ok(()));
        assert_eq!(other.add(31), Err(Refusal::Crowded { held: 70, needed: 31, most: 100 }));
        assert_eq!(other.add(101), Err(Refusal::TooLarge { needed: 101, most: 100 }));
        assert_eq!(other.add(usize::MAX), Err(Refusal::TooLarge { needed: usize::MAX, most: 100 }));
        one.keep(10);
        assert_eq!(other.add(90), Ok(()));
        drop(one);
        assert_eq!((other.add(10), other.add(1)), (Ok(()), Err(Refusal::TooLarge { needed: 101, most: 100 })));
    }
}
