//! What a document may say, in each of its forms.

mod faults;
mod forms;
mod parts;
mod store;
