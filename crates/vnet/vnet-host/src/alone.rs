//! Networks that are entirely on this host.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use carina_vnet::division::{Placement, add_routes, divide_without_routes};
use carina_vnet::document::Document;
use carina_vnet::host_part::VnetId;
use carina_vnet::layout::Layout;

use crate::directory::{Record, Requester};
use crate::error::{Error, Result};

/// The record of a network that is entirely on this host.
pub(crate) fn record_of(
    document: &Document,
    vnet: VnetId,
    generation: u64,
    layout: Layout,
) -> Result<Record> {
    let mut record = record_without_routes(document, vnet, generation, layout)?;
    record.add_routes();
    Ok(record)
}

impl Record {
    /// Gives the nodes of an operator's network their routes.
    pub(crate) fn add_routes(&mut self) {
        if let Requester::Here { layout, .. } = &self.wanted {
            add_routes(layout, std::iter::once(&mut self.part));
        }
    }
}

/// Like [`record_of`], but the nodes have no routes yet.
pub(crate) fn record_without_routes(
    document: &Document,
    vnet: VnetId,
    generation: u64,
    layout: Layout,
) -> Result<Record> {
    let nodes = document.node.keys();
    let numbers = layout.links().map(|(number, _)| number);
    let placement = Placement {
        hosts: nodes.map(|node| (node.clone(), HERE.to_owned())).collect(),
        // No link leaves the host, so that the links' own numbers serve as tags.
        tags: numbers.map(|number| (number, number)).collect(),
        outer: BTreeMap::new(),
    };
    let mut parts = divide_without_routes(document, (vnet, generation), &layout, &placement)?;
    let part = parts.remove(HERE).ok_or(Error::Ended("the only host"))?;
    Ok(Record {
        vnet,
        wanted: Requester::Here {
            document: Box::new(document.clone()),
            layout,
        },
        part,
        is_settled: false,
        until_ms: document.vnet.lease.map(|lease| {
            let ms = lease.duration().as_nanos() / 1_000_000;
            now_ms().saturating_add(ms)
        }),
    })
}

/// The current time of this host's clock, in ms since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |duration| {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The name of the only host.
const HERE: &str = "here";
