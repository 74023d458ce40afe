#![doc = include_str!("../README.md")]

pub mod id_vec;
pub mod limit;
pub mod text;
pub mod time;
