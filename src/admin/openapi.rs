//! The description of the interface for other programs, in the format of `OpenAPI` 3.1.

/// The document, which is also docs/openapi.json.
pub(super) const DOCUMENT: &str = include_str!("../../docs/openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::DOCUMENT;
    use crate::admin::operations::{OPERATIONS, Operation};

    #[test]
    fn the_document_has_every_operation_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let methods = |(path, item): (&String, &Value)| -> Vec<String> {
            item.as_object().unwrap().keys().map(|method| format!("{method} {path}")).collect()
        };
        let described: BTreeSet<String> =
            document["paths"].as_object().unwrap().iter().flat_map(methods).collect();
        let served = OPERATIONS.iter().map(|(path, operation)| match operation {
            Operation::Page | Operation::Probe(_) | Operation::Read(_) => format!("get {path}"),
            Operation::Change(_) | Operation::Reload => format!("post {path}"),
        });
        assert_eq!(described, served.collect());
        for (path, operation) in OPERATIONS {
            let security = document["paths"][path]["get"]["security"].as_array();
            let needs_no_token = matches!(operation, Operation::Page | Operation::Probe(_));
            assert_eq!(security.is_some_and(Vec::is_empty), needs_no_token, "{path}");
        }
    }
}
