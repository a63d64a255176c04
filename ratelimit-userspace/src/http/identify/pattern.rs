//! Patterns for paths and hosts.

/// A pattern for a normalised path: `*` is any text within a segment, also none; a segment `**` is any
/// number of segments, also none. So `/api/**` matches `/api`, `/api/` and all that is below. `/**` also
/// matches `*`, the target of a request to the server itself, which has no path.
#[derive(Debug)]
pub(super) struct PathPattern {
    segments: Vec<Segment>,
}

#[derive(Debug)]
enum Segment {
    /// `**`.
    AnyNumber,
    /// Text in which `*` is any text.
    One(String),
}

/// A pattern for a host.
#[derive(Debug)]
pub(super) enum HostPattern {
    /// The host itself.
    Exact(String),
    /// One or more labels before this, which starts with a dot.
    Below(String),
}

// === impl PathPattern ===

impl PathPattern {
    /// Reads a pattern. Its literal text is normalised as paths are.
    pub(super) fn new(pattern: &str) -> Self {
        // Without its slash, `*` would be the target of a request to the server itself.
        let rooted = if pattern.starts_with('/') { pattern.to_owned() } else { format!("/{pattern}") };
        let segments = super::path::normalise(&rooted)
            .split('/')
            .map(|segment| match segment {
                "**" => Segment::AnyNumber,
                text => Segment::One(text.to_owned()),
            })
            .collect();
        Self { segments }
    }

    /// Whether a path has this form. Takes time in proportion to the product of both lengths at worst:
    /// only the latest `**` is ever tried anew, since it can take whatever an earlier one could.
    pub(super) fn matches(&self, path: &str) -> bool {
        if path == "*" {
            return matches!(self.segments.as_slice(), [Segment::One(root), Segment::AnyNumber] if root.is_empty());
        }
        let mut rest = Some(path);
        let mut index = 0;
        let mut retry = None;
        loop {
            match (self.segments.get(index), rest) {
                (Some(Segment::AnyNumber), _) => {
                    index += 1;
                    retry = Some((index, rest));
                    continue;
                }
                (Some(Segment::One(pattern)), Some(text)) => {
                    let (segment, after) = first_segment(text);
                    if matches_text(pattern.as_bytes(), segment.as_bytes()) {
                        index += 1;
                        rest = after;
                        continue;
                    }
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((from, Some(text))) = retry else { return false };
            index = from;
            rest = first_segment(text).1;
            retry = Some((from, rest));
        }
    }
}

fn first_segment(text: &str) -> (&str, Option<&str>) {
    text.split_once('/').map_or((text, None), |(segment, rest)| (segment, Some(rest)))
}

/// The same with characters instead of segments.
fn matches_text(pattern: &[u8], text: &[u8]) -> bool {
    let (mut index, mut position) = (0, 0);
    let mut retry = None;
    loop {
        match (pattern.get(index), text.get(position)) {
            (Some(b'*'), _) => {
                index += 1;
                retry = Some((index, position));
                continue;
            }
            (Some(wanted), Some(byte)) if wanted == byte => {
                index += 1;
                position += 1;
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        let Some((from, taken)) = retry.filter(|(_, taken)| *taken < text.len()) else { return false };
        index = from;
        position = taken + 1;
        retry = Some((from, position));
    }
}

// === impl HostPattern ===

impl HostPattern {
    /// Reads a pattern in lower case.
    pub(super) fn new(pattern: &str) -> Self {
        match pattern.strip_prefix('*') {
            Some(below) if below.starts_with('.') => Self::Below(below.to_owned()),
            _ => Self::Exact(pattern.to_owned()),
        }
    }

    /// Whether a host in lower case has this form.
    pub(super) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => host == exact,
            Self::Below(below) => host.strip_suffix(below.as_str()).is_some_and(|labels| !labels.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests;
