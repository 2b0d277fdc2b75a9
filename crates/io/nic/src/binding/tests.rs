//! Tests of the records of bound cards, and of cards that are refused.

use super::*;

fn device(driver: Option<&str>) -> PciDevice {
    PciDevice {
        address: "ffff:00:1f.7".to_owned(),
        vendor: 0x8086,
        device: 0x10d3,
        driver: driver.map(str::to_owned),
        interface: None,
        has_iommu: false,
    }
}

#[test]
fn records_are_read_as_written_and_junk_says_nothing() {
    let record = Record {
        driver: Some("virtio-pci".to_owned()),
        process: 17,
        is_kept: true,
    };
    assert_eq!(Record::read(&record.text()), record);
    for junk in [
        "",
        "driver=",
        "driver=../../x\nprocess=-1\nkept=yes",
        "\0\u{fffd}",
    ] {
        assert_eq!(Record::read(junk), Record::default(), "{junk:?}");
    }
    let cut = &record.text()[.."driver=virtio-pci\npro".len()];
    assert_eq!(Record::read(cut).driver, record.driver);
}

#[test]
fn driver_of_a_killed_process_is_remembered() {
    let records = tempfile::tempdir().unwrap();
    let take = |device: &PciDevice| take_record(records.path(), device, false);
    drop(take(&device(Some("e1000e"))).unwrap());
    // The record is no longer locked, and the device has no driver, or that of VFIO.
    for has in [None, Some("vfio-pci")] {
        let locked = take(&device(has)).unwrap();
        assert_eq!(locked.record().driver.as_deref(), Some("e1000e"));
    }
}

#[test]
fn device_that_a_process_has_is_refused_with_its_number() {
    let records = tempfile::tempdir().unwrap();
    let mut locked = take_record(records.path(), &device(Some("igb")), false).unwrap();
    let record = Record {
        process: 4711,
        ..locked.record()
    };
    locked.write(&record).unwrap();
    let error = take_record(records.path(), &device(None), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ffff:00:1f.7: process 4711 uses the card"
    );
}

#[test]
fn impossible_access_methods_are_refused() {
    let bare = device(None);
    assert_eq!(AccessMethod::Auto.of(&bare).unwrap(), AccessMethod::Sysfs);
    let error = AccessMethod::Vfio.of(&bare).unwrap_err().to_string();
    assert!(error.contains("needs an IOMMU"), "{error}");
    let behind = PciDevice {
        has_iommu: true,
        ..bare
    };
    assert_eq!(AccessMethod::Vfio.of(&behind).unwrap(), AccessMethod::Vfio);
    assert_eq!(
        AccessMethod::Sysfs.of(&behind).unwrap(),
        AccessMethod::Sysfs
    );
}
