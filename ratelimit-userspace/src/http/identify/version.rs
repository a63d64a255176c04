//! Which version of an API a request means.

/// The first segment of a path of the form `v` and digits.
pub(super) fn of_path(path: &str) -> Option<&str> {
    path.split('/').find(|segment| is_version(segment))
}

/// The version in the first media range of an `Accept` header that has one: `application/vnd.example.v2+json`
/// or a parameter `version=2`. Both are `v2`, so that a client has no choice of counters.
pub(super) fn of_accept(accept: &str) -> Option<String> {
    // Media types and the names of parameters have no case.
    let accept = accept.to_ascii_lowercase();
    accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let (_, subtype) = parts.next()?.split_once('/')?;
        let tree = subtype.split('+').next().unwrap_or(subtype);
        let facet = tree.split(['.', '-']).find(|facet| is_version(facet));
        facet.map(str::to_owned).or_else(|| parts.find_map(version_parameter))
    })
}

fn version_parameter(parameter: &str) -> Option<String> {
    let (name, value) = parameter.split_once('=')?;
    let value = value.trim().trim_matches('"');
    if name.trim() != "version" || value.is_empty() {
        return None;
    }
    Some(if is_number(value) { format!("v{value}") } else { value.to_owned() })
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `2` or `2.1`, but no date.
fn is_number(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
