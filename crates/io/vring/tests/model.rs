//! Random steps of both halves, compared with queues of plain values.

use std::collections::VecDeque;

use carina_vring::DriverBuffer;
use proptest::prelude::*;

use crate::pair::{BASE, FREE, Kind, pair};

#[derive(Clone, Debug)]
enum Step {
    /// Adds a chain of that many buffers, by an indirect table if the flag is set.
    Add(usize, bool),
    Publish,
    /// Takes up to the first number of chains, and completes the second number of them.
    Serve(usize, usize),
    Show,
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..5usize, any::<bool>()).prop_map(|(count, table)| Step::Add(count, table)),
        1 => Just(Step::Publish),
        2 => (0..6usize, 0..6usize).prop_map(|(take, done)| Step::Serve(take, done)),
        1 => Just(Step::Show),
        2 => Just(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn rings_agree_with_queues(
        is_packed in any::<bool>(),
        has_event_index in any::<bool>(),
        is_in_order in any::<bool>(),
        size in 0..6u32,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let size = if is_packed { size as u16 * 3 + 1 } else { 1 << size };
        let mut pair = pair(Kind { is_packed, size, has_event_index, is_in_order });
        // Numbers of chains that are added, visible, served, and returned.
        let (mut added, mut visible) = (VecDeque::new(), VecDeque::new());
        let (mut served, mut shown) = (VecDeque::new(), VecDeque::new());
        let mut number = 0u32;
        let mut free = usize::from(size);
        for step in steps {
            match step {
                Step::Add(count, by_table) => {
                    let at = BASE + FREE + 64 * u64::from(number % 512);
                    let buffers = vec![DriverBuffer::readable(at, 4); count];
                    let cost = if by_table { 1 } else { count };
                    let table = BASE + FREE + 0x2_0000 + 64 * u64::from(number % 512);
                    let result = if by_table {
                        pair.driver.add_indirect(table, &buffers)
                    } else {
                        pair.driver.add(&buffers)
                    };
                    prop_assert_eq!(result.is_ok(), cost <= free);
                    if let Ok(id) = result {
                        // Each chain that can be open at the same time has a buffer of its own.
                        pair.shared.write(at, &number.to_le_bytes());
                        // A driver must not make a chain longer than the ring.
                        prop_assume!(count <= usize::from(size));
                        free -= cost;
                        added.push_back((id, number, count, cost));
                        number += 1;
                    }
                }
                Step::Publish => {
                    pair.driver.publish();
                    visible.append(&mut added);
                }
                Step::Serve(take, done) => {
                    let count = pair.device.take(take).unwrap();
                    prop_assert_eq!(count, take.min(visible.len()));
                    for (chain, (_, number, buffers, _)) in visible.iter().take(count).enumerate() {
                        let mut bytes = [0; 4];
                        prop_assert_eq!(pair.device.taken().readable(chain), 4 * buffers);
                        pair.device.taken().read(chain, 4 * (buffers - 1), &mut bytes);
                        prop_assert_eq!(u32::from_le_bytes(bytes), *number);
                    }
                    for _ in 0..done.min(count) {
                        let chain = visible.pop_front().unwrap();
                        pair.device.complete(written(chain.1));
                        served.push_back(chain);
                    }
                }
                Step::Show => {
                    pair.device.put_back();
                    pair.device.publish();
                    shown.append(&mut served);
                }
                Step::Poll => {
                    let used = pair.driver.poll().unwrap();
                    let expected = shown.pop_front();
                    prop_assert_eq!(used.is_some(), expected.is_some());
                    if let (Some(used), Some((id, number, _, cost))) = (used, expected) {
                        prop_assert_eq!((used.id, used.written), (id, written(number)));
                        free += cost;
                    }
                }
            }
            prop_assert_eq!(pair.driver.room(), free);
        }
    }
}

/// Number of bytes that a device writes into a chain; for many chains it is zero.
fn written(number: u32) -> u32 {
    if number % 8 < 5 { 0 } else { number }
}

fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(count)
    }
}
