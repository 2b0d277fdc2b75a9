//! What concerns normal DIFs.

use super::{Client, ClientError, escape};
use crate::control::{Catalogue, Dialect, DifCreate, DifExtend, IpcpInfo, RibObject, RibWrite};

impl Client {
    /// `POST /v1/difs`: makes an IPCP that creates or joins a normal DIF. Joining goes on after the
    /// answer; `GET /v1/ipcps` tells how far it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_dif(&self, dif: &DifCreate) -> Result<IpcpInfo, ClientError> {
        self.post("/v1/difs", dif)
    }

    /// `POST /v1/difs/{name}/over`: this system's member of a normal DIF gets another N-1 DIF.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn extend_dif(&self, name: &str, wish: &DifExtend) -> Result<IpcpInfo, ClientError> {
        self.post(&format!("/v1/difs/{}/over", escape(name)), wish)
    }

    /// `DELETE /v1/difs/{name}/over/{below}`: this system's member of a normal DIF, or its member
    /// `ipcp` where it has several, loses an N-1 DIF.
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

    /// `DELETE /v1/difs/{name}`: this system's member of a normal DIF, or its member `ipcp` where
    /// it has several, leaves it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn leave_dif(&self, name: &str, ipcp: Option<&str>) -> Result<(), ClientError> {
        let target = format!("/v1/difs/{}", escape(name));
        self.delete(&with_ipcp(target, ipcp))
    }

    /// `DELETE /v1/difs/{name}/members/{member}`: makes another member leave the DIF.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn expel(&self, name: &str, member: &str) -> Result<(), ClientError> {
        let (name, member) = (escape(name), escape(member));
        self.delete(&format!("/v1/difs/{name}/members/{member}"))
    }

    /// `GET /v1/rib`: the object at `path` and what is below it to a depth of `scope`, of the
    /// member of `dif` in this system (of its only normal DIF) or of another one.
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

    /// `GET /v1/rib` with a filter: of the objects that [`Client::rib`] gives those with all of
    /// these `FIELD=VALUE` or `class=CLASS`, joined by `&`.
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

    /// `POST /v1/rib`: sets fields of an object; answers with what it is then.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write_rib(&self, write: &RibWrite) -> Result<Vec<RibObject>, ClientError> {
        self.post("/v1/rib", write)
    }

    /// `GET /v1/policies`: what DIFs of a dialect can have.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn policies_of(&self, dialect: Dialect) -> Result<Catalogue, ClientError> {
        self.get(&format!("/v1/policies?dialect={}", dialect.name()))
    }

    /// `GET /v1/policies`: what DIFs can have, and what is in force in `dif`.
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

/// A path, and which of several members of this system is meant.
fn with_ipcp(path: String, ipcp: Option<&str>) -> String {
    match ipcp {
        Some(ipcp) => format!("{path}?ipcp={}", escape(ipcp)),
        None => path,
    }
}
