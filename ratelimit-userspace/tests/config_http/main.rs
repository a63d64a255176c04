//! The `http` section and its rule files: what they mean, what they are refused for, what they are warned of.

mod escalate;
mod fixture;
mod identify;
mod limits;
mod random;
mod rule_files;
mod section;
mod warnings;
