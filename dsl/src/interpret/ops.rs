//! What every primitive computes, over slices in row order; one file per group. Knows shapes and elements, no IR functions.

pub(super) mod contract;
pub(super) mod elementwise;
pub(super) mod index;
pub(super) mod reduce;
pub(super) mod round;
pub(super) mod shape;
pub(super) mod strides;
