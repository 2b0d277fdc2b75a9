//! Describes why a port carries nothing, from the counters of its app.

/// Why a port carries no frames at present; `counter` returns a counter of the port's app by name.
/// `None` if the port works, or if the app has no such counters.
#[must_use]
pub fn state(counter: impl Fn(&str) -> Option<u64>) -> Option<String> {
    if let Some(is_connected) = counter("is_connected") {
        return guest_state(is_connected == 1, &|name| counter(name).unwrap_or(0));
    }
    if counter("is_elsewhere") == Some(1) {
        let text =
            "the interface is in another network namespace: the port works if it is up there";
        return Some(text.to_owned());
    }
    (counter("is_up") == Some(0)).then(|| "the interface is down, or does not exist".to_owned())
}

fn guest_state(is_connected: bool, counter: &dyn Fn(&str) -> u64) -> Option<String> {
    if counter("rings_running") > 0 {
        return None;
    }
    let (refused, faults) = (counter("refused_messages"), counter("ring_faults"));
    let cut_off = match (refused, faults) {
        (0, 0) => String::new(),
        (_, 0) => format!("; disconnected {refused} times because of an invalid message of QEMU"),
        (0, _) => format!(
            "; disconnected {faults} times because of an invalid entry of the guest in a ring"
        ),
        _ => format!(
            "; disconnected {refused} times because of an invalid message of QEMU, {faults} times \
             because of an invalid entry of the guest in a ring"
        ),
    };
    let state = match (is_connected, counter("has_memory") > 0) {
        (false, _) if counter("connections") == 0 => "no QEMU has connected to the socket",
        (false, _) => "no QEMU is connected to the socket",
        (true, false) => {
            "QEMU is connected and has shared no memory: the guest's driver has not started, or \
             QEMU has no -object memory-backend-memfd,share=on (carina nfv args PORT --memory SIZE)"
        }
        (true, true) => "QEMU is connected, and the guest's driver has not started the card",
    };
    Some(format!("{state}{cut_off}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counters: &[(&str, u64)]) -> Option<String> {
        let find = |name: &str| counters.iter().find(|(known, _)| *known == name);
        state(|name| find(name).map(|(_, value)| *value))
    }

    #[test]
    fn each_reason_has_its_words() {
        assert_eq!(of(&[("written", 0)]), None);
        assert_eq!(of(&[("is_up", 1), ("is_elsewhere", 0)]), None);
        assert!(of(&[("is_up", 0)]).unwrap().contains("is down"));
        let elsewhere = of(&[("is_up", 1), ("is_elsewhere", 1)]).unwrap();
        assert!(elsewhere.contains("another network namespace"));
        assert_eq!(of(&[("is_connected", 1), ("rings_running", 2)]), None);
        let never = of(&[("is_connected", 0)]).unwrap();
        assert_eq!(never, "no QEMU has connected to the socket");
        let cut = of(&[
            ("is_connected", 0),
            ("connections", 3),
            ("refused_messages", 3),
        ]);
        assert_eq!(
            cut.unwrap(),
            "no QEMU is connected to the socket; disconnected 3 times because of an invalid \
             message of QEMU"
        );
        let unshared = of(&[("is_connected", 1), ("connections", 1), ("has_memory", 0)]);
        assert!(unshared.unwrap().contains("memory-backend-memfd,share=on"));
        let early = of(&[("is_connected", 1), ("has_memory", 1)]).unwrap();
        assert!(early.ends_with("the guest's driver has not started the card"));
    }
}
