//! Placements of virtual networks: what holds for each of them, and how good they are.

mod explanations;
mod optimum;
mod oracle;
mod properties;
mod providers;
mod published;
mod random_cases;
