//! Tests graphs with labels, coordinates and impairments: GraphML and GML.

use super::*;

#[test]
fn graphml_nodes_are_called_by_their_labels() {
    let text = "<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n\
                <key attr.name=\"label\" for=\"node\" id=\"d1\"/>\n\
                <key attr.name=\"Latitude\" for=\"node\" id=\"d4\"/>\n\
                <key attr.name=\"Longitude\" for=\"node\" id=\"d5\"/>\n\
                <key attr.name=\"LinkSpeedRaw\" for=\"edge\" id=\"d2\"/>\n\
                <key attr.name=\"Network\" for=\"graph\" id=\"d3\"/>\n\
                <graph edgedefault=\"undirected\"><data key=\"d3\">Abilene</data>\n\
                <node id=\"0\"><data key=\"d1\">New York</data>\
                <data key=\"d4\">40.71427</data><data key=\"d5\">-74.00597</data></node>\n\
                <node id=\"1\"><data key=\"d1\">AT&amp;T</data></node>\n\
                <node id=\"2\"><data key=\"d1\">New York</data></node>\n\
                <edge source=\"0\" target=\"1\"><data key=\"d2\">10000000000.0</data></edge>\n\
                <edge source=\"1\" target=\"2\"/>\n<edge source=\"1\" target=\"9\"/>\n\
                </graph></graphml>\n";
    let found = imported(Format::Graphml, "Abilene.graphml", text);
    assert_eq!(found.document.vnet.name, "Abilene");
    assert_eq!(
        links(&found),
        ["New-York AT-T 10Gbps", "AT-T New-York-2 100Mbps"]
    );
    // North is up, and a degree of longitude is shorter than one of latitude.
    assert_eq!(position(&found, "New-York"), "-56.094446 -40.71427");
    assert_eq!(position(&found, "AT-T"), "");
    let notes = notes(&found).join("\n");
    assert!(notes.contains("13 an edge without two nodes"), "{notes}");
    assert!(refusal(Format::Graphml, "<graphml/>").contains("no <graph>"));
    let deep = "<graphml>".repeat(50);
    assert!(refusal(Format::Graphml, &deep).contains("deeper"));
}

#[test]
fn gml_nodes_are_called_by_their_labels() {
    let text = "# of the Topology Zoo\nCreator \"x\"\ngraph [\n  Network \"Abilene\"\n  \
                node [ id 0 label \"New York\" graphics [ x 1.5 y -2 ] ]\n  \
                node [ id 1 label \"AT&amp;T\" Latitude 1 Longitude 2.5 ]\n  node [\n    id 2\n    label \"New York\"\n  ]\n  \
                edge [ source 0 target 1 LinkSpeedRaw 10000000000.0 ]\n  \
                edge [ source 1 target 2 ]\n  edge [ source 1 target 9 ]\n]\n";
    let found = imported(Format::Gml, "Abilene.gml", text);
    assert_eq!(found.document.vnet.name, "Abilene");
    assert_eq!(
        links(&found),
        ["New-York AT-T 10Gbps", "AT-T New-York-2 100Mbps"]
    );
    assert_eq!(position(&found, "New-York"), "1.5 -2");
    assert_eq!(position(&found, "AT-T"), "2.499619 -1");
    assert_eq!(position(&found, "New-York-2"), "");
    let notes = notes(&found).join("\n");
    assert!(notes.contains("13 an edge without two nodes"), "{notes}");
    for (text, what) in [
        ("graph [ node [ id 0 ]", "line 1: a `[` without"),
        ("graph [ ] ]", "line 1: a `]` without"),
        ("graph\n[ node ]", "line 2: the key \"node\" has no value"),
        ("graph [ \"a\" 1 ]", "a key is expected"),
        ("a \"b", "a text without its end"),
        ("a 1", "there is no list"),
    ] {
        let error = refusal(Format::Gml, text);
        assert!(error.contains(what), "{text}: {error}");
    }
    let deep = "a [ ".repeat(50);
    assert!(refusal(Format::Gml, &deep).contains("deeper than 32"));
}

#[test]
fn edges_have_the_impairments_of_shadow() {
    let text = "graph [ node [ id 0 ] node [ id 1 ]\n\
                edge [ source 0 target 1 latency \"10 ms\" jitter \"1 ms\" packet_loss 0.01 ]\n\
                edge [ source 0 target 1 latency 0.5 loss 2 ]\n\
                edge [ source 0 target 1 jitter 3 ] ]\n";
    let found = imported(Format::Gml, "x.gml", text);
    let impaired = found
        .document
        .link
        .iter()
        .map(|side| side.impairment().to_string());
    assert_eq!(
        impaired.collect::<Vec<_>>(),
        ["delay=10ms jitter=1ms loss=1%", "delay=500us", "none"]
    );
    assert_eq!(
        notes(&found)[..2],
        ["3 loss \"2\"", "4 the impairment of the link 0 -- 1"]
    );
}
