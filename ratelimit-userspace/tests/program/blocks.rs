//! Blocks: what becomes of the packets of those who are blocked, and what userspace does to the maps.

mod host;
mod maps;
mod overrides;
mod saved;
mod verdicts;
