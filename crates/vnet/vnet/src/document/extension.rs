//! Turns the users of `attach = "extend"` access points into nodes and links of the document.

use std::collections::BTreeMap;

use super::{AccessPoint, Attach, Document, End, Link, Nics, Node, Via};

impl Document {
    /// The document with a node and a link for each user of an access point with `attach =
    /// "extend"`; those access points are removed. A document without such access points is
    /// returned unchanged.
    #[must_use]
    pub fn extended(&self) -> Document {
        let (extended, others): (BTreeMap<String, AccessPoint>, _) = {
            let all = self.access.clone().into_iter();
            all.partition(|(_, access)| access.attach == Attach::Extend)
        };
        let mut whole = Document {
            access: others,
            ..self.clone()
        };
        for access in extended.values() {
            let Some(rate) = access.rate else {
                continue; // The check of documents reports this.
            };
            for user in &access.users {
                let node = Node {
                    location: access.location.clone(),
                    nics: access.card.then_some(Nics {
                        count: 1,
                        via: Via::Forwarder,
                    }),
                    ..Node::default()
                };
                whole.node.insert(user.clone(), node);
                let ends = [&access.node, user].map(|node| End::from(node.clone()));
                whole.link.push(Link::new(ends, rate));
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::*;

    const TEXT: &str = r#"
[vnet]
name = "x"
[node.r1]
[access.home]
node = "r1"
attach = "extend"
location = ["uk"]
users = ["alice", "bob"]
rate = "10Mbps"
[access.road]
node = "r1"
users = ["carol"]
[[test]]
ping = ["alice", "r1"]
"#;

    #[test]
    fn users_to_whom_the_network_is_extended_have_nodes_and_links() {
        let document = Document::read(TEXT, Form::Toml).unwrap();
        let whole = document.extended();
        whole.check().unwrap();
        let names: Vec<&str> = whole.node.keys().map(String::as_str).collect();
        assert_eq!(names, ["alice", "bob", "r1"]);
        assert_eq!(whole.resolved("alice").unwrap().location, ["uk"]);
        let links = whole
            .link
            .iter()
            .map(|link| format!("{} {}", link.ends[0], link.ends[1]));
        assert_eq!(links.collect::<Vec<_>>(), ["r1 alice", "r1 bob"]);
        assert_eq!(whole.access.keys().collect::<Vec<_>>(), ["road"]);
        assert_eq!(whole.extended(), whole);
    }

    #[test]
    fn machines_of_users_are_plugged_into_cards_of_their_nodes() {
        let text = TEXT.replace("location = [\"uk\"]", "card = true");
        let document = Document::read(&text, Form::Toml).unwrap();
        let whole = document.extended();
        let cards = |node: &str| whole.resolved(node).unwrap().nics.count;
        assert_eq!(["alice", "bob", "r1"].map(cards), [1, 1, 0]);
        for form in [Form::Toml, Form::Xml, Form::Json] {
            let again = Document::read(&document.write(form), form).unwrap();
            assert_eq!(again, document);
        }
    }

    #[test]
    fn extensions_that_cannot_be_get_words() {
        for (from, to, words) in [
            ("rate = \"10Mbps\"", "", "needs a rate"),
            ("\"bob\"]", "\"r1\"]", "already exists"),
            ("\"bob\"]", "\"b@b\"]", "is not a name"),
            ("attach = \"extend\"\n", "", "belongs to attach"),
            (
                "attach = \"extend\"\nlocation = [\"uk\"]\n",
                "card = true\n",
                "card is where",
            ),
        ] {
            let text = TEXT.replace(from, to);
            let error = Document::read(&text, Form::Toml).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
