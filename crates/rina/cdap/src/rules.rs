//! What a dialect of CDAP requires of a message, and which fields it always writes.

use alloc::string::String;
use alloc::vec::Vec;

use prost::Message as _;

use crate::error::{CdapError, RuleError};
use crate::message::{Auth, Message, Party};
use crate::opcode::{Flag, Opcode};
use crate::proto::{AuthValue, CdapMessage};
use crate::value::Value;

/// What a dialect of CDAP requires of a message's fields, and which fields it always writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Number of the abstract syntax in M_CONNECT and its answer.
    pub abstract_syntax: i32,
    /// Version number in M_CONNECT and its answer.
    pub version: i64,
    /// Whether every message may have the field `version`. Otherwise only M_CONNECT and its answer
    /// may have it.
    pub version_everywhere: bool,
    /// Fields that the encoder writes even if they are 0 or empty: bit N for field number N.
    pub always: u32,
    /// Whether the encoder writes a party that has any name with all four parts, even if some are
    /// empty.
    pub whole_parties: bool,
    /// Whether class and name of an object must both be present or both be absent, also in answers.
    pub class_with_name: bool,
    /// Whether a request may have a result.
    pub result_in_requests: bool,
    /// Whether operations are allowed before the connection is accepted, for an authentication
    /// between M_CONNECT and M_CONNECT_R.
    pub operations_while_connecting: bool,
    /// Longest encoded message in bytes.
    pub bytes_max: usize,
    /// Longest class, object name, reason or filter in bytes.
    pub text_bytes_max: usize,
    /// Longest part of a party's name in bytes.
    pub party_bytes_max: usize,
}

/// Largest number of texts in an authentication value.
const AUTH_TEXTS_MAX: usize = 16;

impl Rules {
    /// The rules of Carina's own dialect: fields that a receiver can assume are not written.
    pub const NATIVE: Rules = Rules {
        abstract_syntax: 115,
        version: 1,
        version_everywhere: false,
        always: 0,
        whole_parties: false,
        class_with_name: false,
        result_in_requests: false,
        operations_while_connecting: false,
        bytes_max: 65_536,
        text_bytes_max: 1024,
        party_bytes_max: 255,
    };

    /// The rules of rlite. Every message of a connection has the version. Class and name of an
    /// object are written even if empty, and names with all their parts.
    pub const RLITE: Rules = Rules {
        abstract_syntax: 73,
        version_everywhere: true,
        always: bits(&[1, 4, 5, 6, 9, 28]),
        whole_parties: true,
        class_with_name: true,
        ..Rules::NATIVE
    };

    /// The rules of IRATI. Almost every field is written whatever its value. Authentication
    /// messages are exchanged between M_CONNECT and its answer. Answers may lack class and name.
    pub const IRATI: Rules = Rules {
        abstract_syntax: 115,
        always: bits(&[
            1, 3, 5, 6, 7, 9, 10, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
        ]),
        operations_while_connecting: true,
        result_in_requests: true,
        ..Rules::NATIVE
    };

    /// Encodes a message as protobuf, as the dialect requires.
    #[must_use]
    pub fn encode(&self, message: &Message) -> Vec<u8> {
        self.to_proto(message).encode_to_vec()
    }

    /// Decodes and checks a message.
    ///
    /// # Errors
    /// Why the bytes are not a message of this dialect.
    pub fn decode(&self, bytes: &[u8]) -> Result<Message, CdapError> {
        if bytes.len() > self.bytes_max {
            return Err(CdapError::TooLong);
        }
        let proto = CdapMessage::decode(bytes).map_err(|_| CdapError::Malformed)?;
        self.check_lengths(&proto)?;
        let message = from_proto(proto)?;
        self.check(&message).map_err(CdapError::Rule)?;
        Ok(message)
    }

    /// Checks that a message has all fields that its opcode requires, and no field that its opcode
    /// does not allow.
    ///
    /// # Errors
    /// The rule that the message violates.
    pub fn check(&self, message: &Message) -> Result<(), RuleError> {
        let Message { opcode, .. } = message;
        let connects = opcode.request() == Opcode::Connect;
        self.check_parties(message, connects)?;
        self.check_object(message)?;

        let needs_id = opcode.is_response() || connects || *opcode == Opcode::CancelRead;
        if message.invoke_id < 0 || needs_id && message.invoke_id == 0 {
            return Err(RuleError::InvokeId);
        }
        let is_whole_answer = message.flag == Flag::ReadIncomplete && *opcode != Opcode::ReadR;
        if is_whole_answer || message.flag == Flag::Sync && opcode.is_response() {
            return Err(RuleError::Flag);
        }
        let has_result = message.result != 0 || !message.reason.is_empty();
        if has_result && !opcode.is_response() && !self.result_in_requests {
            return Err(RuleError::Result);
        }
        let selects = message.scope != 0 || !message.filter.is_empty();
        let may_select = opcode.has_object() && !opcode.is_response();
        if message.scope < 0 || selects && !may_select {
            return Err(RuleError::Scope);
        }
        Ok(())
    }

    fn check_parties(&self, message: &Message, connects: bool) -> Result<(), RuleError> {
        if connects {
            if message.abstract_syntax != self.abstract_syntax || message.version != self.version {
                return Err(RuleError::Version);
            }
            if message.src.ap.is_empty() || message.dst.ap.is_empty() {
                return Err(RuleError::Party);
            }
        } else {
            let is_ours = self.version_everywhere && message.version == self.version;
            if message.abstract_syntax != 0 || message.version != 0 && !is_ours {
                return Err(RuleError::Version);
            }
            if !message.src.is_empty() || !message.dst.is_empty() {
                return Err(RuleError::Party);
            }
        }
        Ok(())
    }

    fn check_object(&self, message: &Message) -> Result<(), RuleError> {
        let Message {
            opcode,
            class,
            name,
            instance,
            value,
            ..
        } = message;
        let is_named = !name.is_empty() || *instance != 0;
        if opcode.has_object() {
            let is_half = self.class_with_name && class.is_empty() != name.is_empty();
            if is_half || !is_named && !opcode.is_response() {
                return Err(RuleError::Object);
            }
        } else if is_named || !class.is_empty() {
            return Err(RuleError::Object);
        }
        match (opcode, value) {
            (Opcode::Write, None) => Err(RuleError::Value),
            (Opcode::DeleteR, Some(_)) => Err(RuleError::Value),
            (_, Some(_)) if !opcode.has_object() => Err(RuleError::Value),
            _ => Ok(()),
        }
    }

    fn check_lengths(&self, proto: &CdapMessage) -> Result<(), CdapError> {
        let fits = |text: &Option<String>, max: usize| text.as_ref().is_none_or(|t| t.len() <= max);
        let texts = [&proto.class, &proto.name, &proto.reason];
        let parts = [
            &proto.dst_ae_instance,
            &proto.dst_ae,
            &proto.dst_ap_instance,
            &proto.dst_ap,
            &proto.src_ae_instance,
            &proto.src_ae,
            &proto.src_ap_instance,
            &proto.src_ap,
        ];
        let auth = proto.auth_value.as_ref();
        let filter = proto.filter.as_ref().map_or(0, Vec::len);
        let all_fit = texts.iter().all(|text| fits(text, self.text_bytes_max))
            && parts.iter().all(|part| fits(part, self.party_bytes_max))
            && filter <= self.text_bytes_max
            && auth.is_none_or(|auth| {
                fits(&auth.name, self.text_bytes_max)
                    && auth.texts.len() <= AUTH_TEXTS_MAX
                    && auth.texts.iter().all(|t| t.len() <= self.text_bytes_max)
            });
        if all_fit {
            Ok(())
        } else {
            Err(CdapError::TextTooLong)
        }
    }

    fn to_proto(self, message: &Message) -> CdapMessage {
        let always = |field: u32| self.always & (1 << field) != 0;
        let int = |field, value: i32| (value != 0 || always(field)).then_some(value);
        let long = |field, value: i64| (value != 0 || always(field)).then_some(value);
        let text = |field, text: &String| (!text.is_empty() || always(field)).then(|| text.clone());
        let Message { src, dst, auth, .. } = message;
        let part = |field, party: &Party, text: &String| {
            let is_whole = self.whole_parties && !party.is_empty();
            (is_whole || !text.is_empty() || always(field)).then(|| text.clone())
        };
        let auth_value = auth.clone().or_else(|| always(18).then(Auth::default));
        CdapMessage {
            abstract_syntax: int(1, message.abstract_syntax),
            opcode: Some(message.opcode as i32),
            invoke_id: int(3, message.invoke_id),
            flags: int(4, message.flag as i32),
            class: text(5, &message.class),
            name: text(6, &message.name),
            instance: long(7, message.instance),
            value: message.value.clone().map(Value::into_proto),
            result: int(9, message.result),
            scope: int(10, message.scope),
            filter: (!message.filter.is_empty()).then(|| message.filter.clone()),
            auth_mechanism: int(17, auth.as_ref().map_or(0, |auth| auth.mechanism)),
            auth_value: auth_value.map(|auth| AuthValue {
                name: (!auth.name.is_empty() || always(18)).then_some(auth.name),
                texts: auth.texts,
                value: (!auth.value.is_empty()).then_some(auth.value),
            }),
            dst_ae_instance: part(19, dst, &dst.aei),
            dst_ae: part(20, dst, &dst.ae),
            dst_ap_instance: part(21, dst, &dst.api),
            dst_ap: part(22, dst, &dst.ap),
            src_ae_instance: part(23, src, &src.aei),
            src_ae: part(24, src, &src.ae),
            src_ap_instance: part(25, src, &src.api),
            src_ap: part(26, src, &src.ap),
            reason: text(27, &message.reason),
            version: long(28, message.version),
        }
    }
}

/// A set of field numbers, each below 32, as bits.
const fn bits(fields: &[u32]) -> u32 {
    let mut all = 0;
    let mut at = 0;
    while at < fields.len() {
        all |= 1 << fields[at];
        at += 1;
    }
    all
}

fn from_proto(proto: CdapMessage) -> Result<Message, CdapError> {
    let opcode = proto.opcode.and_then(Opcode::from_number);
    let flag = Flag::from_number(proto.flags.unwrap_or_default()).ok_or(CdapError::Flag)?;
    let value = match proto.value.map(Value::from_proto) {
        Some(value) => value.map_err(|_| CdapError::Value)?,
        None => None,
    };
    let auth = (proto.auth_mechanism.is_some() || proto.auth_value.is_some()).then(|| {
        let credentials = proto.auth_value.unwrap_or_default();
        Auth {
            mechanism: proto.auth_mechanism.unwrap_or_default(),
            name: credentials.name.unwrap_or_default(),
            texts: credentials.texts,
            value: credentials.value.unwrap_or_default(),
        }
    });
    Ok(Message {
        opcode: opcode.ok_or(CdapError::Opcode)?,
        invoke_id: proto.invoke_id.unwrap_or_default(),
        flag,
        class: proto.class.unwrap_or_default(),
        name: proto.name.unwrap_or_default(),
        instance: proto.instance.unwrap_or_default(),
        value,
        result: proto.result.unwrap_or_default(),
        reason: proto.reason.unwrap_or_default(),
        scope: proto.scope.unwrap_or_default(),
        filter: proto.filter.unwrap_or_default(),
        auth: auth.filter(|auth| *auth != Auth::default()),
        src: Party {
            ap: proto.src_ap.unwrap_or_default(),
            api: proto.src_ap_instance.unwrap_or_default(),
            ae: proto.src_ae.unwrap_or_default(),
            aei: proto.src_ae_instance.unwrap_or_default(),
        },
        dst: Party {
            ap: proto.dst_ap.unwrap_or_default(),
            api: proto.dst_ap_instance.unwrap_or_default(),
            ae: proto.dst_ae.unwrap_or_default(),
            aei: proto.dst_ae_instance.unwrap_or_default(),
        },
        abstract_syntax: proto.abstract_syntax.unwrap_or_default(),
        version: proto.version.unwrap_or_default(),
    })
}

impl Message {
    /// Makes an M_CONNECT from `src` to `dst` in the native dialect.
    #[must_use]
    pub fn connect(src: Party, dst: Party) -> Message {
        Message {
            src,
            dst,
            abstract_syntax: Rules::NATIVE.abstract_syntax,
            version: Rules::NATIVE.version,
            ..Message::new(Opcode::Connect)
        }
    }

    /// Encodes the message in the native dialect.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Rules::NATIVE.encode(self)
    }

    /// Decodes a message of the native dialect.
    ///
    /// # Errors
    /// Why the bytes are not such a message.
    pub fn decode(bytes: &[u8]) -> Result<Message, CdapError> {
        Rules::NATIVE.decode(bytes)
    }
}
