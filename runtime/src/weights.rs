//! Bound weights as host tensors: concatenated, stacked and cut as the family's `as` clauses say, in the dtype asked for.
//! Both backends read weights through here, by field path, and each stored tensor's pages are given back after the copy.
