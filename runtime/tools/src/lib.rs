//! The commands of `mlxcel` over family files: what needs the language and the emitters, and no model.
