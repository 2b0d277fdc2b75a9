//! Requests of the client about normal DIFs.

use super::{Client, ClientError, escape};
use crate::control::{Catalogue, Dialect, DifCreate, DifExtend, IpcpInfo, RibObject, RibWrite};

impl Client {
    /// `POST /v1/difs`: creates an IPCP that creates or joins a normal DIF. The node answers before
    /// the IPCP has joined; `GET /v1/ipcps` shows its progress.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_dif(&self, dif: &DifCreate) -> Result<IpcpInfo, ClientError> {
        self.post("/v1/difs", dif)
    }

    /// `POST /v1/difs/{name}/over`: adds an N-1 DIF to this system's member of a normal DIF.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn extend_dif(&self, name: &str, wish: &DifExtend) -> Result<IpcpInfo, ClientError> {
        self.post(&format!("/v1/difs/{}/over", escape(name)), wish)
    }

    /// `DELETE /v1/difs/{name}/over/{below}`: removes an N-1 DIF from this system's member of a
    /// normal DIF. When this system has several members, `ipcp` names one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn retract_dif(
        &self,
        name: &str,
        below: &str,
        ipcp: Option<&str>,
    ) -> Result<IpcpInfo, ClientError> {
        let target = format!("/v1/difs/{}/over/{}", escape(name), escape(below));
        let reply = self.exchange("DELETE", &with_ipcp(target, ipcp), None)?;
        self.read_json(&reply)
    }

    /// `DELETE /v1/difs/{name}`: makes this system's member leave a normal DIF. When this system
    /// has several members, `ipcp` names one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn leave_dif(&self, name: &str, ipcp: Option<&str>) -> Result<(), ClientError> {
        let target = format!("/v1/difs/{}", escape(name));
        self.delete(&with_ipcp(target, ipcp))
    }

    /// `DELETE /v1/difs/{name}/members/{member}`: expels another member from the DIF.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn expel(&self, name: &str, member: &str) -> Result<(), ClientError> {
        let (name, member) = (escape(name), escape(member));
        self.delete(&format!("/v1/difs/{name}/members/{member}"))
    }

    /// `GET /v1/rib`: reads the RIB object at `path` and the objects below it, down to `scope`
    /// levels. `dif` may be absent if this system has one normal DIF only. `member` defaults to
    /// this system's member.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn rib(
        &self,
        dif: Option<&str>,
        member: Option<&str>,
        path: &str,
        scope: u32,
    ) -> Result<Vec<RibObject>, ClientError> {
        self.rib_where(dif, member, path, scope, None)
    }

    /// `GET /v1/rib` with a filter. Returns the objects of [`Client::rib`] that satisfy every
    /// condition. A condition is `FIELD=VALUE` or `class=CLASS`; `&` joins several.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn rib_where(
        &self,
        dif: Option<&str>,
        member: Option<&str>,
        path: &str,
        scope: u32,
        filter: Option<&str>,
    ) -> Result<Vec<RibObject>, ClientError> {
        let mut target = format!("/v1/rib?path={}&scope={scope}", escape(path));
        for (key, value) in [("dif", dif), ("member", member), ("filter", filter)] {
            if let Some(value) = value {
                target += &format!("&{key}={}", escape(value));
            }
        }
        self.get(&target)
    }

    /// `POST /v1/rib`: sets fields of a RIB object. Returns the object with its new values.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write_rib(&self, write: &RibWrite) -> Result<Vec<RibObject>, ClientError> {
        self.post("/v1/rib", write)
    }

    /// `GET /v1/policies`: the policies that a DIF of `dialect` can use.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn policies_of(&self, dialect: Dialect) -> Result<Catalogue, ClientError> {
        self.get(&format!("/v1/policies?dialect={}", dialect.name()))
    }

    /// `GET /v1/policies`: the policies that a DIF can use, and those that `dif` uses now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn policies(&self, dif: Option<&str>) -> Result<Catalogue, ClientError> {
        match dif {
            Some(dif) => self.get(&format!("/v1/policies?dif={}", escape(dif))),
            None => self.get("/v1/policies"),
        }
    }
}

/// Appends `?ipcp=NAME` to `path`, to choose among several members of this system.
fn with_ipcp(path: String, ipcp: Option<&str>) -> String {
    match ipcp {
        Some(ipcp) => format!("{path}?ipcp={}", escape(ipcp)),
        None => path,
    }
}
