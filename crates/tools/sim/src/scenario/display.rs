//! Prints a scenario as text for people.

use std::fmt;

use super::{Fault, SECOND, Scenario, Selection};
use crate::dialect::Terms;
use crate::link::Profile;

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario {
            seed,
            dialect,
            members,
            shape,
            edges,
            profile,
            detection_ns,
            config,
            faults,
            heal_ns,
            calls,
            kept,
        } = self;
        let shape = format!("{shape:?}").to_lowercase();
        writeln!(
            f,
            "seed {seed}: {members} members that speak {}, {shape}, {calls} calls, healed after {} s",
            dialect.name(),
            heal_ns / SECOND
        )?;
        if *kept != Selection::all(*members, faults.len(), *calls) {
            writeln!(
                f,
                "  of these, members {}, faults {} and calls {} are kept",
                kept.members, kept.faults, kept.calls
            )?;
        }
        let edges = edges.iter().enumerate();
        let edges = edges.filter(|(number, _)| self.has_edge(*number));
        let edges: Vec<String> = edges.map(|(_, [a, b])| format!("{a}-{b}")).collect();
        writeln!(f, "  cables between {}", edges.join(", "))?;
        writeln!(f, "  each {profile}")?;
        match detection_ns {
            Some(ns) => writeln!(f, "  dead ones noticed after {} ms", millis(*ns))?,
            None => writeln!(f, "  dead ones noticed by the silence only")?,
        }
        let policies: Vec<String> = config
            .policies
            .iter()
            .map(|(component, spec)| format!(", {component}={}", spec.name))
            .collect();
        writeln!(
            f,
            "  keep-alive {} ms, MPL {} ms, concatenation {}{}",
            config.keepalive_ms,
            config.max_pdu_lifetime_ms,
            config.concatenation,
            policies.concat()
        )?;
        for restriction in Terms::of(*dialect).restrictions {
            writeln!(f, "  {}: {restriction}", dialect.name())?;
        }
        let faults = faults.iter().enumerate();
        for (_, (at, fault)) in faults.filter(|(number, _)| kept.faults.has(*number)) {
            writeln!(f, "  {:>10.3} s {fault}", *at as f64 / SECOND as f64)?;
        }
        Ok(())
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delays PDUs by {} ms", millis(self.delay_ns))?;
        if self.jitter_ns > 0 {
            write!(f, " and up to {} ms more", millis(self.jitter_ns))?;
        }
        if self.rate_bps > 0 {
            let full = if self.is_blocking { "waits" } else { "drops" };
            let rate = self.rate_bps as f64 / 1e6;
            write!(f, ", carries {rate:.3} Mbit/s and {full} when ")?;
            write!(f, "{} bytes are queued", self.queue_bytes)?;
        }
        for (share, what) in [
            (self.loss, "loses"),
            (self.duplication, "doubles"),
            (self.reorder, "reorders"),
            (self.corruption, "damages"),
        ] {
            if share > 0 {
                write!(f, ", {what} {} %", f64::from(share) / 100.0)?;
            }
        }
        write!(f, ", MTU {}", self.mtu)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Crash(system) => write!(f, "system {system} dies"),
            Fault::Restart(system) => write!(f, "system {system} starts again"),
            Fault::Cut(cables) => write!(f, "cables {} are cut", numbers(cables)),
            Fault::Mend(cables) => write!(f, "cables {} are mended", numbers(cables)),
            Fault::Storm(cable) => write!(f, "cable {cable} goes wild"),
            Fault::Calm(cable) => write!(f, "cable {cable} is as before"),
            Fault::Leave(system) => write!(f, "member {system} leaves"),
            Fault::ComeBack(system) => write!(f, "member {system} joins again"),
        }
    }
}

fn numbers(all: &[usize]) -> String {
    let all: Vec<String> = all.iter().map(usize::to_string).collect();
    all.join(", ")
}

fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::super::Overrides;
    use super::*;

    #[test]
    fn description_names_only_what_is_set() {
        assert_eq!(
            Profile::clean().to_string(),
            "delays PDUs by 1 ms, MTU 1500"
        );
        let lossy = Profile {
            rate_bps: 1_500_000,
            queue_bytes: 3000,
            is_blocking: false,
            loss: 150,
            ..Profile::clean()
        };
        assert_eq!(
            lossy.to_string(),
            "delays PDUs by 1 ms, carries 1.500 Mbit/s and drops when 3000 bytes are queued, \
             loses 1.5 %, MTU 1500"
        );
        let cut = Fault::Cut(vec![3, 5]);
        assert_eq!(cut.to_string(), "cables 3, 5 are cut");
        let scenario = Scenario::new(7, Overrides::default()).to_string();
        for odd in ['{', '[', '"', '('] {
            assert!(!scenario.contains(odd), "{scenario}");
        }
    }
}
