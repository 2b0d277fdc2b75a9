//! Tests links that are impaired by their document, and operators who impair them further.

use std::time::Duration;

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};
use carina_vnet::impairment::{Impairment, LinkImpairment};
use carina_vnet::report::VnetState;
use carina_vnet_host::Agent;
use carina_vnet_host::export::ExportFormat;

use crate::waiting::{TestDirectory, is_root, wait_until_settled};

const EXAMPLE: &str = include_str!("../../../../examples/vnets/impaired.toml");
const NAME: &str = "impaired";

fn document(text: &str) -> Document {
    Document::read(text, Form::Toml).expect("the text is a document")
}

/// The impairments of the two links, as their reports have them.
fn impairments(agent: &Agent) -> Vec<String> {
    let links = agent.report(NAME).unwrap().links;
    links
        .iter()
        .map(|link| link.impairment.to_string())
        .collect()
}

/// The round trips of the two links, measured now.
fn round_trips(agent: &Agent) -> Vec<Duration> {
    let tests = agent.test(NAME).unwrap();
    assert!(tests.iter().all(|test| test.holds), "{tests:?}");
    let links = agent.report(NAME).unwrap().links;
    let times = links
        .iter()
        .map(|link| link.rtt_ns.expect("a probe passed"));
    times.map(Duration::from_nanos).collect()
}

const FIRST: &str = "delay=20ms jitter=2ms loss=0.5% duplicate=0.1% reorder=0.1% corrupt=0.1% \
                     from its first end, delay=30ms jitter=2ms duplicate=0.1% reorder=0.1% \
                     corrupt=0.1% from its second";

#[test]
fn links_are_as_bad_as_the_document_and_its_operator_say() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let run_dir = RunDir::new(directory.path());
    let agent = Agent::new(&run_dir).unwrap();
    agent.create(&document(EXAMPLE)).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert_eq!(impairments(&agent), ["delay=10ms", FIRST]);
    let times = round_trips(&agent);
    assert!(times[0] >= Duration::from_millis(20), "{times:?}");

    // An operator's values come on top of those of the document, which may change below them.
    let lossy = Some(Impairment {
        loss: "1%".parse().ok(),
        ..Impairment::default()
    });
    let both = LinkImpairment {
        there: lossy,
        back: lossy,
    };
    agent.impair(NAME, 0, both).unwrap();
    assert_eq!(impairments(&agent)[0], "delay=10ms loss=1%");
    let later = EXAMPLE.replace("delay = \"10ms\"", "delay = \"40ms\"");
    let plan = agent.plan(&document(&later)).unwrap();
    let reasons: Vec<&str> = plan.steps.iter().map(|step| step.reason.as_str()).collect();
    assert_eq!(reasons, ["impairment delay=10ms -> delay=40ms"]);
    agent.apply(&document(&later)).unwrap();
    assert_eq!(wait_until_settled(&agent, NAME).state, VnetState::Ready);
    assert_eq!(impairments(&agent)[0], "delay=40ms loss=1%");
    assert!(round_trips(&agent)[0] >= Duration::from_millis(80));

    // Both kinds are saved and restored.
    let place = directory.path().join("saved");
    agent.save(NAME, &place).unwrap();
    agent.remove(NAME).unwrap();
    agent.restore(&place).unwrap();
    let report = wait_until_settled(&agent, NAME);
    assert_eq!(report.state, VnetState::Ready, "{report:?}");
    assert_eq!(impairments(&agent), ["delay=40ms loss=1%", FIRST]);
    let manifest = ExportFormat::Rspec.write(&report);
    let shaped = "capacity=\"100000\" latency=\"40\" packet_loss=\"0.01\"/>";
    assert_eq!(manifest.matches(shaped).count(), 2, "{manifest}");

    // Without the operator's values, those of the document apply.
    agent.impair(NAME, 0, LinkImpairment::default()).unwrap();
    assert_eq!(impairments(&agent)[0], "delay=40ms");
    agent.remove(NAME).unwrap();
}
