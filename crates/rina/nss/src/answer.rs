//! Answers as the C library wants them: structures in a buffer of the caller.

use std::ffi::CStr;
use std::mem::{align_of, size_of};
use std::net::IpAddr;
use std::ptr;

use libc::{c_char, c_int, hostent};

/// How a function of the service `carina` ends, for the C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Success,
    NotFound,
    /// The name has no address of the family.
    NoData,
    /// The buffer is too small: the C library calls again with a larger one.
    NoRoom,
    Unavailable,
}

impl Status {
    /// The value of `enum nss_status` (nss.h) that reports this status.
    pub(crate) fn code(self) -> c_int {
        match self {
            Status::Success => 1,
            Status::NotFound | Status::NoData => 0,
            Status::Unavailable => -1,
            Status::NoRoom => -2,
        }
    }
}

/// `struct gaih_addrtuple` (nss.h): one address of a name.
#[repr(C)]
#[derive(Debug)]
pub struct AddressTuple {
    next: *mut AddressTuple,
    name: *mut c_char,
    family: c_int,
    address: [u8; 16],
    scope: u32,
}

/// A host name with one of its addresses, to write as a `hostent`.
pub(crate) struct Host<'a> {
    pub name: &'a CStr,
    pub address: IpAddr,
}

/// The buffer that the caller provides for an answer: each piece is allocated from its front.
pub(crate) struct Arena {
    at: *mut u8,
    left: usize,
}

impl Arena {
    /// The buffer at `start`, which has `bytes` bytes for writing.
    ///
    /// # Safety
    /// That holds as long as the arena is used.
    pub(crate) unsafe fn new(start: *mut c_char, bytes: usize) -> Arena {
        Arena {
            at: start.cast(),
            left: bytes,
        }
    }

    /// Takes room for `count` values of a type; `None` when there is not enough.
    fn take<T>(&mut self, count: usize) -> Option<*mut T> {
        let skipped = self.at.align_offset(align_of::<T>());
        let bytes = size_of::<T>().checked_mul(count)?;
        let used = skipped.checked_add(bytes)?;
        self.left = self.left.checked_sub(used)?;
        // SAFETY: `used` bytes were left in the buffer.
        let (start, end) = unsafe { (self.at.add(skipped), self.at.add(used)) };
        self.at = end;
        Some(start.cast())
    }

    fn string(&mut self, text: &CStr) -> Option<*mut c_char> {
        let bytes = text.to_bytes_with_nul();
        let to = self.take::<u8>(bytes.len())?;
        // SAFETY: the room was just taken, and the text lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Some(to.cast())
    }

    /// Writes a list of addresses. `first` is where the caller wants the first one, or null.
    ///
    /// # Safety
    /// `first` is null or may be written.
    pub(crate) unsafe fn tuples(
        &mut self,
        name: &CStr,
        addresses: &[IpAddr],
        first: *mut AddressTuple,
    ) -> Option<*mut AddressTuple> {
        let name = self.string(name)?;
        let mut places = Vec::new();
        for number in 0..addresses.len() {
            places.push(match number {
                0 if !first.is_null() => first,
                _ => self.take::<AddressTuple>(1)?,
            });
        }
        for (number, address) in addresses.iter().enumerate() {
            let tuple = AddressTuple {
                next: places.get(number + 1).copied().unwrap_or(ptr::null_mut()),
                name,
                family: family(address),
                address: padded(address),
                scope: 0,
            };
            // SAFETY: the place is the caller's, or was taken above, aligned for this type.
            unsafe { places[number].write(tuple) };
        }
        places.first().copied()
    }

    /// Writes an entry.
    ///
    /// # Safety
    /// `entry` may be written.
    pub(crate) unsafe fn host(&mut self, host: &Host<'_>, entry: *mut hostent) -> Status {
        let mut pieces = || {
            let name = self.string(host.name)?;
            // No aliases, and one address: each list ends with null.
            let lists = self.take::<*mut c_char>(3)?;
            let address = self.take::<[u8; 16]>(1)?;
            Some((name, lists, address))
        };
        let Some((name, lists, address)) = pieces() else {
            return Status::NoRoom;
        };
        // SAFETY: the rooms were just taken, aligned for their types; the entry is the caller's.
        unsafe {
            address.write(padded(&host.address));
            lists.write(ptr::null_mut());
            lists.add(1).write(address.cast());
            lists.add(2).write(ptr::null_mut());
            entry.write(hostent {
                h_name: name,
                h_aliases: lists,
                h_addrtype: family(&host.address),
                h_length: if host.address.is_ipv4() { 4 } else { 16 },
                h_addr_list: lists.add(1),
            });
        }
        Status::Success
    }
}

/// The address family, `AF_INET` or `AF_INET6`.
pub(crate) fn family(address: &IpAddr) -> c_int {
    match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}

fn padded(address: &IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1)),
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    ];

    /// Writes an entry into `room` bytes at `start`; returns the status and the entry.
    fn entry(start: *mut c_char, room: usize) -> (Status, hostent) {
        let host = Host {
            name: c"web.vm",
            address: BOTH[0],
        };
        // SAFETY: the caller has `room` bytes there; zero is a value of each field of the entry.
        unsafe {
            let mut entry: hostent = std::mem::zeroed();
            let status = Arena::new(start, room).host(&host, &raw mut entry);
            (status, entry)
        }
    }

    #[test]
    fn entries_lie_in_the_buffer_or_there_is_no_room() {
        let mut least = 0;
        for room in 0..200 {
            // At an odd place: the caller's buffer need not be aligned. The bytes around it
            // show a write outside of it.
            let mut buffer = vec![0x55 as c_char; room + 2];
            let (status, entry) = entry(buffer[1..].as_mut_ptr(), room);
            assert_eq!((buffer[0], buffer[room + 1]), (0x55, 0x55));
            if status == Status::NoRoom {
                least = room;
                continue;
            }
            // SAFETY: the entry was made, and the buffer lives.
            let (name, list, ends) = unsafe {
                let list = entry.h_addr_list;
                let ends = (*list.add(1)).is_null() && (*entry.h_aliases).is_null();
                let first = (*list).cast::<[u8; 4]>().read_unaligned();
                (CStr::from_ptr(entry.h_name).to_owned(), first, ends)
            };
            assert_eq!((name.as_c_str(), entry.h_length), (c"web.vm", 4));
            assert!(ends);
            assert_eq!(list, [198, 18, 0, 1]);
        }
        assert!((40..80).contains(&least), "{least}");
    }

    #[test]
    fn tuples_use_the_callers_first_place() {
        let mut buffer = [0 as c_char; 256];
        let mut first = AddressTuple {
            next: ptr::null_mut(),
            name: ptr::null_mut(),
            family: 0,
            address: [0; 16],
            scope: 0,
        };
        let place = &raw mut first;
        // SAFETY: the buffer and the first place live until the end of the test.
        let (got, second) = unsafe {
            let mut arena = Arena::new(buffer.as_mut_ptr(), buffer.len());
            let got = arena.tuples(c"web.vm", &BOTH, place).unwrap();
            (got, ((*(*got).next).family, (*(*got).next).next))
        };
        assert_eq!(got, place);
        assert_eq!(
            (first.family, &first.address[..4]),
            (libc::AF_INET, &[198, 18, 0, 1][..])
        );
        assert_eq!(second, (libc::AF_INET6, ptr::null_mut()));
        let mut small = [0 as c_char; 40];
        // SAFETY: as above.
        let none = unsafe {
            let mut arena = Arena::new(small.as_mut_ptr(), small.len());
            arena.tuples(c"web.vm", &BOTH, ptr::null_mut())
        };
        assert_eq!(none, None);
    }
}
