//! The C library: the POSIX-like API of RINA, declared in `include/rina/api.h`.
//!
//! In C, a control descriptor holds registrations, and a flow is a descriptor for read, write, poll
//! and close. When a call fails, it returns -1 and sets `errno`. No call unwinds: a panic, which
//! would be a bug, aborts. `docs/reference/c-api.md` describes each call, and how it differs from
//! other implementations of the API.
//!
//! This module has `unsafe` code because it exchanges pointers and descriptors with C.
//! `c/flow_io.c` implements `read` and `write` on a flow; `scripts/librina` joins both.
#![expect(
    clippy::missing_safety_doc,
    reason = "the contract of each call is in the C header"
)]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use carina_api::ipc::Mode;
use carina_api::{AppName, DifName, FlowSpec};
use rustix::io::Errno;

use crate::ipc::{self, Connection};
use crate::node::Node;

mod control_protocol;
mod control_service;
mod errno;
mod flow_marker;
mod fork_handover;

use self::control_protocol::{Call, RequestNotice};
use self::errno::{of_allocation, of_error};

/// The C structure `struct rina_flow_spec`, version 2: a flow specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RinaFlowSpec {
    /// Version of this structure; must be [`RINA_FLOW_SPEC_VERSION`].
    pub version: u32,
    /// Longest delay of an SDU, in microseconds; 0 for any.
    pub max_delay: u32,
    /// Largest number of consecutive SDUs that may be lost; all ones for any number.
    pub max_sdu_gap: u64,
    /// Average bandwidth in bits per second; 0 for any.
    pub avg_bandwidth: u64,
    /// Largest share of SDUs that may be lost, in 1/10000: 0 to 10000.
    pub max_loss: u16,
    /// 1 if SDUs must arrive in the order in which they were sent, otherwise 0.
    pub in_order_delivery: u8,
    /// 1 if the DIF must keep the boundaries of SDUs, otherwise 0.
    pub msg_boundaries: u8,
    /// Largest variation of delay in microseconds; 0 for any.
    pub max_jitter: u32,
}

/// The version of [`RinaFlowSpec`] that this library supports.
pub const RINA_FLOW_SPEC_VERSION: u32 = 2;

/// Flag: the call does not wait. It returns a descriptor that becomes readable when the answer has
/// arrived.
pub const RINA_F_NOWAIT: c_uint = 1;

/// Flag of `rina_flow_accept`: do not answer the request. The call returns a handle for
/// `rina_flow_respond`.
pub const RINA_F_NORESP: c_uint = 2;

/// Opens a control descriptor, with which a program registers names and accepts flows. Returns -1
/// and sets `errno` on failure.
#[unsafe(no_mangle)]
pub extern "C" fn rina_open() -> c_int {
    give(
        Node::connect()
            .map_err(|error| of_error(&error))
            .and_then(|node| fork_handover::open(&node))
            .map(IntoRawFd::into_raw_fd),
    )
}

/// Registers the application name `local_appl` in the DIF `dif_name`, or in all DIFs if that is
/// null. Returns 0, or with `RINA_F_NOWAIT` a descriptor for `rina_register_wait`; -1 with `errno`
/// on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rina_register(
    fd: c_int,
    dif_name: *const c_char,
    local_appl: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller passes C strings or null, as the header demands.
    let names = unsafe { (app_name(local_appl), dif_of(dif_name)) };
    give(name_call(fd, names, flags, |name, dif| Call::Register {
        name,
        dif,
    }))
}

/// Withdraws the registration of `local_appl`, as `rina_register` made it with the same names.
/// Returns 0, or with `RINA_F_NOWAIT` a descriptor for `rina_register_wait`; -1 with `errno` on
/// failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rina_unregister(
    fd: c_int,
    dif_name: *const c_char,
    local_appl: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller passes C strings or null, as the header demands.
    let names = unsafe { (app_name(local_appl), dif_of(dif_name)) };
    give(name_call(fd, names, flags, |name, dif| Call::Unregister {
        name,
        dif,
    }))
}

/// Waits for the answer to a call of `rina_register` or `rina_unregister` that had the flag
/// `RINA_F_NOWAIT`; `wfd` is the descriptor that the call returned. Returns 0, or -1 with `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rina_register_wait(_fd: c_int, wfd: c_int) -> c_int {
    // SAFETY: the caller owns `wfd`, the result of a call with RINA_F_NOWAIT, and gives it up.
    let answer = unsafe { consume(wfd, control_protocol::receive_answer) };
    give(answer.map(|_| 0))
}

/// Waits for a flow request, accepts it, and returns the descriptor of the flow. With
/// `RINA_F_NORESP` the call does not answer the request and returns a handle for
/// `rina_flow_respond`. Returns -1 with `errno` on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rina_flow_accept(
    fd: c_int,
    remote_appl: *mut *mut c_char,
    spec: *mut RinaFlowSpec,
    flags: c_uint,
) -> c_int {
    let accept = || {
        if flags & !RINA_F_NORESP != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: `spec` is null or points to a specification, as the header demands.
        let asked = unsafe { spec.as_ref() };
        if asked.is_some_and(|spec| spec.version != RINA_FLOW_SPEC_VERSION) {
            return Err(Errno::INVAL);
        }
        let control = borrowed(fd)?;
        let notice = control_protocol::next_notice(control)?;
        let answer = if flags & RINA_F_NORESP != 0 {
            RawFd::try_from(notice.handle).map_err(|_| Errno::OVERFLOW)?
        } else {
            control_protocol::call(
                control,
                &Call::Accept {
                    handle: notice.handle,
                },
            )?
            .ok_or(Errno::PROTO)?
            .into_raw_fd()
        };
        // SAFETY: both pointers are null or valid for a write, as the header demands.
        unsafe { describe(&notice, remote_appl, spec) };
        Ok(answer)
    };
    give(accept())
}

/// Accepts (`response` is 0) or refuses the request with `handle`, which `rina_flow_accept` with
/// `RINA_F_NORESP` returned. Returns the descriptor of the flow, 0 after a refusal, or -1 with
/// `errno`.
#[unsafe(no_mangle)]
pub extern "C" fn rina_flow_respond(fd: c_int, handle: c_int, response: c_int) -> c_int {
    let respond = || {
        let control = borrowed(fd)?;
        let handle = u32::try_from(handle).map_err(|_| Errno::INVAL)?;
        if response != 0 {
            return control_protocol::call(control, &Call::Refuse { handle, response }).map(|_| 0);
        }
        let flow = control_protocol::call(control, &Call::Accept { handle })?;
        flow.map(IntoRawFd::into_raw_fd).ok_or(Errno::PROTO)
    };
    give(respond())
}

/// Allocates a flow and returns its descriptor, or -1 with `errno`. With `RINA_F_NOWAIT` the call
/// does not wait for the answer, and returns a descriptor for `rina_flow_alloc_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rina_flow_alloc(
    dif_name: *const c_char,
    local_appl: *const c_char,
    remote_appl: *const c_char,
    flowspec: *const RinaFlowSpec,
    flags: c_uint,
) -> c_int {
    let alloc = || {
        if flags & !RINA_F_NOWAIT != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller passes C strings or null, as the header demands.
        let (dif, local, remote) = unsafe {
            (
                dif_of(dif_name)?,
                app_name(local_appl)?,
                app_name(remote_appl)?,
            )
        };
        // SAFETY: `flowspec` is null or points to a specification, as the header demands.
        let spec = match unsafe { flowspec.as_ref() } {
            None => FlowSpec::unreliable(),
            Some(spec) => from_c(spec)?,
        };
        let node = Node::connect().map_err(|error| of_error(&error))?;
        let connection = node
            .ask(&local, &remote, dif.as_ref(), &spec, Mode::Socket)
            .map_err(|error| of_error(&error))?;
        if flags & RINA_F_NOWAIT != 0 {
            return Ok(connection.into_socket().into_raw_fd());
        }
        allocated_on(connection.as_fd())
    };
    give(alloc())
}

/// Waits for the answer to a call of `rina_flow_alloc` that had the flag `RINA_F_NOWAIT`; `wfd` is
/// the descriptor that the call returned. Returns the descriptor of the flow, or -1 with `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rina_flow_alloc_wait(wfd: c_int) -> c_int {
    // SAFETY: the caller owns `wfd`, the result of `rina_flow_alloc`, and gives it up.
    give(unsafe { consume(wfd, allocated_on) })
}

/// Fills `spec` with a flow specification that requires nothing of the flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rina_flow_spec_unreliable(spec: *mut RinaFlowSpec) {
    // SAFETY: `spec` is null or valid for a write, as the header demands.
    if let Some(spec) = unsafe { spec.as_mut() } {
        *spec = to_c(&FlowSpec::unreliable());
    }
}

/// Returns the longest SDU that one write to the flow can send, in bytes; 0 when `fd` is not a
/// flow.
#[unsafe(no_mangle)]
pub extern "C" fn rina_flow_mss_get(fd: c_int) -> c_uint {
    borrowed(fd)
        .and_then(flow_marker::sdu_max_of)
        .unwrap_or_else(|error| {
            set_errno(error);
            0
        })
}

fn name_call(
    fd: c_int,
    names: (Result<AppName, Errno>, Result<Option<DifName>, Errno>),
    flags: c_int,
    call: impl FnOnce(AppName, Option<DifName>) -> Call,
) -> Result<RawFd, Errno> {
    let no_wait = RINA_F_NOWAIT.cast_signed();
    if flags & !no_wait != 0 {
        return Err(Errno::INVAL);
    }
    let (control, call) = (borrowed(fd)?, call(names.0?, names.1?));
    if flags & no_wait != 0 {
        return control_protocol::start_call(control, &call).map(IntoRawFd::into_raw_fd);
    }
    control_protocol::call(control, &call).map(|_| 0)
}

/// Copies the caller's name and the specification of a request to memory of the C program.
///
/// # Safety
///
/// Both pointers are null or valid for a write.
unsafe fn describe(notice: &RequestNotice, remote: *mut *mut c_char, spec: *mut RinaFlowSpec) {
    if !remote.is_null() {
        let name = notice.remote.as_str();
        // SAFETY: a name contains no zero byte, so the copy is `length` + 1 bytes. The memory comes
        // from `malloc`, and the C program frees it. It is null when no memory is left.
        unsafe {
            let copy = libc::malloc(name.len() + 1).cast::<c_char>();
            if !copy.is_null() {
                copy.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
                copy.add(name.len()).write(0);
            }
            *remote = copy;
        }
    }
    if !spec.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *spec = to_c(&notice.spec) };
    }
}

/// Waits for the answer to an allocation on its connection and returns the flow's descriptor.
fn allocated_on(socket: BorrowedFd<'_>) -> Result<RawFd, Errno> {
    control_protocol::wait_readable(socket)?;
    let answer = Connection::receive_on(socket).map_err(|error| of_allocation(&error))?;
    let flow = ipc::socket_flow(answer).map_err(|error| of_allocation(&error))?;
    flow_marker::mark_flow_socket(&flow)?;
    Ok(flow.socket.into_raw_fd())
}

/// Completes a call on `wfd` and closes `wfd`. The descriptor stays open when the answer has not
/// arrived yet (`EAGAIN`) or a signal came (`EINTR`).
///
/// # Safety
///
/// `wfd` belongs to the caller, which does not use it after a result other than `EAGAIN` or
/// `EINTR`.
unsafe fn consume<T>(
    wfd: c_int,
    complete: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let result = complete(borrowed(wfd)?);
    if !matches!(result, Err(Errno::AGAIN | Errno::INTR | Errno::BADF)) {
        // SAFETY: the caller gives up `wfd`; it was open a moment ago, because `complete` used it.
        drop(unsafe { OwnedFd::from_raw_fd(wfd) });
    }
    result
}

/// Borrows a descriptor of the caller for the duration of a call; `EBADF` if it is negative.
fn borrowed<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: `fd` is not -1. If the caller passes a descriptor that is not open, system calls fail
    // with EBADF, as they would in C. No memory access depends on it.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// # Safety
///
/// `text` is null or a C string.
unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str, Errno> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Errno::INVAL)
}

/// Parses an application name of up to four parts with `|` between them. Empty parts at the end are
/// ignored.
///
/// # Safety
///
/// As for [`text_of`].
unsafe fn app_name(text: *const c_char) -> Result<AppName, Errno> {
    // SAFETY: the caller's promise.
    let text = unsafe { text_of(text) }?.trim_end_matches('|');
    text.parse().map_err(|_| Errno::INVAL)
}

/// # Safety
///
/// As for [`text_of`].
unsafe fn dif_of(text: *const c_char) -> Result<Option<DifName>, Errno> {
    // SAFETY: the caller's promise.
    match unsafe { text_of(text) }? {
        "" => Ok(None),
        dif => dif.parse().map(Some).map_err(|_| Errno::INVAL),
    }
}

fn from_c(spec: &RinaFlowSpec) -> Result<FlowSpec, Errno> {
    if spec.version != RINA_FLOW_SPEC_VERSION {
        return Err(Errno::INVAL);
    }
    let spec = FlowSpec {
        max_delay_us: spec.max_delay,
        max_sdu_gap: spec.max_sdu_gap,
        avg_bandwidth_bps: spec.avg_bandwidth,
        max_loss: spec.max_loss,
        in_order: spec.in_order_delivery != 0,
        msg_boundaries: spec.msg_boundaries != 0,
        max_jitter_us: spec.max_jitter,
    };
    spec.check().map(|()| spec).map_err(|_| Errno::INVAL)
}

fn to_c(spec: &FlowSpec) -> RinaFlowSpec {
    RinaFlowSpec {
        version: RINA_FLOW_SPEC_VERSION,
        max_delay: spec.max_delay_us,
        max_sdu_gap: spec.max_sdu_gap,
        avg_bandwidth: spec.avg_bandwidth_bps,
        max_loss: spec.max_loss,
        in_order_delivery: spec.in_order.into(),
        msg_boundaries: spec.msg_boundaries.into(),
        max_jitter: spec.max_jitter_us,
    }
}

/// Converts a result for C: the value, or -1 with `errno` set.
fn give(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}

fn set_errno(error: Errno) {
    // SAFETY: the location of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = error.raw_os_error() };
}

const _: () = assert!(
    size_of::<RinaFlowSpec>() == 32,
    "the layout of the C structure"
);
