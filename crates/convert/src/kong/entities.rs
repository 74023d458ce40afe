//! Services and routes of a file.

use crate::document::DocNode;

/// All routes of a file, with their services.
pub(super) fn all_routes(root: &DocNode) -> Vec<(&DocNode, Option<&DocNode>)> {
    let all = root.get("services").items();
    let mut found: Vec<(&DocNode, Option<&DocNode>)> = Vec::new();
    for service in all {
        found.extend(service.get("routes").items().iter().map(|route| (route, Some(service))));
    }
    for route in root.get("routes").items() {
        found.push((route, named(all.iter(), route.get("service"))));
    }
    found
}

/// The one of these nodes that another node names, by its name or its ID.
pub(super) fn named<'d>(mut all: impl Iterator<Item = &'d DocNode>, by: &DocNode) -> Option<&'d DocNode> {
    let wanted = [by, by.get("name"), by.get("id")].into_iter().find_map(DocNode::text)?;
    all.find(|node| ["name", "id"].iter().any(|key| node.get(key).text() == Some(wanted)))
}
