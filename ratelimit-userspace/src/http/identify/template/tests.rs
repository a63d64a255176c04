use super::*;

#[test]
fn a_path_of_its_form_has_the_templates_text() {
    let template = PathTemplate::new("/api/users/{id}", None);
    assert_eq!(template.value("/api/users/7"), Some("/api/users/{id}"));
    assert_eq!(template.value("/api/users/%C3%A9"), Some("/api/users/{id}"));
    for path in ["/api/users", "/api/users/", "/api/users/7/", "/api/users/7/x", "/API/users/7", "/", "*"] {
        assert_eq!(template.value(path), None, "{path}");
    }
}

#[test]
fn a_captured_segment_is_the_value() {
    let template = PathTemplate::new("/{tenant}/users/{id}/", Some("id"));
    assert_eq!(template.value("/acme/users/7/"), Some("7"));
    assert_eq!(template.value("/acme/users/a%2Fb/"), Some("a%2Fb"));
    assert_eq!(template.value("/acme/users/7"), None);
    assert_eq!(PathTemplate::new("/{a}/{a}", Some("a")).value("/1/2"), Some("1"));
    assert_eq!(PathTemplate::new("/{a}", Some("b")).value("/1"), None);
}

#[test]
fn only_whole_segments_are_placeholders() {
    let template = PathTemplate::new("/v{n}/%7Euser", None);
    assert_eq!(template.value("/v{n}/~user"), Some("/v{n}/%7Euser"));
    assert_eq!(template.value("/v1/~user"), None);
    assert_eq!(PathTemplate::new("/", None).value("/"), Some("/"));
}
