//! Tests of placements: properties that each must have, and how good they are.

mod explanations;
mod optimum;
mod oracle;
mod properties;
mod providers;
mod published;
mod random_cases;
