//! Bundles: several SDUs of a flow in one record of the device, in the format of the flow's ring.

use carina_engine::counters::Value;
use carina_engine::{Links, Packet};
use carina_ring::{Lease, Refused, Sdus};
use carina_vmpi::hl::{RxBundle, Violation};
use carina_wire::pcapng::Direction;
use carina_wire::vmpi::{BUNDLE_HEADER_BYTES, BundleHeader, Channel, DataHeader};

use super::Hv;

impl Hv {
    /// Processes a record of the device that contains a bundle.
    pub(super) fn receive_bundle(
        &mut self,
        mut lease: Lease,
        links: &mut Links,
    ) -> Result<(), Violation> {
        let header = lease.copy_prefix::<BUNDLE_HEADER_BYTES>();
        lease.advance(header.map_or(0, |header| header.len()));
        let sdus = lease.sdus();
        let longest = sdus.map(|sdus| sdus.longest as usize);
        let channel = match self.hl.on_bundle(header, lease.len(), longest)? {
            RxBundle::Deliver(channel) => channel,
            RxBundle::Discard => {
                let lost = sdus.map_or(1, |sdus| sdus.count);
                self.row.add(Value::DropUnknownChannel, u64::from(lost));
                return Ok(());
            }
            RxBundle::Broken(channel) => {
                self.row.add(Value::DropMalformed, 1);
                self.break_flow(channel, links);
                return Ok(());
            }
        };
        let sdus = sdus.unwrap_or_default();
        self.row.add(Value::SdusIn, u64::from(sdus.count));
        self.row.add(Value::BytesIn, u64::from(sdus.bytes));
        let bundle = Packet::from_bundle(lease, sdus);
        self.note_bundle(Direction::In, channel, &bundle);
        self.deliver_bundle(channel, bundle, sdus, links);
        Ok(())
    }

    /// Gives a bundle to its flow: whole, or SDU by SDU if the user does not accept bundles.
    fn deliver_bundle(&mut self, channel: Channel, bundle: Packet, sdus: Sdus, links: &mut Links) {
        let ends = self.flow(channel).and_then(|flow| flow.links);
        let Some(to_flow) = ends.map(|ends| ends.to_flow) else {
            return self.row.add(Value::DropFlowEnded, u64::from(sdus.count));
        };
        let mut lost = 0;
        if links.bundle_room(to_flow).is_some() {
            lost = links.push(to_flow, bundle).map_or(sdus.count, |()| 0);
        } else {
            let mut count = 0;
            for sdu in bundle.sdus() {
                count += 1;
                lost += u32::from(links.push(to_flow, sdu).is_err());
            }
            // The peer's application has changed the SDUs after they were counted.
            if count != sdus.count {
                self.row.add(Value::DropMalformed, 1);
                self.break_flow(channel, links);
            }
        }
        self.row.add(Value::DropFlowEnded, u64::from(lost));
    }

    /// Ends a flow whose sending application has corrupted its SDUs.
    fn break_flow(&mut self, channel: Channel, links: &mut Links) {
        let text = "the sending application broke its SDUs while they were sent".to_owned();
        self.end_flow(channel, text, links);
    }

    /// Puts a bundle of a flow into the device.
    pub(super) fn send_bundle(
        &mut self,
        channel: Channel,
        bundle: &Packet,
        sdus: Sdus,
    ) -> Result<(), Refused> {
        let bytes = bundle.len();
        let mut slot = self.device.reserve(BUNDLE_HEADER_BYTES + bytes)?;
        slot.write_at(0, &BundleHeader { channel }.encode());
        bundle.copy_into(&mut slot, BUNDLE_HEADER_BYTES);
        slot.commit(false);
        self.note_bundle(Direction::Out, channel, bundle);
        self.has_written = true;
        self.has_moved = true;
        self.hl.on_tx_bundle(channel, bytes);
        self.row.add(Value::SdusOut, u64::from(sdus.count));
        self.row.add(Value::BytesOut, u64::from(sdus.bytes));
        Ok(())
    }

    /// Copies the SDUs of a bundle to the captures, one record each.
    fn note_bundle(&self, direction: Direction, channel: Channel, bundle: &Packet) {
        if !self.taps.is_on() {
            return;
        }
        let more = false;
        let header = DataHeader { channel, more }.encode();
        for sdu in bundle.sdus() {
            self.taps.note(direction, &header, &sdu);
        }
    }
}
