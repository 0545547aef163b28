//! A request's place in the line from before its body is read until it waits for a row: how many requests are prepared at a time,
//! and what memory they take, is bounded as what waits is.

use std::{collections::BTreeMap, sync::Arc};

use mgraph_runtime::pictures::Pictures;

use super::{memory::Charge, numbers, shared::Shared};
use crate::request::{Refusal, Request};

/// Dropping it gives up the place and the memory.
pub struct Place {
    shared: Arc<Shared>,
    memory: Option<Charge>,
}

impl Place {
    pub(super) fn of(shared: &Arc<Shared>) -> Result<Place, Refusal> {
        shared.enter()?;
        Ok(Place { shared: Arc::clone(shared), memory: Some(Charge::none(&shared.memory)) })
    }

    /// Counts `bytes` more as held.
    ///
    /// Errors: requests hold too much at present, or this one would alone.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.memory.as_mut().map_or(Ok(()), |memory| memory.add(bytes)).inspect_err(numbers::rejected)
    }

    /// Gives back `bytes` of what is held.
    pub fn release(&mut self, bytes: usize) {
        if let Some(memory) = &mut self.memory {
            memory.keep(memory.bytes().saturating_sub(bytes));
        }
    }

    /// Of the memory, what the pictures of the request take from here on; the rest is given back.
    pub(super) fn of_pictures(&mut self, requests: &[Request]) -> Result<Charge, Refusal> {
        let mut memory = self.memory.take().unwrap_or_else(|| Charge::none(&self.shared.memory));
        // Answers to one prompt share its pictures.
        let each: BTreeMap<_, usize> =
            requests.iter().map(|request| (Arc::as_ptr(&request.pictures), size(&request.pictures))).collect();
        let needed: usize = each.values().sum();
        memory.keep(needed);
        memory.add(needed - memory.bytes())?;
        Ok(memory)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

fn size(pictures: &Pictures) -> usize {
    pictures.vision.iter().map(|(_, tensor)| tensor.bytes.len()).sum()
}
