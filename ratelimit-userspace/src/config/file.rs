//! What was typed: a YAML document as a tree whose nodes know where they stand.
//!
//! Quotes do not matter: every scalar is text, and the reader of a key decides what it must look like.
//! Anchors and aliases are allowed within a budget, so that a small file cannot stand for a huge one.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, options};

use super::diagnostic::{Code, Diagnostics, Mistake, Place, Quoted, Reported};

/// Collections within collections, of each style, and with what aliases stand for. The deepest setting of a
/// rules file needs 8; a rule file needs 2 for each level of its descriptors.
const MAX_DEPTH: usize = 32;
/// Nodes and bytes of text that all anchors and aliases together may stand for.
const ALIAS_BUDGET: usize = 1 << 20;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Text, quoted or not.
    Scalar(String),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in file order; no key stands twice.
    Mapping(Vec<Entry>),
    /// Something that has been reported.
    Invalid(Reported),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The key.
    pub(super) key: String,
    /// Where the key stands.
    pub(super) place: Place,
    /// The value.
    pub(super) value: Node,
}

/// Reads a file that holds one YAML document, with `settings` in it.
pub(super) fn parse(text: &str, settings: &str, diagnostics: &mut Diagnostics<'_>) -> Result<Node, Reported> {
    let mut options = options! {
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut tree =
        Tree { open: Vec::new(), root: None, anchors: HashMap::new(), budget: ALIAS_BUDGET, diagnostics };
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((Event::DocumentStart(..), span)) => {
                documents += 1;
                if documents > 1 {
                    let message = "a second YAML document starts here";
                    let mistake = Mistake::new(Code::MultipleDocuments, message)
                        .expected("one document in a rules file");
                    return Err(tree.diagnostics.error(start(&span), mistake));
                }
            }
            Ok((event, span)) => tree.take(event, &span),
            Err(error) => {
                let place = Place::new(error.marker().line(), error.marker().col() + 1);
                let mistake = Mistake::new(Code::Syntax, format!("this is not YAML: {}", error.info()));
                return Err(tree.diagnostics.error(place, mistake));
            }
        }
    }
    match tree.root {
        Some(Node { value: Value::Null, .. }) | None => {
            let mistake = Mistake::new(Code::EmptyFile, "the file holds no settings").expected(settings);
            Err(diagnostics.error(Place::START, mistake))
        }
        Some(root) => Ok(root),
    }
}

fn start(span: &Span) -> Place {
    Place::new(span.start.line(), span.start.col() + 1)
}

/// A tree under construction.
struct Tree<'a, 'text> {
    /// Collections that have begun, outermost first.
    open: Vec<Open>,
    root: Option<Node>,
    /// What each anchor stands for; `None` when that is more than the budget allows.
    anchors: HashMap<usize, Option<Node>>,
    budget: usize,
    diagnostics: &'a mut Diagnostics<'text>,
}

struct Open {
    place: Place,
    anchor: usize,
    invalid: Option<Reported>,
    items: Items,
}

enum Items {
    Sequence(Vec<Node>),
    Mapping { entries: Vec<Entry>, keys: HashMap<String, Place>, key: Option<Key> },
}

/// A key that waits for its value.
struct Key {
    place: Place,
    /// `None`: reported already, the value is dropped.
    name: Option<String>,
}

// === impl Tree ===

impl Tree<'_, '_> {
    fn take(&mut self, event: Event<'_>, span: &Span) {
        let place = start(span);
        let tagged = span.tag_span().map(|tag| start(&tag));
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = if tag.is_some() {
                    Value::Invalid(self.tag(tagged.unwrap_or(place)))
                } else if style == ScalarStyle::Plain && is_null(&text) {
                    Value::Null
                } else {
                    Value::Scalar(text.into_owned())
                };
                self.add(Node { place, value }, anchor);
            }
            Event::SequenceStart(_, anchor, tag) => {
                let invalid = tag.map(|_| self.tag(tagged.unwrap_or(place)));
                self.open.push(Open { place, anchor, invalid, items: Items::Sequence(Vec::new()) });
            }
            Event::MappingStart(_, anchor, tag) => {
                let invalid = tag.map(|_| self.tag(tagged.unwrap_or(place)));
                let items = Items::Mapping { entries: Vec::new(), keys: HashMap::new(), key: None };
                self.open.push(Open { place, anchor, invalid, items });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open { place, anchor, invalid, items }) = self.open.pop() {
                    let value = match (invalid, items) {
                        (Some(reported), _) => Value::Invalid(reported),
                        (None, Items::Sequence(items)) => Value::Sequence(items),
                        (None, Items::Mapping { entries, .. }) => Value::Mapping(entries),
                    };
                    self.add(Node { place, value }, anchor);
                }
            }
            Event::Alias(anchor) => {
                let node = self.alias(place, anchor);
                self.add(node, 0);
            }
            Event::UnresolvedAlias(name) => {
                let message = format!("no anchor of the name {} stands before this alias", Quoted(&name));
                let mistake = Mistake::new(Code::UnknownAlias, message)
                    .expected("quotes around a value that starts with `*`, or an anchor `&name` before it");
                let value = Value::Invalid(self.diagnostics.error(place, mistake));
                self.add(Node { place, value }, 0);
            }
            _ => {}
        }
    }

    /// Puts a finished node where it belongs, and remembers it if it has an anchor.
    fn add(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            let held = self.spend(weight(&node)).then(|| node.clone());
            self.anchors.insert(anchor, held);
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::Sequence(items)) => items.push(node),
            Some(Items::Mapping { entries, key, .. }) if key.is_some() => {
                if let Some(Key { place, name: Some(key) }) = key.take() {
                    entries.push(Entry { key, place, value: node });
                }
            }
            Some(Items::Mapping { .. }) => self.key(node),
        }
    }

    /// Notes the key of the next value.
    fn key(&mut self, node: Node) {
        let Some(Open { items: Items::Mapping { keys, key, .. }, .. }) = self.open.last_mut() else { return };
        let place = node.place;
        let name = match node.value {
            Value::Scalar(name) => Ok(name),
            Value::Invalid(_) => Err(None),
            Value::Null | Value::Sequence(_) | Value::Mapping(_) => Err(Some(
                Mistake::new(Code::Unsupported, "a key must be a word")
                    .expected("a key, a colon, and its value"),
            )),
        };
        let name = name.and_then(|name| match keys.get(&name) {
            None => {
                keys.insert(name.clone(), place);
                Ok(name)
            }
            Some(Place { line, column }) => {
                let message =
                    format!("the key {} stands here already, at line {line}, column {column}", Quoted(&name));
                Err(Some(Mistake::new(Code::DuplicateKey, message).expected("each key once")))
            }
        });
        *key = Some(Key { place, name: name.as_ref().ok().cloned() });
        if let Err(Some(mistake)) = name {
            self.diagnostics.error(place, mistake);
        }
    }

    /// What an alias stands for.
    fn alias(&mut self, place: Place, anchor: usize) -> Node {
        let (node, mistake) = match self.anchors.get(&anchor) {
            Some(Some(node)) => (Some(node.clone()), Mistake::new(Code::TooLarge, too_large())),
            Some(None) => (None, Mistake::new(Code::TooLarge, too_large())),
            None => (None, Mistake::new(Code::UnknownAlias, "this alias stands within its own anchor")),
        };
        if node.as_ref().is_some_and(|node| self.open.len() + depth(node) > MAX_DEPTH) {
            let message = format!("what this alias stands for lies more than {MAX_DEPTH} levels deep here");
            let mistake = Mistake::new(Code::TooLarge, message);
            return Node { place, value: Value::Invalid(self.diagnostics.error(place, mistake)) };
        }
        match node {
            Some(node) if self.spend(weight(&node)) => node,
            _ => Node { place, value: Value::Invalid(self.diagnostics.error(place, mistake)) },
        }
    }

    /// Takes from the budget, if there is enough of it.
    fn spend(&mut self, weight: usize) -> bool {
        let left = self.budget.checked_sub(weight);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }

    fn tag(&mut self, place: Place) -> Reported {
        let mistake = Mistake::new(Code::Unsupported, "rules files have no YAML tags")
            .expected("quotes around a value that starts with `!`");
        self.diagnostics.error(place, mistake)
    }
}

fn too_large() -> String {
    format!("the file's anchors and aliases stand for more than {ALIAS_BUDGET} bytes")
}

fn is_null(plain: &str) -> bool {
    matches!(plain, "" | "~" | "null" | "Null" | "NULL")
}

/// Collections within collections.
fn depth(node: &Node) -> usize {
    let deepest = match &node.value {
        Value::Null | Value::Scalar(_) | Value::Invalid(_) => return 0,
        Value::Sequence(items) => items.iter().map(depth).max(),
        Value::Mapping(entries) => entries.iter().map(|entry| depth(&entry.value)).max(),
    };
    1 + deepest.unwrap_or(0)
}

/// Nodes and bytes of text; the depth of a tree is bounded by [`MAX_DEPTH`].
fn weight(node: &Node) -> usize {
    1 + match &node.value {
        Value::Null | Value::Invalid(_) => 0,
        Value::Scalar(text) => text.len(),
        Value::Sequence(items) => items.iter().map(weight).sum(),
        Value::Mapping(entries) => entries.iter().map(|entry| entry.key.len() + weight(&entry.value)).sum(),
    }
}
