//! What guests boot: a kernel, and an image with the program of a node.

use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::error::Result;
use crate::image::Image;
use crate::machine::{Boot, Machine};

/// The kernel and the image that guests boot, and the cache that contains both.
#[derive(Debug)]
pub struct GuestImage {
    cache: Cache,
    boot: Boot,
}

impl GuestImage {
    /// Obtains the kernel, and packs the image with `program` as `/bin/carina`.
    ///
    /// # Errors
    /// The kernel or a part of the image is missing.
    pub fn prepare(program: &Path) -> Result<Self> {
        Self::build(&Image::new().program("/bin/carina", program)?)
    }

    /// Obtains the kernel that guests boot, and packs `image` as an initramfs; both are in the
    /// cache afterwards. `image` must contain the program of a node.
    ///
    /// # Errors
    /// The kernel or a part of the image is missing.
    pub fn build(image: &Image) -> Result<Self> {
        let cache = Cache::default_location()?;
        let boot = Boot::prepare(&cache, image)?;
        Ok(Self { cache, boot })
    }

    /// A machine that boots the image.
    ///
    /// # Errors
    /// The name is not well formed.
    pub fn machine(&self, name: &str, directory: impl Into<PathBuf>) -> Result<Machine> {
        Ok(Machine::new(name, directory)?.boot(self.boot.clone()))
    }

    /// The cache that contains the image.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}
