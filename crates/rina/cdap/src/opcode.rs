//! Operations of CDAP messages.

/// Operation of a CDAP message: a request or the answer to one. Numbers of requests are even,
/// numbers of answers odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// M_CONNECT: opens a connection.
    Connect = 0,
    /// M_CONNECT_R: accepts or refuses the connection.
    ConnectR = 1,
    /// M_RELEASE: closes the connection.
    Release = 2,
    /// M_RELEASE_R: answers M_RELEASE.
    ReleaseR = 3,
    /// M_CREATE: requests that an object be created.
    Create = 4,
    /// M_CREATE_R: answers M_CREATE.
    CreateR = 5,
    /// M_DELETE: requests that an object be deleted.
    Delete = 6,
    /// M_DELETE_R: answers M_DELETE.
    DeleteR = 7,
    /// M_READ: requests the value of objects.
    Read = 8,
    /// M_READ_R: answers M_READ, in one message or several.
    ReadR = 9,
    /// M_CANCELREAD: requests that no further answer to an M_READ be sent.
    CancelRead = 10,
    /// M_CANCELREAD_R: answers M_CANCELREAD.
    CancelReadR = 11,
    /// M_WRITE: requests that the value of an object be set.
    Write = 12,
    /// M_WRITE_R: answers M_WRITE.
    WriteR = 13,
    /// M_START: requests that the operation of an object be started.
    Start = 14,
    /// M_START_R: answers M_START.
    StartR = 15,
    /// M_STOP: requests that the operation of an object be stopped.
    Stop = 16,
    /// M_STOP_R: answers M_STOP.
    StopR = 17,
}

impl Opcode {
    /// All opcodes, in the order of their numbers.
    pub const ALL: [Opcode; 18] = [
        Opcode::Connect,
        Opcode::ConnectR,
        Opcode::Release,
        Opcode::ReleaseR,
        Opcode::Create,
        Opcode::CreateR,
        Opcode::Delete,
        Opcode::DeleteR,
        Opcode::Read,
        Opcode::ReadR,
        Opcode::CancelRead,
        Opcode::CancelReadR,
        Opcode::Write,
        Opcode::WriteR,
        Opcode::Start,
        Opcode::StartR,
        Opcode::Stop,
        Opcode::StopR,
    ];

    /// Returns the opcode with this number; `None` if the number is unknown.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Opcode> {
        let index = usize::try_from(number).ok()?;
        Opcode::ALL.get(index).copied()
    }

    /// Whether this opcode is the answer to a request.
    #[must_use]
    pub fn is_response(self) -> bool {
        self as u8 % 2 == 1
    }

    /// Returns the opcode of the answer to this request. For an answer, returns the same opcode.
    #[must_use]
    pub fn response(self) -> Opcode {
        Opcode::ALL[usize::from(self as u8 | 1)]
    }

    /// Returns the opcode of the request to which this is the answer. For a request, returns the
    /// same opcode.
    #[must_use]
    pub fn request(self) -> Opcode {
        Opcode::ALL[usize::from(self as u8 & !1)]
    }

    /// Whether the operation acts on an object. That is not so for connect, release and the
    /// cancelling of a read.
    #[must_use]
    pub fn has_object(self) -> bool {
        !matches!(
            self.request(),
            Opcode::Connect | Opcode::Release | Opcode::CancelRead
        )
    }

    /// Returns the name of the opcode, such as `M_READ_R`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Connect => "M_CONNECT",
            Opcode::ConnectR => "M_CONNECT_R",
            Opcode::Release => "M_RELEASE",
            Opcode::ReleaseR => "M_RELEASE_R",
            Opcode::Create => "M_CREATE",
            Opcode::CreateR => "M_CREATE_R",
            Opcode::Delete => "M_DELETE",
            Opcode::DeleteR => "M_DELETE_R",
            Opcode::Read => "M_READ",
            Opcode::ReadR => "M_READ_R",
            Opcode::CancelRead => "M_CANCELREAD",
            Opcode::CancelReadR => "M_CANCELREAD_R",
            Opcode::Write => "M_WRITE",
            Opcode::WriteR => "M_WRITE_R",
            Opcode::Start => "M_START",
            Opcode::StartR => "M_START_R",
            Opcode::Stop => "M_STOP",
            Opcode::StopR => "M_STOP_R",
        }
    }
}

/// The flag of a CDAP message, which modifies its operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Flag {
    /// The message carries out its operation without modification.
    #[default]
    None = 0,
    /// Perform the operation on all objects in scope, or on none.
    Sync = 1,
    /// Another answer to the same read follows.
    ReadIncomplete = 2,
}

impl Flag {
    /// Returns the flag with this number; `None` if the number is unknown.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Flag> {
        [Flag::None, Flag::Sync, Flag::ReadIncomplete]
            .into_iter()
            .find(|flag| *flag as i32 == number)
    }
}
