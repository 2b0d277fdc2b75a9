//! Loads libpcap at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::ptr::null_mut;

/// Link type Ethernet.
const DLT_EN10MB: c_int = 1;
const SNAPLEN: c_int = 65535;
/// The network's mask is unknown.
const NETMASK_UNKNOWN: c_uint = u32::MAX;

#[repr(C)]
#[derive(Clone, Copy)]
struct BpfProgram {
    length: c_uint,
    instructions: *mut c_void,
}

#[repr(C)]
struct PacketHeader {
    seconds: c_long,
    microseconds: c_long,
    captured: c_uint,
    length: c_uint,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile =
    unsafe extern "C" fn(*mut c_void, *mut BpfProgram, *const c_char, c_int, c_uint) -> c_int;
type Matches = unsafe extern "C" fn(*const BpfProgram, *const PacketHeader, *const u8) -> c_int;
type FreeCode = unsafe extern "C" fn(*mut BpfProgram);
type GetError = unsafe extern "C" fn(*mut c_void) -> *mut c_char;

pub(crate) struct Libpcap {
    handle: *mut c_void,
    compile: Compile,
    matches: Matches,
    free_code: FreeCode,
    get_error: GetError,
}

pub(crate) struct Program<'a> {
    library: &'a Libpcap,
    program: BpfProgram,
}

impl Libpcap {
    /// Loads libpcap. Prints SKIP with the package's name and returns `None` if it is not
    /// installed.
    pub(crate) fn load() -> Option<Libpcap> {
        // SAFETY: the names are those of C, libpcap's initialisers have no preconditions, and the
        // signatures are those of its manual pages.
        unsafe {
            let library = libc::dlopen(c"libpcap.so.0.8".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                println!("SKIP: no libpcap here (package libpcap0.8): nothing was compared");
                return None;
            }
            let symbol = |name: &CStr| {
                let found = libc::dlsym(library, name.as_ptr());
                assert!(!found.is_null(), "libpcap has no {name:?}");
                found
            };
            let open: OpenDead = std::mem::transmute(symbol(c"pcap_open_dead"));
            Some(Libpcap {
                handle: open(DLT_EN10MB, SNAPLEN),
                compile: std::mem::transmute::<*mut c_void, Compile>(symbol(c"pcap_compile")),
                matches: std::mem::transmute::<*mut c_void, Matches>(symbol(
                    c"pcap_offline_filter",
                )),
                free_code: std::mem::transmute::<*mut c_void, FreeCode>(symbol(c"pcap_freecode")),
                get_error: std::mem::transmute::<*mut c_void, GetError>(symbol(c"pcap_geterr")),
            })
        }
    }

    pub(crate) fn compile(&self, filter: &str, optimize: bool) -> Result<Program<'_>, String> {
        let text = CString::new(filter).unwrap();
        let mut program = BpfProgram {
            length: 0,
            instructions: null_mut(),
        };
        // SAFETY: the handle is open, the text ends with a zero, and the program is ours.
        let result = unsafe {
            let optimize = c_int::from(optimize);
            (self.compile)(
                self.handle,
                &mut program,
                text.as_ptr(),
                optimize,
                NETMASK_UNKNOWN,
            )
        };
        if result != 0 {
            // SAFETY: libpcap keeps a string that ends with a zero.
            let error = unsafe { CStr::from_ptr((self.get_error)(self.handle)) };
            return Err(error.to_string_lossy().into_owned());
        }
        Ok(Program {
            library: self,
            program,
        })
    }
}

impl Program<'_> {
    pub(crate) fn matches(&self, frame: &[u8]) -> bool {
        let header = PacketHeader {
            seconds: 0,
            microseconds: 0,
            captured: frame.len() as c_uint,
            length: frame.len() as c_uint,
        };
        // SAFETY: the program was compiled, and the header says how many bytes there are.
        unsafe { (self.library.matches)(&self.program, &header, frame.as_ptr()) != 0 }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: it was compiled, and is not used after this.
        unsafe { (self.library.free_code)(&mut self.program) };
    }
}
