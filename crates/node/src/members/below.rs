//! What the DIFs below carry, and the longest PDU that fits through all of them.
//!
//! The longest PDU of a DIF is one of the constants that its members agree on, so the first member
//! settles it before the DIF begins. A DIF over normal DIFs of which this system is no member yet
//! begins when it is.

use carina_ipcp::policy::component::SDU_PROTECTION;

use super::*;
use crate::ipcps::Ipcp;

/// What an N-1 flow of a DIF takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// Longest SDU in bytes.
    whole: usize,
    /// Longest SDU in bytes that the DIF does not cut into several PDUs of its own.
    uncut: usize,
    /// Others can listen, so that what is protected at all is protected here.
    is_exposed: bool,
}

/// A first member that has not begun.
pub(super) struct Waiting {
    pub(super) new: Box<NormalBuilder>,
    /// The N-1 DIF of which this system is no member yet.
    pub(super) dif: DifName,
}

/// Why the longest PDU of a DIF is not known.
enum Unsettled {
    /// Nobody knows yet what this DIF carries.
    Unknown(DifName),
    /// A DIF carries too little for any.
    TooSmall(String),
}

impl Core {
    /// What every N-1 flow in this DIF takes that begins in this system; `None` while no member of
    /// it here knows.
    fn room_in(&self, dif: &DifName) -> Option<Room> {
        let is_there = |ipcp: &&Ipcp| {
            let member = ipcp.member.as_ref();
            ipcp.dif == *dif && !member.is_some_and(|m| matches!(m.phase, Phase::Left(_)))
        };
        // A member that is not enrolled yet will learn what another of the DIF knows.
        let known = self.ipcps.values().filter(is_there);
        let known = known.filter_map(|ipcp| self.room_of(ipcp));
        known.reduce(|a, b| Room {
            whole: a.whole.min(b.whole),
            uncut: a.uncut.min(b.uncut),
            is_exposed: a.is_exposed || b.is_exposed,
        })
    }

    /// Longest SDU in bytes that a flow of an application takes in this IPCP's DIF; [`usize::MAX`]
    /// where only memory limits it.
    pub(crate) fn longest_sdu(&self, ipcp: &Ipcp) -> usize {
        match &ipcp.member {
            Some(_) => self.room_of(ipcp).map_or(usize::MAX, |room| room.whole),
            None => {
                let offered = ipcp.carrier.shim_ref().qos_offered();
                offered.sdu_bytes_max.unwrap_or(usize::MAX)
            }
        }
    }

    fn room_of(&self, ipcp: &Ipcp) -> Option<Room> {
        let is_exposed = ipcp.is_exposed();
        let Some(member) = &ipcp.member else {
            let offered = ipcp.carrier.shim_ref().qos_offered().sdu_bytes_max;
            let whole = ipcp.piece_bytes_max.min(offered.unwrap_or(usize::MAX));
            let uncut = whole;
            return Some(Room {
                whole,
                uncut,
                is_exposed,
            });
        };
        let config = member.known_config()?;
        let max_pdu = match config.max_pdu {
            0 => self.longest_pdu(&member.made_from.over, config).ok()?,
            known => known,
        };
        let uncut = config.sdu_in_one_pdu(member.dialect, max_pdu as usize);
        let whole = match config.fragments() {
            true => usize::MAX,
            false => uncut,
        };
        Some(Room {
            whole,
            uncut,
            is_exposed,
        })
    }

    /// The longest PDU that goes through all of these DIFs without being cut.
    fn longest_pdu(&self, over: &[DifName], config: &DifConfig) -> Result<u32, Unsettled> {
        let protection = config.policies.get(SDU_PROTECTION);
        let is_protected = protection.is_some_and(|spec| !matches!(&*spec.name, "" | "none"));
        let mut least = PDU_MOST;
        for dif in over {
            let Some(room) = self.room_in(dif) else {
                return Err(Unsettled::Unknown(dif.clone()));
            };
            let reserve = match is_protected && room.is_exposed {
                true => PROTECTION_RESERVE,
                false => 0,
            };
            let bytes = room.uncut.saturating_sub(reserve);
            if bytes < PDU_LEAST {
                return Err(Unsettled::TooSmall(format!(
                    "{dif} carries {} bytes at a time; a DIF over it needs {}",
                    room.uncut,
                    PDU_LEAST + reserve
                )));
            }
            least = least.min(bytes);
        }
        Ok(least as u32)
    }

    /// Why this DIF cannot carry PDUs of `max_pdu` bytes, when it is known that it cannot.
    fn misfit(&self, name: &DifName, max_pdu: u32, below: &DifName) -> Option<String> {
        let whole = self.room_in(below)?.whole;
        (whole < max_pdu as usize).then(|| {
            format!(
                "{below} carries {whole} bytes and the longest PDU of DIF {name} has {max_pdu}; \
                 use another N-1 DIF, or make the DIF with a max_pdu that fits"
            )
        })
    }

    /// Why a member's DIF cannot use an N-1 DIF, when that is known.
    pub(super) fn misfit_of(&self, member: &Membership, below: &DifName) -> Option<String> {
        let config = member.known_config()?;
        if config.max_pdu == 0 {
            return None;
        }
        self.misfit(&member.made_from.name, config.max_pdu, below)
    }

    /// Settles the longest PDU of a DIF that begins here; tells what has to be waited for.
    ///
    /// # Errors
    /// What was configured does not go through one of the N-1 DIFs, or nothing does.
    pub(super) fn settle_max_pdu(
        &self,
        new: &NewDif,
        config: &mut DifConfig,
    ) -> Result<Option<DifName>, String> {
        if config.max_pdu != 0 {
            let misfit = |below| self.misfit(&new.name, config.max_pdu, below);
            return match new.over.iter().find_map(misfit) {
                Some(what) => Err(what),
                None => Ok(None),
            };
        }
        if new.role == DifRole::Join {
            return Ok(None);
        }
        match self.longest_pdu(&new.over, config) {
            Ok(bytes) => {
                config.max_pdu = bytes;
                Ok(None)
            }
            Err(Unsettled::Unknown(dif)) => Ok(Some(dif)),
            Err(Unsettled::TooSmall(what)) => Err(what),
        }
    }

    /// Starts the members that have waited for this.
    pub(super) fn start_waiting_members(&mut self) {
        for id in self.made.clone() {
            let Some(mut waiting) = self.member_mut(id).and_then(|m| m.waiting.take()) else {
                continue;
            };
            let Some(member) = self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref()) else {
                continue;
            };
            let mut config = waiting.new.config.dif_config.take().unwrap_or_default();
            let settled = self.settle_max_pdu(&member.made_from, &mut config);
            waiting.new.config.dif_config = Some(config.clone());
            match settled {
                Ok(None) => self.begin(id, waiting.new, config),
                Ok(Some(dif)) => {
                    waiting.dif = dif;
                    if let Some(member) = self.member_mut(id) {
                        member.waiting = Some(waiting);
                    }
                }
                Err(what) => {
                    let reason = format!("it could not begin: {what}");
                    self.on_member(id, Told::Left { reason });
                }
            }
        }
    }

    fn begin(&mut self, id: IpcpId, new: Box<NormalBuilder>, config: DifConfig) {
        self.plane.add_ipcp(id, new);
        let Some(ipcp) = self.ipcps.get_mut(&id) else {
            return;
        };
        if let Some(member) = &mut ipcp.member {
            member.given = Some(config);
        }
        if let Carrier::Normal(shim) = &mut ipcp.carrier {
            shim.begin();
            shim.command(carina_ipcp::Command::Bootstrap);
        }
        // What was registered in the meantime met nobody.
        for name in ipcp.names.keys().cloned() {
            self.plane.send(Command::Register { ipcp: id, name });
        }
    }

    /// Finds out which N-1 DIFs are of no use for a DIF whose constants are known, and says so.
    pub(super) fn check_fit(&mut self, id: IpcpId) {
        let Some(ipcp) = self.ipcps.get(&id) else {
            return;
        };
        let Some((member, config)) = ipcp
            .member
            .as_ref()
            .and_then(|member| Some((member, member.known_config()?)))
        else {
            return;
        };
        let is_new = |dif: &&DifName| !member.unfit.contains_key(*dif);
        let unfit: Vec<(DifName, String)> = member
            .made_from
            .over
            .iter()
            .filter(is_new)
            .filter_map(|dif| {
                let what = self.misfit(&ipcp.dif, config.max_pdu, dif)?;
                Some((dif.clone(), what))
            })
            .collect();
        let name = ipcp.name.clone();
        for (dif, what) in unfit {
            self.journal.note(EventKind::Notice, &name, &what);
            if let Some(member) = self.member_mut(id) {
                member.needs.retain(|need| need.dif != dif);
                member.unfit.insert(dif, what);
            }
        }
    }

    /// An IPCP carries SDUs of another length from here on: members for which it is too short
    /// leave its DIF alone, and those that had done so ask there again when it does for them.
    pub(crate) fn refit_members(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.get(&below).map(|ipcp| ipcp.dif.clone()) else {
            return;
        };
        for id in self.made.clone() {
            let member = self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref());
            let Some(member) = member.filter(|member| member.is_over(&dif)) else {
                continue;
            };
            if !member.unfit.contains_key(&dif) {
                self.check_fit(id);
            } else if self.misfit_of(member, &dif).is_none() {
                let made_from = member.made_from.clone();
                let contacts = self.contacts_in(id, &dif, &made_from);
                self.begin_anew_in(id, &dif, contacts);
            }
        }
        self.hurry_members(below);
        self.tend_members(Instant::now());
    }

    /// A member asks again in an N-1 DIF that fits again. N-1 flows through which nobody became a
    /// neighbour meanwhile were refused as too short, and would be in the way.
    fn begin_anew_in(&mut self, id: IpcpId, dif: &DifName, contacts: Vec<AppName>) {
        let now = Instant::now();
        let Some(member) = self.member_mut(id) else {
            return;
        };
        member.unfit.remove(dif);
        let need = |contact| Need::new(dif.clone(), contact, now);
        member.needs.extend(contacts.into_iter().map(need));
        let uses = member.uses.values_mut();
        let useless = uses.filter(|used| used.dif == *dif && used.is_up);
        let useless = useless.filter(|used| used.neighbour.is_none());
        let ports: Vec<PortId> = useless
            .map(|used| {
                // Its end is no reason to ask for another.
                used.is_dropped = true;
                used.port
            })
            .collect();
        for port in ports {
            self.let_go(port, "the N-1 DIF carries longer SDUs now");
        }
    }

    /// Longest PDU that a member may be given through an N-1 flow of `lower`; 0 for whatever the
    /// flow takes at a time. A normal DIF cuts what is too long for one of its PDUs, but is only
    /// made to where that was configured.
    pub(super) fn n1_sdu_max(&self, lower: &Ipcp, upper: IpcpId) -> usize {
        if lower.member.is_none() {
            return 0;
        }
        let Some(room) = self.room_of(lower) else {
            return 0;
        };
        let upper = self.ipcps.get(&upper).and_then(|ipcp| ipcp.member.as_ref());
        let config = upper.and_then(Membership::known_config);
        let fits = config.is_some_and(|c| c.max_pdu != 0 && c.max_pdu as usize <= room.uncut);
        match (fits, room.whole) {
            (true, _) => room.uncut,
            (false, usize::MAX) => 0,
            (false, whole) => whole,
        }
    }
}

impl Membership {
    /// The DIF's constants, as learned or as given to the first member.
    fn known_config(&self) -> Option<&DifConfig> {
        self.config.as_ref().or(self.given.as_ref())
    }

    /// Takes the wish for an N-1 flow back where there is one that does as well: a neighbour has
    /// asked for it, and where it is the DIF's name that is wanted, any neighbour will do.
    pub(super) fn drop_met_needs(&mut self) {
        let dif_name = self.made_from.name.as_str();
        let is_met = |need: &Need| {
            self.uses.values().any(|used| {
                used.dif == need.dif
                    && used.neighbour.is_some()
                    && (need.remote.as_str() == dif_name || used.remote == need.remote)
            })
        };
        self.needs.retain(|need| need.n1.is_some() || !is_met(need));
    }
}

/// Room for what SDU protection adds to a PDU, in bytes.
const PROTECTION_RESERVE: usize = 64;

/// Shortest and longest PDU that a DIF may have as its longest, in bytes.
const PDU_LEAST: usize = 128;
const PDU_MOST: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    fn joining(over: &[&str]) -> Membership {
        let name = |text: &str| DifName::new(text).unwrap();
        let json = serde_json::json!({"name": "net", "role": "join", "over": over});
        let new: NewDif = serde_json::from_value(json).unwrap();
        assert_eq!(new.name, name("net"));
        Membership::new(new, Dialect::Native, Instant::now())
    }

    fn wanted(member: &Membership) -> Vec<String> {
        let needs = member.needs.iter();
        needs
            .map(|need| format!("{} in {}", need.remote, need.dif))
            .collect()
    }

    #[test]
    fn a_neighbour_that_asked_first_is_not_asked_in_turn() {
        let app = |text: &str| AppName::new(text).unwrap();
        let dif = |text: &str| DifName::new(text).unwrap();
        let mut member = joining(&["ab", "bc"]);
        member.drop_met_needs();
        assert_eq!(wanted(&member), ["net in ab", "net in bc"]);
        // Somebody has asked, and may yet turn out to be no member.
        let asked = Use::new(dif("bc"), app("net.c"), PortId(1), false);
        member.uses.insert(0, asked);
        member.drop_met_needs();
        assert_eq!(wanted(&member).len(), 2);
        member.uses.get_mut(&0).unwrap().neighbour = Some(app("net.c"));
        member.drop_met_needs();
        assert_eq!(wanted(&member), ["net in ab"]);
        // Another neighbour there is wanted by its own name.
        let now = Instant::now();
        for name in ["net.c", "net.d"] {
            member.needs.push(Need::new(dif("bc"), app(name), now));
        }
        // One that is asked for already is waited for.
        member.needs.push(Need::new(dif("bc"), app("net"), now));
        member.needs[3].n1 = Some(N1Port(1));
        member.drop_met_needs();
        assert_eq!(wanted(&member), ["net in ab", "net.d in bc", "net in bc"]);
    }

    #[test]
    fn a_refusal_is_for_good_from_the_moment_it_is_seen() {
        let mut member = joining(&["ab"]);
        member.needs[0].n1 = Some(N1Port(7));
        member.note_refusal(N1Port(7), "wrong password".to_owned(), true);
        assert_eq!((member.failures, member.is_refused()), (1, true));
        member.note_refusal(N1Port(7), "no answer".to_owned(), false);
        assert_eq!((member.failures, member.is_refused()), (2, false));
    }
}
