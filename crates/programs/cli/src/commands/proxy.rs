//! `carina proxy`: clients of SOCKS5 and HTTP proxies reach names of DIFs.

use carina_api::AppName;
use carina_gateway::{CONNECTIONS_MAX, Gateway, Protocol, Proxy};
use carina_wrap::rule::Rule;

use crate::Shared;
use crate::commands::expose::{endpoint, node, wrong};
use crate::commands::rules;
use crate::failure::{Attempt, Outcome};
use crate::interrupt::TAKING_SIGNALS;
use crate::report::{print_json, print_line};

/// Serve as a SOCKS5 and HTTP proxy whose connections become flows, by rules
///
/// A destination that no rule fits is refused, unless --pass.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    carina proxy --socks5 127.0.0.1:1080\n  \
    curl -x socks5h://127.0.0.1:1080 http://web.dif.internal/   a flow to web:80\n  \
    carina proxy --http 127.0.0.1:3128 --rule '*.vm -> dif'\n  \
    curl -x http://127.0.0.1:3128 http://web.vm:8080/           a flow to web.vm:8080\n  \
    carina proxy --http 127.0.0.1:3128 --rule 'www.example.com:80 -> kernel'\n\n\
    The rules have the format of carina wrap. `-> kernel` connects by TCP, `-> refuse` refuses.\n\
    The first rule that fits decides. The command runs until Ctrl-C, which ends its connections.")]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    listeners: Listeners,
    /// Rule that says which destinations become flows, such as '*.vm -> dif net'; may be repeated
    /// [default: '*.dif.internal -> dif as {name}:{port}']
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<Rule>,
    /// Connect by TCP to destinations that no rule fits [default: refuse them]
    #[arg(long)]
    pass: bool,
    /// Application name that the other side sees as the caller
    #[arg(long, default_value = "carina.proxy")]
    local: AppName,
    /// Largest number of connections of each listener at the same time; the kernel keeps further
    /// connections waiting
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX)]
    connections_max: usize,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Listeners {
    /// Listen for SOCKS5 clients on this address, such as 127.0.0.1:1080; with port 0 the kernel
    /// chooses one, which is printed
    #[arg(long, value_name = "HOST:PORT")]
    socks5: Option<String>,
    /// Listen for clients of an HTTP proxy on this address, such as 127.0.0.1:8080; with port 0 the
    /// kernel chooses one, which is printed
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
}

/// Serves SOCKS 5 and HTTP clients as a proxy into DIFs, as the rules say, until a signal arrives.
///
/// # Errors
/// A rule or an address is wrong, an address cannot be listened on, or no node runs.
pub(crate) fn run(shared: &Shared, args: ProxyArgs) -> Outcome {
    rules::check(&args.rules)?;
    let mut wanted = args.rules;
    if wanted.is_empty() {
        wanted.push(rules::default_rule()?);
    }
    let names = rules::name_table(shared)?;
    let listeners = [
        (Protocol::Socks5, args.listeners.socks5),
        (Protocol::Http, args.listeners.http),
    ];
    let mut all = Vec::new();
    for (protocol, address) in listeners {
        let Some(address) = address else {
            continue;
        };
        let listen = endpoint("tcp", &address)?;
        let mut proxy = Proxy::new(protocol, listen, wanted.clone(), names.clone());
        proxy.pass = args.pass;
        proxy.local = args.local.clone();
        proxy.connections_max = args.connections_max;
        proxy.check().map_err(wrong)?;
        all.push(proxy);
    }
    let stop = carina_sys::StopSignal::new().attempt(TAKING_SIGNALS)?;
    let _last_lines = crate::log::start_for_server()?;
    let mut gateway = Gateway::new(node(shared)?).attempt("starting")?;
    let mut listening = serde_json::Map::new();
    for proxy in all {
        let protocol = proxy.protocol.to_string();
        listening.insert(protocol, gateway.proxy(proxy)?.to_string().into());
    }
    if shared.json {
        print_json(&serde_json::Value::Object(listening))?;
    } else {
        for (protocol, endpoint) in &listening {
            let endpoint = endpoint.as_str().unwrap_or_default();
            print_line(format!("{endpoint} is a proxy ({protocol})"))?;
        }
    }
    Ok(gateway.run(stop)?)
}
