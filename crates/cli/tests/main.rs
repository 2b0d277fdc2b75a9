//! Tests of the program `carina`: its commands, labs and the tutorial.

mod bridge;
mod commands;
mod labs;
mod mistakes;
mod top;
mod tutorial;
