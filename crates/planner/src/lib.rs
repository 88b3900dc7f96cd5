//! SQL text and a catalog snapshot in, a plan out: parsing, binding, the plan cache.
