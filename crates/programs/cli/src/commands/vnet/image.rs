//! `carina vnet image`: disk images from which nodes boot.

use std::path::PathBuf;

use carina_text::table::{Table, size};
use carina_vnet_images::{ImageError, ImageStore, NewImage};
use clap::Subcommand;
use serde_json::json;

use crate::Shared;
use crate::failure::{Attempt, Outcome, refused};
use crate::report::{print_json, print_line};

/// Add, list and remove disk images that nodes of a document name: `image = "NAME"`
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Copy a disk image into the store of this host, under a name
    ///
    /// Each node that boots the image gets a disk of its own: changes do not reach the image. A
    /// volume `cidata` (NoCloud) tells cloud-init in the node its name, and the addresses and
    /// routes of its interfaces.
    #[command(
        after_help = "Examples:\n  carina vnet image add debian-12-nocloud-amd64.qcow2 --name \
        debian\n  carina vnet image add disk.raw --name own --user-data user-data.yaml\n  \
        carina vnet image add root.qcow2 --name bare --kernel vmlinuz --initramfs initrd.img \
        --append 'root=/dev/vda console=ttyS0'\n\nExit code 3: the file cannot be used as an image."
    )]
    Add(AddArgs),
    /// List the disk images of this host
    #[command(after_help = "Example:\n  carina --json vnet image list")]
    List,
    /// Remove a disk image that no node uses
    #[command(after_help = "Example:\n  carina vnet image remove debian")]
    Remove {
        /// Name of the image to remove, as `carina vnet image list` shows it
        name: String,
    },
}

/// Options of `carina vnet image add`: the disk image, its name, and how to boot it.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Disk image file to copy, in format qcow2 or raw
    disk: PathBuf,
    /// Name for the image: letters, digits and `-`
    #[arg(long)]
    name: String,
    /// Kernel file to boot in place of the one on the disk [default: boot from the disk]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// File with the initramfs for --kernel [default: none]
    #[arg(long, value_name = "FILE", requires = "kernel")]
    initramfs: Option<PathBuf>,
    /// Command line of the kernel of --kernel, such as "console=ttyS0"
    #[arg(long, value_name = "WORDS", requires = "kernel", default_value = "")]
    append: String,
    /// File with more `user-data` for cloud-init, in addition to names and addresses [default:
    /// none]
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,
}

/// Runs a command of `carina vnet image`.
///
/// # Errors
/// There is no such image, the file is not a disk image, or a node uses the image.
pub(super) fn run(shared: &Shared, command: ImageCommand) -> Outcome {
    let store = ImageStore::of_this_host();
    match command {
        ImageCommand::Add(args) => add(shared, &store, args),
        ImageCommand::List => list(shared, &store),
        ImageCommand::Remove { name } => match store.remove(&name) {
            Err(error @ (ImageError::Unknown { .. } | ImageError::InUse { .. })) => {
                Err(refused(error))
            }
            removed => removed.attempt("removing an image"),
        },
    }
}

fn add(shared: &Shared, store: &ImageStore, args: AddArgs) -> Outcome {
    let new = NewImage {
        name: args.name,
        disk: args.disk,
        kernel: args.kernel,
        initramfs: args.initramfs,
        command_line: args.append,
        user_data: args.user_data,
    };
    let image = match store.add(&new) {
        Err(error @ ImageError::Refused { .. }) => return Err(refused(error)),
        added => added.attempt("adding an image")?,
    };
    if shared.json {
        print_json(&image)
    } else {
        print_line(format!(
            "{}: {}, {} bytes in the file, {} bytes as a disk, SHA-256 {}",
            image.name, image.format, image.bytes, image.virtual_bytes, image.disk
        ))
    }
}

fn list(shared: &Shared, store: &ImageStore) -> Outcome {
    let images = store.list().attempt("listing images")?;
    if shared.json {
        return print_json(&json!({ "images": images }));
    }
    let mut table = Table::new(["IMAGE", "FORMAT", "FILE", "DISK", "KERNEL", "SHA-256"]);
    for image in &images {
        table.row([
            image.name.clone(),
            image.format.clone(),
            size(image.bytes),
            size(image.virtual_bytes),
            if image.kernel.is_some() {
                "given"
            } else {
                "its own"
            }
            .to_owned(),
            image.disk.clone(),
        ]);
    }
    print_line(table.to_string().trim_end())
}
