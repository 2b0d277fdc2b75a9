//! Tests of data transfer, on a virtual clock.

mod data_transfer;
