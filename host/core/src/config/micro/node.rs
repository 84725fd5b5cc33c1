//! YAML values with their positions. Each key's reader interprets its value.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A value as written, with the positions of its parts.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Text(String),
    Flag(bool),
    Number(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    /// The text; an unquoted value, such as a version, counts as one.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text.trim().to_owned()),
            Self::Flag(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<String> {
        match self {
            Self::Map(entries) => entries
                .iter()
                .find(|(key, _)| key.value == name)
                .and_then(|(_, node)| node.value.text()),
            _ => None,
        }
    }

    pub(super) fn kind(&self) -> Cow<'static, str> {
        match self {
            Self::Null => "nothing".into(),
            Self::Text(_) => "a text".into(),
            Self::Flag(_) => "true or false".into(),
            Self::Number(_) => "a number".into(),
            Self::List(_) => "a list".into(),
            Self::Map(_) => "a group of keys".into(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("YAML")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Node, E> {
        Ok(Node::Flag(flag))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key()? {
            map.push((key, entries.next_value()?));
        }
        Ok(Node::Map(map))
    }
}
