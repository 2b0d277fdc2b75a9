//! Proxies of both kinds, made from their settings.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use carina_api::AppName;
use carina_client::Node;
use carina_sys::Interest;

use super::{CLIENTS, ProxyService, WAKE};
use crate::error::GatewayError;
use crate::internet::Internet;
use crate::proxy::clients::Clients;
use crate::proxy::door_rules::DoorRules;
use crate::proxy::look_ups::LookUps;
use crate::proxy::routes::{Policy, Routes};
use crate::proxy::settings::Proxy;
use crate::refusals::Refusals;
use crate::service::Watch;
use crate::settings::CONNECTIONS_MAX;

impl ProxyService {
    /// A proxy at a listening socket.
    pub(crate) fn listen(
        node: Node,
        settings: Proxy,
        watch: Watch,
    ) -> Result<ProxyService, GatewayError> {
        let clients = Clients::listen(&settings.listen, watch.clone(), CLIENTS)?;
        let refusals = Refusals::new(format_args!("{} proxy", settings.protocol));
        let policy = Routes::new(settings.rules, settings.names, settings.pass);
        let policy = Box::new(policy);
        let of_node = (node, settings.local);
        let service = ProxyService::new(clients, policy, refusals, of_node, watch)?;
        Ok(ProxyService {
            protocol: Some(settings.protocol),
            connections_max: settings.connections_max,
            ..service
        })
    }

    /// A proxy behind a name, whose clients speak either protocol.
    pub(crate) fn door(
        node: Node,
        settings: Internet,
        watch: Watch,
    ) -> Result<ProxyService, GatewayError> {
        let (name, dif) = (&settings.name, settings.dif.as_ref());
        let clients = Clients::register(&node, name, dif, watch.clone(), CLIENTS)?;
        let refusals = Refusals::new(name);
        let policy = Box::new(DoorRules::new(settings.rules));
        let of_node = (node, settings.name);
        let service = ProxyService::new(clients, policy, refusals, of_node, watch)?;
        Ok(ProxyService {
            connections_max: settings.connections_max,
            counters: settings.counters,
            ..service
        })
    }

    fn new(
        clients: Clients,
        policy: Box<dyn Policy>,
        refusals: Refusals,
        (node, local): (Node, AppName),
        watch: Watch,
    ) -> Result<ProxyService, GatewayError> {
        let system = || GatewayError::system("waiting for look-ups of names");
        let look_ups = LookUps::new().map_err(system())?;
        let watched = watch.add(look_ups.wake.as_ref(), WAKE, Interest::Read);
        watched.map_err(system())?;
        Ok(ProxyService {
            clients,
            protocol: None,
            policy,
            connections_max: CONNECTIONS_MAX,
            counters: Arc::default(),
            node,
            local,
            watch,
            look_ups,
            sessions: BTreeMap::new(),
            relays: BTreeMap::new(),
            last_session: 0,
            asking: 0,
            queue: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES],
            refusals,
        })
    }
}

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;
