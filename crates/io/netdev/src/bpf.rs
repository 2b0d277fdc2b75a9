//! Filters that the kernel applies to frames, so that unwanted frames never reach this process.
//!
//! They are classic BPF programs. The kernel removes the VLAN tag from a frame before a filter
//! runs. The Ethertype of a tagged frame is therefore at byte 12, like that of any other frame, and
//! the program reads the tag from the kernel's metadata.

/// Which VLAN tag a frame must have to pass a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanMatch {
    /// No tag, or a tag that only carries a priority (VLAN id 0).
    Untagged,
    /// A tag with this VLAN id, 1 to 4094.
    Id(u16),
}

/// A classic BPF program that the kernel runs on each frame of a socket, to pass or to drop the
/// frame.
#[derive(Clone, Debug)]
pub struct Filter {
    pub(crate) program: Vec<libc::sock_filter>,
}

impl Filter {
    /// Makes a filter that passes no frame, for a socket that only sends.
    #[must_use]
    pub fn nothing() -> Filter {
        Assembler::default().finish()
    }

    /// Makes a filter for frames of the VLAN `vlan`. It passes frames whose Ethertype is one of
    /// `data`. It also passes frames whose Ethertype is one of `arp` and whose ARP protocol type
    /// (bytes 2 and 3) is `protocol`.
    #[must_use]
    pub fn ethernet(vlan: VlanMatch, data: &[u16], arp: &[u16], protocol: u16) -> Filter {
        let mut code = Assembler::default();
        code.load_ancillary(libc::SKF_AD_VLAN_TAG_PRESENT);
        match vlan {
            VlanMatch::Untagged => {
                code.jump_equal(0, Goto::Skip(3), Goto::Next);
                code.load_ancillary(libc::SKF_AD_VLAN_TAG);
                code.and(0xfff);
                code.jump_equal(0, Goto::Next, Goto::Reject);
            }
            VlanMatch::Id(id) => {
                code.jump_equal(0, Goto::Reject, Goto::Next);
                code.load_ancillary(libc::SKF_AD_VLAN_TAG);
                code.and(0xfff);
                code.jump_equal(u32::from(id), Goto::Next, Goto::Reject);
            }
        }
        code.load_half(12);
        for ethertype in data {
            code.jump_equal(u32::from(*ethertype), Goto::Accept, Goto::Next);
        }
        for (at, ethertype) in arp.iter().enumerate() {
            let hit = Goto::Skip(arp.len() - 1 - at);
            let is_last = at + 1 == arp.len();
            let miss = if is_last { Goto::Reject } else { Goto::Next };
            code.jump_equal(u32::from(*ethertype), hit, miss);
        }
        if !arp.is_empty() {
            code.load_half(14 + 2);
            code.jump_equal(u32::from(protocol), Goto::Accept, Goto::Reject);
        }
        code.finish()
    }
}

#[derive(Clone, Copy)]
enum Goto {
    Next,
    Skip(usize),
    Accept,
    Reject,
}

/// Instructions with jumps to the two ends of the program. The offsets of the ends are known only
/// when all instructions are there.
#[derive(Default)]
struct Assembler {
    code: Vec<(u16, u32, Goto, Goto)>,
}

impl Assembler {
    fn push(&mut self, code: u32, k: u32) {
        self.code.push((code as u16, k, Goto::Next, Goto::Next));
    }

    fn load_ancillary(&mut self, field: libc::c_int) {
        let k = (libc::SKF_AD_OFF + field) as u32;
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, k);
    }

    fn load_half(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, offset);
    }

    fn and(&mut self, mask: u32) {
        self.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask);
    }

    fn jump_equal(&mut self, value: u32, hit: Goto, miss: Goto) {
        let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        self.code.push((code as u16, value, hit, miss));
    }

    /// Appends the two ends, accept and reject, and resolves the jumps.
    fn finish(self) -> Filter {
        let reject = self.code.len();
        let accept = reject + 1;
        let mut program: Vec<_> = self
            .code
            .iter()
            .enumerate()
            .map(|(at, &(code, k, hit, miss))| {
                let distance = |goto| match goto {
                    Goto::Next => 0,
                    Goto::Skip(count) => count as u8,
                    Goto::Accept => (accept - at - 1) as u8,
                    Goto::Reject => (reject - at - 1) as u8,
                };
                libc::sock_filter {
                    code,
                    jt: distance(hit),
                    jf: distance(miss),
                    k,
                }
            })
            .collect();
        for bytes in [0, FRAME_BYTES_ALL] {
            program.push(libc::sock_filter {
                code: (libc::BPF_RET | libc::BPF_K) as u16,
                jt: 0,
                jf: 0,
                k: bytes,
            });
        }
        Filter { program }
    }
}

/// Return value of a program that accepts a frame: the number of bytes to pass, more than any frame
/// has.
const FRAME_BYTES_ALL: u32 = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets a program as the kernel does.
    fn passes(filter: &Filter, frame: &[u8], tag: Option<u16>) -> bool {
        let (mut at, mut a) = (0, 0u32);
        loop {
            let step = filter.program[at];
            at += 1;
            let code = u32::from(step.code);
            if code == libc::BPF_RET | libc::BPF_K {
                return step.k > 0;
            } else if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                let field = step.k as i32 - libc::SKF_AD_OFF;
                a = match field {
                    libc::SKF_AD_VLAN_TAG_PRESENT => u32::from(tag.is_some()),
                    libc::SKF_AD_VLAN_TAG => u32::from(tag.unwrap_or(0)),
                    other => panic!("field {other}"),
                };
            } else if code == libc::BPF_LD | libc::BPF_H | libc::BPF_ABS {
                let Some(half) = frame.get(step.k as usize..step.k as usize + 2) else {
                    return false;
                };
                a = u32::from(u16::from_be_bytes([half[0], half[1]]));
            } else if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K {
                a &= step.k;
            } else {
                assert_eq!(code, libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
                at += usize::from(if a == step.k { step.jt } else { step.jf });
            }
        }
    }

    fn frame(ethertype: u16, protocol: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame[16..18].copy_from_slice(&protocol.to_be_bytes());
        frame
    }

    #[test]
    fn only_our_ethertypes_of_our_vlan_pass() {
        let rina = frame(0xd1f0, 0);
        let (arp, ip_arp) = (frame(0x0806, 0xd1f0), frame(0x0806, 0x0800));
        let (arp2, ip) = (frame(0x4305, 0xd1f0), frame(0x0800, 0xd1f0));
        let make = |vlan| Filter::ethernet(vlan, &[0xd1f0], &[0x0806, 0x4305], 0xd1f0);
        let tagged = make(VlanMatch::Id(10));
        let untagged = make(VlanMatch::Untagged);
        for (what, passing) in [
            (&rina, true),
            (&arp, true),
            (&arp2, true),
            (&ip_arp, false),
            (&ip, false),
        ] {
            assert_eq!(passes(&tagged, what, Some(10)), passing);
            assert_eq!(passes(&tagged, what, Some(10 | 0xe000)), passing);
            assert!(!passes(&tagged, what, Some(11)) && !passes(&tagged, what, None));
            assert_eq!(passes(&untagged, what, None), passing);
            assert_eq!(passes(&untagged, what, Some(0x2000)), passing);
            assert!(!passes(&untagged, what, Some(10)));
        }
        assert!(!passes(&untagged, &arp[..15], None));
    }
}
