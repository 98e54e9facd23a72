//! Every package of Cargo.lock comes from the registry, under a licence that deny.toml allows.

use std::{fs, path::Path, process::Command};

use leasehold_torture::tree::root;
use serde_json::Value;

#[test]
fn every_dependency_has_an_allowed_licence() {
    let allowed = allowed_licences();
    let faults: Vec<String> = packages()
        .iter()
        .filter_map(|package| {
            let text = package["license"].as_str().unwrap_or("none");
            let fine =
                spdx::Expression::parse_mode(text, spdx::ParseMode::LAX).is_ok_and(|license| {
                    license.evaluate(|one| {
                        one.license
                            .id()
                            .is_some_and(|id| allowed.iter().any(|name| name == id.name))
                    })
                });
            (!fine).then(|| format!("{} {}: {text}", package["name"], package["version"]))
        })
        .collect();
    assert!(
        faults.is_empty(),
        "not allowed by deny.toml:\n{}",
        faults.join("\n")
    );
}

#[test]
fn every_dependency_comes_from_the_registry() {
    let faults: Vec<String> = packages()
        .iter()
        .filter(|package| match package["source"].as_str() {
            Some(source) => !source.starts_with("registry+"),
            None => !Path::new(package["manifest_path"].as_str().unwrap_or("")).starts_with(root()),
        })
        .map(|package| package["id"].to_string())
        .collect();
    assert!(faults.is_empty(), "from elsewhere:\n{}", faults.join("\n"));
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    assert!(packages.len() > 20, "only {} packages", packages.len());
    packages
}

/// The quoted lines of `allow = [...]`.
fn allowed_licences() -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let (_, rest) = text
        .split_once("allow = [")
        .expect("deny.toml allows something");
    let (list, _) = rest.split_once(']').expect("the list ends");
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}
