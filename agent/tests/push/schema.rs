//! `sealane-agent config schema`.

use std::process::Command;

use super::site::BINARY;

#[test]
fn config_schema_has_the_keys() {
    let output = Command::new(BINARY).args(["config", "schema"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["required"][0], "store");
    let authority = &schema["properties"]["authority"]["items"]["properties"];
    assert_eq!(authority["key"]["default"], "p256");
    let role = &schema["properties"]["push"]["properties"]["role"]["items"]["properties"];
    assert_eq!(role["certificates_max"]["default"], 100_000);
}
