//! The house rules that only a look at the whole workspace can check; see `tests/`.
