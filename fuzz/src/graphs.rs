//! Graphs of apps: their files, and frames that come from anywhere.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Graph, Network, PortList, Ports,
};
use carina_graph::graph_file::read_graph;
use carina_graph::picture;
use carina_graph::trace::TraceRequest;
use carina_time::Instant;

/// Files of graphs.
pub fn graph_file(data: &[u8]) {
    reads_graph_file(data);
}

/// True when the bytes are a graph. It then passes its check and can be drawn; any other text gives
/// an error with words.
pub fn reads_graph_file(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    match read_graph(text) {
        Ok(graph) => {
            assert_eq!(graph.check(), Ok(()));
            let picture = picture::svg("graph", &graph, &BTreeMap::new());
            assert!(picture.ends_with("</svg>\n"));
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// Requests for traces.
pub fn trace_request(data: &[u8]) {
    reads_trace_request(data);
}

/// True when the bytes are a request. It is read again as it is written, and its links are found in
/// a graph or refused with words.
pub fn reads_trace_request(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(request) = text.parse::<TraceRequest>() else {
        return false;
    };
    let again = request.to_string().parse::<TraceRequest>();
    assert_eq!(again.as_ref(), Ok(&request));
    let mut graph = Graph::new();
    for link in ["a.output -> b.input", "b.output -> c.input"] {
        graph.link(link).expect("the name of a link");
    }
    match request.links_of(&graph) {
        Ok(links) => assert!((1..=2).contains(&links.len())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    true
}

/// Frames through an app: see [`reads_app_frames`].
pub fn app_frames(data: &[u8]) {
    reads_app_frames(data);
}

/// The first byte chooses a graph of one app; then each frame is a byte that chooses its input, two
/// bytes of length and so many bytes. True when all frames are whole. However they look, each is
/// given back to the pool, and what leaves an app has a length that the pool can have.
pub fn reads_app_frames(data: &[u8]) -> bool {
    let Some((choice, mut rest)) = data.split_first() else {
        return false;
    };
    let (config, inputs, outputs) = APPS[usize::from(*choice) % APPS.len()];
    let waiting = Waiting::default();
    let mut is_whole = true;
    while let Some((head, behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]) % (FRAME_BYTES + 1));
        is_whole &= behind.len() >= length;
        let (bytes, behind) = behind.split_at(length.min(behind.len()));
        let input = usize::from(head[0]) % inputs.len();
        waiting
            .lock()
            .expect("one thread uses it")
            .push_back((input, bytes.to_vec()));
        rest = behind;
    }
    let pool = POOL.with(Pool::clone);
    let counters = COUNTERS.with(CounterFile::clone);
    let mut network = Network::new(pool.clone(), counters).expect("a network");
    let graph = graph(config, inputs, outputs, &waiting);
    network.configure(&graph).expect("a graph that is right");
    for second in 0..ROUNDS {
        network.breathe(Instant::from_secs(second * 100));
    }
    drop(network);
    assert_eq!(pool.spare(), FRAMES, "frames were lost");
    is_whole && rest.is_empty()
}

/// Frames that come: the number of the input, and the bytes.
type Waiting = Arc<Mutex<VecDeque<(usize, Vec<u8>)>>>;

/// An app's configuration, its inputs and its outputs.
type App = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const APPS: [App; 24] = [
    ("kind = \"hop\"", &["input"], &["output"]),
    (
        "kind = \"bridge\"\naddresses = 4",
        &["a", "b", "c"],
        &["a", "b", "c"],
    ),
    (
        "kind = \"vlan_mux\"",
        &["trunk", "native", "vlan5"],
        &["trunk", "native", "vlan5"],
    ),
    ("kind = \"vlan_tag\"\nvlan = 7", &["input"], &["output"]),
    ("kind = \"vlan_untag\"\nvlan = 7", &["input"], &["output"]),
    (
        "kind = \"icmp_echo\"\naddress = \"10.0.0.1\"",
        &["south", "north"],
        &["south", "north"],
    ),
    (
        "kind = \"arp\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:00:01\"\nnext = \"10.0.0.2\"",
        &["south", "north"],
        &["south", "north"],
    ),
    (
        "kind = \"split\"\nby = \"flow\"",
        &["input"],
        &["a", "b", "c"],
    ),
    (
        "kind = \"route4\"\nroutes = [{ prefix = \"10.0.0.0/9\", output = \"a\" }]",
        &["input"],
        &["a"],
    ),
    (
        "kind = \"pcap_filter\"\nfilter = \"udp or tcp[13] & 2 != 0\"\nback_filter = \"ip6\"\n\
         state = { connections = 4 }",
        &["input", "back_input"],
        &["output", "back_output"],
    ),
    (
        "kind = \"rate_limiter\"\nbits_per_second = 800\nbucket_bytes = 2048",
        &["input"],
        &["output"],
    ),
    (
        "kind = \"l2tpv3\"\nlocal = \"fd00::1\"\nremote = \"fd00::2\"\n\
         local_cookie = \"0011223344556677\"\nremote_cookie = \"0011223344556677\"",
        &["north", "south"],
        &["north", "south"],
    ),
    (
        "kind = \"gre\"\nlocal = \"10.0.0.1\"\nremote = \"10.0.0.2\"\nkey = 5",
        &["north", "south"],
        &["north", "south"],
    ),
    (
        "kind = \"gre\"\nlocal = \"fd00::1\"\nremote = \"fd00::2\"\npayload = \"ip\"",
        &["north", "south"],
        &["north", "south"],
    ),
    (
        "kind = \"ipip\"\nlocal = \"10.0.0.1\"\nremote = \"10.0.0.2\"",
        &["north", "south"],
        &["north", "south"],
    ),
    (
        "kind = \"vxlan\"\nlocal = \"10.0.0.1\"\nremote = \"10.0.0.2\"\nvni = 5",
        &["north", "south"],
        &["north", "south"],
    ),
    (
        "kind = \"esp\"\nspi = 256\n\
         transmit_key = \"ffeeddccbbaa99887766554433221100\"\ntransmit_salt = \"00000001\"\n\
         receive_key = \"00112233445566778899aabbccddeeff\"\nreceive_salt = \"00000001\"\n\
         resync_threshold = 1",
        &["north", "south"],
        &["north", "south"],
    ),
    (
        "kind = \"nd\"\naddress = \"fd00::1\"\nmac = \"02:00:00:00:00:01\"\nnext = \"fd00::2\"",
        &["south", "north"],
        &["south", "north"],
    ),
    (
        "kind = \"route6\"\nroutes = [{ prefix = \"fd00::/19\", output = \"a\" }]",
        &["input"],
        &["a"],
    ),
    (
        "kind = \"mac_mux\"\nports = [{ name = \"a\", mac = \"02:00:00:00:00:01\", vlan = 5 }, \
         { name = \"b\", vlan = 5 }, { name = \"c\" }]",
        &["uplink", "a", "b", "c"],
        &["uplink", "a", "b", "c"],
    ),
    (
        "kind = \"tunnel_mux\"\nmac = \"02:00:00:00:00:01\"\ntunnels = [\
         { name = \"a\", carrier = \"gre\", local = \"10.0.0.1\", remote = \"10.0.0.2\", \
         tag = 5 }, \
         { name = \"b\", carrier = \"vxlan\", local = \"10.0.0.1\", remote = \"10.0.0.2\", \
         tag = 5 }, \
         { name = \"c\", carrier = \"ipip\", local = \"10.0.0.1\", remote = \"10.0.0.2\" }]",
        &["wire", "a", "b", "c"],
        &["wire", "a", "b", "c"],
    ),
    (
        "kind = \"esp_tunnel\"\nlocal = \"10.0.0.1\"\nremote = \"10.0.0.2\"\n\
         transmit_spi = 256\nreceive_spi = 256\n\
         transmit_key = \"ffeeddccbbaa99887766554433221100\"\ntransmit_salt = \"00000001\"\n\
         receive_key = \"00112233445566778899aabbccddeeff\"\nreceive_salt = \"00000001\"",
        &["north", "south"],
        &["north", "south"],
    ),
    (
        "kind = \"ipfix\"\nlocal = \"10.0.0.1\"\ncollector = \"10.0.0.2\"\nflows = 3\n\
         idle_timeout = 60",
        &["input"],
        &["output", "export"],
    ),
    (
        "kind = \"rss\"\nclasses = [{ vlans = [5], outputs = { a = 1 }, continue = true }, \
         { filter = \"ip\", by = \"addresses\", outputs = { a = 1, b = 2 } }, \
         { outputs = { a = 3, b = 1 } }]",
        &["input"],
        &["a", "b"],
    ),
];

fn graph(config: &str, inputs: &[&str], outputs: &[&str], waiting: &Waiting) -> Graph {
    let mut links: Vec<String> = Vec::new();
    let mut probes = String::new();
    for (at, port) in inputs.iter().enumerate() {
        links.push(format!("\"in{at}.o -> app.{port}\""));
        probes += &format!("[apps.in{at}]\nkind = \"source\"\n");
    }
    for (at, port) in outputs.iter().enumerate() {
        links.push(format!("\"app.{port} -> sink.i{at}\""));
    }
    let links = links.join(", ");
    let text =
        format!("links = [{links}]\n[apps.app]\n{config}\n[apps.sink]\nkind = \"sink\"\n{probes}");
    let mut graph = read_graph(&text).expect("a graph that is right");
    for at in 0..inputs.len() {
        let waiting = Arc::clone(waiting);
        graph.app(&format!("in{at}"), Feeder { input: at, waiting });
    }
    graph
}

/// Puts the frames of one input on its link.
#[derive(Clone, Debug)]
struct Feeder {
    input: usize,
    waiting: Waiting,
}

impl PartialEq for Feeder {
    fn eq(&self, other: &Feeder) -> bool {
        self.input == other.input && Arc::ptr_eq(&self.waiting, &other.waiting)
    }
}

struct FeederApp {
    feeder: Feeder,
    pool: Pool,
}

impl AppConfig for Feeder {
    const KIND: &'static str = "feeder";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::Any;

    type App = FeederApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<FeederApp, AppError> {
        Ok(FeederApp {
            feeder: self.clone(),
            pool: context.pool().clone(),
        })
    }
}

impl FrameApp for FeederApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let waiting = &mut *self.feeder.waiting.lock().expect("one thread uses it");
        // All inputs take from one queue, so that frames of several come in their order.
        while let Some((_, bytes)) = waiting.pop_front_if(|(input, _)| *input == self.feeder.input)
        {
            let frame = self.pool.frame_of(&bytes);
            ports.transmit(0, frame.expect("a frame in the pool, and of its length"));
        }
    }
}

const FRAMES: usize = 2048;
const FRAME_BYTES: u16 = 256;
/// Breaths: the first ones bring the frames in.
const ROUNDS: u64 = 8;

thread_local! {
    static POOL: Pool = Pool::new(PoolConfig {
        frames: FRAMES,
        frame_bytes: FRAME_BYTES as usize,
    })
    .expect("a pool");
    static COUNTERS: CounterFile = CounterFile::private().expect("counters");
}
