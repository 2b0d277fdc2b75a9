//! Objects of a RIB as encoded values.

use alloc::string::String;
use alloc::vec::Vec;

use carina_ipcp::api::{RibObject, Scalar};
use prost::Message;

use super::values::{decode, encode};

#[derive(Clone, PartialEq, Eq, Message)]
struct FieldValue {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, optional, tag = "2")]
    uint: Option<u64>,
    #[prost(sint64, optional, tag = "3")]
    int: Option<i64>,
    #[prost(string, optional, tag = "4")]
    text: Option<String>,
    #[prost(bool, optional, tag = "5")]
    flag: Option<bool>,
    /// The field is a list, in `list`; the flag distinguishes an empty list from no list.
    #[prost(bool, tag = "6")]
    is_list: bool,
    #[prost(string, repeated, tag = "7")]
    list: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ObjectValue {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(string, tag = "2")]
    class: String,
    #[prost(message, repeated, tag = "3")]
    fields: Vec<FieldValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ObjectsValue {
    #[prost(message, repeated, tag = "1")]
    objects: Vec<ObjectValue>,
}

/// Encodes objects of a RIB.
pub(crate) fn encode_objects(objects: &[RibObject]) -> Vec<u8> {
    let objects = objects.iter().map(write_object).collect();
    encode(&ObjectsValue { objects })
}

/// Decodes objects of a RIB; `None` when they are malformed.
pub(crate) fn decode_objects(bytes: &[u8]) -> Option<Vec<RibObject>> {
    let value: ObjectsValue = decode(bytes)?;
    value.objects.into_iter().map(read_object).collect()
}

fn write_object(object: &RibObject) -> ObjectValue {
    let field = |(name, scalar): &(String, Scalar)| {
        let mut field = FieldValue {
            name: name.clone(),
            ..FieldValue::default()
        };
        match scalar {
            Scalar::Uint(value) => field.uint = Some(*value),
            Scalar::Int(value) => field.int = Some(*value),
            Scalar::Text(value) => field.text = Some(value.clone()),
            Scalar::Bool(value) => field.flag = Some(*value),
            Scalar::List(value) => {
                field.is_list = true;
                field.list.clone_from(value);
            }
        }
        field
    };
    ObjectValue {
        path: object.path.clone(),
        class: object.class.clone(),
        fields: object.fields.iter().map(field).collect(),
    }
}

fn read_object(object: ObjectValue) -> Option<RibObject> {
    let scalar = |field: FieldValue| {
        let scalar = match field {
            FieldValue {
                is_list: true,
                list,
                ..
            } => Scalar::List(list),
            FieldValue {
                uint: Some(value), ..
            } => Scalar::Uint(value),
            FieldValue {
                int: Some(value), ..
            } => Scalar::Int(value),
            FieldValue {
                text: Some(value), ..
            } => Scalar::Text(value),
            FieldValue {
                flag: Some(value), ..
            } => Scalar::Bool(value),
            _ => return None,
        };
        Some((field.name, scalar))
    };
    Some(RibObject {
        path: object.path,
        class: object.class,
        fields: object
            .fields
            .into_iter()
            .map(scalar)
            .collect::<Option<_>>()?,
    })
}
