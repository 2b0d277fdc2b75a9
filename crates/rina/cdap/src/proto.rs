//! The protobuf schema (proto2). The field numbers are those of all known implementations.

use alloc::string::String;
use alloc::vec::Vec;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CdapMessage {
    #[prost(int32, optional, tag = "1")]
    pub abstract_syntax: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub opcode: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub invoke_id: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub flags: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub class: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub name: Option<String>,
    #[prost(int64, optional, tag = "7")]
    pub instance: Option<i64>,
    #[prost(message, optional, tag = "8")]
    pub value: Option<ObjectValue>,
    #[prost(int32, optional, tag = "9")]
    pub result: Option<i32>,
    #[prost(int32, optional, tag = "10")]
    pub scope: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "11")]
    pub filter: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "17")]
    pub auth_mechanism: Option<i32>,
    #[prost(message, optional, tag = "18")]
    pub auth_value: Option<AuthValue>,
    #[prost(string, optional, tag = "19")]
    pub dst_ae_instance: Option<String>,
    #[prost(string, optional, tag = "20")]
    pub dst_ae: Option<String>,
    #[prost(string, optional, tag = "21")]
    pub dst_ap_instance: Option<String>,
    #[prost(string, optional, tag = "22")]
    pub dst_ap: Option<String>,
    #[prost(string, optional, tag = "23")]
    pub src_ae_instance: Option<String>,
    #[prost(string, optional, tag = "24")]
    pub src_ae: Option<String>,
    #[prost(string, optional, tag = "25")]
    pub src_ap_instance: Option<String>,
    #[prost(string, optional, tag = "26")]
    pub src_ap: Option<String>,
    #[prost(string, optional, tag = "27")]
    pub reason: Option<String>,
    #[prost(int64, optional, tag = "28")]
    pub version: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ObjectValue {
    #[prost(int32, optional, tag = "1")]
    pub int: Option<i32>,
    #[prost(sint32, optional, tag = "2")]
    pub sint: Option<i32>,
    #[prost(int64, optional, tag = "3")]
    pub int64: Option<i64>,
    #[prost(sint64, optional, tag = "4")]
    pub sint64: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub text: Option<String>,
    #[prost(bytes = "vec", optional, tag = "6")]
    pub bytes: Option<Vec<u8>>,
    #[prost(float, optional, tag = "7")]
    pub float: Option<f32>,
    #[prost(double, optional, tag = "8")]
    pub double: Option<f64>,
    #[prost(bool, optional, tag = "9")]
    pub bool: Option<bool>,
}

/// An authentication value. Other implementations call field 2 a password or a list of versions;
/// both decode as `texts`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthValue {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, repeated, tag = "2")]
    pub texts: Vec<String>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
}
