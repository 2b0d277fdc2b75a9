//! Measures how much an idle flow waits behind a crowd: the round-trip times of a flow that rarely
//! sends, alone, and beside flows between the same VM and its host that send all the time.

use carina_measure::crowd::Crowd;
use carina_measure::results::{Metric, Results, Samples, machine};
use carina_measure::summary::Summary;
use carina_measure::traffic::Rate;
use carina_measure::trial::target::Target;

use crate::comparison::{System, TransportSpec};
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::hv::HvOptions;
use crate::peer::app_name;
use crate::vm_and_host::{CardNetwork, VmAndHost};

/// Name of the case without other flows.
const ALONE: &str = "idle flow alone";

/// Name of the case in which the crowd sends.
const BESIDE: &str = "idle flow beside crowd";

/// Metrics of the tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 4] = [
    (ALONE, Metric::RttP50Us, "round-trip time, median, µs"),
    (ALONE, Metric::RttP99Us, "round-trip time, 99 of 100, µs"),
    (BESIDE, Metric::RttP50Us, "round-trip time, median, µs"),
    (BESIDE, Metric::RttP99Us, "round-trip time, 99 of 100, µs"),
];

/// Size of an SDU of the idle flow in bytes.
const IDLE_SDU: u64 = 64;

/// Size of an SDU of the crowd in bytes.
const CROWD_SDU: usize = 1400;

/// Largest ratio of the 99th percentiles that is required of streams.
const BAR: f64 = 2.0;

/// Boots a VM, and measures the idle flow over each of its VMPI devices.
///
/// # Errors
/// As for [`measure`].
pub fn run(options: &HvOptions, network: CardNetwork, flows: usize) -> Result<Results> {
    let program = options.guest_program.clone();
    let mut setup = VmAndHost::start(network, &options.systems, program, options.progress)?;
    measure(&mut setup, options, flows)
}

/// Measures each system that carries flows alternately: alone, and while `flows` other flows send.
///
/// # Errors
/// Something is missing or fails; the error contains logs.
pub fn measure(setup: &mut VmAndHost, options: &HvOptions, flows: usize) -> Result<Results> {
    let measured = in_turns(setup, options, flows);
    let (samples, notes, failures) = measured.map_err(|error| setup.explain(error))?;
    let mut all = setup.notes.clone();
    all.push(format!(
        "the idle flow echoes SDUs of {IDLE_SDU} bytes, {IDLE_PPS} a second; the crowd is {flows} \
         flows from the host to the guest, each with SDUs of {CROWD_SDU} bytes as fast as possible"
    ));
    all.extend(notes);
    Ok(Results {
        bench: "hv".to_owned(),
        machine: machine(),
        notes: all,
        rows: samples.rows(),
        factors: Vec::new(),
        failures,
    })
}

fn in_turns(
    setup: &mut VmAndHost,
    options: &HvOptions,
    flows: usize,
) -> Result<(Samples, Vec<String>, Vec<String>)> {
    let name = app_name("carina.bench.crowd")?;
    setup.run_in_guest(&format!(
        "(while :; do carina bench-peer {name} --drain --wait 20s; sleep 0.2; done) </dev/null \
         >/tmp/crowd.log 2>&1 &"
    ))?;
    setup.wait_for_name(&name)?;
    let (mut samples, mut notes) = (Samples::default(), Vec::new());
    let mut failures = Failures::new(options.progress);
    for system in setup.systems.clone() {
        let TransportSpec::Flow(dif) = &system.transport else {
            continue;
        };
        let target = setup.client.target_of(&name, dif.as_ref());
        let mut ratios = Vec::new();
        for run in 1..=options.runs {
            let what = format!("run {run} of {}: {}", options.runs, system.name);
            options.progress.step(&what);
            let ratio = turn(setup, &system, options, (&target, flows), &mut samples);
            ratios.extend(failures.note(&what, ratio)?);
        }
        ratios.sort_by(f64::total_cmp);
        if let Some(median) = ratios.get(ratios.len() / 2) {
            notes.push(format!(
                "{}: 99th percentile beside {flows} flows is {median:.2} x that alone (median of \
                 {} runs); bar of streams {BAR}",
                system.name,
                ratios.len(),
            ));
        }
    }
    Ok((samples, notes, failures.into_lines()))
}

/// Measures one system alone and beside a crowd of flows to `target`. Returns the ratio of the 99th
/// percentiles.
fn turn(
    setup: &mut VmAndHost,
    system: &System,
    options: &HvOptions,
    (target, flows): (&Target, usize),
    samples: &mut Samples,
) -> Result<f64> {
    let alone = idle(setup, system, options, ALONE, samples)?;
    let crowd = Crowd::start(target, flows, CROWD_SDU)?;
    let before = crowd.sent();
    let beside = idle(setup, system, options, BESIDE, samples);
    let sent = crowd.sent() - before;
    // The next run, and its echo without other flows, must not meet SDUs of this crowd.
    crowd.finish()?;
    let beside = beside?;
    let seconds = options.time_ns as f64 / 1e9;
    let mbps = sent as f64 * CROWD_SDU as f64 * 8e-6 / seconds;
    let bytes = CROWD_SDU as u64;
    samples.add(BESIDE, bytes, system.name, Metric::GoodputMbps, mbps);
    Ok(beside.p99 / alone.p99)
}

/// Measures the idle flow of one system.
fn idle(
    setup: &mut VmAndHost,
    system: &System,
    options: &HvOptions,
    case: &str,
    samples: &mut Samples,
) -> Result<Summary> {
    let rate = Rate::Sdus(IDLE_PPS);
    let trial = system.echo_at(&mut setup.client, IDLE_SDU, options.time_ns, rate)?;
    let seen = trial.receiver().rtt_us;
    let seen = seen.ok_or_else(|| Error::NoAnswer("no echo arrived".to_owned()))?;
    samples.add(case, IDLE_SDU, system.name, Metric::RttP50Us, seen.p50);
    samples.add(case, IDLE_SDU, system.name, Metric::RttP99Us, seen.p99);
    Ok(seen)
}

/// SDUs of the idle flow in a second.
const IDLE_PPS: f64 = 500.0;
