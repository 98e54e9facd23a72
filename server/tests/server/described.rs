//! Every answer of every test is held against `openapi.json`: the route, the status, the type of the body, every field.

use leasehold_server::{OPENAPI, ROUTES};
use serde_json::Value;

use crate::rig::Got;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn the_description_has_every_route_and_no_other() {
    let document = document();
    let mut described: Vec<String> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        described.extend(
            methods
                .as_object()
                .unwrap()
                .keys()
                .map(|method| format!("{method} {path}")),
        );
    }
    let mut routes: Vec<String> = Vec::new();
    for (methods, path) in ROUTES {
        routes.extend(methods.iter().map(|method| format!("{method} {path}")));
    }
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
}

/// Panics at the first thing that the description does not have.
pub fn check(method: &str, path: &str, got: &Got) {
    let document = document();
    let Some(template) = template(path) else {
        assert_eq!(got.status, 404, "{method} {path}: {got:?}");
        return;
    };
    let operation = &document["paths"][template][method.to_lowercase()];
    if operation.is_null() {
        assert_eq!(got.status, 405, "{method} {path}: {got:?}");
        return;
    }
    let at = format!("{method} {template} {}", got.status);
    let status = got.status.to_string();
    let response = match &operation["responses"][&status]["$ref"] {
        Value::Null => &operation["responses"][&status],
        shared => {
            &document["components"]["responses"]
                [shared.as_str().unwrap().rsplit('/').next().unwrap()]
        }
    };
    assert!(!response.is_null(), "{at} is not described: {got:?}");
    let kind = got
        .head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    let kind = kind.unwrap_or("").split(';').next().unwrap();
    let content = &response["content"][kind];
    assert!(!content.is_null(), "{at}: {kind} is not described: {got:?}");
    if let Some(schema) = content.get("schema") {
        fits(&document, schema, &got.json())
            .unwrap_or_else(|what| panic!("{at}: {what}: {}", got.text()));
    }
}

fn template(path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap();
    let wanted: Vec<&str> = path.split('/').collect();
    let fits = |route: &str| {
        let parts: Vec<&str> = route.split('/').collect();
        parts.len() == wanted.len()
            && parts
                .iter()
                .zip(&wanted)
                .all(|(part, got)| part.starts_with('{') || part == got)
    };
    let routes = ROUTES.iter().map(|(_, route)| *route);
    routes
        .clone()
        .find(|route| *route == path)
        .or_else(|| routes.clone().find(|route| fits(route)))
}

/// The part of JSON Schema that the description uses.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/components/schemas/").ok_or(name)?;
        let schema = &document["components"]["schemas"][name];
        assert!(!schema.is_null(), "no schema {name}");
        return fits(document, schema, value);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        Value::String(one) => one == kind,
        Value::Array(many) => many.iter().any(|one| one == kind),
        _ => true,
    };
    if !allowed {
        return Err(format!("{value} is not {}", schema["type"]));
    }
    if let Some(words) = schema["enum"]
        .as_array()
        .filter(|words| !words.contains(value))
    {
        return Err(format!("{value} is none of {words:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], item)?;
    }
    let Some(fields) = value.as_object() else {
        return Ok(());
    };
    for required in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(required.as_str().unwrap()) {
            return Err(format!("{required} is missing"));
        }
    }
    for (name, value) in fields {
        match schema["properties"].get(name) {
            Some(schema) => {
                fits(document, schema, value).map_err(|what| format!("{name}: {what}"))?
            }
            None => return Err(format!("{name} is not described")),
        }
    }
    Ok(())
}
