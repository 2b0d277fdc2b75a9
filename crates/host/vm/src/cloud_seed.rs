//! The seed of a guest from a user's disk: a volume from which cloud-init in the image (NoCloud)
//! takes a node, keys for ssh and files at its first boot.
//!
//! ```text
//!  NAME.seed, a volume "cidata"        guest
//!    meta-data, network-config         cloud-init: the name of the machine, no network card
//!    user-data  ------------------->   keys of root, files, commands
//!    carina     ------------------->   /usr/local/bin/carina, a service of systemd
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::error::{Context, Error, Result};
use crate::hash::Hash;
use crate::image::guest_program;
use crate::machine::{Boot, Machine, SEED};
use crate::ssh::{SshKeys, private_place};
use crate::tool;

/// What a guest from a user's disk gets at its first boot.
#[derive(Debug, Clone)]
pub struct CloudSeed<'a> {
    /// Path of this program: the guest gets [`guest_program`] of it.
    pub program: &'a Path,
    /// Configuration of the guest's node, as TOML.
    pub node_config: &'a str,
    /// Keys of root and of the guest's sshd.
    pub keys: &'a SshKeys,
    /// Files: path in the guest, and content.
    pub files: &'a [(&'a str, String)],
    /// Environment variables of all logins and of services that read `/etc/environment`.
    pub environment: &'a [(&'a str, &'a str)],
}

impl Machine {
    /// Adds the seed as a drive to a machine that boots from a disk, and puts the keys into the
    /// machine's run directory ([`ssh_files`](crate::ssh_files)).
    ///
    /// # Errors
    ///
    /// The machine does not boot from a disk, `genisoimage` is missing or fails, or a file cannot
    /// be read or written.
    pub fn cloud_seed(self, seed: &CloudSeed<'_>) -> Result<Machine> {
        if !matches!(self.boot_source(), Some(Boot::Disk(_))) {
            return Err(Error::Invalid {
                what: format!("seed for machine {}", self.name()),
                reason: "is for a guest that boots from a disk".into(),
            });
        }
        let place = private_place(self.run_dir())?;
        let volume = volume(&place, self.name(), seed);
        fs::remove_dir_all(&place).context("remove", &place)?;
        Ok(self.ssh_keys(seed.keys).private_file(SEED, volume?))
    }
}

/// Makes the volume, with its files in the directory `place`.
fn volume(place: &Path, name: &str, seed: &CloudSeed<'_>) -> Result<Vec<u8>> {
    let user_data = format!("#cloud-config\n{:#}\n", user_data(seed));
    let mut hash = Hash::new();
    hash.field(user_data.as_bytes());
    // A new instance ID has cloud-init apply the new keys to a disk that has booted before.
    let meta_data = format!("instance-id: {name}-{hash}\nlocal-hostname: {name}\n");
    let files = place.join("files");
    fs::create_dir(&files).context("create", &files)?;
    for (file, text) in [
        ("meta-data", meta_data.as_str()),
        ("network-config", "config: disabled\n"),
        ("user-data", &user_data),
    ] {
        let path = files.join(file);
        fs::write(&path, text).context("write", &path)?;
    }
    let program = guest_program(seed.program);
    fs::copy(&program, files.join("carina")).context("copy", &program)?;
    let path = place.join("volume");
    let mut command = Command::new(tool::find("genisoimage", "genisoimage")?);
    command.args(["-quiet", "-volid", "cidata", "-joliet", "-rational-rock"]);
    tool::output(command.arg("-output").arg(&path).arg(&files))?;
    fs::read(&path).context("read", &path)
}

/// Settings for cloud-init. JSON is YAML, too.
fn user_data(seed: &CloudSeed<'_>) -> Value {
    let variables = seed.environment.iter();
    let environment: String = variables
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect();
    let file = |path: &str, mode: &str, text: &str| json!({ "path": path, "permissions": mode, "content": text });
    let mut files = vec![
        file("/etc/carina.toml", "0644", seed.node_config),
        file("/etc/systemd/system/carina.service", "0644", SERVICE),
        json!({ "path": "/etc/environment", "content": environment, "append": true }),
    ];
    let more = seed.files.iter();
    files.extend(more.map(|(path, text)| file(path, "0644", text)));
    let (private, public) = seed.keys.of_host();
    json!({
        "disable_root": false,
        "ssh_pwauth": false,
        "ssh_authorized_keys": [seed.keys.of_user().trim()],
        "ssh_keys": {
            "ed25519_private": String::from_utf8_lossy(private),
            "ed25519_public": public.trim(),
        },
        "write_files": files,
        "runcmd": [["sh", "-ec", INSTALL]],
    })
}

/// Copies the program from the volume, and starts the node. A node that runs already, because the
/// disk has booted before, keeps running unless its program changes: users may be logged in.
const INSTALL: &str = "mkdir -p /run/carina-seed && \
    mount -o ro LABEL=cidata /run/carina-seed && \
    if ! cmp -s /run/carina-seed/carina /usr/local/bin/carina; then \
    systemctl stop carina.service || true; \
    install -m 755 /run/carina-seed/carina /usr/local/bin/carina; fi && \
    umount /run/carina-seed && \
    systemctl daemon-reload && systemctl enable carina.service && \
    systemctl start --no-block carina.service";

/// The node starts when sshd listens, so that its registration says that both are ready.
const SERVICE: &str = "[Unit]\nDescription=Node of Carina\nAfter=ssh.service sshd.service\n\n\
    [Service]\n\
    ExecStart=/usr/local/bin/carina node --config /etc/carina.toml\nRestart=always\n\
    RestartSec=1\n\n[Install]\nWantedBy=multi-user.target\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_keys_the_node_and_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let Ok(keys) = SshKeys::generate(directory.path()) else {
            return println!("SKIP: there is no ssh-keygen here");
        };
        let files = [("/etc/x", "a \"b\"\n".to_owned())];
        let seed = CloudSeed {
            program: Path::new("/bin/true"),
            node_config: "[[ipcp]]\n",
            keys: &keys,
            files: &files,
            environment: &[("http_proxy", "http://127.0.0.1:3128")],
        };
        let data = user_data(&seed);
        let own = data["ssh_authorized_keys"][0].as_str().unwrap();
        assert!(own.starts_with("ssh-ed25519 "), "{own}");
        let private = data["ssh_keys"]["ed25519_private"].as_str().unwrap();
        assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
        let written = data["write_files"].as_array().unwrap();
        assert_eq!(written[3]["content"], files[0].1);
        assert_eq!(written[2]["content"], "http_proxy=http://127.0.0.1:3128\n");
        if tool::find("genisoimage", "genisoimage").is_err() {
            return println!("SKIP: there is no genisoimage here");
        }
        let place = directory.path().join("place");
        fs::create_dir(&place).unwrap();
        let volume = volume(&place, "a", &seed).unwrap();
        assert_eq!(&volume[0x8001..0x8006], b"CD001");
    }
}
