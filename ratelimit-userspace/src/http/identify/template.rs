//! Path templates.

use super::path::normalise;

/// A template such as `/api/users/{id}`, in which a whole segment in braces stands for any segment that is
/// not empty.
#[derive(Debug)]
pub(super) struct PathTemplate {
    text: String,
    segments: Vec<Segment>,
    /// The index of the segment that is the value; absent: the template's text is.
    capture: Option<usize>,
}

#[derive(Debug)]
enum Segment {
    Literal(String),
    Any,
}

// === impl PathTemplate ===

impl PathTemplate {
    /// Reads a template. Its literal text is normalised as paths are.
    pub(super) fn new(template: &str, capture: Option<&str>) -> Self {
        let normal = normalise(template);
        let name = |segment: &str| Some(segment.strip_prefix('{')?.strip_suffix('}')?.to_owned());
        // A name that stands nowhere is the value of no path.
        let capture = capture.map(|wanted| {
            let found = normal.split('/').position(|segment| name(segment).as_deref() == Some(wanted));
            found.unwrap_or(usize::MAX)
        });
        let segments = normal.split('/').map(|segment| match name(segment) {
            Some(_) => Segment::Any,
            None => Segment::Literal(segment.to_owned()),
        });
        Self { text: template.to_owned(), segments: segments.collect(), capture }
    }

    /// The value that a normalised path has, if it has this form.
    pub(super) fn value<'a>(&'a self, path: &'a str) -> Option<&'a str> {
        let mut rest = path.split('/');
        for segment in &self.segments {
            let text = rest.next()?;
            let fits = match segment {
                Segment::Literal(literal) => literal == text,
                Segment::Any => !text.is_empty(),
            };
            if !fits {
                return None;
            }
        }
        match (rest.next(), self.capture) {
            (Some(_), _) => None,
            (None, Some(index)) => path.split('/').nth(index),
            (None, None) => Some(&self.text),
        }
    }
}

#[cfg(test)]
mod tests;
