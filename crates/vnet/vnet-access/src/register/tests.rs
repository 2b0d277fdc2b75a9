//! Tests that show tokens to a register and check what it stores.

use std::fs;

use carina_vnet::host_part::VnetId;
use tempfile::TempDir;

use super::*;
use crate::token::tests::keys;

const NOW: u64 = 1_800_000_000;
const ALICE: PublicKey = PublicKey([1; 32]);
const OTHER: PublicKey = PublicKey([2; 32]);

struct Site {
    directory: TempDir,
    keys: HostKeys,
    register: Register,
}

fn facts(access: &str, users: &[&str]) -> Facts {
    let address = |place: usize| Ipv4Addr::new(10, 128, 0, 3 + place as u8);
    let users = users.iter().enumerate();
    Facts {
        issuer: "h1".to_owned(),
        vnet: VnetId::new(7),
        network: "demo".to_owned(),
        access: access.to_owned(),
        node: "10.128.0.1/23".parse().unwrap(),
        users: users
            .map(|(at, user)| ((*user).to_owned(), address(at)))
            .collect(),
        rate_bps: 1_000_000,
        mtu: 1420,
        prefixes: vec![
            "10.0.0.0/30".parse().unwrap(),
            "10.128.0.0/23".parse().unwrap(),
        ],
        dif: None,
    }
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let keys = keys();
        let path = directory.path().join("home.json");
        let facts = facts("home", &["alice", "bob"]);
        let register = Register::open(&path, keys.clone(), facts, || 51820).unwrap();
        Site {
            directory,
            keys,
            register,
        }
    }

    /// Opens the same file again, as a restarted agent does.
    fn again(&mut self) {
        let path = self.directory.path().join("home.json");
        let facts = self.register.facts.clone();
        let port = || panic!("the port is known");
        self.register = Register::open(&path, self.keys.clone(), facts, port).unwrap();
    }

    fn token(&self, user: &str) -> String {
        let at = vec!["192.0.2.1:51820".parse().unwrap()];
        let token = self.register.issue(NOW, user, 3600, (at, BTreeSet::new()));
        let token = token.unwrap();
        token.text().to_owned()
    }

    fn refusal(&mut self, now: u64, key: PublicKey, token: &str) -> Refused {
        self.register.admit(now, key, token).unwrap().unwrap_err()
    }
}

#[test]
fn token_lets_its_user_in_once_and_the_same_system_again() {
    let mut site = Site::new();
    let token = site.token("alice");
    let taken = site.register.admit(NOW, ALICE, &token).unwrap().unwrap();
    assert!(taken.is_new && taken.replaced.is_none());
    assert_eq!(taken.joined.address.to_string(), "10.128.0.3/23");
    assert_eq!((taken.joined.until, taken.joined.mtu), (NOW + 3600, 1420));
    let peers = site.register.peers();
    assert_eq!((peers.len(), peers[0].key), (1, ALICE));
    // Another system cannot use the token, also after the agent has restarted.
    site.again();
    let refused = site.refusal(NOW + 1, OTHER, &token);
    assert_eq!(refused.reason, Refusal::Used);
    assert!(refused.to_string().contains("a new token"), "{refused}");
    let again = site
        .register
        .admit(NOW + 1, ALICE, &token)
        .unwrap()
        .unwrap();
    assert!(!again.is_new);
    assert_eq!(site.register.peers(), peers);
}

#[test]
fn next_token_replaces_the_system_of_the_same_user() {
    let mut site = Site::new();
    for (key, replaced) in [(ALICE, None), (OTHER, Some(ALICE))] {
        let token = site.token("alice");
        let taken = site.register.admit(NOW, key, &token).unwrap().unwrap();
        assert_eq!(taken.replaced, replaced);
    }
    let peers = site.register.peers();
    assert_eq!((peers.len(), peers[0].key), (1, OTHER));
}

#[test]
fn tokens_that_do_not_hold_are_refused_with_reason_and_remedy() {
    let mut site = Site::new();
    let token = site.token("alice");
    assert_eq!(
        site.refusal(NOW + 3600, ALICE, &token).reason,
        Refusal::Expired
    );
    assert_eq!(
        site.refusal(NOW, ALICE, &token.replace('.', "")).reason,
        Refusal::Malformed
    );
    // Another access point of the same host, and another host.
    let path = site.directory.path().join("work.json");
    let of = |keys, access| Register::open(&path, keys, facts(access, &["alice"]), || 1).unwrap();
    let mut work = of(site.keys.clone(), "work");
    let refused = work.admit(NOW, ALICE, &token).unwrap().unwrap_err();
    assert_eq!(refused.reason, Refusal::OtherNetwork);
    assert!(refused.what.contains("home of network demo"), "{refused}");
    let mut elsewhere = of(keys(), "home");
    let refused = elsewhere.admit(NOW, ALICE, &token).unwrap().unwrap_err();
    assert_eq!(refused.reason, Refusal::OtherIssuer);
    // A token of a user who was removed from the document.
    site.register.refresh(facts("home", &["bob"])).unwrap();
    assert_eq!(site.refusal(NOW, ALICE, &token).reason, Refusal::NoUser);
    assert!(site.register.peers().is_empty());
    let at = vec!["[::1]:1".parse().unwrap()];
    let none = site.register.issue(NOW, "alice", 60, (at, BTreeSet::new()));
    assert!(none.unwrap_err().to_string().contains("it has: bob"));
}

#[test]
fn token_without_the_right_is_refused() {
    let mut site = Site::new();
    let token = Token::read(&site.token("alice")).unwrap();
    let mut claims = token.claims().clone();
    claims.rights = [Right::Dif].into();
    let token = Token::sign(claims, &site.keys).unwrap();
    assert_eq!(
        site.refusal(NOW, ALICE, token.text()).reason,
        Refusal::Rights
    );
}

#[test]
fn revoked_user_is_out_until_the_next_token() {
    let mut site = Site::new();
    let (first, unused) = (site.token("alice"), site.token("alice"));
    site.register.admit(NOW, ALICE, &first).unwrap().unwrap();
    assert_eq!(site.register.revoke("alice").unwrap(), Some(ALICE));
    assert!(site.register.peers().is_empty());
    site.again();
    for token in [&first, &unused] {
        assert_eq!(site.refusal(NOW, ALICE, token).reason, Refusal::Revoked);
    }
    let next = site.token("alice");
    assert!(site.register.admit(NOW, ALICE, &next).unwrap().is_ok());
    let error = site.register.revoke("carol").unwrap_err().to_string();
    assert!(error.contains("alice, bob"), "{error}");
}

#[test]
fn session_ends_with_its_token_or_its_user() {
    let mut site = Site::new();
    for (user, key) in [("alice", ALICE), ("bob", OTHER)] {
        let token = site.token(user);
        site.register.admit(NOW, key, &token).unwrap().unwrap();
    }
    assert!(site.register.expire(NOW + 3599).unwrap().is_empty());
    let gone = site.register.refresh(facts("home", &["alice"])).unwrap();
    assert_eq!(
        (gone.len(), gone[0].0, gone[0].1.reason),
        (1, OTHER, Refusal::NoUser)
    );
    let over = site.register.expire(NOW + 3600).unwrap();
    assert_eq!(
        (over.len(), over[0].0, over[0].1.reason),
        (1, ALICE, Refusal::Expired)
    );
    assert!(site.register.peers().is_empty());
}

#[test]
fn nothing_is_decided_that_cannot_be_kept() {
    let mut site = Site::new();
    let token = site.token("alice");
    let path = site.register.path.clone();
    fs::remove_dir_all(site.directory.path()).unwrap();
    let error = site
        .register
        .admit(NOW, ALICE, &token)
        .unwrap_err()
        .to_string();
    assert!(error.contains("home.json"), "{error}");
    assert!(site.register.peers().is_empty());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(site.register.admit(NOW, ALICE, &token).unwrap().is_ok());
}

#[test]
fn impossible_leases_and_addresses_are_refused() {
    let site = Site::new();
    let at = |count: usize| vec!["192.0.2.1:5".parse().unwrap(); count];
    for (lease, count, words) in [
        (0, 1, "1 s to 365 days"),
        (60, 0, "1 to 4"),
        (60, 5, "1 to 4"),
    ] {
        let error = site
            .register
            .issue(NOW, "bob", lease, (at(count), BTreeSet::new()))
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn token_gives_what_it_says_and_the_access_point_has() {
    let mut site = Site::new();
    let at = || vec!["192.0.2.1:51820".parse().unwrap()];
    let of = |rights: &[Right]| rights.iter().copied().collect::<BTreeSet<Right>>();
    let issue = |site: &Site, rights: &[Right]| {
        let made = site.register.issue(NOW, "alice", 60, (at(), of(rights)));
        made.map(|token| token.text().to_owned())
    };
    let error = issue(&site, &[Right::Dif]).unwrap_err().to_string();
    assert!(
        error.contains("10.128.0.1, is not a member of a DIF"),
        "{error}"
    );
    let with_dif = Facts {
        dif: Some(DifFacts {
            name: "demo".to_owned(),
            member: "r1".to_owned(),
        }),
        ..site.register.facts.clone()
    };
    let without = site.register.facts.clone();
    site.register.refresh(with_dif).unwrap();
    let token = issue(&site, &[Right::Dif]).unwrap();
    let joined = site
        .register
        .admit(NOW, ALICE, &token)
        .unwrap()
        .unwrap()
        .joined;
    let dif = joined.dif.clone().unwrap();
    assert_eq!((&*dif.via, &*dif.member), ("r1", "home.10.128.0.3"));
    // Only the route to the shim.
    let routes: Vec<String> = joined.routes.iter().map(ToString::to_string).collect();
    assert_eq!(routes, ["10.128.0.1/32"]);
    let passage = site.register.peers()[0].passage;
    assert!(!passage.ip && passage.shim_at == Some(Ipv4Addr::new(10, 128, 0, 1)));
    // `news` gives the same as the answer did, and decisions remain after a restart.
    assert_eq!(site.register.news(), [(ALICE, joined)]);
    site.again();
    assert_eq!(site.register.peers()[0].passage, passage);
    // After the DIF is removed, a user with only the right `dif` has no rights left.
    site.register.refresh(without).unwrap();
    let passage = site.register.peers()[0].passage;
    assert!(!passage.ip && passage.shim_at.is_none());
    assert_eq!(site.refusal(NOW, OTHER, &token).reason, Refusal::Rights);
}
