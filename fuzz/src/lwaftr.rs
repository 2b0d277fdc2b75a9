//! Files of `carina lwaftr`, and frames that come to an AFTR.

use std::sync::{Arc, LazyLock};

use carina_frame::{Pool, PoolConfig};
use carina_lwaftr::aftr::Aftr;
use carina_lwaftr::channel::{Request, Verb};
use carina_lwaftr::check::first_queue;
use carina_lwaftr::config::Rules;
use carina_lwaftr::file::{Loaded, compile, is_compiled, read, read_compiled, write};
use carina_lwaftr::live::{Edit, Live, Used};
use carina_lwaftr::path::Path;
use carina_lwaftr::spread::{Side, Spread, SpreadConfig};
use carina_lwaftr::text::Reader;
use carina_time::{Duration, Instant};
use carina_wire::inet::Ipv4Header;

/// Configurations, as text or compiled.
pub fn lwaftr_file(data: &[u8]) {
    reads_lwaftr_file(data);
}

/// True when the bytes are a configuration. It is then the same when it was written and compiled;
/// any other text gives an error with a line within it.
pub fn reads_lwaftr_file(data: &[u8]) -> bool {
    let loaded = match (is_compiled(data), std::str::from_utf8(data)) {
        (true, _) => read_compiled(data, false).ok(),
        (false, Ok(text)) => {
            let lines = text.lines().count() + 1;
            let mut reader = Reader::new(text);
            while let Ok(Some(statement)) = reader.statement() {
                assert!((1..=lines).contains(&(statement.line as usize)));
            }
            match read(text, false) {
                Ok(loaded) => Some(loaded),
                Err(error) => {
                    assert!((1..=lines).contains(&(error.line as usize)), "{error}");
                    None
                }
            }
        }
        (false, Err(_)) => None,
    };
    let Some(loaded) = loaded else {
        return false;
    };
    let again = read(&write(&loaded.config), false).expect("what was written");
    assert_eq!(again.config, loaded.config);
    let compiled = read_compiled(&compile(&loaded), false).expect("what was compiled");
    assert_eq!(compiled.table.compile(), loaded.table.compile());
    for softwire in loaded.table.softwires().take(100) {
        assert!(loaded.table.has_address(softwire.ipv4.octets()));
    }
    true
}

const CONFIGURATION: &str = include_str!("../corpus/lwaftr_file/small.conf");

static LOADED: LazyLock<Loaded> =
    LazyLock::new(|| read(CONFIGURATION, false).expect("a configuration"));

/// Lines that ask an AFTR to show and change its configuration.
pub fn lwaftr_requests(data: &[u8]) {
    changes_by_lwaftr_requests(data);
}

/// True when a line has changed something. What is shown is then what is used.
pub fn changes_by_lwaftr_requests(data: &[u8]) -> bool {
    let used = Used {
        config: Arc::new(LOADED.config.clone()),
        table: Arc::new(LOADED.table.clone()),
    };
    let mut live = Live::new(used, false);
    let mut has_changed = false;
    for line in data.split(|byte| *byte == b'\n').take(32) {
        let Ok(request) = Request::read(line) else {
            continue;
        };
        let Ok(path) = request.path.as_deref().unwrap_or("/").parse::<Path>() else {
            continue;
        };
        assert_eq!(path.to_string().parse::<Path>().as_ref(), Ok(&path));
        let edit = match request.verb {
            Verb::Set => Edit::Set,
            Verb::Add => Edit::Add,
            Verb::Remove => Edit::Remove,
            _ => {
                // What is not there has a reason.
                let _ = live.get(&path);
                continue;
            }
        };
        let before = live.used();
        let done = live.edit(edit, &path, request.value.as_deref());
        let after = live.used();
        has_changed |= done.is_ok();
        if done.is_err() {
            assert!(Arc::ptr_eq(&before.config, &after.config));
            assert!(Arc::ptr_eq(&before.table, &after.table));
        }
        let shown = live.get(&Path::default()).expect("everything is shown");
        let again = read(&shown, false).expect("what is shown");
        assert_eq!(again.config, *after.config);
        assert_eq!(again.table.len(), after.table.len());
    }
    has_changed
}

const WORKERS: usize = 3;

/// Frames for an AFTR: each has a byte that says where it comes from and how long after the one
/// before, a byte of its length, and its bytes.
pub fn lwaftr_frames(data: &[u8]) {
    forwards_lwaftr_frames(data);
}

/// True when some frame left. Each that comes has a worker among several. All that leave fit into
/// their MTU, and have right headers; when all is done, no frame of the pool is lost.
pub fn forwards_lwaftr_frames(data: &[u8]) -> bool {
    let pool = Pool::new(PoolConfig {
        frames: 256,
        frame_bytes: 4096,
    });
    let pool = pool.expect("memory for 256 frames");
    let queue = first_queue(&LOADED.config).expect("a queue");
    let table = Arc::new(LOADED.table.clone());
    let aftr = Aftr::new(&LOADED.config, queue, table, Rules::RFC, pool.clone());
    let mut aftr = aftr.expect("filters that were read");
    // Of three workers, one has other addresses.
    let mut queues = vec![queue.clone(); WORKERS];
    queues[1].external.ip = [10, 1, 1, 77].into();
    queues[1].internal.vlan = Some(5);
    let side = Side::Stick;
    let spread = Spread::new(&SpreadConfig { side, queues });
    let mut now = Instant::ZERO;
    let mut has_left = false;
    let mut rest = data;
    while let [how, length, behind @ ..] = rest {
        let length = (usize::from(*length) * 8).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        rest = behind;
        now += Duration::from_millis(u64::from(how >> 2) * 500);
        aftr.handle_time(now);
        let Some(frame) = pool.frame_of(bytes) else {
            continue;
        };
        assert!(spread.worker_of(&frame) < WORKERS);
        match how & 3 {
            0 => aftr.handle_external(frame, now),
            1 => aftr.handle_internal(frame, now),
            _ => aftr.handle_stick(frame, now),
        }
        let out = aftr.outputs();
        has_left |= !out.external.is_empty() || !out.internal.is_empty();
        for frame in out.external.drain(..) {
            let packet = &frame.bytes()[14..];
            assert!(packet.len() <= usize::from(LOADED.config.external.mtu));
            let is_arp = frame.bytes()[12..14] == [8, 6];
            assert!(is_arp || Ipv4Header::decode(packet).is_ok());
        }
        for frame in out.internal.drain(..) {
            let packet = &frame.bytes()[14..];
            let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            assert!(packet.len() <= usize::from(LOADED.config.internal.mtu));
            assert!(packet[0] >> 4 == 6 && packet.len() == 40 + length);
        }
    }
    drop(aftr);
    assert_eq!(pool.spare(), pool.frames());
    has_left
}
