//! Lists of strings, as the functions of the C library that start a program take them.

use std::ffi::CStr;

use libc::c_char;

/// Words of a program, or its environment: pointers to strings, and a null pointer at the end.
pub(crate) type Words = *const *const c_char;

/// The strings of a list.
///
/// # Safety
/// It is null or a list of strings that ends with a null pointer, and outlives the iterator.
pub(crate) unsafe fn strings<'a>(list: Words) -> impl Iterator<Item = &'a CStr> {
    let at = move |place: usize| {
        // SAFETY: the caller's promise, and no entry behind the null pointer is read.
        unsafe {
            let entry = *list.add(place);
            (!entry.is_null()).then(|| CStr::from_ptr(entry))
        }
    };
    (0..).map_while(move |place| if list.is_null() { None } else { at(place) })
}
