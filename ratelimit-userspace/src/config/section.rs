//! The one way to read a mapping: its keys against their table, then each value through its parser.

use super::{
    diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported, nearest},
    file::{Entry, Node, Value},
    shape::Shape,
};

/// A mapping whose keys are known to exist. A value of the wrong kind, or one that its parser rejects, is
/// reported with what the table says is expected.
#[derive(Debug)]
pub(super) struct Section<'a> {
    shape: &'static Shape,
    place: Place,
    entries: &'a [Entry],
    /// Keys that an unknown one was probably meant to be.
    misspelt: Vec<(&'static str, Reported)>,
}

impl<'a> Section<'a> {
    /// Opens a mapping. Unknown keys are reported and passed over.
    pub(super) fn open(
        shape: &'static Shape,
        node: &'a Node,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<Self, Reported> {
        let keys = || shape.names().collect::<Vec<_>>().join(", ");
        let entries = match &node.value {
            Value::Mapping(entries) => entries,
            Value::Invalid(reported) => return Err(*reported),
            other => {
                let message = format!("{} is a mapping, but this is {}", shape.what, kind(other));
                let mistake =
                    Mistake::new(Code::BadType, message).expected(format!("a mapping with {}", keys()));
                return Err(diagnostics.error(node.place, mistake));
            }
        };
        let mut misspelt = Vec::new();
        for Entry { key, place, .. } in entries {
            if shape.names().all(|name| name != key) {
                let message = format!("{} has no key {}", shape.what, Quoted(key));
                let meant = nearest(key, shape.names());
                let mistake = Mistake::new(Code::UnknownKey, message).expected(keys()).nearest(meant);
                let reported = diagnostics.error(*place, mistake);
                misspelt.extend(meant.map(|meant| (meant, reported)));
            }
        }
        Ok(Self { shape, place: node.place, entries, misspelt })
    }

    /// Whether a key may stand here.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.shape.names().any(|name| name == key)
    }

    /// A key of this mapping.
    pub(super) fn entry(&self, key: &str) -> Option<&'a Entry> {
        debug_assert!(self.knows(key), "{key} is in no table");
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Where the mapping stands.
    pub(super) fn mapping_place(&self) -> Place {
        self.place
    }

    /// What stands first of some keys.
    pub(super) fn first_of(&self, keys: &[&str]) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| keys.contains(&entry.key.as_str()))
    }

    /// Where the value of a key stands, or else the mapping.
    pub(super) fn value_place(&self, key: &str) -> Place {
        self.entry(key).map_or(self.place, |entry| entry.value.place)
    }

    /// Where a key stands, or else the mapping.
    pub(super) fn place(&self, key: &str) -> Place {
        self.entry(key).map_or(self.place, |entry| entry.place)
    }

    /// Word that an absent key stands there in another spelling.
    pub(super) fn misspelt(&self, key: &str) -> Option<Reported> {
        self.misspelt.iter().find(|(meant, _)| *meant == key).map(|(_, reported)| *reported)
    }

    /// What the value of a key looks like.
    pub(super) fn expected(&self, key: &str) -> &'static str {
        self.shape.expected(key)
    }

    /// The node behind a key, which is not null.
    pub(super) fn node(
        &self,
        key: &str,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<Option<&'a Node>, Reported> {
        let Some(Entry { place, value, .. }) = self.entry(key) else { return Ok(None) };
        match value.value {
            Value::Invalid(reported) => Err(reported),
            Value::Null => {
                let message = format!("`{key}` has no value");
                let mistake = Mistake::new(Code::MissingValue, message).expected(self.expected(key));
                Err(diagnostics.error(*place, mistake))
            }
            _ => Ok(Some(value)),
        }
    }

    /// A single value.
    pub(super) fn one<T>(
        &self,
        key: &str,
        diagnostics: &mut Diagnostics<'_>,
        parse: impl FnOnce(&str) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Reported> {
        let Some(node) = self.node(key, diagnostics)? else { return Ok(None) };
        scalar(node, self.expected(key), diagnostics, parse).map(Some)
    }

    /// The nodes of a list, or the one node that stands for a list of one.
    pub(super) fn nodes(
        &self,
        key: &str,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<Option<&'a [Node]>, Reported> {
        Ok(self.node(key, diagnostics)?.map(|node| match &node.value {
            Value::Sequence(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        }))
    }

    /// As [`Self::nodes`], and not empty.
    pub(super) fn some_nodes(
        &self,
        key: &str,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Result<Option<&'a [Node]>, Reported> {
        match self.nodes(key, diagnostics)? {
            Some([]) => {
                let mistake = Mistake::new(Code::EmptyList, format!("`{key}` is an empty list"))
                    .expected(self.expected(key));
                Err(diagnostics.error(self.place(key), mistake))
            }
            nodes => Ok(nodes),
        }
    }

    /// The values of a list that is not empty. Every bad one is reported.
    pub(super) fn some<T>(
        &self,
        key: &str,
        diagnostics: &mut Diagnostics<'_>,
        parse: impl Fn(&str) -> Result<T, Mistake>,
    ) -> Result<Option<Vec<T>>, Reported> {
        let Some(nodes) = self.some_nodes(key, diagnostics)? else { return Ok(None) };
        let values = nodes.iter().map(|node| scalar(node, self.expected(key), diagnostics, &parse));
        all(values).map(Some)
    }

    /// Turns an absent value into a report.
    pub(super) fn required<T>(
        &self,
        key: &str,
        diagnostics: &mut Diagnostics<'_>,
        value: Result<Option<T>, Reported>,
    ) -> Result<T, Reported> {
        value?.ok_or_else(|| {
            self.misspelt(key).unwrap_or_else(|| {
                let message = format!("{} needs `{key}`", self.shape.what);
                let expected = format!("{key}: {}", self.expected(key));
                diagnostics.error(self.place, Mistake::new(Code::MissingKey, message).expected(expected))
            })
        })
    }
}

/// The text of a node, through its parser.
pub(super) fn scalar<T>(
    node: &Node,
    expected: &str,
    diagnostics: &mut Diagnostics<'_>,
    parse: impl FnOnce(&str) -> Result<T, Mistake>,
) -> Result<T, Reported> {
    match &node.value {
        Value::Scalar(text) => {
            parse(text).map_err(|mistake| diagnostics.error(node.place, mistake.or_expected(expected)))
        }
        Value::Invalid(reported) => Err(*reported),
        other => {
            let message = format!("a single value is due, but this is {}", kind(other));
            // `[2001:db8::]` without quotes is a list of one mapping.
            let mistake = Mistake::new(Code::BadType, message)
                .expected(format!("{expected}; quotes around a value that ends in a colon"));
            Err(diagnostics.error(node.place, mistake))
        }
    }
}

/// All values, or word that at least one has been reported; every one is read.
pub(super) fn all<T>(values: impl Iterator<Item = Result<T, Reported>>) -> Result<Vec<T>, Reported> {
    let mut reported = None;
    let good = values.filter_map(|value| value.map_err(|error| reported = Some(error)).ok()).collect();
    reported.map_or(Ok(good), Err)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Scalar(_) => "a single value",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "a mapping",
        Value::Invalid(_) => "invalid",
    }
}
